//! Tracks the waiters of a quorum, and which nodes have handed each waiter the lock. Pure.
//!
//! After a release, each node hands the lock to the next waiter by itself. The first notice arrives
//! before the last node has received the release. So the tracker *calls* a waiter (lets it poll)
//! when most nodes have handed it the lock, or a little after the first notice.
//!
//! A node that was away may hand the lock to a waiter although another client holds an exclusive
//! lease at most nodes. A poll that asked this node would prolong the waiter's lease there, and the
//! holder would never get the node back. So the polls *skip* the node, in these steps:
//!
//! 1. The polls do not ask the node until the waiter's lease there has ended.
//! 2. Then each poll inspects the node, to see whether the holder has it again.
//! 3. When the holder has it, the polls ask the node again.
//!
//! The waiter asks all nodes sooner if another node hands it the lock, or if that holder no longer
//! holds most nodes.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::lease::{Instant, Token};
use crate::store::WAITER_LIFE;

/// How many numbers of its last polls a place remembers. A node that has missed the last polls
/// sends a notice with an older number. If this is smaller, such a notice is not recognized. If it
/// is larger, waiters take more memory.
const NUMBERS: usize = 4;
/// How long a silent waiter is remembered after its last poll. If this is smaller, a notice for a
/// slow waiter is not recognized. If it is larger, dead waiters take memory for longer.
const LIFE: Duration = WAITER_LIFE.saturating_mul(4);

/// A waiter.
struct TrackedWaiter {
    numbers: VecDeque<u64>,
    /// The poll that is under way.
    vote_round: Option<u64>,
    /// The poll that began last.
    last: u64,
    /// The nodes that have handed the waiter the lock since its last poll, as bits.
    handed: u64,
    /// The nodes among these that the polls do not ask, as bits.
    skipped: u64,
    /// The mark of the holder that should get the skipped nodes back.
    spared_for: u32,
    /// The time at which the waiter's own leases at the skipped nodes have ended.
    skipped_until: Instant,
    /// When the waiter is called although too few nodes have handed it the lock.
    call_at: Option<Instant>,
    /// True if the waiter was called since its last poll. Nodes that hand it the lock after that do
    /// not call it again.
    called: bool,
    /// The nodes that may have a lease or a place of the waiter, as bits.
    touched: u64,
    /// For how long a lease lives that these nodes grant it.
    life: Duration,
    /// When its last poll began.
    polled: Instant,
}

/// The times at which waiters are called, in order. A server can send a notice every few µs, and
/// after each notice, the quorum may look up the next call.
#[derive(Default)]
struct Calls(BTreeSet<(Instant, Token)>);

impl Calls {
    fn set(&mut self, token: Token, waiter: &mut TrackedWaiter, call_at: Option<Instant>) {
        if let Some(before) = std::mem::replace(&mut waiter.call_at, call_at) {
            self.0.remove(&(before, token));
        }
        self.0.extend(call_at.map(|at| (at, token)));
    }

    /// Calls the waiter. Returns the number of its last poll.
    fn call(&mut self, token: Token, waiter: &mut TrackedWaiter) -> Option<u64> {
        self.set(token, waiter, None);
        waiter.called = true;
        waiter.numbers.back().copied()
    }
}

/// Says what follows from a notice.
#[derive(Debug, PartialEq)]
pub enum NoticeEffect {
    /// Nothing, or nothing yet.
    Nothing,
    /// That poll is under way and may ask the node again.
    Poll(u64),
    /// The waiter with this number has to poll now.
    Call(u64),
}

/// Keeps all waiters. See the module.
#[derive(Default)]
pub struct WaiterTracker {
    waiters: HashMap<Token, TrackedWaiter>,
    numbers: FxHashMap<u64, Token>,
    calls: Calls,
    /// When silent waiters are forgotten next.
    sweep_at: Instant,
}

impl WaiterTracker {
    /// Begins a poll by `token`, whose place has this `number`. Returns the nodes that the poll
    /// skips, as bits, and true if it inspects them instead.
    pub fn poll(&mut self, now: Instant, token: Token, number: u64, vote_round: u64) -> (u64, bool) {
        self.sweep(now);
        let waiter = self.waiters.entry(token).or_insert_with(|| TrackedWaiter {
            numbers: VecDeque::with_capacity(NUMBERS),
            vote_round: None,
            last: vote_round,
            handed: 0,
            skipped: 0,
            spared_for: 0,
            skipped_until: now,
            call_at: None,
            called: false,
            touched: 0,
            life: Duration::ZERO,
            polled: now,
        });
        if waiter.numbers.back() != Some(&number) {
            waiter.numbers.push_back(number);
            self.numbers.insert(number, token);
            if waiter.numbers.len() > NUMBERS
                && let Some(old) = waiter.numbers.pop_front()
            {
                self.numbers.remove(&old);
            }
        }
        (waiter.vote_round, waiter.polled) = (Some(vote_round), now);
        if waiter.handed & !waiter.skipped != 0 {
            waiter.skipped = 0;
        }
        (waiter.handed, waiter.called) = (waiter.skipped, false);
        self.calls.set(token, waiter, None);
        waiter.last = vote_round;
        (waiter.skipped, now >= waiter.skipped_until)
    }

    /// Notes that the poll `vote_round` has ended: the token is in the queue, and too few nodes,
    /// `granted`, have granted it the lock.
    pub fn queued(&mut self, now: Instant, token: Token, vote_round: u64, granted: u64, patience: Duration) {
        let Some(waiter) =
            self.waiters.get_mut(&token).filter(|waiter| waiter.vote_round == Some(vote_round))
        else {
            return;
        };
        waiter.vote_round = None;
        if waiter.handed & !(granted | waiter.skipped) != 0 {
            self.calls.set(token, waiter, Some(now + patience));
        }
        waiter.handed |= granted;
    }

