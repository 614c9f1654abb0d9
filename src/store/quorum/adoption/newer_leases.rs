//! Refuses leases that are newer than the ticket.
//!
//! A delayed acquire may reach a node after its token has become a ticket and the ticket was used.
//! The node then gives the token a new lease. Another node, which was away during the adoption, may
//! still have the ticket. Both nodes answer the claim of another adopter with a lease of the
//! ticket's token. So the attempt checks each answer by itself. The fence that is decided from all
//! answers would not show the new lease, because that fence is the ticket's.
//!
//! **Why a ticket is used only once.** Most nodes have confirmed the first adopter, and any other
//! majority contains one of these nodes. That node has accepted the ticket's fence for the first
//! adopter. So if it has given the token a new lease, that lease has a larger fence. The new lease
//! has no note, because the node refuses a late detachment. So
//! [`is_of_ticket`](crate::store::AdoptedLease::is_of_ticket) returns false, and the node does not
//! count. This assumes that nodes do not forget their last fences.
//! [`adopted_lease`](crate::store::adopted_lease) describes the gap that is left.
//!
//! **Why honest adoptions succeed.** A lease is detached when most nodes have a note, and a node
//! with a note always counts. A node that the detachment did not reach counts if it accepted the
//! fence of the lease, or granted the lease with a smaller fence. If the process has since reserved
//! more fences for its next waiter, that node still counts, because the fence of the grant decides.
//! A node whose lease an earlier version of leasehold detached without a note counts, too. The
//! other nodes granted the lease with a larger fence, and have not heard of the fence that the
//! quorum decided on. They answer like a node with a newer lease, so they do not count.
//! `coordinator/detaching.rs` describes why a detached lease seldom has such a node.
//!
//! **Why nodes without a note count although others have one.** An adopter may claim a node before
//! the detachment reaches it: a detachment succeeds as soon as most nodes have answered. If such
//! nodes did not count, the failure of one other node could keep the ticket from being adopted.
//!
//! **What happens to the node.** The claim has already taken the lease from the ticket's token. No
//! client uses that lease, so the node releases it at once. It does so however the attempt ends,
//! even if the attempt has already ended. If the adopter gets the lease, the next renewal repairs
//! the lease at the node.

use super::super::pending_releases::TokenChange;
use super::AdoptionAttempt;
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply, Source};

impl AdoptionAttempt {
    /// Returns the answer that counts if a node answers the claim with `answer`. If the node has a
    /// newer lease, it does not know the ticket any more. The node then has to carry out the
    /// returned release. A claim to a later ticket does not count either: no adopter of this ticket
    /// may take it over.
    pub fn refuse_newer(&self, answer: Answer) -> (Answer, Option<TokenChange>) {
        match (&answer, self.request.source) {
            (Ok(Reply::Adopted(lease)), Source::Ticket { fence, .. })
                if !lease.is_of_ticket(fence) && !mutants::is(Mutant::NewerLeaseAdopted) =>
            {
                let (key, token) = (self.request.key.clone(), self.claim);
                let release = TokenChange::release(key, token);
                let is_kept = mutants::is(Mutant::NewerLeaseKept);
                (Ok(Reply::NotHeld(Absence::Taken)), (!is_kept).then_some(release))
            }
            // The request has named a claim to take over, and the rules of the node are those of an
            // earlier version (see `Token::claims`).
            (Ok(Reply::Claimed { by }), _) if !by.claims(self.request.ticket) => {
                (Ok(Reply::NotHeld(Absence::Taken)), None)
            }
            _ => (answer, None),
        }
    }
}
