//! Thread hand-offs: hand-offs that the engine leaves to the JavaScript thread.
//!
//! A hand-off within a cohort needs no store, but it would need two threads: the JavaScript thread
//! tells the engine that it releases, and the engine wakes it again to tell it which waiter is
//! next. Many contenders that hold the lock briefly would spend most of their time on that. So
//! before the engine sleeps, it offers the JavaScript thread a short list of the next waiters. The
//! thread hands the lease to them in this order, and records each hand-off.
//!
//! There is no race between the two. Before the engine does anything else, it takes all lists back,
//! and reads the recorded hand-offs. The thread has no lists from then until the engine offers new
//! ones. The lists are short: their waiters are not served while the thread does something else,
//! and waiters of other processes wait until the lists end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::ids::{CohortId, OpId};
use super::known_lease::KnownLease;
use super::stats::Stats;
use crate::lease::{Fence, Instant, LeaseState, Token};

/// The most hand-offs that the engine leaves to the JavaScript thread at a time.
pub const MOST_SUCCESSORS: usize = 16;

/// A waiter that gets the lease next.
#[derive(Debug)]
pub struct Successor {
    /// The waiter's acquire.
    pub op: OpId,
    /// The fence of its lease.
    pub fence: Fence,
    /// The state of its lease.
    pub state: Arc<KnownLease>,
    /// When the waiter began to wait.
    pub since: Instant,
}

/// The next waiters for a lease.
#[derive(Debug)]
pub struct Successors {
    /// The waiters, in the order in which they get the lease.
    pub next: VecDeque<Successor>,
    /// The token of their leases. At the store, they are all the same lease.
    pub token: Token,
    /// When the lease has to go back to the engine.
    pub until: Instant,
    /// The cohort of the waiters.
    pub cohort: CohortId,
    /// The counters of their client.
    pub stats: Arc<Stats>,
}

/// A hand-off that the JavaScript thread carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOn {
    /// The holder that released the lease.
    pub from: OpId,
    /// The waiter that holds it since then.
    pub to: OpId,
    /// The fence of the new holder.
    pub fence: Fence,
    /// The token of the lease.
    pub token: Token,
    /// The cohort of both.
    pub cohort: CohortId,
    /// When the hand-off happened.
    pub at: Instant,
}

/// Shares the thread hand-offs of one environment between the engine and the environment's thread.
#[derive(Debug, Default)]
pub struct ThreadHandOffs(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// The successors of each lease, by its holder.
    successors: FxHashMap<OpId, Successors>,
    /// The hand-offs that the engine has not read yet.
    done: Vec<HandedOn>,
}

impl ThreadHandOffs {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the JavaScript thread hand on the lease of `holder`. Only the engine calls this.
    pub fn offer(&self, holder: OpId, successors: Successors) {
        self.lists().successors.insert(holder, successors);
    }

    /// Takes all offers back, and moves the recorded hand-offs to `done`. Only the engine calls
    /// this.
    pub fn recall(&self, done: &mut Vec<HandedOn>) {
        let mut lists = self.lists();
        lists.successors.clear();
        done.append(&mut lists.done);
    }

    /// Takes all offers back. The JavaScript thread calls this after it has sent the engine more
    /// than acquires and releases: no hand-off may overtake such commands.
    pub fn stop(&self) {
        self.lists().successors.clear();
    }

