//! When the engine has to look at something again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::lease::Instant;

/// Instants with what is to be looked at then. An entry is never taken back: whoever is woken checks whether
/// there is still something to do, so a wake too many is harmless.
#[derive(Debug)]
pub struct Timers<Id: Ord> {
    heap: BinaryHeap<Reverse<(Instant, Id)>>,
}

impl<Id: Ord> Default for Timers<Id> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

/// Below this many entries stale ones are not worth looking for.
const CROWD: usize = 4096;

impl<Id: Ord + Copy> Timers<Id> {
    /// Wakes `id` at `at`.
    pub fn schedule(&mut self, at: Instant, id: Id) {
        self.heap.push(Reverse((at, id)));
    }

    /// When the next wake is due.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes out the earliest wake that is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<(Instant, Id)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Drops the entries that `is_live` denies, when they must be the majority because only `live` things
    /// can be scheduled. Leases that come and go within a third of their ttl leave one entry each behind,
    /// hundreds of thousands a second; this keeps their cost constant.
    pub fn compact(&mut self, live: usize, is_live: impl Fn(Instant, Id) -> bool) {
        if self.heap.len() > CROWD.max(live * 2) {
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
            assert!(timers.heap.len() <= CROWD + 1);
        }
        assert!(timers.pop_due(Instant::from_micros(2_000_000)).is_some());
    }
}
