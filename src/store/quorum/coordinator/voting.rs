//! Takes the answers of nodes to votes and to fences, and does what follows from them.

use super::super::call_queue::CallTag;
use super::super::pending_releases::TokenChange;
use super::super::release_result::ReleaseResult;
use super::super::vote_round::{Decision, is_certain_no};
use super::Coordinator;
use super::pending_request::PendingRequest;
use crate::lease::validity::longest_life;
use crate::lease::{Fence, Instant};
use crate::store::{AcquireRequest, Answer, Reply, Request, StoreError};

impl Coordinator {
    pub(super) fn voted(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(pending) = self.pending_requests.get_mut(&id) else { return };
        pending.vote_round.awaited -= 1;
        match &pending.vote_round.request {
            Request::Release { key, token, .. } => {
                // A node keeps an adopter's lease at least until the end of the ticket.
                let ends = pending.lease_ends.filter(|(nodes, _)| nodes & (1 << node) != 0);
                let ends = ends.map(|(_, ends)| ends).max(self.ticket_ends.of(*token, node));
                let life = pending.waited.filter(|(nodes, _)| nodes & (1 << node) != 0);
                let life = life.map(|(_, life)| life);
                let release = TokenChange { ends, life, ..TokenChange::release(key.clone(), *token) };
                self.pending_releases.released(now, node, release, &answer);
            }
            Request::Acquire(acquire) => {
                let is_refused = self.open_requests.is_refused(acquire.token);
                if !matches!(answer, Err(StoreError { maybe_done: false, .. }) | Ok(Reply::Busy { .. })) {
                    self.waiters.touched(acquire.token, node, acquire.ttl.as_duration());
                }
                match &answer {
                    Err(StoreError { maybe_done: true, .. })
                    | Ok(Reply::Acquired { .. } | Reply::Queued { .. })
                        if is_refused =>
                    {
                        let (key, life) = (acquire.key.clone(), Some(acquire.ttl.as_duration()));
                        let release = TokenChange { life, ..TokenChange::release(key, acquire.token) };
                        self.pending_releases.add(now, node, release, answer.is_err());
                    }
                    Err(error) if error.maybe_done => {
                        let life = acquire.ttl.as_duration();
                        self.pending_releases.set_in_doubt(now, node, acquire.token, life);
                    }
                    // The poll has already answered that the client waits, so treat this grant like
                    // a notice.
                    Ok(Reply::Acquired { .. }) if pending.vote_round.is_settled() => {
                        let token = acquire.token;
                        if !self.skip(now, id, 1 << node) {
                            let (enough, patience) = (self.nodes.majority(), self.majority_time);
                            let heard = self.waiters.handed(now, token, node, enough, patience);
                            self.heard(now, node, heard);
                        }
                    }
                    _ => {}
                }
            }
            Request::GiveBack { key, token, ticket } => {
                let ends = self.ticket_ends.of(*token, node);
                if ReleaseResult::of(&answer, now, ends) != ReleaseResult::Done {
                    let change = TokenChange { ends, ..TokenChange::moved(key.clone(), *token, *ticket) };
                    self.pending_releases.add_move(now, node, change, true);
                }
            }
            _ => {}
        }
        self.vote(now, id, node, answer);
    }

    /// Counts the vote of a node, and repairs the lease there if the vote is late and needs it.
    fn vote(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(pending) = self.pending_requests.get_mut(&id) else { return };
        if let Some((token, ttl)) = pending.vote_round.request.lease() {
            if pending.vote_round.is_settled() {
                match &answer {
                    Ok(reply) if reply.is_of_lease() => self.lease_nodes.joined(token, id, node),
                    _ => self.lease_nodes.refused(token, node),
                }
            }
            if !is_certain_no(&answer) {
                // The node may carry the request out until its time-out.
                self.lease_nodes.may_live(token, now + longest_life(ttl));
            } else if matches!(pending.vote_round.request, Request::Acquire(_)) {
                self.lease_nodes.not_granted(token, id, node);
            }
        }
        let is_renewed = pending.is_renewed;
        let absence = match answer {
            Ok(Reply::NotHeld(absence)) => Some(absence),
            _ => None,
        };
        let decision = pending.vote_round.voted(node, answer, &self.nodes);
        match absence {
            _ if !is_renewed => {}
            Some(absence) => self.repair_at(now, id, node, absence),
            None => self.fence_at(now, id, node),
        }
        self.follow(now, id, decision);
    }

