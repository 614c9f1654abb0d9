//! Holds what the engine and the JavaScript thread know of one lease: its state, its last failed
//! renewal, and when the thread noticed its loss.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::lease::{Instant, LeaseState, Phase};
use crate::store::StoreError;

/// See the module.
#[derive(Debug, Default)]
pub struct KnownLease {
    state: LeaseState,
    /// When the last renewal failed, and why; `None` after a renewal that succeeded.
    failure: Mutex<Option<Box<(Instant, StoreError)>>>,
    /// When the JavaScript thread first saw that the lease is lost.
    noticed_at: OnceLock<Instant>,
}

impl KnownLease {
    /// Notes that a renewal failed at `now`. Only the engine calls this.
    pub fn renewal_failed(&self, now: Instant, error: StoreError) {
        *self.lock() = Some(Box::new((now, error)));
    }

    /// Notes that a renewal succeeded. Only the engine calls this.
    pub fn renewed(&self) {
        *self.lock() = None;
    }

    /// Returns why the last renewal failed, and how long before `now`, or before the deadline if
    /// that has passed. Returns `None` if the last renewal did not fail.
    pub fn failure(&self, now: Instant) -> Option<(Duration, StoreError)> {
        let known = self.lock();
        let (at, error) = known.as_deref()?;
        Some((now.min(self.deadline()).since(*at), error.clone()))
    }

    /// Returns the phase at `now`, as [`LeaseState::phase`] does. If the lease is lost, notes that
    /// the JavaScript thread has noticed it, unless it had before. Only that thread calls this.
    pub fn notice(&self, now: Instant) -> Phase {
        let phase = self.phase(now);
        if let Phase::Lost(_) = phase {
            self.noticed_at.get_or_init(|| now);
        }
        phase
    }

    /// Returns how long after the deadline the JavaScript thread noticed the loss; zero if that was
    /// before, or has not happened.
    pub fn noticed_late(&self) -> Duration {
        self.noticed_at.get().map_or(Duration::ZERO, |at| at.since(self.deadline()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<(Instant, StoreError)>>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for KnownLease {
    type Target = LeaseState;

    fn deref(&self) -> &LeaseState {
        &self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LossReason;
    use crate::store::StoreErrorKind;

    #[test]
    fn a_failure_is_known_until_a_renewal_succeeds_and_told_by_its_distance_to_the_end() {
        let at = |ms: u64| Instant::from_micros(ms * 1000);
        let lease = KnownLease::default();
        lease.grant(at(100));
        assert_eq!(lease.failure(at(10)), None);
        let error = StoreError::not_done(StoreErrorKind::Unreachable, "refused");
        lease.renewal_failed(at(40), error.clone());
        assert_eq!(lease.failure(at(60)), Some((Duration::from_millis(20), error.clone())));
        assert_eq!(lease.failure(at(5_000)), Some((Duration::from_millis(60), error)), "it ended at 100");
        lease.renewed();
        assert_eq!(lease.failure(at(60)), None);
    }

    #[test]
    fn a_loss_is_noticed_once() {
        let at = |ms: u64| Instant::from_micros(ms * 1000);
        let lease = KnownLease::default();
        lease.grant(at(100));
        assert_eq!((lease.notice(at(90)), lease.noticed_late()), (Phase::Held, Duration::ZERO));
        // The engine may see the loss first.
        assert_eq!(lease.phase(at(100)), Phase::Lost(LossReason::Expired));
        assert_eq!(lease.noticed_late(), Duration::ZERO);
        for now in [at(150), at(900)] {
            assert_eq!(lease.notice(now), Phase::Lost(LossReason::Expired));
            assert_eq!(lease.noticed_late(), Duration::from_millis(50));
        }
    }
}
