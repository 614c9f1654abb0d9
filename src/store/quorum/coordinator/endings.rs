//! Ends requests whose outcome is decided.

use super::super::lease_nodes::{Agreement, LeaseTerms};
use super::super::pending_releases::TokenChange;
use super::super::reports::missing_leases;
use super::pending_request::PendingRequest;
use super::{Coordinator, LONGEST_PATIENCE};
use crate::lease::validity::longest_life;
use crate::lease::{Instant, Key, Token};
use crate::mutants::{self, Mutant};
use crate::store::{AcquireRequest, Answer, Reply, Request};

impl Coordinator {
    pub(super) fn end(&mut self, now: Instant, id: u64, mut answer: Answer) {
        let Some(pending) = self.pending_requests.get(&id) else { return };
        let (batch, index, asked, held) = (pending.batch, pending.index, pending.asked, pending.held);
        let key = pending.vote_round.request.key().cloned();
        if let (Request::Acquire(AcquireRequest { token, .. }), Some(key)) =
            (&pending.vote_round.request, key.as_ref())
        {
            self.acquire_ended(now, id, key, *token, &answer);
        }
        self.track_lease(now, id, &answer);
        if let Ok(Reply::Diagnosed(reports)) = &mut answer {
            let is_open = |vote_round: u64| {
                self.pending_requests.contains_key(&vote_round) || self.adoptions.contains(vote_round)
            };
            let (missing, all) = self.lease_nodes.missing(now, self.nodes.count(), is_open);
            missing_leases(&self.nodes, &missing, all, reports);
        }
        // Leave out requests that waited for more nodes: otherwise, each wait would make the next
        // one longer.
        if answer.is_ok() && !held {
            let took = now.since(asked);
            self.majority_time = (self.majority_time * 7 + took.min(LONGEST_PATIENCE)) / 8;
        }
        self.settle(now, batch, index, key, answer);
    }

    /// Notes which nodes back a lease that was granted or renewed. After a renewal, repairs the
    /// lease at nodes that do not know it.
    pub(super) fn track_lease(&mut self, now: Instant, id: u64, answer: &Answer) {
        let Some(pending) = self.pending_requests.get_mut(&id) else { return };
        let vote_round = &pending.vote_round;
        let Some((token, ttl)) = vote_round.request.lease() else { return };
        let agreement = Agreement {
            vote_round: id,
            nodes: vote_round.agreeing(),
            answered: vote_round.answered(),
            undone: vote_round.undone(),
            fenced: vote_round.fenced(),
            asked: pending.asked,
            ttl: ttl.as_duration(),
        };
        match (answer, &vote_round.request) {
            (Ok(Reply::Renewed { .. }), Request::Detach { .. }) => self.detached(now, token),
            (Ok(Reply::Acquired { fence, .. }), Request::Acquire(acquire)) => {
                let AcquireRequest { key, mode, holder, outlives_process, fences, .. } = acquire.clone();
                let fences = (*fence, fences);
                let terms = LeaseTerms { key, mode, holder, outlives_process, fences, ticket: None };
                self.lease_nodes.granted(now, token, agreement, terms);
                self.lease_nodes.may_live(token, now + longest_life(ttl));
            }
            (Ok(Reply::Renewed { .. }), Request::Renew { .. }) => {
                pending.is_renewed = self.lease_nodes.renewed(now, token, agreement, vote_round.fence());
                if pending.is_renewed {
                    self.repair(now, id);
                    self.count_as_adopted(token);
                }
            }
            (Ok(Reply::NotHeld(_)), _) if mutants::is(Mutant::RepairWithoutMajority) => self.repair(now, id),
            (Ok(Reply::NotHeld(_)), _) => self.lease_is_gone(now, token),
            _ => {}
        }
    }

    pub(super) fn acquire_ended(&mut self, now: Instant, id: u64, key: &Key, token: Token, answer: &Answer) {
        let patience = self.patience();
        let Some(pending) = self.pending_requests.get_mut(&id) else { return };
        let granted = pending.vote_round.granted();
        let life = match &pending.vote_round.request {
            Request::Acquire(AcquireRequest { ttl, .. }) => Some(ttl.as_duration()),
            _ => None,
        };
        let release = || TokenChange { life, ..TokenChange::release(key.clone(), token) };
        match answer {
            Ok(Reply::Queued { .. }) => {
                self.waiters.queued(now, token, id, granted, patience);
                self.skip(now, id, granted);
            }
            Ok(Reply::Busy { .. }) => {
                for node in pending.vote_round.possibly_granted() {
                    self.pending_releases.add(now, node, release(), true);
                }
                self.refuse(token);
            }
            // The token is not used again, so release what it may have at the nodes.
            Err(_) => {
                let touched = granted | self.waiters.touched_by(token).map_or(0, |(nodes, _)| nodes);
                for node in pending.vote_round.possibly_granted() {
                    self.pending_releases.add(now, node, release(), true);
                }
                for node in (0..self.nodes.count()).filter(|node| touched & 1 << node != 0) {
                    self.pending_releases.add(now, node, release(), false);
                }
                self.refuse(token);
            }
            Ok(_) => self.waiters.forget(token),
        }
    }

    /// Lets the next requests of a waiter skip the nodes `granted` if another client holds most
    /// nodes: the waiter's leases there end, and the holder gets these nodes back. `id` is the
    /// waiter's request. Returns true if another client holds most nodes.
    pub(super) fn skip(&mut self, now: Instant, id: u64, granted: u64) -> bool {
        let Some(PendingRequest { vote_round, .. }) = self.pending_requests.get(&id) else { return false };
        let Request::Acquire(AcquireRequest { token, ttl, place: Some(_), .. }) = &vote_round.request else {
            return false;
        };
        let Some(holder) = vote_round.held_by(self.nodes.majority()) else { return false };
        self.waiters.skip(*token, id, granted, holder, now + ttl.as_duration());
        true
    }

    /// Notes that the client does not want a lease for `token` any more. If a node still grants
    /// one, the quorum releases it.
    pub(super) fn refuse(&mut self, token: Token) {
        self.open_requests.refuse(token);
        self.waiters.forget(token);
    }
}