    /// Lets the next polls of `token` skip the nodes `granted`, because the client with the mark
    /// `holder` holds most nodes. The waiter's leases at these nodes end at `until` at the latest.
    /// Does nothing if the poll `vote_round` is not the last one of `token`.
    pub fn skip(&mut self, token: Token, vote_round: u64, granted: u64, holder: u32, until: Instant) {
        let Some(waiter) = self.waiters.get_mut(&token).filter(|waiter| waiter.last == vote_round) else {
            return;
        };
        if waiter.spared_for != holder {
            waiter.skipped = 0;
        }
        if granted & !waiter.skipped != 0 {
            waiter.skipped_until = until;
        }
        waiter.handed |= granted;
        (waiter.skipped, waiter.spared_for) = (waiter.skipped | granted, holder);
        if waiter.handed & !waiter.skipped == 0 {
            self.calls.set(token, waiter, None);
        }
    }

    /// Lets the next poll of `token` ask all nodes, because no client holds most of them. Does
    /// nothing if the poll `vote_round` is not the last one of `token`.
    pub fn skip_none(&mut self, token: Token, vote_round: u64) {
        if let Some(waiter) = self.waiters.get_mut(&token).filter(|waiter| waiter.last == vote_round) {
            waiter.skipped = 0;
        }
    }

    /// Takes the marks of the `holders` at a skipped node. If the expected holder is among them,
    /// the next poll of `token` asks the node again.
    pub fn seen(&mut self, token: Token, node: usize, mut holders: impl Iterator<Item = u32>) {
        if let Some(waiter) = self.waiters.get_mut(&token)
            && holders.any(|mark| mark == waiter.spared_for)
        {
            waiter.skipped &= !(1 << node);
            waiter.handed &= !(1 << node);
        }
    }

    /// Notes that a node has handed the lock to `token` after its poll had ended.
    pub fn handed(
        &mut self,
        now: Instant,
        token: Token,
        node: usize,
        enough: usize,
        patience: Duration,
    ) -> NoticeEffect {
        let Some(waiter) = self.waiters.get_mut(&token) else { return NoticeEffect::Nothing };
        waiter.handed |= 1 << node;
        if let Some(vote_round) = waiter.vote_round {
            return NoticeEffect::Poll(vote_round);
        }
        if waiter.called {
            return NoticeEffect::Nothing;
        }
        if waiter.handed.count_ones() as usize >= enough {
            return self.calls.call(token, waiter).map_or(NoticeEffect::Nothing, NoticeEffect::Call);
        }
        if waiter.call_at.is_none() {
            self.calls.set(token, waiter, Some(now + patience));
        }
        NoticeEffect::Nothing
    }

    /// Handles a notice of `node`: the node has handed the lock to the waiter with this number.
    pub fn noticed(
        &mut self,
        now: Instant,
        number: u64,
        node: usize,
        enough: usize,
        patience: Duration,
    ) -> NoticeEffect {
        match self.numbers.get(&number) {
            Some(token) => self.handed(now, *token, node, enough, patience),
            None => NoticeEffect::Nothing,
        }
    }

    /// Returns the nodes that have handed `token` the lock since its last poll began, as bits.
    pub fn handed_to(&self, token: Token) -> u64 {
        self.waiters.get(&token).map_or(0, |waiter| waiter.handed)
    }

    /// Notes that `node` may have granted `token` the lock or taken it into its queue. A lease that
    /// the node grants lives for `life`.
    pub fn touched(&mut self, token: Token, node: usize, life: Duration) {
        if let Some(waiter) = self.waiters.get_mut(&token) {
            (waiter.touched, waiter.life) = (waiter.touched | 1 << node, waiter.life.max(life));
        }
    }

    /// Returns the nodes that may have a lease or a place of `token`, as bits, and for how long
    /// such a lease lives. Returns `None` if the token does not wait.
    pub fn touched_by(&self, token: Token) -> Option<(u64, Duration)> {
        self.waiters.get(&token).map(|waiter| (waiter.touched, waiter.life))
    }

    /// Forgets `token`, which does not wait any more.
    pub fn forget(&mut self, token: Token) {
        if let Some(mut waiter) = self.waiters.remove(&token) {
            self.calls.set(token, &mut waiter, None);
            for number in &waiter.numbers {
                self.numbers.remove(number);
            }
        }
    }

    /// Returns the numbers of the waiters that have to poll now.
    pub fn due(&mut self, now: Instant) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some(&(at, token)) = self.calls.0.first()
            && at <= now
        {
            match self.waiters.get_mut(&token) {
                Some(waiter) => due.extend(self.calls.call(token, waiter)),
                None => {
                    self.calls.0.pop_first();
                }
            }
        }
        due.sort_unstable();
        due
    }

    /// Returns when the next waiter is due.
    pub fn next_wake(&self) -> Option<Instant> {
        self.calls.0.first().map(|(at, _)| *at)
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    fn sweep(&mut self, now: Instant) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + LIFE;
        let silent = |waiter: &TrackedWaiter| waiter.vote_round.is_none() && now >= waiter.polled + LIFE;
        let silent: Vec<Token> = self.waiters.iter().filter(|(_, p)| silent(p)).map(|(t, _)| *t).collect();
        silent.into_iter().for_each(|token| self.forget(token));
    }
}

#[cfg(test)]
#[path = "waiter_tracker_tests.rs"]
mod tests;
