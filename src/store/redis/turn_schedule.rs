//! Shares the engine's thread between the stores that have used up their turns to read. Pure.
//!
//! If each of them only paused for as long as it had read, one could read while another one pauses,
//! and two of them would keep the thread busy. So they also take turns with each other. A store
//! that reads for less than half of the time never uses up its turn, and waits for no other store.

use std::time::Duration;

use tokio::time::Instant;

/// Decides when the stores of a thread read again.
#[derive(Debug, Default)]
pub struct TurnSchedule {
    /// The end of the last turn that was given, and of its pause.
    free_at: Option<Instant>,
}

impl TurnSchedule {
    /// Returns when a store that has read for `spent` until `now` may read again. Assumes that its
    /// next turn takes as long, and leaves a pause of the same length after it.
    pub fn next_turn(&mut self, now: Instant, spent: Duration) -> Instant {
        let own = now + spent;
        let start = self.free_at.map_or(own, |free| free.max(own));
        self.free_at = Some(start + 2 * spent);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_stores_do_not_overlap() {
        let (mut schedule, now) = (TurnSchedule::default(), Instant::now());
        let ms = Duration::from_millis;
        let mut next = |at, spent| schedule.next_turn(now + ms(at), ms(spent)) - now;
        assert_eq!(next(2, 2), ms(4), "alone, a store pauses for as long as it has read");
        assert_eq!(next(4, 3), ms(8), "after the turn of the first store and its pause");
        assert_eq!(next(6, 2), ms(14));
        assert_eq!(next(90, 2), ms(92), "the other turns are over");
    }
}
