//! Decides what an adopter gets, from what the claimed nodes know of the lease.

use super::AdoptionAttempt;
use crate::lease::Ttl;
use crate::store::adopted_lease::limit;
use crate::store::{AdoptedLease, Reply, Source};

impl AdoptionAttempt {
    /// Returns the ttl of the adopter's lease.
    pub fn ttl(&self) -> Ttl {
        limit(self.request.ttl, self.request.source, self.decided.and_then(|lease| lease.ttl))
    }

    /// Decides on the lease's fence, mode and ttl from what the claimed nodes say.
    ///
    /// Most nodes accepted the lease's fence when it was granted, and when it was detached. So a
    /// claimed node knows that fence, unless it has lost its data. If no claimed node does, the
    /// lease gets a fence that is larger than all fences of these nodes.
    pub(super) fn decide(&self) -> Option<AdoptedLease> {
        let known = || {
            self.claims.iter().filter_map(|claim| match claim {
                Some(Ok(Reply::Adopted(adopted_lease))) => Some(*adopted_lease),
                _ => None,
            })
        };
        // Take the note with the largest fence: a detachment that failed may have left a note with
        // a smaller one.
        let noted = known().filter(|lease| lease.ttl.is_some()).max_by_key(|lease| lease.first);
        let last = known().map(|lease| lease.last).max()?;
        let fence = match (noted, self.request.source) {
            (Some(lease), _) => lease.first,
            (None, Source::Ticket { fence, .. } | Source::Quorum(fence))
                if known().any(|lease| lease.vouches(fence)) =>
            {
                fence
            }
            _ => last.last_of(2),
        };
        let mode = known().next()?.mode;
        let ttl = noted.and_then(|lease| lease.ttl);
        Some(AdoptedLease { first: fence, last: fence, granted: fence, mode, ttl, remaining: None })
    }
}
