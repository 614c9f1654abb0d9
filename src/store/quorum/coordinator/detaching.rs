//! Lets a detachment wait for the answers to earlier requests for the lease.
//!
//! A lease is granted as soon as most nodes have answered. Another node may grant it a little
//! later, with a larger fence than the quorum decided on, and then has to accept the lease's fence.
//! Until then, the node refuses a detachment, because the lease could be newer than the detachment:
//! see [`adopted_lease`](crate::store::adopted_lease). The node does not count for an adoption
//! either: see [`newer_leases`](super::super::adoption). If a process detached a lease right after
//! its grant, the failure of one other node could then keep the ticket from being adopted. So the
//! quorum first waits until all nodes have answered the earlier requests for the lease, and have
//! accepted its fence.
//!
//! A detachment also waits until all nodes have answered the adoption of its lease. After the
//! detachment, a node that answers late does not pass to the adopter any more: see
//! [`used_tickets`](super::used_tickets). If the detachment did not wait, the next ticket would
//! often lack a node that is only a little slower than the others.

use super::Coordinator;
use super::waiting_detachments::WaitingDetachment;
use crate::lease::{Instant, Token};
use crate::mutants::{self, Mutant};
use crate::store::Request;

impl Coordinator {
    /// Returns the token of a detachment that has to wait for earlier requests.
    pub(super) fn waits_to_detach(&self, request: &Request) -> Option<Token> {
        match request {
            Request::Detach { token, .. }
                if self.is_asked_for(*token) && !mutants::is(Mutant::DetachedTooSoon) =>
            {
                Some(*token)
            }
            _ => None,
        }
    }

    /// Lets a detachment wait for at most half of the time until its deadline. The other half is
    /// for the answers of the nodes.
    pub(super) fn wait_to_detach(
        &mut self,
        now: Instant,
        batch: u64,
        index: usize,
        token: Token,
        request: Request,
        deadline: Instant,
    ) {
        let until = now + deadline.since(now) / 2;
        self.detachments.add(WaitingDetachment { batch, index, token, request, until, deadline });
    }

    /// Sends the detachments that have waited for long enough.
    pub(super) fn send_detachments(&mut self, now: Instant) {
        let mut detachments = std::mem::take(&mut self.detachments);
        let ready = detachments.take_ready(now, |token| self.is_asked_for(token));
        self.detachments = detachments;
        for detachment in ready {
            let WaitingDetachment { batch, index, request, deadline, .. } = detachment;
            self.ask_nodes(now, batch, index, request, deadline.since(now));
        }
    }

    /// Returns true if a node still has to answer a request for the lease of `token`, or its
    /// adoption. Earlier detachments do not count.
    fn is_asked_for(&self, token: Token) -> bool {
        self.repairs.is_open(token)
            || self.open_requests.contains(token)
            || self.adoptions.is_asked_for(token)
    }
}
