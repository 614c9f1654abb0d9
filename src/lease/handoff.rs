//! Whether a lease may be handed on within its process, without asking the store (lock cohorting: Dice, Marathe and
//! Shavit, "Lock Cohorting", 2012).

use std::time::Duration;

use super::{Fence, Instant};

/// How many fences are reserved at a time.
pub const BLOCK: u32 = 64;

/// How long a process may hand a lease on among its own waiters while others wait elsewhere; and how old the store's word
/// that nobody does may be.
pub const LONGEST: Duration = Duration::from_millis(10);

/// What is left of a process's turn at a lock: the fences that the store reserved for it, and how long and how often it may
/// still hand the lease on.
#[derive(Clone, Debug)]
pub struct HandOff {
    /// How often in a row while others wait.
    most: u32,
    /// The next fence, and how many there are.
    next: Fence,
    left: u32,
    /// How often it was handed on since the store last said that nobody else waits, or since others are known to, and
    /// since when that is.
    handed: u32,
    since: Instant,
    /// When the store last told whether others wait, and what.
    checked: Instant,
    others: bool,
}

impl HandOff {
    /// A turn that begins at `now`, with `left` fences from `next` on; `others` if others wait elsewhere. At most `most`
    /// times in a row is the lease handed on while they do; 0 is never.
    pub fn new(most: u32, next: Fence, left: u32, others: bool, now: Instant) -> Self {
        Self { most, next, left, handed: 0, since: now, checked: now, others }
    }

    /// The fence for handing the lease on at `now`; `None` if it has to go back to the store.
    pub fn take(&mut self, now: Instant) -> Option<Fence> {
        if self.left == 0 || self.handed >= self.most || now >= self.ends() {
            return None;
        }
        let fence = self.next;
        self.next = Fence(fence.0 + 1);
        self.left -= 1;
        self.handed += 1;
        Some(fence)
    }

    /// From when on it has to go back to the store, however many fences are left.
    pub fn ends(&self) -> Instant {
        (if self.others { self.since } else { self.checked }) + LONGEST
    }

    /// Whether others wait elsewhere, for all that is known.
    pub fn others_wait(&self) -> bool {
        self.others
    }

    /// Whether it is time to ask the store for more fences, and whether others wait.
    pub fn wants_more(&self) -> bool {
        if self.others {
            self.left <= BLOCK / 2 && self.handed < self.most
        } else {
            // Early enough that the answer is there before the bound is.
            self.left <= BLOCK / 2 || self.handed >= self.most / 2
        }
    }

    /// The store reserved [`BLOCK`] fences from `next` on, and told at `now` whether others wait. What was left of the block
    /// before is forfeit.
    pub fn refill(&mut self, next: Fence, others: bool, now: Instant) {
        if !(others && self.others) {
            // Nobody was kept waiting so far.
            (self.handed, self.since) = (0, now);
        }
        (self.next, self.left) = (next, BLOCK);
        (self.others, self.checked) = (others, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    fn how_often(turn: &mut HandOff, now: Instant) -> usize {
        std::iter::from_fn(|| turn.take(now)).take(1_000_000).count()
    }

    #[test]
    fn while_others_wait_it_is_handed_on_a_bounded_number_of_times_whatever_is_refilled() {
        let mut turn = HandOff::new(5, Fence(1), BLOCK, true, at(0));
        assert_eq!(how_often(&mut turn, at(1)), 5);
        turn.refill(Fence(1000), true, at(1));
        assert_eq!(how_often(&mut turn, at(1)), 0);
        assert!(!turn.wants_more());
    }

    #[test]
    fn while_others_wait_it_is_handed_on_for_a_bounded_time() {
        let mut turn = HandOff::new(1000, Fence(1), BLOCK, true, at(0));
        assert!(turn.take(at(9)).is_some());
        turn.refill(Fence(1000), true, at(9));
        assert!(turn.take(at(10)).is_none());
    }

    #[test]
    fn while_nobody_else_waits_it_goes_on_but_not_on_an_old_word() {
        let mut turn = HandOff::new(1000, Fence(1), BLOCK, false, at(0));
        assert_eq!(how_often(&mut turn, at(9)), BLOCK as usize);
        turn.refill(Fence(1000), false, at(9));
        assert_eq!(turn.take(at(18)), Some(Fence(1000)));
        assert!(turn.take(at(19)).is_none());
    }

    #[test]
    fn nobody_is_kept_waiting_unawares_for_more_than_the_bound() {
        let mut turn = HandOff::new(4, Fence(1), BLOCK, false, at(0));
        assert!(!turn.wants_more());
        assert!(turn.take(at(0)).is_some() && turn.take(at(0)).is_some());
        assert!(turn.wants_more(), "half of it is left for the question");
        assert_eq!(how_often(&mut turn, at(0)), 2);
        turn.refill(Fence(100), false, at(0));
        assert_eq!(how_often(&mut turn, at(0)), 4);
    }

    #[test]
    fn those_who_come_later_wait_from_when_they_are_known() {
        let mut turn = HandOff::new(3, Fence(1), BLOCK, false, at(0));
        assert!(turn.take(at(8)).is_some());
        turn.refill(Fence(100), true, at(9));
        assert_eq!(how_often(&mut turn, at(18)), 3);
    }

    #[test]
    fn fences_are_used_once_and_in_order() {
        let mut turn = HandOff::new(10, Fence(7), 2, false, at(0));
        assert_eq!(turn.take(at(0)), Some(Fence(7)));
        assert!(turn.wants_more());
        assert_eq!(turn.take(at(0)), Some(Fence(8)));
        assert_eq!(turn.take(at(0)), None);
    }

    #[test]
    fn no_hand_off_at_all_if_there_are_to_be_none() {
        let mut turn = HandOff::new(0, Fence(7), BLOCK, false, at(0));
        assert_eq!(turn.take(at(0)), None);
    }
}
