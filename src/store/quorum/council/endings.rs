//! Ends requests whose outcome is decided.

use super::super::backers::{Decision, Terms};
use super::super::reports::missing_leases;
use super::motion::Motion;
use super::{Council, LONGEST_PATIENCE};
use crate::lease::{Instant, Key, Token};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Ask, Reply, Request};

impl Council {
    pub(super) fn end(&mut self, now: Instant, id: u64, mut answer: Answer) {
        let Some(motion) = self.motions.get(&id) else { return };
        let (batch, index, asked, held) = (motion.batch, motion.index, motion.asked, motion.held);
        let key = motion.ballot.request.key().cloned();
        if let (Request::Acquire(Ask { token, .. }), Some(key)) = (&motion.ballot.request, key.as_ref()) {
            self.acquire_ended(now, id, key, *token, &answer);
        }
        self.count(now, id, &answer);
        if let Ok(Reply::Diagnosed(reports)) = &mut answer {
            let is_open =
                |ballot: u64| self.motions.contains_key(&ballot) || self.adoptions.contains_key(&ballot);
            let (missing, all) = self.backers.missing(now, self.nodes.count(), is_open);
            missing_leases(&self.nodes, &missing, all, reports);
        }
        // Leave out requests that held a minority: their waiting would make each next wait longer.
        if answer.is_ok() && !held {
            let took = now.since(asked);
            self.trip = (self.trip * 7 + took.min(LONGEST_PATIENCE)) / 8;
        }
        self.settle(now, batch, index, key, answer);
    }

    /// Notes which nodes back a lease that was granted or renewed. After a renewal, repairs the
    /// lease at nodes that do not know it.
    pub(super) fn count(&mut self, now: Instant, id: u64, answer: &Answer) {
        let Some(motion) = self.motions.get_mut(&id) else { return };
        let ballot = &motion.ballot;
        let Some((token, ttl)) = ballot.request.lease() else { return };
        let decision = Decision {
            ballot: id,
            nodes: ballot.agreeing(),
            fenced: ballot.fenced(),
            asked: motion.asked,
            ttl: ttl.as_duration(),
        };
        match (answer, &ballot.request) {
            // No client of this process holds a detached lease.
            (Ok(Reply::Renewed { .. }), Request::Detach { .. }) => drop(self.backers.forget(token)),
            (Ok(Reply::Acquired { fence, .. }), Request::Acquire(ask)) => {
                let Ask { key, mode, holder, outlives_process, fences, .. } = ask.clone();
                let fences = (*fence, fences);
                let terms = Terms { key, mode, holder, outlives_process, fences, ticket: None };
                self.backers.granted(now, token, decision, terms);
            }
            (Ok(Reply::Renewed { .. }), Request::Renew { .. }) => {
                motion.is_renewed = self.backers.renewed(now, token, decision, ballot.fence());
                if motion.is_renewed {
                    self.repair(now, id);
                }
            }
            (Ok(Reply::NotHeld(_)), _) if mutants::is(Mutant::RepairWithoutMajority) => self.repair(now, id),
            (Ok(Reply::NotHeld(_)), _) => self.lease_is_gone(now, token),
            _ => {}
        }
    }

    pub(super) fn acquire_ended(&mut self, now: Instant, id: u64, key: &Key, token: Token, answer: &Answer) {
        let patience = self.patience();
        let Some(motion) = self.motions.get_mut(&id) else { return };
        let granted = motion.ballot.granted();
        match answer {
            Ok(Reply::Queued { .. }) => {
                self.places.queued(now, token, id, granted, patience);
                self.spare(now, id, granted);
            }
            Ok(Reply::Busy { .. }) => {
                for node in motion.ballot.doubtful() {
                    self.debts.owe(now, node, key, token, true);
                }
                self.refuse(token);
            }
            // The token is not used again: release what it has at some nodes.
            Err(_) => {
                let touched = granted | self.places.touched_by(token);
                for node in motion.ballot.doubtful() {
                    self.debts.owe(now, node, key, token, true);
                }
                for node in (0..self.nodes.count()).filter(|node| touched & 1 << node != 0) {
                    self.debts.owe(now, node, key, token, false);
                }
                self.refuse(token);
            }
            Ok(_) => self.places.forget(token),
        }
    }

    /// Lets the next requests of a waiter spare the nodes `granted` if another client holds most
    /// nodes: the waiter's leases there end, and the holder gets these nodes back. `id` is the
    /// waiter's request. Returns true if another client holds most nodes.
    pub(super) fn spare(&mut self, now: Instant, id: u64, granted: u64) -> bool {
        let Some(Motion { ballot, .. }) = self.motions.get(&id) else { return false };
        let Request::Acquire(Ask { token, ttl, place: Some(_), .. }) = &ballot.request else { return false };
        let Some(holder) = ballot.held_by(self.nodes.majority()) else { return false };
        self.places.spare(*token, id, granted, holder, now + ttl.as_duration());
        true
    }

    /// Notes that a lease that a node still grants `token` will not be used.
    pub(super) fn refuse(&mut self, token: Token) {
        self.asking.refuse(token);
        self.places.forget(token);
    }
}
