//! How long a holder may believe in its lease.
//!
//! The store counts the ttl from when the request reached it; the holder counts from *before* it sent
//! the request, and takes off an allowance for the two clocks running at different rates. So the holder's
//! belief always ends first (Redis, "Distributed locks with Redis": validity = ttl − elapsed − drift).

use std::time::Duration;

use super::{Instant, Ttl};
use crate::mutants::{self, Mutant};

/// How much two clocks may have drifted apart during `ttl`: 1 % of it, and 2 ms for clocks that count in
/// milliseconds.
pub fn drift(ttl: Ttl) -> Duration {
    if mutants::is(Mutant::NoDrift) {
        return Duration::ZERO;
    }
    ttl.as_duration() / 100 + Duration::from_millis(2)
}

/// The instant after which the holder of a lease, asked for at `sent`, must assume that it is lost.
pub fn deadline(sent: Instant, ttl: Ttl) -> Instant {
    sent + (ttl.as_duration() - drift(ttl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_counts_from_before_the_request_was_sent_less_the_drift() {
        let sent = Instant::from_micros(1_000_000);
        let ttl = Ttl::from_millis(10_000).unwrap();
        assert_eq!(deadline(sent, ttl), Instant::from_micros(1_000_000 + 9_898_000));
    }

    #[test]
    fn the_shortest_ttl_leaves_something_to_hold() {
        let sent = Instant::from_micros(0);
        assert_eq!(deadline(sent, Ttl::MIN), Instant::from_micros(7_900));
    }
}
