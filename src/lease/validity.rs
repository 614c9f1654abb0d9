//! Says how long a holder may rely on its lease.
//!
//! The store counts the ttl from when the request reached it. The holder counts from *before* it
//! sent the request, and subtracts an allowance for clocks that run at different rates. So the
//! lease always ends for its holder first (Redis, "Distributed locks with Redis": validity = ttl −
//! elapsed − drift).

use std::time::Duration;

use super::{Instant, Ttl};
use crate::mutants::{self, Mutant};

/// Returns how much two clocks may have drifted apart during `ttl`: 1 % of it, and 2 ms for clocks
/// that count in milliseconds.
pub fn drift(ttl: Ttl) -> Duration {
    if mutants::is(Mutant::NoDrift) {
        return Duration::ZERO;
    }
    ttl.as_duration() / 100 + Duration::from_millis(2)
}

/// Returns the instant after which the holder must assume that a lease is lost, if the request for
/// it was sent at `sent`.
pub fn deadline(sent: Instant, ttl: Ttl) -> Instant {
    sent + (ttl.as_duration() - drift(ttl))
}

/// Returns how long a store may keep a lease of `ttl` after it has carried out the request for it.
/// The time is by the holder's clock: the store's clock may run slower.
pub fn longest_life(ttl: Ttl) -> Duration {
    ttl.as_duration() + drift(ttl)
}

/// Returns the shortest ttl, in whole milliseconds, whose [`deadline`] is not before `until` if the
/// request is sent at `sent`.
pub fn ttl_until(sent: Instant, until: Instant) -> Ttl {
    // ttl − (ttl / 100 + 2 ms) ≥ span, solved for the ttl.
    let span = until.since(sent).as_micros() + 2_000;
    let ms = (span * 100).div_ceil(99 * 1_000);
    let ms = u32::try_from(ms).unwrap_or(u32::MAX).clamp(Ttl::MIN.as_millis(), Ttl::MAX.as_millis());
    Ttl::from_millis(ms).expect("the ttl was just clamped to its range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_counts_from_the_sending_of_the_request_less_the_drift() {
        let sent = Instant::from_micros(1_000_000);
        let ttl = Ttl::from_millis(10_000).unwrap();
        assert_eq!(deadline(sent, ttl), Instant::from_micros(1_000_000 + 9_898_000));
    }

    #[test]
    fn ttl_until_returns_the_shortest_ttl_that_reaches_the_instant() {
        let sent = Instant::from_micros(5_000_000);
        for span_us in [0, 1, 7_900, 8_000, 99_999, 1_000_000, 3_600_000_123] {
            let until = Instant::from_micros(5_000_000 + span_us);
            let ttl = ttl_until(sent, until);
            assert!(deadline(sent, ttl) >= until, "{span_us} µs");
            if let Some(shorter) = Ttl::from_millis(ttl.as_millis() - 1) {
                assert!(deadline(sent, shorter) < until, "{span_us} µs");
            }
        }
        assert_eq!(ttl_until(sent, Instant::from_micros(u64::MAX >> 4)), Ttl::MAX);
    }

    #[test]
    fn the_shortest_ttl_leaves_time_to_hold_the_lease() {
        let sent = Instant::from_micros(0);
        assert_eq!(deadline(sent, Ttl::MIN), Instant::from_micros(7_900));
    }
}
