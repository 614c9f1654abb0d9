//! A node that loses all its leases, because it gives up the files that they are in.
//!
//! Its file may admit other clients as soon as the acknowledgement of the notice is dropped. Until then
//! the quorum counts which leases it has without that node. One lease that has too few other nodes is
//! lost, and the engine has to know that first: the acknowledgement goes on to it.

use super::super::post::Tag;
use super::Council;
use crate::lease::Instant;
use crate::store::{Acknowledgement, Answer, Notice, Reply, StoreError, StoreErrorKind};

impl Council {
    /// `node` has lost its leases.
    pub(super) fn lost(&mut self, now: Instant, node: usize, acknowledgement: Acknowledgement) {
        self.post.distrust(node);
        let mut open: Vec<u64> = self.motions.keys().copied().collect();
        open.sort_unstable();
        for id in open {
            let Some(motion) = self.motions.get_mut(&id) else { continue };
            let error = forgotten(&self.nodes.names[node]);
            let verdict = motion.ballot.lost(node, error, &self.nodes);
            self.follow(now, id, verdict);
        }
        self.adoptions_lost(now, node);
        let is_lost = self.backers.lost(now, node, self.nodes.majority());
        // The engine marks all leases of the quorum as lost, though it may have some of them still.
        self.effects.notices.push(if is_lost { Notice::Lost(acknowledgement) } else { Notice::Missed });
    }

    /// Returns what an answer of `node` counts that it gave before it lost its leases.
    pub(super) fn outdated(&self, node: usize, tag: Tag, answer: Answer) -> Answer {
        match (tag, &answer) {
            (Tag::Vote(_) | Tag::Accept(_) | Tag::Claim(_) | Tag::Confirm(_), Ok(reply))
                if is_of_lease(reply) =>
            {
                Err(forgotten(&self.nodes.names[node]))
            }
            _ => answer,
        }
    }
}

/// Whether the reply says that a token has something at the node.
pub fn is_of_lease(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Acquired { .. }
            | Reply::Queued { .. }
            | Reply::Renewed { .. }
            | Reply::Adopted
            | Reply::Accepted
    )
}

/// It may have been done in the files that the node uses now.
pub(super) fn forgotten(node: &str) -> StoreError {
    let message = format!("{node} lost its leases: its files were moved, replaced or removed");
    StoreError::maybe_done(StoreErrorKind::Unreachable, message)
}