    /// Takes the answer of a skipped node to an inspection. The waiter's next request asks the node
    /// again if the lock's holder has the lease there.
    pub(super) fn inspected_skipped(&mut self, now: Instant, id: u64, node: usize, answer: &Answer) {
        let Some(PendingRequest { vote_round, .. }) = self.pending_requests.get_mut(&id) else { return };
        vote_round.awaited -= 1;
        if let (Request::Acquire(AcquireRequest { token, .. }), Ok(Reply::Inspected(Some(info)))) =
            (&vote_round.request, answer)
        {
            self.waiters.seen(*token, node, info.leases.iter().filter_map(|lease| lease.mark));
        }
        self.follow(now, id, Decision::Open);
    }

    pub(super) fn accepted(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(pending) = self.pending_requests.get_mut(&id) else { return };
        pending.vote_round.awaited -= 1;
        if let (Some((token, _)), Some((fence, _)), Ok(Reply::Accepted)) =
            (pending.vote_round.request.lease(), pending.vote_round.fence(), &answer)
        {
            self.lease_nodes.fenced(token, node, fence);
        }
        let decision = pending.vote_round.accepted(node, answer, &self.nodes);
        self.follow(now, id, decision);
    }

    /// Does what follows from an answer.
    pub(super) fn follow(&mut self, now: Instant, id: u64, decision: Decision) {
        match decision {
            Decision::Open => {}
            Decision::Hold => self.hold(now, id),
            Decision::Accept { nodes, fence, count } => self.accept(id, &nodes, fence, count),
            Decision::Settle(answer) => self.end(now, id, answer),
        }
        if self
            .pending_requests
            .get(&id)
            .is_some_and(|pending| pending.vote_round.is_settled() && pending.vote_round.awaited == 0)
        {
            self.forget(now, id);
        }
    }

    /// Forgets a request that all nodes have answered.
    fn forget(&mut self, now: Instant, id: u64) {
        if let Some(PendingRequest { vote_round, .. }) = self.pending_requests.get(&id)
            && let Request::Acquire(AcquireRequest { token, .. }) = vote_round.request
        {
            let granted = vote_round.granted();
            if !self.skip(now, id, granted) {
                self.waiters.skip_none(token, id);
            }
        }
        let Some(PendingRequest { vote_round, .. }) = self.pending_requests.remove(&id) else { return };
        match vote_round.request {
            Request::Acquire(AcquireRequest { token, .. }) | Request::Renew { token, .. } => {
                self.open_requests.end(token);
                self.detachments.answered(token);
            }
            Request::Detach { token, .. } if vote_round.possibly_granted().next().is_none() => {
                self.count_as_adopted(token);
            }
            _ => {}
        }
    }

    fn accept(&mut self, id: u64, nodes: &[usize], fence: Fence, count: u32) {
        let Some(pending) = self.pending_requests.get_mut(&id) else { return };
        let (key, token) = match &pending.vote_round.request {
            Request::Acquire(AcquireRequest { key, token, .. }) | Request::Renew { key, token, .. } => {
                (key.clone(), *token)
            }
            _ => return,
        };
        pending.vote_round.awaited += nodes.len();
        let timeout = pending.timeout;
        for &node in nodes {
            let request = Request::Accept { key: key.clone(), token, fence, count };
            self.call_queue.add(node, timeout, request, CallTag::Accept(id));
        }
    }
}
