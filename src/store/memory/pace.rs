//! Limits how fast locks are broken, so that fences stay at the wall clock.
//!
//! The process of a broken lease may still hand it on, with the fences that were reserved with it. So
//! no later lease may get these fences: they are lost. A lock that has waiters and is broken 20 000
//! times a second loses more than a million fences in that second, and the wall clock counts a million
//! microseconds. Fences that are ahead of the clock go back when the process restarts.
//!
//! The limit counts on the monotonic clock. If the wall clock is set back, all fences are ahead of it,
//! and locks can still be broken.

use std::time::Duration;

use crate::lease::Instant;

/// How far breaks may put fences ahead of the clock. If this is smaller, a few breaks in a row have to
/// wait. If it is larger, fences may go back by more when the process restarts.
const MOST_AHEAD: Duration = Duration::from_micros(500);

/// See the module.
#[derive(Debug, Default)]
pub struct Pace {
    /// When the clock will have counted as far as the fences that were lost.
    even_at: Instant,
}

impl Pace {
    /// Notes that a break at `now` has lost `fences` fences beyond the clock and the floor.
    pub fn lose(&mut self, now: Instant, fences: u64) {
        self.even_at = self.even_at.max(now) + Duration::from_micros(fences);
    }

    /// Returns how long a break at `now` has to wait; `None` if it need not.
    pub fn delay(&self, now: Instant) -> Option<Duration> {
        let ahead = self.even_at.since(now);
        (ahead > MOST_AHEAD).then_some(ahead)
    }
}
