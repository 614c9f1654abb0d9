//! Repairs: nodes that do not know a lease that most nodes have renewed get it back.
//!
//! A node forgets a lease when it was away for longer than the ttl, or lost its data, or never heard of the acquire. If
//! nobody told it, each lease would stay at the nodes that it has left, and a few failures that are far apart in time
//! would add up to the loss of the majority.
//!
//! When a majority has renewed a lease, each node that answered [`Absence::Missing`] is asked for the same
//! token and, right behind that, to accept the lease's fence. It is not asked for a place in its queue, so it refuses if
//! another token has it or somebody waits there; then the next renewal asks it again. A repaired node counts from the
//! next renewal on, because only then its answer is one to a renewal. If every node knows the lease, nothing is sent.
//!
//! **Why there are never two holders.** A holder believes in its lease from the answer to a renewal (or the grant) to
//! one ttl after that was sent, less the drift, and it takes no answer that comes later than that. A majority has said in
//! that answer that it has the token, and each of these nodes keeps it for a ttl since it was asked. So **at every
//! instant at which a holder believes, most nodes have its token.** Two holders would share a node that has both tokens,
//! and no node grants two. This does not depend on how a node came to have the token: by the acquire or by a repair. What
//! it depends on is that nothing takes the token from a node while its holder believes. So a repair of which no answer
//! came is not undone while the lease lives: the node may have been counted since.
//!
//! **What a repair may do late.** Its request may arrive when the lease has ended. The node then has a token that nobody
//! believes in, and it is one node of a minority: it is in the way for a ttl at most. The release of a token goes to all
//! nodes, and again to each that answers a repair later, or has not answered one.
//!
//! **Why fences grow.** Two leases share a node at which the fences of both were accepted while their lease was held
//! there. Nodes that take the place of others that have forgotten keep it so, if they accept the fence. A node that is
//! not known to have accepted the last fence of a lease is asked again after each renewal.
//!
//! **What ends it.** A lease is repaired as long as this process holds it: not once its release, or the return to a
//! ticket, was asked for; not after a majority said that it is gone, or a renewal came too late for its holder; and not once
//! it is detached. A detached lease keeps what a late repair brings it, for it lives on.
//!
//! **Who waits at a node that was repaired late.** Such a node hands the lock to its first waiter, who has too few nodes
//! for a lease. It would keep that one as long as it asks for the lock. So a waiter does not ask nodes that it has while
//! most nodes are held by another: see [`Places`](super::super::places::Places).

use super::super::post::Tag;
use super::super::repairs::Repair;
use super::Council;
use crate::lease::{Fence, Instant, Key, Mode, Token};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Ask, Reply, Request};

impl Council {
    /// Asks the nodes that do not know the lease that the request `id` has renewed.
    pub(super) fn repair(&mut self, now: Instant, id: u64) {
        let Some(motion) = self.motions.get(&id) else { return };
        let missing: Vec<usize> = motion.ballot.missing().collect();
        for node in missing {
            self.repair_at(now, id, node);
        }
        for node in 0..self.nodes.count() {
            self.fence_at(now, id, node);
        }
    }

    /// Asks `node` for the lease that the request `id` has renewed, and to accept its fence.
    pub(super) fn repair_at(&mut self, now: Instant, id: u64, node: usize) {
        let Some(motion) = self.motions.get(&id) else { return };
        let Some((token, ttl)) = motion.ballot.request.lease() else { return };
        let Some(terms) = self.backers.terms(now, token) else { return };
        if self.repairs.is_under_way(token, node) {
            return;
        }
        let (key, holder, outlives_process) =
            (terms.key.clone(), terms.holder.clone(), terms.outlives_process);
        let mode = match terms.mode {
            _ if mutants::is(Mutant::RepairForgetsMode) => Mode::Shared { most: u32::MAX },
            mode => mode,
        };
        let (timeout, (fence, count)) = (motion.timeout, terms.fences);
        let ask = Ask { mode, outlives_process, ..Ask::new(key.clone(), token, ttl, holder) };
        self.serial += 1;
        let repair = self.serial;
        self.post.draft(node, timeout, Request::Acquire(ask), Tag::Repair(repair));
        self.post.draft(node, timeout, accepting(&key, token, fence, count), Tag::RepairFence(repair));
        self.backers.repairing(token, node);
        self.repairs.begin(repair, Repair { node, key, token, fence });
    }

    /// Asks `node` to accept the fence of the lease that the request `id` has renewed, if it backs the lease without.
    pub(super) fn fence_at(&mut self, now: Instant, id: u64, node: usize) {
        let Some(motion) = self.motions.get(&id) else { return };
        let Some((token, _)) = motion.ballot.request.lease() else { return };
        let Some(terms) = self.backers.terms(now, token) else { return };
        if self.backers.unfenced(token) & 1 << node == 0 || self.repairs.is_under_way(token, node) {
            return;
        }
        let ((fence, count), key) = (terms.fences, terms.key.clone());
        self.serial += 1;
        let request = accepting(&key, token, fence, count);
        self.post.draft(node, motion.timeout, request, Tag::RepairFence(self.serial));
        self.repairs.begin(self.serial, Repair { node, key, token, fence });
    }

    /// A node answered whether it grants a lease that it did not know.
    pub(super) fn repaired(&mut self, now: Instant, id: u64, answer: &Answer) {
        let Some(Repair { node, key, token, .. }) = self.repairs.get(id) else { return };
        let (node, token) = (*node, *token);
        let (is_granted, is_straggler) = match answer {
            Ok(Reply::Acquired { .. }) => (true, false),
            Err(error) => (error.maybe_done, error.maybe_done),
            Ok(_) => (false, false),
        };
        if !is_granted {
            return;
        }
        if self.repairs.is_refused(token) {
            if !mutants::is(Mutant::RepairKeptAfterRelease) {
                self.debts.owe(now, node, key, token, is_straggler);
            }
        } else if is_straggler && mutants::is(Mutant::RepairUndone) {
            self.debts.owe(now, node, key, token, true);
        } else if is_straggler {
            self.debts.doubt(now, node, token);
        }
    }

    /// A node answered whether it accepts the fence of a lease that it has got back.
    pub(super) fn fence_repaired(&mut self, id: u64, answer: &Answer) {
        if let Some(Repair { node, token, fence, .. }) = self.repairs.get(id)
            && *answer == Ok(Reply::Accepted)
        {
            self.backers.fenced(*token, *node, *fence);
        }
        self.repairs.end(id);
    }

    /// The lease of `token` has ended, and is not to be repaired any more.
    pub(super) fn end_repairs(&mut self, token: Token) -> Option<(Key, u64)> {
        self.repairs.refuse(token);
        self.backers.forget(token)
    }

    /// Most nodes say that the lease of `token` is gone. Nobody will release it, so what nodes got by a repair is to be
    /// released here.
    pub(super) fn lease_is_gone(&mut self, now: Instant, token: Token) {
        let Some((key, repaired)) = self.end_repairs(token) else { return };
        for node in (0..self.nodes.count()).filter(|node| repaired & 1 << node != 0) {
            self.debts.owe(now, node, &key, token, true);
        }
    }
}

/// What tells a node the fence of a lease that it has got back.
fn accepting(key: &Key, token: Token, fence: Fence, count: u32) -> Request {
    let fence = if mutants::is(Mutant::RepairWithoutFence) { Fence(1) } else { fence };
    Request::Accept { key: key.clone(), token, fence, count }
}
