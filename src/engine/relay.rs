//! Relays: hand-offs that the engine leaves to the JavaScript thread.
//!
//! To hand a lease on within a line takes no store, but it would take two threads: the one that releases tells the
//! engine, and the engine wakes it again to tell it who is next. Many contenders who hold the lock briefly would spend
//! most of their time on that. So the engine, before it sleeps, leaves the JavaScript thread a short list of who is next;
//! that one goes by it, and writes down what it did.
//!
//! There is no race between the two, because the engine takes all lists back before it does anything at all, and reads what
//! was done by them; what it does from then on until it leaves new ones is unknown to nobody. The lists are short, because
//! who is on them waits unserved as long as the thread does something else, and others wait elsewhere.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::command::{LineId, OpId};
use super::known::KnownLease;
use super::stats::Stats;
use crate::lease::{Fence, Instant, LeaseState, Token};

/// The most hand-offs that are left to the JavaScript thread at a time.
pub const LONGEST: usize = 16;

/// Who is to have the lease next.
#[derive(Debug)]
pub struct Leg {
    /// Its acquire.
    pub op: OpId,
    /// The fence of its lease.
    pub fence: Fence,
    /// What is known of its lease.
    pub state: Arc<KnownLease>,
    /// Since when it waits.
    pub since: Instant,
}

/// Who is to have a lease, one after the other.
#[derive(Debug)]
pub struct Chain {
    /// In order.
    pub legs: VecDeque<Leg>,
    /// The token of their leases, which are one at the store.
    pub token: Token,
    /// From when on the lease has to go back to the engine.
    pub until: Instant,
    /// Whose line it is, and for which lock.
    pub line: LineId,
    /// Where that is counted.
    pub stats: Arc<Stats>,
}

/// A hand-off that the JavaScript thread carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandedOn {
    /// Who gave the lease back.
    pub from: OpId,
    /// Who has it since then.
    pub to: OpId,
    /// With which fence.
    pub fence: Fence,
    /// With which token.
    pub token: Token,
    /// In which line.
    pub line: LineId,
    /// When.
    pub at: Instant,
}

/// What the engine and one environment's thread know together of hand-offs.
#[derive(Debug, Default)]
pub struct Relay(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// By who holds the lease.
    chains: FxHashMap<OpId, Chain>,
    done: Vec<HandedOn>,
}

impl Relay {
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves it to the JavaScript thread to hand on the lease that `holder` has. Engine only.
    pub fn leave(&self, holder: OpId, chain: Chain) {
        self.lists().chains.insert(holder, chain);
    }

    /// Takes back what was left, and what was done by it. Engine only.
    pub fn recall(&self, done: &mut Vec<HandedOn>) {
        let mut lists = self.lists();
        lists.chains.clear();
        done.append(&mut lists.done);
    }

    /// The JavaScript thread has more to say to the engine than that a lease is given back: no hand-off may overtake that.
    pub fn stop(&self) {
        self.lists().chains.clear();
    }

    /// Gives back the lease of `from`, whose state is `state`, and hands it on, if that was left to the JavaScript thread. The
    /// new holder's lease lives as long as that one would have.
    pub fn hand_on(&self, from: OpId, state: &LeaseState, now: Instant) -> Option<HandedOn> {
        let mut lists = self.lists();
        let mut chain = lists.chains.remove(&from).filter(|chain| now < chain.until)?;
        if !state.release(now) {
            return None;
        }
        let Leg { op: to, fence, state: next, since } = chain.legs.pop_front()?;
        next.grant(state.deadline());
        // Whoever asks for the numbers next shall find them right; the engine takes it in later.
        chain.stats.released.up();
        chain.stats.waiting.down();
        chain.stats.acquired.up();
        chain.stats.handed_on(now.since(since));
        let handed = HandedOn { from, to, fence, token: chain.token, line: chain.line.clone(), at: now };
        lists.done.push(handed.clone());
        if !chain.legs.is_empty() {
            lists.chains.insert(to, chain);
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

    /// A lease held by 0 until 100 ms, which 1, 2, … are to have until 10 ms. Their states.
    fn chain(relay: &Relay, legs: u32) -> Vec<Arc<KnownLease>> {
        let states: Vec<_> = (0..=legs).map(|_| Arc::new(KnownLease::default())).collect();
        states[0].grant(at(100));
        let leg = |slot: u32| Leg {
            op: op(slot),
            fence: Fence(u64::from(slot)),
            state: states[slot as usize].clone(),
            since: at(0),
        };
        let legs = (1..=legs).map(leg).collect();
        let (line, stats) = ((1, "k".into()), Arc::default());
        relay.leave(op(0), Chain { legs, token: Token::random(), until: at(10), line, stats });
        states
    }

    fn recalled(relay: &Relay) -> Vec<HandedOn> {
        let mut done = Vec::new();
        relay.recall(&mut done);
        done
    }

    #[test]
    fn a_lease_goes_from_hand_to_hand_with_its_deadline_and_all_of_it_is_told() {
        let relay = Relay::default();
        let states = chain(&relay, 2);
        for slot in 0..2 {
            let state = &states[slot as usize];
            let handed = relay.hand_on(op(slot), state, at(1)).expect("there is another");
            assert_eq!(state.phase(at(1)), Phase::Released);
            assert_eq!((handed.to, handed.fence), (op(slot + 1), Fence(u64::from(slot) + 1)));
            assert!(states[slot as usize + 1].is_held(at(99)));
        }
        assert_eq!(relay.hand_on(op(2), &states[2], at(1)), None, "that was the last");
        let done = recalled(&relay);
        assert_eq!(done.iter().map(|handed| handed.to).collect::<Vec<_>>(), [op(1), op(2)]);
        assert_eq!(recalled(&relay), [], "it is told once");
        assert!(!states[2].is_held(at(100)), "none lives longer than the first would have");
    }

    #[test]
    fn nothing_is_handed_on_that_was_taken_back() {
        let relay = Relay::default();
        let states = chain(&relay, 2);
        assert_eq!(recalled(&relay), []);
        assert_eq!(relay.hand_on(op(0), &states[0], at(1)), None);
        assert!(!states[1].is_held(at(1)));
    }

    #[test]
    fn nothing_is_handed_on_after_its_time_or_by_somebody_else() {
        let relay = Relay::default();
        let states = chain(&relay, 2);
        assert_eq!(relay.hand_on(op(7), &states[0], at(1)), None);
        assert_eq!(relay.hand_on(op(0), &states[0], at(10)), None);
        assert!(states[0].is_held(at(10)), "it has yet to be given back");
    }

    #[test]
    fn what_is_lost_is_not_handed_on() {
        let relay = Relay::default();
        let states = chain(&relay, 2);
        states[0].lose(at(1), LossReason::Taken);
        assert_eq!(relay.hand_on(op(0), &states[0], at(1)), None);
        assert_eq!((states[1].phase(at(1)), recalled(&relay)), (Phase::Pending, vec![]));
    }

    #[test]
    fn what_was_done_before_a_stop_is_told() {
        let relay = Relay::default();
        let states = chain(&relay, 2);
        relay.hand_on(op(0), &states[0], at(1)).expect("there is another");
        relay.stop();
        assert_eq!(relay.hand_on(op(1), &states[1], at(1)), None);
        assert_eq!(recalled(&relay).len(), 1);
    }
}
