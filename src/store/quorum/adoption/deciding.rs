//! Decides what an heir gets, from what the claimed nodes know of the lease.

use super::Adoption;
use crate::lease::Ttl;
use crate::store::inheritance::limit;
use crate::store::{Inherited, Reply, Source};

impl Adoption {
    /// Returns the ttl of the heir's lease.
    pub fn ttl(&self) -> Ttl {
        limit(self.who.ttl, self.who.source, self.decided.and_then(|lease| lease.ttl))
    }

    /// Decides on the lease's fence, mode and ttl from what the claimed nodes say.
    ///
    /// Most nodes accepted the lease's fence when it was granted, and when it was detached. So a
    /// claimed node knows that fence, unless it has lost its data. If no claimed node does, the
    /// lease gets a fence that is larger than all fences of these nodes.
    pub(super) fn decide(&self) -> Option<Inherited> {
        let known = || {
            self.claims.iter().filter_map(|claim| match claim {
                Some(Ok(Reply::Adopted(inherited))) => Some(*inherited),
                _ => None,
            })
        };
        // A detachment that failed may have left a note with a smaller fence.
        let noted = known().filter(|lease| lease.ttl.is_some()).max_by_key(|lease| lease.first);
        let last = known().map(|lease| lease.last).max()?;
        let fence = match (noted, self.who.source) {
            (Some(lease), _) => lease.first,
            (None, Source::Ticket { fence, .. } | Source::Quorum(fence))
                if known().any(|lease| lease.vouches(fence)) =>
            {
                fence
            }
            _ => last.last_of(2),
        };
        let mode = known().next()?.mode;
        Some(Inherited { first: fence, last: fence, mode, ttl: noted.and_then(|lease| lease.ttl) })
    }
}
