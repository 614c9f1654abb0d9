//! Limits how fast locks are broken, so that fences do not run ahead of the wall clock.
//!
//! The process of a broken lease may still hand it on to its own waiters, with the fences that were
//! reserved with it. So no later lease may get these fences: they are lost. If a lock with waiters
//! is broken 20,000 times per second, it loses more than a million fences per second. The wall
//! clock only counts a million microseconds per second. If fences are ahead of the clock, they go
//! back when the process restarts.
//!
//! The limit uses the monotonic clock. If the wall clock is set back, all fences are ahead of it,
//! but locks can still be broken.

use std::time::Duration;

use crate::lease::Instant;

/// How far breaks may put fences ahead of the clock. If this is smaller, even a few breaks in a row
/// have to wait. If it is larger, fences may go back further when the process restarts.
const MOST_AHEAD: Duration = Duration::from_micros(500);

/// Limits breaks. See the module.
#[derive(Debug, Default)]
pub struct FenceLimiter {
    /// When the wall clock reaches the fences that were lost.
    even_at: Instant,
}

impl FenceLimiter {
    /// Records that a request at `now` used or lost `fences` fences beyond the wall clock. Requests
    /// other than breaks count, too: after a break, they keep fences ahead of the clock for longer.
    pub fn lose(&mut self, now: Instant, fences: u64) {
        self.even_at = self.even_at.max(now) + Duration::from_micros(fences);
    }

    /// Returns how long a break at `now` has to wait; `None` if it need not.
    pub fn delay(&self, now: Instant) -> Option<Duration> {
        let ahead = self.even_at.since(now);
        (ahead > MOST_AHEAD).then_some(ahead)
    }
}
