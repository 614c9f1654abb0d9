//! Tracks who waits at the nodes of a quorum, and which nodes have handed each waiter the lock.
//! Pure.
//!
//! After a release, each node hands the lock to the next waiter by itself. The first notice arrives
//! before the last node has received the release. So a waiter is called when most nodes have handed
//! it the lock, or a little after the first notice.
//!
//! A node that was away may hand the lock to a waiter although another client holds an exclusive
//! lease at most nodes. If the waiter's looks went to that node, each look would prolong the
//! waiter's lease there, and the holder would never get the node back. So the looks *spare* the
//! node: they do not ask it. The waiter's lease there ends, and the holder gets the node back.
//! After the end of that lease, each look inspects the node instead. When the holder has the node
//! again, the waiter asks that node again. The waiter asks all nodes as soon as another node hands
//! it the lock, or when that holder does not hold most nodes any more.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::lease::{Instant, Token};
use crate::store::WAITER_LIFE;

/// How many numbers of its last looks a place remembers. A node that has missed the last looks
/// sends a notice with an older number. If this is smaller, such a notice is not recognized. If it
/// is larger, waiters take more memory.
const NUMBERS: usize = 4;
/// How long a silent waiter is remembered after its last look. If this is smaller, a notice for a
/// slow waiter is not recognized. If it is larger, dead waiters take memory for longer.
const LIFE: Duration = WAITER_LIFE.saturating_mul(4);

/// A waiter.
struct Place {
    numbers: VecDeque<u64>,
    /// The look that is under way.
    ballot: Option<u64>,
    /// The look that began last.
    last: u64,
    /// The nodes that have handed the waiter the lock since its last look, as bits.
    handed: u64,
    /// The nodes among these that the looks do not ask, as bits.
    spared: u64,
    /// The mark of the holder that should get the spared nodes back.
    spared_for: u32,
    /// The time at which the waiter's own leases at the spared nodes have ended.
    spared_until: Instant,
    /// When the waiter is called although too few nodes have handed it the lock.
    call_at: Option<Instant>,
    /// True if the waiter was called since its last look. Nodes that hand it the lock after that do
    /// not call it again.
    called: bool,
    /// The nodes that may have a lease or a place of the waiter, as bits.
    touched: u64,
    /// When its last look began.
    looked: Instant,
}

impl Place {
    /// Calls the waiter. Returns the number of its last look.
    fn call(&mut self) -> Option<u64> {
        (self.call_at, self.called) = (None, true);
        self.numbers.back().copied()
    }
}

/// Says what follows from a notice.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// Nothing, or nothing yet.
    Nothing,
    /// That look is under way and may ask the node again.
    Look(u64),
    /// The waiter with this number has to look now.
    Call(u64),
}

/// Keeps all waiters. See the module.
#[derive(Default)]
pub struct Places {
    places: FxHashMap<Token, Place>,
    numbers: FxHashMap<u64, Token>,
    /// When silent waiters are forgotten next.
    sweep_at: Instant,
}

impl Places {
    /// Begins a look by `token`, at a place called `number`. Returns the nodes that the look
    /// spares, as bits, and true if it inspects them instead.
    pub fn look(&mut self, now: Instant, token: Token, number: u64, ballot: u64) -> (u64, bool) {
        self.sweep(now);
        let place = self.places.entry(token).or_insert_with(|| Place {
            numbers: VecDeque::with_capacity(NUMBERS),
            ballot: None,
            last: ballot,
            handed: 0,
            spared: 0,
            spared_for: 0,
            spared_until: now,
            call_at: None,
            called: false,
            touched: 0,
            looked: now,
        });
        if place.numbers.back() != Some(&number) {
            place.numbers.push_back(number);
            self.numbers.insert(number, token);
            if place.numbers.len() > NUMBERS
                && let Some(old) = place.numbers.pop_front()
            {
                self.numbers.remove(&old);
            }
        }
        (place.ballot, place.looked) = (Some(ballot), now);
        if place.handed & !place.spared != 0 {
            place.spared = 0;
        }
        (place.handed, place.call_at, place.called) = (place.spared, None, false);
        place.last = ballot;
        (place.spared, now >= place.spared_until)
    }

    /// Notes that the look `ballot` has ended: the token is in the queue, and too few nodes,
    /// `granted`, have granted it the lock.
    pub fn queued(&mut self, now: Instant, token: Token, ballot: u64, granted: u64, patience: Duration) {
        let Some(place) = self.places.get_mut(&token).filter(|place| place.ballot == Some(ballot)) else {
            return;
        };
        place.ballot = None;
        if place.handed & !(granted | place.spared) != 0 {
            place.call_at = Some(now + patience);
        }
        place.handed |= granted;
    }

