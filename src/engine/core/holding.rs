//! Holding: leases from the answer of the store to the release, and the clean-ups of what may be
//! left at the store. Routes between held leases, adoptions, clean-ups and the cohorts of the
//! leases.

use super::Core;
use super::state::adoptions::AdoptionEffect;
use super::state::clean_ups::{PossibleLease, Progress};
use super::state::held_leases::renewals::{Due, RenewalEffect, RenewalReply};
use super::state::held_leases::{Grant, HeldLease};
use super::state::outgoing::Outgoing;
use super::state::queue_entries::QueueEntry;
use super::state::tags::{AdoptTag, Purpose, ReleaseTag, RenewTag, Tag};
use super::state::waiters::Waiter;
use crate::engine::command::{AdoptCommand, Outcome};
use crate::engine::ids::{EnvId, OpId, StoreId};
use crate::lease::{Instant, Token, Ttl};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Reply, Request};

impl Core {
    /// Handles the timer of a lease that is due.
    pub(super) fn wake_held_lease(&mut self, op: OpId) {
        let due = self.held_leases.wake(op, &self.clients, &mut self.envs, &mut self.cx);
        self.see_to_lease(op, due);
    }

    /// Renews or detaches a lease for its holder.
    pub(super) fn renew_now(&mut self, op: OpId, purpose: Purpose, ttl: Option<Ttl>) {
        let due = self.held_leases.renew_now(op, purpose, ttl, &self.clients, &mut self.cx);
        self.see_to_lease(op, due);
    }

    fn see_to_lease(&mut self, op: OpId, due: Due) {
        match due {
            Due::Nothing => {}
            Due::Renewal(outgoing) => self.stores.send(outgoing),
            Due::Ended(held) => self.end_cohort_lease(op, &held),
        }
    }

    /// Handles the store's answer to a renewal that was sent at `sent`.
    pub(super) fn renewed(&mut self, sent: Instant, tag: RenewTag, answer: Answer) {
        let jitter = self.cx.jitter();
        let Some(op) = self.current_holder(&tag) else { return };
        let own_places = self.own_places(op);
        let reply = RenewalReply { sent, tag, answer, own_places, jitter };
        match self.held_leases.renewed(op, reply, &self.clients, &mut self.cx) {
            RenewalEffect::Nothing => {}
            RenewalEffect::Lost(held) => self.end_cohort_lease(op, &held),
            RenewalEffect::Detached(held) => {
                self.end_cohort_lease(op, &held);
                if !held.outlives() {
                    self.add_unseen_ticket(op.env, &held);
                }
            }
        }
    }

    /// Notes that a caller of `env` is about to get the ticket of a detached lease. If the
    /// environment ends before, the lease is released.
    fn add_unseen_ticket(&mut self, env: EnvId, held: &HeldLease) {
        let clean_up = self.add_clean_up(held.left_at_store(self.cx.now));
        self.unseen_tickets.add(env, held.token, clean_up);
    }

    /// Notes that the caller has the ticket: from now on, the lease belongs to its adopter.
    pub(super) fn see_ticket(&mut self, env: EnvId, token: Token) {
        if let Some(id) = self.unseen_tickets.see(env, token) {
            let progress = self.clean_ups.forget(id);
            self.see_to_clean_up(progress);
        }
    }

    /// Returns the current holder of the lease that `tag.op` had when the request was sent.
    fn current_holder(&self, tag: &RenewTag) -> Option<OpId> {
        let has_it = |op: &OpId| self.held_leases.has(*op, tag.token);
        if has_it(&tag.op) {
            return Some(tag.op);
        }
        self.cohorts.get(&(tag.client, tag.key.clone()))?.holder().filter(has_it)
    }

    /// Returns how many places in the store's queue belong to the holder's own cohort.
    fn own_places(&self, op: OpId) -> u32 {
        let cohort = self.held_leases.get(op).and_then(|held| self.cohorts.get(&held.cohort()));
        let entry = cohort.filter(|cohort| cohort.holder() == Some(op)).and_then(|cohort| cohort.entry());
        let entry = entry.and_then(|entry| self.queue_entries.get(entry));
        u32::from(entry.is_some_and(QueueEntry::is_queued))
    }

    /// Releases a lease whose state is already *released*.
    pub(super) fn release(&mut self, op: OpId) {
        // The engine has ended the lease already, so there is nothing to send to the store.
        let Some(mut held) = self.held_leases.release(op) else {
            return self.cx.settle(op, Outcome::Released(false));
        };
        if self.hand_on(op, &mut held) {
            return self.cx.settle(op, Outcome::Released(true));
        }
        // Do this before the release, so that the store does not hand the lease to a place that no
        // waiter needs.
        self.end_cohort_lease(op, &held);
        let (used, until) = (held.last_used(), held.expiry(self.cx.now));
        let (client, store, key, token) = (held.client, held.store, held.key, held.token);
        let (timeout, _) = self.clients.begin_release(client);
        let tag = Tag::Release(ReleaseTag { op, client, key: key.clone(), token, until });
        let request = Request::Release { key, token, used };
        self.stores.send(Outgoing { store, request, tag, timeout });
    }

    /// Releases what a prolongation may have left at the store of a lost lease. The holder has
    /// released the lease, so no work runs under it any more.
    pub(super) fn release_lost(&mut self, op: OpId, token: Token) {
        // The JavaScript thread may see the loss before this thread does.
        if self.held_leases.has(op, token)
            && let Some(held) = self.held_leases.lose_if_lost(op, &mut self.cx)
        {
            self.end_cohort_lease(op, &held);
        }
        if let Some(lease) = self.held_leases.lost_prolongations.take_of(token) {
            self.clean_up(lease);
        }
    }