    /// Releases the lease of `from`, whose state is `state`, and hands it to the next waiter. The
    /// deadline of the lease stays. Returns `None` if the engine has not left this to the
    /// JavaScript thread, or if the lease is lost.
    pub fn hand_on(&self, from: OpId, state: &LeaseState, now: Instant) -> Option<HandedOn> {
        let mut lists = self.lists();
        let mut successors = lists.successors.remove(&from).filter(|successors| now < successors.until)?;
        if !state.release(now) {
            return None;
        }
        let Successor { op: to, fence, state: next, since } = successors.next.pop_front()?;
        next.grant(state.deadline());
        // Count now: the numbers must be right before the engine reads the hand-off.
        successors.stats.released.up();
        successors.stats.waiting.down();
        successors.stats.acquired.up();
        successors.stats.handed_on(now.since(since));
        let handed =
            HandedOn { from, to, fence, token: successors.token, cohort: successors.cohort.clone(), at: now };
        lists.done.push(handed.clone());
        if !successors.next.is_empty() {
            lists.successors.insert(to, successors);
        }
        Some(handed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LossReason, Phase};

    fn op(slot: u32) -> OpId {
        OpId { env: 1, slot }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    /// Offers hand-offs until 10 ms: from slot 0, which holds the lease until 100 ms, to slots 1,
    /// 2, … Returns the states of all.
    fn successors(thread_hand_offs: &ThreadHandOffs, next: u32) -> Vec<Arc<KnownLease>> {
        let states: Vec<_> = (0..=next).map(|_| Arc::new(KnownLease::default())).collect();
        states[0].grant(at(100));
        let successor = |slot: u32| Successor {
            op: op(slot),
            fence: Fence(u64::from(slot)),
            state: states[slot as usize].clone(),
            since: at(0),
        };
        let next = (1..=next).map(successor).collect();
        let (cohort, stats) = ((1, "k".into()), Arc::default());
        thread_hand_offs
            .offer(op(0), Successors { next, token: Token::random(), until: at(10), cohort, stats });
        states
    }

    fn recalled(thread_hand_offs: &ThreadHandOffs) -> Vec<HandedOn> {
        let mut done = Vec::new();
        thread_hand_offs.recall(&mut done);
        done
    }

    #[test]
    fn a_lease_goes_from_hand_to_hand_with_its_deadline_and_all_of_it_is_told() {
        let thread_hand_offs = ThreadHandOffs::default();
        let states = successors(&thread_hand_offs, 2);
        for slot in 0..2 {
            let state = &states[slot as usize];
            let handed = thread_hand_offs.hand_on(op(slot), state, at(1)).expect("there is another");
            assert_eq!(state.phase(at(1)), Phase::Released);
            assert_eq!((handed.to, handed.fence), (op(slot + 1), Fence(u64::from(slot) + 1)));
            assert!(states[slot as usize + 1].is_held(at(99)));
        }
        assert_eq!(thread_hand_offs.hand_on(op(2), &states[2], at(1)), None, "that was the last");
        let done = recalled(&thread_hand_offs);
        assert_eq!(done.iter().map(|handed| handed.to).collect::<Vec<_>>(), [op(1), op(2)]);
        assert_eq!(recalled(&thread_hand_offs), [], "it is told once");
        assert!(!states[2].is_held(at(100)), "none lives longer than the first would have");
    }

    #[test]
    fn nothing_is_handed_on_that_was_taken_back() {
        let thread_hand_offs = ThreadHandOffs::default();
        let states = successors(&thread_hand_offs, 2);
        assert_eq!(recalled(&thread_hand_offs), []);
        assert_eq!(thread_hand_offs.hand_on(op(0), &states[0], at(1)), None);
        assert!(!states[1].is_held(at(1)));
    }

    #[test]
    fn nothing_is_handed_on_after_its_time_or_by_somebody_else() {
        let thread_hand_offs = ThreadHandOffs::default();
        let states = successors(&thread_hand_offs, 2);
        assert_eq!(thread_hand_offs.hand_on(op(7), &states[0], at(1)), None);
        assert_eq!(thread_hand_offs.hand_on(op(0), &states[0], at(10)), None);
        assert!(states[0].is_held(at(10)), "it has yet to be given back");
    }

    #[test]
    fn a_lost_lease_is_not_handed_on() {
        let thread_hand_offs = ThreadHandOffs::default();
        let states = successors(&thread_hand_offs, 2);
        states[0].lose(at(1), LossReason::Taken);
        assert_eq!(thread_hand_offs.hand_on(op(0), &states[0], at(1)), None);
        assert_eq!((states[1].phase(at(1)), recalled(&thread_hand_offs)), (Phase::Pending, vec![]));
    }

    #[test]
    fn hand_offs_before_a_stop_are_reported() {
        let thread_hand_offs = ThreadHandOffs::default();
        let states = successors(&thread_hand_offs, 2);
        thread_hand_offs.hand_on(op(0), &states[0], at(1)).expect("there is another");
        thread_hand_offs.stop();
        assert_eq!(thread_hand_offs.hand_on(op(1), &states[1], at(1)), None);
        assert_eq!(recalled(&thread_hand_offs).len(), 1);
    }
}
