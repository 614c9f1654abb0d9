//! Repairs leases: nodes that do not know a lease that a majority has renewed get it back.
//!
//! A node does not know a lease if the node was away for longer than the ttl, lost its data, or
//! never received the acquire. Without repairs, a lease would never return to such a node. A few
//! failures that are far apart in time would then add up to the loss of the majority.
//!
//! After a majority has renewed a lease, the quorum sends two requests to each node that does not
//! have it: an acquire with the same token and, right after it, a request to accept the lease's
//! fence. The node grants the lease unless another client's lease excludes it. If one does, the
//! repair gets the first place in the node's queue, before all waiters, for one ttl. So the node
//! grants the lease as soon as the node is free. Without that place, waiters with short leases
//! could have the node at each renewal. A repaired node counts from the next renewal on, because
//! only a node that answers a renewal is counted for it. If every node knows the lease, the quorum
//! sends nothing.
//!
//! **Why there are never two holders.** A holder uses its lease from the answer to a grant or a
//! renewal until one ttl after it sent that request, less the drift. The holder ignores an answer
//! that arrives later. For that answer, a majority of the nodes has said that they have the token,
//! and each of them keeps the token for one ttl after it was asked. So **while a holder uses its
//! lease, most nodes have its token.** Two holders would share a node that has both tokens, and no
//! node grants two exclusive leases. It makes no difference whether a node got the token by the
//! acquire or by a repair. But nothing may take the token from a node while the holder uses the
//! lease. So while the lease lives, the quorum does not undo a repair that was not answered: a
//! renewal may have counted the node in the meantime.
//!
//! A place does not change this. A node hands the lease to a place only when the lock is free at
//! the node, as for a grant. So a node still never has two exclusive leases.
//!
//! **What a late repair does.** The request of a repair may arrive after the lease has ended. The
//! node then has a token that no holder uses, or a place for it. The node is one of a minority, so
//! other clients can still get the lock from the majority. At this node, the token blocks them for
//! at most one ttl: a lease that a node hands to a place ends when the place would have ended. The
//! quorum sends the release of a token to all nodes, and the release ends the place, too. The
//! quorum repeats the release at each node that answers a repair after the release, and at each
//! node that did not answer a repair.
//!
//! **Why fences grow.** Any two leases of a lock share a node that accepted the fence of each lease
//! while that lease was held. A repaired node may replace a node that forgot the lease, but it has
//! to accept the fence, too. So after each renewal, the quorum asks every node that is not known to
//! have accepted the last fence.
//!
//! **When repairs end.** The quorum repairs a lease as long as this process holds it. Repairs end
//! when the client asks to release the lease or to give it back to its ticket, and when the lease
//! is detached. They also end when a majority says that the lease is gone, or when a renewal is
//! answered too late for the holder. A detached lease keeps a node that it gets by a late repair,
//! because the lease lives on.
//!
//! **Why a broken lock stays broken.** A request to break a lock reaches the nodes one after the
//! other. In between, most nodes may still renew the lease. A repair would then bring it back to
//! the first nodes, and it could outlive the break. So a node that breaks a lock refuses all
//! repairs of it for [`BROKEN_LIFE`](crate::store::BROKEN_LIFE), which is longer than any request
//! may take, and removes the places of repairs. The break succeeds when most nodes have answered.
//! From then on, only a minority has the lease: each of the nodes that answered has dropped it and
//! does not take it back. So no renewal succeeds any more, and without a renewal there is no
//! repair. A node that knew no lease refuses repairs, too. For that time, these nodes do not get
//! the next leases of the lock back either. Those leases then survive fewer failures, but they stay
//! correct.
//!
//! **How a node comes back from a waiter.** A node that was away may hand the lock to its first
//! waiter before a repair. That waiter has too few nodes for a lease, but each of its requests
//! would prolong what it has at the node. So a waiter does not ask these nodes while another client
//! holds an exclusive lease at most nodes: see
//! [`WaiterTracker`](super::super::waiter_tracker::WaiterTracker). When its lease there ends, the
//! node hands the lock to the place of the repair.
//!
//! **Why repairs do not disturb an adopter.** A node that hands the lock to the place of a ticket
//! has the ticket, as if an earlier repair had succeeded. A move of a lease removes the place of
//! its former token, so a former token gets no node after the move. The newest repair is first in a
//! queue. So the place of a lease that was lost does not delay the repair of the next lease.

use super::super::call_queue::CallTag;
use super::super::lease_nodes::EndedLease;
use super::super::pending_releases::TokenChange;
use super::super::repairs::Repair;
use super::Coordinator;
use crate::lease::validity::longest_life;
use crate::lease::{Fence, Instant, Key, Mode, Token};
use crate::mutants::{self, Mutant};
use crate::store::{Absence, AcquireRequest, Answer, Reply, Request};

impl Coordinator {
    /// Asks all nodes that do not know the lease to grant it again, and all nodes that may lack its
    /// fence to accept the fence. `id` is the request that renewed the lease.
    pub(super) fn repair(&mut self, now: Instant, id: u64) {
        let Some(pending) = self.pending_requests.get(&id) else { return };
        let absences: Vec<(usize, Absence)> = pending.vote_round.absences().collect();
        for (node, absence) in absences {
            self.repair_at(now, id, node, absence);
        }
        for node in 0..self.nodes.count() {
            self.fence_at(now, id, node);
        }
    }

