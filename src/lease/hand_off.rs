//! Decides whether a process may hand a lease on to its own waiters without asking the store (lock
//! cohorting: Dice, Marathe and Shavit, "Lock Cohorting", 2012).

use std::time::Duration;

use super::{Fence, Instant};

/// The number of fences that the engine reserves at a time. If this is larger, more fences are left
/// unused; if it is smaller, the engine asks the store more often.
pub const BLOCK: u32 = 64;

/// How long a process may hand a lease on among its own waiters while others wait elsewhere. If the
/// store has said that nobody else waits, the process relies on that for this time, too. If this is
/// larger, other processes wait longer; if it is smaller, a lease goes back to the store more
/// often.
pub const LONGEST: Duration = Duration::from_millis(10);

/// What a process has left for its hand-offs of a lease: the fences that the store reserved, the
/// time, and the number of hand-offs.
#[derive(Clone, Debug)]
pub struct HandOffBudget {
    /// The most hand-offs in a row while others wait.
    most: u32,
    /// The next fence, and the number of fences left.
    next: Fence,
    left: u32,
    /// The number of hand-offs in a row, and when they began. A new row begins when the store says
    /// that nobody else waits, and at its first reply after that which says that others wait.
    handed: u32,
    since: Instant,
    /// When the store last said whether others wait, and what it said.
    checked: Instant,
    others: bool,
}

impl HandOffBudget {
    /// Returns a budget that begins at `now`, with `left` fences from `next` on. `others` is true
    /// if others wait elsewhere. `most` limits the hand-offs in a row while they do; 0 allows none.
    pub fn new(most: u32, next: Fence, left: u32, others: bool, now: Instant) -> Self {
        Self { most, next, left, handed: 0, since: now, checked: now, others }
    }

    /// Takes the fence for a hand-off at `now`. Returns `None` if the lease has to go back to the
    /// store.
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

    /// Returns when the lease has to go back to the store, even if fences are left.
    pub fn ends(&self) -> Instant {
        (if self.others { self.since } else { self.checked }) + LONGEST
    }

    /// Returns true if others wait elsewhere, as far as the store has said.
    pub fn others_wait(&self) -> bool {
        self.others
    }

    /// Returns true if it is time to ask the store for more fences, and whether others wait.
    pub fn wants_more(&self) -> bool {
        if self.others {
            self.left <= BLOCK / 2 && self.handed < self.most
        } else {
            // Ask early, so that the answer arrives before the limit is reached.
            self.left <= BLOCK / 2 || self.handed >= self.most / 2
        }
    }

    /// Notes that the store reserved [`BLOCK`] fences from `next` on, and said at `now` whether
    /// others wait. The rest of the previous block is lost.
    pub fn refill(&mut self, next: Fence, others: bool, now: Instant) {
        if !(others && self.others) {
            // No other waiter has been kept waiting so far.
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

    fn count_hand_offs(budget: &mut HandOffBudget, now: Instant) -> usize {
        std::iter::from_fn(|| budget.take(now)).take(1_000_000).count()
    }

    #[test]
    fn while_others_wait_the_number_of_hand_offs_is_limited_despite_refills() {
        let mut budget = HandOffBudget::new(5, Fence(1), BLOCK, true, at(0));
        assert_eq!(count_hand_offs(&mut budget, at(1)), 5);
        budget.refill(Fence(1000), true, at(1));
        assert_eq!(count_hand_offs(&mut budget, at(1)), 0);
        assert!(!budget.wants_more());
    }

    #[test]
    fn while_others_wait_hand_offs_end_after_the_longest_time() {
        let mut budget = HandOffBudget::new(1000, Fence(1), BLOCK, true, at(0));
        assert!(budget.take(at(9)).is_some());
        budget.refill(Fence(1000), true, at(9));
        assert!(budget.take(at(10)).is_none());
    }

    #[test]
    fn while_nobody_else_waits_hand_offs_go_on_until_the_reply_is_too_old() {
        let mut budget = HandOffBudget::new(1000, Fence(1), BLOCK, false, at(0));
        assert_eq!(count_hand_offs(&mut budget, at(9)), BLOCK as usize);
        budget.refill(Fence(1000), false, at(9));
        assert_eq!(budget.take(at(18)), Some(Fence(1000)));
        assert!(budget.take(at(19)).is_none());
    }

    #[test]
    fn hand_offs_stop_at_the_limit_until_the_store_says_again_that_nobody_waits() {
        let mut budget = HandOffBudget::new(4, Fence(1), BLOCK, false, at(0));
        assert!(!budget.wants_more());
        assert!(budget.take(at(0)).is_some() && budget.take(at(0)).is_some());
        assert!(budget.wants_more(), "half of the hand-offs are left for the time that the request takes");
        assert_eq!(count_hand_offs(&mut budget, at(0)), 2);
        budget.refill(Fence(100), false, at(0));
        assert_eq!(count_hand_offs(&mut budget, at(0)), 4);
    }

    #[test]
    fn the_time_counts_from_when_the_store_says_that_others_wait() {
        let mut budget = HandOffBudget::new(3, Fence(1), BLOCK, false, at(0));
        assert!(budget.take(at(8)).is_some());
        budget.refill(Fence(100), true, at(9));
        assert_eq!(count_hand_offs(&mut budget, at(18)), 3);
    }

    #[test]
    fn fences_are_used_once_and_in_order() {
        let mut budget = HandOffBudget::new(10, Fence(7), 2, false, at(0));
        assert_eq!(budget.take(at(0)), Some(Fence(7)));
        assert!(budget.wants_more());
        assert_eq!(budget.take(at(0)), Some(Fence(8)));
        assert_eq!(budget.take(at(0)), None);
    }

    #[test]
    fn a_limit_of_zero_allows_no_hand_off() {
        let mut budget = HandOffBudget::new(0, Fence(7), BLOCK, false, at(0));
        assert_eq!(budget.take(at(0)), None);
    }
}
