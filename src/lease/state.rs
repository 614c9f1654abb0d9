//! What both threads know of one lease, without asking each other.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Instant;

/// Why a lease was lost. The names are what JavaScript sees as `error.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// Its deadline passed without a successful renewal, or it had reached its `maxHold`.
    Expired,
    /// The store says that somebody else holds the lock now.
    Taken,
    /// The store does not know the lease any more.
    Missing,
    /// The JavaScript thread did not answer for `maxStall`, so renewal stopped and the lease ran out.
    Stalled,
    /// The client was closed.
    Closed,
}

/// Where a lease is in its life. It only ever moves down this list, from the first two to one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Asked for, not yet granted. Nothing is held.
    Pending,
    /// Held until the deadline.
    Held,
    /// Held until the deadline, but no longer renewed, because the JavaScript thread does not answer.
    Stalled,
    /// No longer held, and the holder did not want that.
    Lost(LossReason),
    /// No longer held, because the holder gave it back.
    Released,
}

/// A lease's phase and deadline in one atomic word, so that neither thread can see one without the other.
///
/// The engine extends or ends the lease; the JavaScript thread reads it, releases it, and, should it look
/// after the deadline before the engine could say so, ends it itself. Once not held, never held again.
#[derive(Debug)]
pub struct LeaseState(AtomicU64);

const PHASE_BITS: u32 = 4;

impl Phase {
    /// The phase as a number below 16, which JavaScript knows, too.
    pub const fn number(self) -> u64 {
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

    /// Whether the holder may act on the lease, its deadline aside.
    const fn is_held(self) -> bool {
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
    /// Where the lease is at `now`. If its deadline has passed this is the moment at which it is lost.
    pub fn phase(&self, now: Instant) -> Phase {
        let word = self.0.load(Ordering::Acquire);
        let phase = Phase::decode(word);
        if !phase.is_held() || now < deadline_of(word) {
            return phase;
        }
        self.end(now, phase)
    }

    /// Whether the lease is held at `now`.
    pub fn is_held(&self, now: Instant) -> bool {
        self.phase(now).is_held()
    }

    /// The instant after which the lease counts as lost; meaningful while it is held.
    pub fn deadline(&self) -> Instant {
        deadline_of(self.0.load(Ordering::Acquire))
    }

    /// The store granted the lease. Engine only, once.
    pub fn grant(&self, deadline: Instant) {
        self.0.store(pack(Phase::Held, deadline), Ordering::Release);
    }

    /// Moves the deadline, never back, if the lease is still held at `now`. Engine only. Says whether it was.
    pub fn extend(&self, now: Instant, deadline: Instant) -> bool {
        self.change(now, |word| pack(Phase::Held, deadline.max(deadline_of(word)))).is_ok()
    }

    /// Renewal stopped because the JavaScript thread does not answer; the deadline stands. Engine only.
    pub fn stall(&self, now: Instant) {
        let _ = self.change(now, |word| pack(Phase::Stalled, deadline_of(word)));
    }

    /// The holder gives the lease back. Says whether it was still held: of two who do it, one is told yes.
    pub fn release(&self, now: Instant) -> bool {
        self.change(now, |word| pack(Phase::Released, deadline_of(word))).is_ok()
    }

    /// The lease is lost for `reason`, if it is still held. Returns where it is then: lost for this or for
    /// an earlier reason, or released.
    pub fn lose(&self, now: Instant, reason: LossReason) -> Phase {
        self.end(now, Phase::Lost(reason))
    }

    /// Ends the lease with `last`, unless it has ended already; at or after the deadline it has.
    fn end(&self, now: Instant, last: Phase) -> Phase {
        let (Ok(word) | Err(word)) = self.change(now, |word| pack(last, deadline_of(word)));
        Phase::decode(word)
    }

    /// Replaces the word as long as it says held. The replacement for a word whose deadline has passed at
    /// `now` is always the loss. Returns the new word, or the one that says that it isn't held.
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
    fn it_is_given_back_once() {
        let state = held_until(10);
        assert!(state.release(at(5)));
        assert!(!state.release(at(5)));
        assert_eq!(state.phase(at(20)), Phase::Released);
    }

    #[test]
    fn the_deadline_ends_it_whoever_looks_first_and_for_good() {
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
    fn an_answer_that_comes_out_of_turn_shortens_nothing() {
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
        assert!(!held_until(10).release(at(10)), "too late to give it back");
    }

    #[test]
    fn every_phase_survives_its_encoding() {
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
