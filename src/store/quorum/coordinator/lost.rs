//! Handles a node that loses all its leases because its files were moved, replaced or removed.
//!
//! The node may grant these locks to other clients as soon as the acknowledgement of its notice is
//! dropped. Before that, the quorum counts which of its leases still have a majority without the
//! node. If a lease has too few other nodes, it is lost, and the engine has to know that first. So
//! the quorum passes the acknowledgement on to the engine.

use super::super::call_queue::CallTag;
use super::Coordinator;
use crate::lease::Instant;
use crate::store::{Acknowledgement, Answer, Notice, StoreError, StoreErrorKind};

impl Coordinator {
    /// Counts the votes and the leases without `node`, which has lost its leases.
    pub(super) fn lost(&mut self, now: Instant, node: usize, acknowledgement: Acknowledgement) {
        self.call_queue.mark_untrusted(node);
        let mut open: Vec<u64> = self.pending_requests.keys().copied().collect();
        open.sort_unstable();
        for id in open {
            let Some(pending) = self.pending_requests.get_mut(&id) else { continue };
            let error = forgotten(&self.nodes.names[node]);
            let decision = pending.vote_round.lost(node, error, &self.nodes);
            self.follow(now, id, decision);
        }
        self.adoptions_lost(now, node);
        let is_lost = self.lease_nodes.lost(now, node, self.nodes.majority());
        // The engine marks all leases of the quorum as lost, though some may still have a majority.
        self.effects.notices.push(if is_lost { Notice::Lost(acknowledgement) } else { Notice::Missed });
    }

    /// Returns an error in place of an answer about a lease that `node` gave before it lost its
    /// leases. Other answers still count.
    pub(super) fn outdated(&self, node: usize, tag: CallTag, answer: Answer) -> Answer {
        match (tag, &answer) {
            (CallTag::PendingRelease, _) => answer,
            (_, Ok(reply)) if reply.is_of_lease() => Err(forgotten(&self.nodes.names[node])),
            _ => answer,
        }
    }
}

/// Returns the error of a request that the node may have carried out in its new files.
pub(super) fn forgotten(node: &str) -> StoreError {
    let message = format!(
        "{node} lost its leases: its files were moved, replaced or removed; leave them in place while it is used"
    );
    StoreError::maybe_done(StoreErrorKind::Unreachable, message)
}
