//! Keeps what the engine and the JavaScript thread know of one lease. Each reads it without a
//! question to the other.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Instant;

/// Why a lease was lost. The names are what JavaScript sees as `error.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// Its deadline passed without a successful renewal, or it reached its `maxHold`.
    Expired,
    /// The store says that another client holds the lock now.
    Taken,
    /// The store does not know the lease any more.
    Missing,
    /// The JavaScript thread did not answer for `maxStall`, so renewal stopped and the lease ran
    /// out.
    Stalled,
    /// The client was closed.
    Closed,
}

/// The part of its life that a lease is in. It only moves down this list, from the first two to one
/// of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The client has asked for the lease, but the store has not granted it. Nothing is held.
    Pending,
    /// Held until the deadline.
    Held,
    /// Held until the deadline, but no longer renewed, because the JavaScript thread does not
    /// answer.
    Stalled,
    /// No longer held, although the holder has not released it.
    Lost(LossReason),
    /// No longer held, because the holder released it.
    Released,
}

/// A lease's phase and deadline in one atomic word, so that each thread always sees both of one
/// moment.
///
/// The engine extends or ends the lease. The JavaScript thread reads and releases it. If that
/// thread reads it after the deadline before the engine has ended it, the read itself ends the
/// lease. A lease that has ended is never held again.
#[derive(Debug)]
pub struct LeaseState(AtomicU64);

const PHASE_BITS: u32 = 4;

impl Phase {
    /// Returns the phase as a number below 16.
    const fn number(self) -> u64 {
        match self {
            Phase::Pending => 0,
            Phase::Held => 1,
            Phase::Stalled => 2,
            Phase::Released => 3,
            Phase::Lost(LossReason::Expired) => 4,
            Phase::Lost(LossReason::Taken) => 5,
            Phase::Lost(LossReason::Missing) => 6,
            Phase::Lost(LossReason::Stalled) => 7,
            Phase::Lost(LossReason::Closed) => 8,
        }
    }

    const fn decode(word: u64) -> Self {
        match word & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Pending,
            1 => Phase::Held,
            2 => Phase::Stalled,
            3 => Phase::Released,
            4 => Phase::Lost(LossReason::Expired),
            5 => Phase::Lost(LossReason::Taken),
            6 => Phase::Lost(LossReason::Missing),
            7 => Phase::Lost(LossReason::Stalled),
            _ => Phase::Lost(LossReason::Closed),
        }
    }

    /// Returns true if the holder may act on the lease until its deadline.
    pub const fn is_held(self) -> bool {
        matches!(self, Phase::Held | Phase::Stalled)
    }
}

const fn pack(phase: Phase, deadline: Instant) -> u64 {
    deadline.as_micros() << PHASE_BITS | phase.number()
}

const fn deadline_of(word: u64) -> Instant {
    Instant::from_micros(word >> PHASE_BITS)
}

impl Default for LeaseState {
    fn default() -> Self {
        Self(AtomicU64::new(pack(Phase::Pending, Instant::from_micros(0))))
    }
}

impl LeaseState {
    /// Returns the phase of the lease at `now`. If the deadline has passed, this call ends the
    /// lease as lost.
    pub fn phase(&self, now: Instant) -> Phase {
        let word = self.0.load(Ordering::Acquire);
        let phase = Phase::decode(word);
        if !phase.is_held() || now < deadline_of(word) {
            return phase;
        }
        self.end(now, phase)
    }

    /// Returns true if the lease is held at `now`.
    pub fn is_held(&self, now: Instant) -> bool {
        self.phase(now).is_held()
    }

    /// Returns the instant after which the lease counts as lost; meaningful while it is held.
    pub fn deadline(&self) -> Instant {
        deadline_of(self.0.load(Ordering::Acquire))
    }

    /// Notes that the store granted the lease. Only the engine calls this, once.
    pub fn grant(&self, deadline: Instant) {
        self.0.store(pack(Phase::Held, deadline), Ordering::Release);
    }

    /// Moves the deadline, never back, if the lease is still held at `now`. Returns true if it was.
    /// Only the engine calls this.
    pub fn extend(&self, now: Instant, deadline: Instant) -> bool {
        self.change(now, |word| pack(Phase::Held, deadline.max(deadline_of(word)))).is_ok()
    }

    /// Notes that renewal stopped because the JavaScript thread does not answer. The deadline
    /// stays. Only the engine calls this.
    pub fn stall(&self, now: Instant) {
        let _ = self.change(now, |word| pack(Phase::Stalled, deadline_of(word)));
    }

