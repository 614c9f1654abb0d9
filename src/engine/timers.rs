//! Keeps what the engine has to wake, and when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::lease::Instant;

/// Instants, and what to wake at each. Nothing cancels an entry, because an extra wake is harmless:
/// its receiver checks whether there is still something to do.
#[derive(Debug)]
pub struct Timers<Id: Ord> {
    heap: BinaryHeap<Reverse<(Instant, Id)>>,
}

impl<Id: Ord> Default for Timers<Id> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

/// The number of entries up to which stale ones are kept. If this is larger, they take more memory.
/// If it is smaller, the engine searches for them more often.
const KEPT: usize = 4096;

impl<Id: Ord + Copy> Timers<Id> {
    /// Wakes `id` at `at`.
    pub fn schedule(&mut self, at: Instant, id: Id) {
        self.heap.push(Reverse((at, id)));
    }

    /// Returns when the next wake is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Removes and returns the earliest wake that is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, Id)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Removes the entries for which `is_live` returns false, if they are the majority. `live` is
    /// the highest possible number of the other entries. Each lease that ends within a third of its
    /// ttl leaves a stale entry, and there may be hundreds of thousands of them in a second.
    /// Removing them together keeps the cost of each constant.
    pub fn compact(&mut self, live: usize, is_live: impl Fn(Instant, Id) -> bool) {
        if self.heap.len() > KEPT.max(live * 2) {
            self.heap.retain(|Reverse((at, id))| is_live(*at, *id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakes_come_in_the_order_of_time_and_never_early() {
        let mut timers = Timers::default();
        for ms in [30, 10, 20] {
            timers.schedule(Instant::from_micros(ms), ms);
        }
        assert_eq!(timers.pop_due(Instant::from_micros(9)), None);
        assert_eq!(timers.pop_due(Instant::from_micros(25)).map(|(_, id)| id), Some(10));
        assert_eq!(timers.pop_due(Instant::from_micros(25)).map(|(_, id)| id), Some(20));
        assert_eq!(timers.pop_due(Instant::from_micros(25)), None);
        assert_eq!(timers.next(), Some(Instant::from_micros(30)));
    }

    #[test]
    fn stale_entries_do_not_pile_up() {
        let mut timers = Timers::default();
        for id in 0..1_000_000u32 {
            timers.schedule(Instant::from_micros(id.into()), id);
            timers.compact(1, |_, live| live == id);
            assert!(timers.heap.len() <= KEPT + 1);
        }
        assert!(timers.pop_due(Instant::from_micros(2_000_000)).is_some());
    }
}