    /// Lets the next looks of `token` spare the nodes `granted`, because the client with the mark
    /// `holder` holds most nodes. The waiter's leases at these nodes end at `until` at the latest.
    /// Does nothing if the look `ballot` is not the last one of `token`.
    pub fn spare(&mut self, token: Token, ballot: u64, granted: u64, holder: u32, until: Instant) {
        let Some(place) = self.places.get_mut(&token).filter(|place| place.last == ballot) else { return };
        if place.spared_for != holder {
            place.spared = 0;
        }
        if granted & !place.spared != 0 {
            place.spared_until = until;
        }
        place.handed |= granted;
        (place.spared, place.spared_for) = (place.spared | granted, holder);
        if place.handed & !place.spared == 0 {
            place.call_at = None;
        }
    }

    /// Lets the next look of `token` ask all nodes, because no client holds most of them. Does
    /// nothing if the look `ballot` is not the last one of `token`.
    pub fn spare_none(&mut self, token: Token, ballot: u64) {
        if let Some(place) = self.places.get_mut(&token).filter(|place| place.last == ballot) {
            place.spared = 0;
        }
    }

    /// Takes the marks of the `holders` at a spared node. If the expected holder is among them, the
    /// next look of `token` asks the node again.
    pub fn seen(&mut self, token: Token, node: usize, mut holders: impl Iterator<Item = u32>) {
        if let Some(place) = self.places.get_mut(&token)
            && holders.any(|mark| mark == place.spared_for)
        {
            place.spared &= !(1 << node);
            place.handed &= !(1 << node);
        }
    }

    /// Notes that a node has handed the lock to `token` after its look had ended.
    pub fn handed(
        &mut self,
        now: Instant,
        token: Token,
        node: usize,
        enough: usize,
        patience: Duration,
    ) -> Heard {
        let Some(place) = self.places.get_mut(&token) else { return Heard::Nothing };
        place.handed |= 1 << node;
        if let Some(ballot) = place.ballot {
            return Heard::Look(ballot);
        }
        if place.called {
            return Heard::Nothing;
        }
        if place.handed.count_ones() as usize >= enough {
            return place.call().map_or(Heard::Nothing, Heard::Call);
        }
        place.call_at.get_or_insert(now + patience);
        Heard::Nothing
    }

    /// Handles a notice of `node`: the node has handed the lock to the waiter with this number.
    pub fn noticed(
        &mut self,
        now: Instant,
        number: u64,
        node: usize,
        enough: usize,
        patience: Duration,
    ) -> Heard {
        match self.numbers.get(&number) {
            Some(token) => self.handed(now, *token, node, enough, patience),
            None => Heard::Nothing,
        }
    }

    /// Returns the nodes that have handed `token` the lock since its last look began, as bits.
    pub fn handed_to(&self, token: Token) -> u64 {
        self.places.get(&token).map_or(0, |place| place.handed)
    }

    /// Notes that `node` may have granted `token` the lock or taken it into its queue.
    pub fn touched(&mut self, token: Token, node: usize) {
        if let Some(place) = self.places.get_mut(&token) {
            place.touched |= 1 << node;
        }
    }

    /// Returns the nodes that may have a lease or a place of `token`, as bits; none if it does not
    /// wait.
    pub fn touched_by(&self, token: Token) -> u64 {
        self.places.get(&token).map_or(0, |place| place.touched)
    }

    /// Forgets `token`, which does not wait any more.
    pub fn forget(&mut self, token: Token) {
        if let Some(place) = self.places.remove(&token) {
            for number in &place.numbers {
                self.numbers.remove(number);
            }
        }
    }

    /// Returns the numbers of the waiters that have to look now.
    pub fn due(&mut self, now: Instant) -> Vec<u64> {
        let mut due = Vec::new();
        for place in self.places.values_mut() {
            if place.call_at.is_some_and(|at| at <= now) {
                due.extend(place.call());
            }
        }
        due.sort_unstable();
        due
    }

    /// Returns when the next waiter is due.
    pub fn next_wake(&self) -> Option<Instant> {
        self.places.values().filter_map(|place| place.call_at).min()
    }

    /// Returns the number of waiters.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    fn sweep(&mut self, now: Instant) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + LIFE;
        let silent = |place: &Place| place.ballot.is_none() && now >= place.looked + LIFE;
        let silent: Vec<Token> = self.places.iter().filter(|(_, p)| silent(p)).map(|(t, _)| *t).collect();
        silent.into_iter().for_each(|token| self.forget(token));
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