    /// Releases a lost lease, which would have ended by now without its prolongation.
    pub(super) fn wake_lost_prolongation(&mut self, id: u64) {
        if let Some(lease) = self.held_leases.lost_prolongations.take(id) {
            self.clean_up(lease);
        }
    }

    /// Handles the store's answer to a release that the holder waits for.
    pub(super) fn gave_back(&mut self, store: StoreId, tag: ReleaseTag, answer: Answer) {
        let ReleaseTag { op, client, key, token, until } = tag;
        let mut left =
            PossibleLease { client, store, key, token, from_ticket: None, until, straggler: false };
        match answer {
            Ok(reply) => {
                self.cx.settle(op, Outcome::Released(reply == Reply::Released));
                if let Some(until) = self.clean_ups.settle_doubt(token, self.cx.now) {
                    (left.until, left.straggler) = (until, true);
                    let id = self.add_clean_up(left);
                    let progress = self.clean_ups.repeat(id, &mut self.cx);
                    self.see_to_clean_up(progress);
                }
            }
            Err(error) => {
                self.clients.count_error(client);
                let id = self.add_clean_up(left);
                let progress = self.clean_ups.retry(id, &mut self.cx);
                self.see_to_clean_up(progress);
                self.cx.settle(op, Outcome::Failed(error));
            }
        }
        self.clients.end_request(client, &mut self.cx);
    }

    /// Gives back a lease whose grant the caller will never see, because it cancelled.
    pub(super) fn give_back_unseen(&mut self, op: OpId) {
        let Some(held) = self.held_leases.abort(op, self.cx.now) else { return };
        self.end_cohort_lease(op, &held);
        self.clean_up(held.left_unseen(self.cx.now));
    }

    /// Releases a lease that a token may have, and repeats that until the store has answered.
    pub(super) fn clean_up(&mut self, lease: PossibleLease) {
        if mutants::is(Mutant::NoCleanUp) {
            return;
        }
        let id = self.add_clean_up(lease);
        self.wake_clean_up(id);
    }

    fn add_clean_up(&mut self, lease: PossibleLease) -> u64 {
        self.stores.begin_clean_up(lease.store);
        let (timeout, counted) = self.clients.begin_release(lease.client);
        self.clean_ups.add(lease, timeout, counted, &mut self.cx)
    }

    pub(super) fn wake_clean_up(&mut self, id: u64) {
        if let Some(outgoing) = self.clean_ups.release(id) {
            self.stores.send(outgoing);
        }
    }

    /// Handles the store's answer to the release of a clean-up.
    pub(super) fn cleaned_up(&mut self, id: u64, answer: Answer) {
        let progress = self.clean_ups.answered(id, answer, &mut self.cx);
        self.see_to_clean_up(progress);
    }

    fn see_to_clean_up(&mut self, progress: Progress) {
        match progress {
            Progress::Continues => {}
            Progress::Uncounted(client) => self.clients.end_request(client, &mut self.cx),
            Progress::Ended { store, counted } => {
                self.stores.end_clean_up(store, &mut self.cx);
                if let Some(client) = counted {
                    self.clients.end_request(client, &mut self.cx);
                }
            }
        }
    }

    pub(super) fn adopt(&mut self, command: AdoptCommand) {
        let AdoptCommand { acquire, from, fence, with_ttl } = command;
        let op = acquire.op;
        let Some(client) = self.clients.get_acquiring(acquire.client) else {
            return self.cx.settle(op, Outcome::Closed);
        };
        let adopter = Waiter::new(acquire, client.store, client.settings.stats.clone(), self.cx.now);
        self.adoptions.add(adopter, from, fence, with_ttl, self.cx.now);
        self.try_to_adopt(op);
    }

    /// Asks the store to move a lease to its adopter.
    pub(super) fn try_to_adopt(&mut self, op: OpId) {
        if let Some(outgoing) = self.adoptions.ask(op, &mut self.clients) {
            self.stores.send(outgoing);
        }
    }

    /// Handles the store's answer to an adoption that was sent at `sent`.
    pub(super) fn adopted(&mut self, store: StoreId, sent: Instant, tag: AdoptTag, answer: Answer) {
        let (op, client, token, ticket) = (tag.op, tag.client, tag.adopter, tag.from);
        let outdated = self.stores.is_outdated(store, sent);
        match self.adoptions.answered(store, sent, tag, answer, outdated, &mut self.cx) {
            AdoptionEffect::Nothing => {}
            AdoptionEffect::AskAgain => self.try_to_adopt(op),
            AdoptionEffect::CleanUp(lease) => self.clean_up(lease),
            AdoptionEffect::Adopted { adopter, fence } => {
                let (ttl, jitter) = (adopter.acquire.ttl, self.cx.jitter());
                let grant = Grant::new(token, fence, ttl, sent, jitter, self.cx.now).by_adoption(ticket);
                self.held_leases.start(adopter, grant, true, &self.clients, &mut self.cx);
            }
        }
        self.clients.end_request(client, &mut self.cx);
    }

    /// Ends the adoption `op` with `outcome`.
    pub(super) fn end_adoption(&mut self, op: OpId, outcome: Outcome) {
        if let Some(lease) = self.adoptions.end(op, outcome, &mut self.cx) {
            self.clean_up(lease);
        }
    }
}
