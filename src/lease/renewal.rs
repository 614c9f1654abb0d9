//! Decides when to renew a lease, and when to try again after a failure.

use std::time::Duration;

use super::{Instant, Ttl};

/// A random number in 0 … 1, which the caller draws. It spreads renewals, so that leases taken
/// together are not renewed together for ever.
pub type Jitter = f64;

/// Returns when to renew a lease that was granted or renewed by a request that was sent at `sent`.
/// That is a third of the ttl later, or up to a tenth of that time sooner. If this renewal gets no
/// answer in time, two more fit in before the deadline.
pub fn next(sent: Instant, ttl: Ttl, jitter: Jitter) -> Instant {
    sent + (ttl.as_duration() / 3).mul_f64(1.0 - 0.1 * jitter)
}

/// Returns when to try again after an attempt that failed at `now`. `failures` counts the attempts
/// that failed in a row, with this one. The pause begins at a fiftieth of the ttl and doubles up to
/// a tenth of it, and is at least 5 ms. `jitter` then shortens it by up to a quarter.
pub fn retry(now: Instant, ttl: Ttl, failures: u32, jitter: Jitter) -> Instant {
    let ttl = ttl.as_duration();
    let pause = (ttl / 50).saturating_mul(1 << failures.saturating_sub(1).min(8)).min(ttl / 10);
    now + pause.max(Duration::from_millis(5)).mul_f64(0.75 + 0.25 * jitter)
}

/// Returns true if the JavaScript thread counts as hung at `now`: the engine last asked it for a
/// sign of life at `asked`, and it last gave one at `answered`.
pub fn is_stalled(asked: Instant, answered: Instant, now: Instant, max_stall: Duration) -> bool {
    answered < asked && now.since(asked) > max_stall
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::validity;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn a_lease_is_renewed_after_a_third_of_its_ttl_at_the_latest() {
        let ttl = Ttl::from_millis(9_000).unwrap();
        assert_eq!(next(at(0), ttl, 0.0), at(3_000));
        assert_eq!(next(at(0), ttl, 1.0), at(2_700));
    }

    #[test]
    fn failed_renewals_are_tried_again_often_enough_before_the_deadline() {
        for ttl in [100, 1_000, 10_000, 600_000].map(|ms| Ttl::from_millis(ms).unwrap()) {
            let mut now = next(at(0), ttl, 0.0);
            let mut attempts = 0;
            while now < validity::deadline(at(0), ttl) {
                attempts += 1;
                now = retry(now, ttl, attempts, 1.0);
            }
            assert!((5..20).contains(&attempts), "{attempts} attempts for {ttl:?}");
        }
    }

    #[test]
    fn a_stall_needs_an_unanswered_question() {
        let limit = Duration::from_millis(100);
        assert!(!is_stalled(at(0), at(0), at(5_000), limit), "never asked since the last answer");
        assert!(!is_stalled(at(10), at(5), at(110), limit), "the limit has not passed yet");
        assert!(is_stalled(at(10), at(5), at(111), limit));
    }
}
