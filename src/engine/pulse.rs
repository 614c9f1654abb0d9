//! Records whether the JavaScript thread of an environment still answers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::lease::Instant;

/// Holds the last sign of life of an environment's thread. That thread writes it, and the engine
/// reads it.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU64);

impl Pulse {
    /// Notes that the thread lives at `now`.
    pub fn beat(&self, now: Instant) {
        self.0.store(now.as_micros(), Ordering::Release);
    }

    /// Notes that the thread does not answer any more although its work goes on. From now on, it
    /// counts as alive.
    pub fn excuse(&self) {
        self.0.store(u64::MAX, Ordering::Release);
    }

    /// Returns when the thread last gave a sign of life.
    pub fn last(&self) -> Instant {
        Instant::from_micros(self.0.load(Ordering::Acquire))
    }
}