    /// Asks `node` to grant the lease that the request `id` has renewed, and to accept its fence.
    /// Does nothing while an earlier repair of the lease at this node is under way.
    pub(super) fn repair_at(&mut self, now: Instant, id: u64, node: usize, absence: Absence) {
        if absence == Absence::Taken {
            self.move_ticket(now, id, node);
        }
        let Some(pending) = self.pending_requests.get(&id) else { return };
        let Some((token, ttl)) = pending.vote_round.request.lease() else { return };
        let Some(terms) = self.lease_nodes.terms(now, token) else { return };
        if self.repairs.is_under_way(token, node) {
            return;
        }
        let (key, holder, outlives_process) =
            (terms.key.clone(), terms.holder.clone(), terms.outlives_process);
        let mode = match terms.mode {
            _ if mutants::is(Mutant::RepairForgetsMode) => Mode::Shared { most: u32::MAX },
            mode => mode,
        };
        let (timeout, (fence, count)) = (pending.timeout, terms.fences);
        let repairs = !mutants::is(Mutant::RepairAfterBreak);
        let acquire = AcquireRequest {
            mode,
            outlives_process,
            repairs,
            ..AcquireRequest::new(key.clone(), token, ttl, holder)
        };
        self.serial += 1;
        let repair = self.serial;
        self.call_queue.add(node, timeout, Request::Acquire(acquire), CallTag::Repair(repair));
        self.call_queue.add(
            node,
            timeout,
            accepting(&key, token, fence, count),
            CallTag::RepairFence(repair),
        );
        self.lease_nodes.repairing(token, node);
        self.lease_nodes.may_live(token, now + timeout + longest_life(ttl));
        self.repairs.begin(repair, Repair { node, key, token, ttl, fence });
    }

    /// Asks `node` to accept the fence of the lease that the request `id` has renewed, if the node
    /// backs the lease and is not known to have the fence.
    pub(super) fn fence_at(&mut self, now: Instant, id: u64, node: usize) {
        let Some(pending) = self.pending_requests.get(&id) else { return };
        let Some((token, ttl)) = pending.vote_round.request.lease() else { return };
        let Some(terms) = self.lease_nodes.terms(now, token) else { return };
        if self.lease_nodes.unfenced(token) & 1 << node == 0 || self.repairs.is_under_way(token, node) {
            return;
        }
        let ((fence, count), key) = (terms.fences, terms.key.clone());
        self.serial += 1;
        let request = accepting(&key, token, fence, count);
        self.call_queue.add(node, pending.timeout, request, CallTag::RepairFence(self.serial));
        self.repairs.begin(self.serial, Repair { node, key, token, ttl, fence });
    }

    /// Takes the answer of a node that was asked to grant a lease again.
    pub(super) fn repaired(&mut self, now: Instant, id: u64, answer: &Answer) {
        let Some(Repair { node, key, token, ttl, .. }) = self.repairs.get(id) else { return };
        let (node, token, life) = (*node, *token, ttl.as_duration());
        let (is_granted, is_straggler) = match answer {
            // The node has the lease, or will have it when it is free there.
            Ok(Reply::Acquired { .. } | Reply::Queued { .. }) => (true, false),
            Err(error) => (error.maybe_done, error.maybe_done),
            Ok(_) => (false, false),
        };
        if !is_granted {
            return;
        }
        if self.repairs.is_refused(token) {
            if !mutants::is(Mutant::RepairKeptAfterRelease) {
                let release = TokenChange { life: Some(life), ..TokenChange::release(key.clone(), token) };
                self.pending_releases.add(now, node, release, is_straggler);
            }
        } else if is_straggler && mutants::is(Mutant::RepairUndone) {
            self.pending_releases.add(now, node, TokenChange::release(key.clone(), token), true);
        } else if is_straggler {
            self.pending_releases.set_in_doubt(now, node, token, life);
        }
    }

    /// Takes the answer of a node that was asked to accept a lease's fence. This ends the repair.
    pub(super) fn fence_repaired(&mut self, id: u64, answer: &Answer) {
        let Some(Repair { node, token, fence, .. }) = self.repairs.end(id) else { return };
        if *answer == Ok(Reply::Accepted) {
            self.lease_nodes.fenced(token, node, fence);
        }
        self.detachments.answered(token);
    }

    /// Stops repairing the lease of `token`, which has ended.
    pub(super) fn end_repairs(&mut self, token: Token) -> Option<EndedLease> {
        self.repairs.refuse(token);
        self.lease_nodes.forget(token)
    }

    /// Ends the lease of `token` after most nodes said that it is gone. The engine does not release
    /// such a lease, so this releases it at all nodes. Otherwise the other nodes would keep it from
    /// other clients until its ttl ends.
    pub(super) fn lease_is_gone(&mut self, now: Instant, token: Token) {
        let Some(ended) = self.end_repairs(token) else { return };
        self.adopter_ended(now, token, None);
        let ends = Some(ended.may_live_until).max(self.ticket_ends.latest(token));
        for node in 0..self.nodes.count() {
            let release = TokenChange { ends, ..TokenChange::release(ended.key.clone(), token) };
            self.pending_releases.add(now, node, release, ended.repaired & 1 << node != 0);
        }
        self.release_ticket(now, &ended, token);
    }
}

/// Returns the request that tells a node the fence of a lease.
fn accepting(key: &Key, token: Token, fence: Fence, count: u32) -> Request {
    let fence = if mutants::is(Mutant::RepairWithoutFence) { Fence(1) } else { fence };
    Request::Accept { key: key.clone(), token, fence, count }
}
