//! Keeps requests away from the instants at which leases and places end.

use std::time::Duration;

use leasehold::lease::Instant;
use leasehold::store::{AcquireRequest, Reply, Request, WAITER_LIFE};

use super::lock::Lock;
use super::rules::Rules;
use crate::ask::inspect;

/// How long the server may take to carry out a request. The end of a lease may be that far apart at
/// the server and in the rules.
pub const SPREAD: Duration = Duration::from_millis(100);

/// When leases and places of one lock may end, by the clock of the rules. Some of them may have
/// ended earlier.
#[derive(Default)]
pub struct Ends(Vec<Instant>);

impl Ends {
    /// Returns true if no lease or place may end while a request that is sent at `now` is under
    /// way. Leases that end in the rules end up to [`SPREAD`] later at the server, which counts in
    /// milliseconds.
    pub fn are_far(&self, now: Instant) -> bool {
        let margin = SPREAD + Duration::from_millis(5);
        self.0.iter().all(|end| *end > now + margin || *end + margin < now)
    }

    /// Notes the ends of the leases that exist after requests at `now`, of a new place if one was
    /// `queued`, and of the `places` of repairs.
    pub fn note(&mut self, rules: &mut Rules, lock: &Lock, now: Instant, queued: bool, places: Vec<Instant>) {
        self.0.retain(|end| *end + 2 * SPREAD > now);
        if let Ok(Reply::Inspected(Some(info))) = rules.table.apply(inspect(&lock.key), now, 1) {
            self.0.extend(info.leases.iter().filter_map(|lease| lease.remaining).map(|left| now + left));
        }
        if queued {
            self.0.push(now + WAITER_LIFE);
        }
        self.0.extend(places);
    }
}

/// Returns true if a request asks for a place in the queue.
pub fn waits(request: &Request) -> bool {
    matches!(request, Request::Acquire(AcquireRequest { place: Some(_), .. }))
}

/// Returns until when a repair at `now` may have a place in the queue; `None` for other requests.
pub fn repaired_until(request: &Request, now: Instant) -> Option<Instant> {
    match request {
        Request::Acquire(AcquireRequest { repairs: true, ttl, .. }) => Some(now + ttl.as_duration()),
        _ => None,
    }
}