    /// Releases the lease. Returns true if it was still held: of two calls, only one returns true.
    pub fn release(&self, now: Instant) -> bool {
        self.change(now, |word| pack(Phase::Released, deadline_of(word))).is_ok()
    }

    /// Ends the lease as lost for `reason` if it is still held. Returns its phase then: lost for
    /// this or for an earlier reason, or released.
    pub fn lose(&self, now: Instant, reason: LossReason) -> Phase {
        self.end(now, Phase::Lost(reason))
    }

    /// Ends the lease with `last`, unless it has ended already. At or after the deadline, it has.
    fn end(&self, now: Instant, last: Phase) -> Phase {
        let (Ok(word) | Err(word)) = self.change(now, |word| pack(last, deadline_of(word)));
        Phase::decode(word)
    }

    /// Replaces the word while it says that the lease is held. If the deadline has passed at `now`,
    /// the new word is always the loss. Returns the new word, or as an error the word that says
    /// that the lease is not held.
    fn change(&self, now: Instant, next: impl Fn(u64) -> u64) -> Result<u64, u64> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if !Phase::decode(word).is_held() {
                return Err(word);
            }
            let late = now >= deadline_of(word);
            let new = if late {
                let stalled = Phase::decode(word) == Phase::Stalled;
                let reason = if stalled { LossReason::Stalled } else { LossReason::Expired };
                pack(Phase::Lost(reason), deadline_of(word))
            } else {
                next(word)
            };
            match self.0.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if late => return Err(new),
                Ok(_) => return Ok(new),
                Err(seen) => word = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    fn held_until(ms: u64) -> LeaseState {
        let state = LeaseState::default();
        state.grant(at(ms));
        state
    }

    #[test]
    fn nothing_is_held_before_the_grant() {
        assert_eq!(LeaseState::default().phase(at(0)), Phase::Pending);
        assert!(!LeaseState::default().release(at(0)));
    }

    #[test]
    fn a_lease_is_released_once() {
        let state = held_until(10);
        assert!(state.release(at(5)));
        assert!(!state.release(at(5)));
        assert_eq!(state.phase(at(20)), Phase::Released);
    }

    #[test]
    fn the_first_read_after_the_deadline_ends_the_lease_for_good() {
        let state = held_until(10);
        assert!(state.is_held(at(9)));
        assert_eq!(state.phase(at(10)), Phase::Lost(LossReason::Expired));
        assert!(!state.extend(at(9), at(100)), "a late reply must not revive it");
        assert!(!state.is_held(at(9)));
    }

    #[test]
    fn a_renewal_that_comes_after_the_deadline_does_not_count() {
        let state = held_until(10);
        assert!(!state.extend(at(10), at(100)));
        assert_eq!(state.phase(at(11)), Phase::Lost(LossReason::Expired));
    }

    #[test]
    fn a_renewal_answered_out_of_order_does_not_shorten_the_lease() {
        let state = held_until(10);
        assert!(state.extend(at(1), at(5)));
        assert_eq!(state.deadline(), at(10));
    }

    #[test]
    fn a_stalled_lease_runs_out_as_stalled_unless_it_is_renewed_again() {
        let state = held_until(10);
        state.stall(at(1));
        assert!(state.is_held(at(9)));
        assert!(state.extend(at(9), at(20)));
        assert_eq!(state.phase(at(10)), Phase::Held);
        state.stall(at(11));
        assert_eq!(state.phase(at(20)), Phase::Lost(LossReason::Stalled));
    }

    #[test]
    fn release_and_loss_exclude_each_other() {
        let released = held_until(10);
        assert!(released.release(at(1)));
        assert_eq!(released.lose(at(1), LossReason::Missing), Phase::Released);
        let lost = held_until(10);
        assert_eq!(lost.lose(at(1), LossReason::Taken), Phase::Lost(LossReason::Taken));
        assert!(!lost.release(at(1)));
        assert!(!held_until(10).release(at(10)), "the deadline has passed");
    }

    #[test]
    fn decoding_an_encoded_phase_returns_the_phase() {
        use LossReason::*;
        for phase in [Phase::Pending, Phase::Held, Phase::Stalled, Phase::Released]
            .into_iter()
            .chain([Expired, Taken, Missing, Stalled, Closed].map(Phase::Lost))
        {
            assert_eq!(Phase::decode(pack(phase, at(7))), phase);
            assert_eq!(deadline_of(pack(phase, at(7))), at(7));
        }
    }
}
