//! Polling: a queue entry from its first poll to the lease. Routes between queue entries, the
//! waiters and cohorts that they serve, and held leases.
//!
//! **Early take-up.** A waiter takes up its lease as soon as a notice tells the fence, without
//! another request to the store. This is safe because the notice has the number of a poll that the
//! store has answered, and the lease was granted after that poll. So the lease lives for at least
//! its ttl or [`GRANT_TTL`](crate::store::GRANT_TTL) after that poll was sent, however late the
//! notice is. The engine sends a renewal at the same time, which gives the lease its whole ttl.

use std::time::Duration;

use super::Core;
use super::state::cohorts::Cohort;
use super::state::held_leases::{Grant, grant_ttl};
use super::state::queue_entries::replies::{Held, PollReply};
use super::state::queue_entries::{Asker, QueueEntry, Recipient};
use super::state::tags::AcquireTag;
use super::state::waiters::Waiter;
use crate::engine::command::Outcome;
use crate::engine::ids::{OpId, StoreId};
use crate::lease::hand_off::HandOffBudget;
use crate::lease::{Fence, Instant, Mode, validity};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, GRANT_FENCES, StoreError};

/// The least time that has to be left of the lease, for the renewal.
const LEAST_TIME_LEFT: Duration = Duration::from_millis(250);

/// Returns how much time has to be left of a lease that lives for `ttl`. With
/// [`GRANT_TTL`](crate::store::GRANT_TTL), that is enough for a store that is writing to a busy
/// disk: such a write has taken half a second.
fn least_time_left(ttl: Duration) -> Duration {
    LEAST_TIME_LEFT.max(ttl * 2 / 5)
}

impl Core {
    /// Lets a queue entry whose time has come poll again. A cohort without waiters does not poll,
    /// so it loses its place.
    pub(super) fn wake_entry(&mut self, number: u64) {
        let Some(entry) = self.queue_entries.get(number) else { return };
        if entry.recipient == Recipient::Cohort && self.cohorts.take_idle_entry(&entry.cohort(), number) {
            self.drop_entry(number);
        } else {
            self.poll(number);
        }
    }

    /// Asks the store for the lock. If a poll is on its way, asks again at once if that poll finds
    /// the lock held.
    pub(super) fn poll(&mut self, number: u64) {
        let Some(entry) = self.queue_entries.get(number) else { return };
        let (waits, is_crowd, first) = match entry.recipient {
            Recipient::One(op) => (self.waiters.waits(op), false, Some(op)),
            Recipient::Cohort => {
                let cohort = self.cohorts.get(&entry.cohort());
                (true, cohort.is_some_and(Cohort::is_crowd), cohort.and_then(Cohort::head))
            }
        };
        // In a cohort, this is the waiter that is the first one now, not the one that was the first
        // when the cohort got its place.
        let first = first.and_then(|op| self.waiters.get(op));
        let asker = Asker { waits, is_crowd, holder: first.and_then(|waiter| waiter.acquire.holder.clone()) };
        if let Some(outgoing) = self.queue_entries.poll(number, asker, &mut self.clients) {
            self.stores.send(outgoing);
        }
    }

    /// Handles the store's answer to a poll that was sent at `sent`.
    pub(super) fn polled(&mut self, store: StoreId, sent: Instant, tag: AcquireTag, answer: Answer) {
        let (number, client) = (tag.entry, tag.client);
        let outdated = self.stores.is_outdated(store, sent);
        match self.queue_entries.answered(store, sent, tag, answer, outdated, self.cx.now) {
            PollReply::Nothing => {}
            PollReply::Abandoned(_)
                if mutants::is(Mutant::FailedFastKept) && self.stores.is_unusable(store) => {}
            PollReply::Abandoned(lease) => self.clean_up(lease),
            PollReply::PollAgain => self.poll(number),
            PollReply::Granted { tag, fence, waiting } => self.granted(tag, sent, fence, waiting),
            PollReply::Busy(op) => self.found_busy(op),
            PollReply::Held(held) => self.poll_later(number, &held),
            PollReply::Split(lease) => {
                self.clean_up(lease);
                self.back_off(number);
            }
            PollReply::Failed(error) => self.poll_failed(number, error),
        }
        self.clients.end_request(client, &mut self.cx);
    }

    /// Lets a queue entry pause because neither it nor another process has most nodes of a quorum.
    /// A pause of random length lets one process get the nodes (Ongaro and Ousterhout, "In search
    /// of an understandable consensus algorithm", 2014, on split votes).
    fn back_off(&mut self, number: u64) {
        let Some(entry) = self.queue_entries.get(number) else { return };
        match entry.recipient {
            Recipient::One(op) if !self.waiters.waits(op) => self.found_busy(op),
            _ => self.poll_later(number, &Held::default()),
        }
    }

    /// Gives the lease to the waiter that the queue entry serves.
    fn granted(&mut self, tag: AcquireTag, sent: Instant, fence: Fence, waiting: u32) {
        let Some((entry, waiter)) = self.take_entry(tag.entry) else { return };
        let Some(waiter) = waiter else {
            // All waiters have left while the cohort's own lease was still held.
            let (id, store) = (entry.cohort(), entry.lock_request.store);
            self.clean_up(tag.possible_lease(store, self.cx.now, false));
            let place = self.cohorts.place(&id);
            return self.see_to_place(&id, place);
        };
        let is_cohort = entry.recipient == Recipient::Cohort;
        let most = self.clients.hand_offs(tag.client);
        let budget = is_cohort
            .then(|| HandOffBudget::new(most, Fence(fence.0 + 1), tag.fences - 1, waiting > 0, sent));
        let (op, ttl, jitter) = (waiter.acquire.op, waiter.acquire.ttl, self.cx.jitter());
        let grant = Grant::new(tag.token, fence, ttl, sent, jitter, self.cx.now).with_budget(budget);
        self.held_leases.start(waiter, grant, true, &self.clients, &mut self.cx);
        if is_cohort {
            let id = entry.cohort();
            let place = self.cohorts.set_holder(&id, op);
            self.see_to_place(&id, place);
        }
    }

    /// Removes a queue entry that has the lease. Also removes the waiter that it serves, if there
    /// still is one.
    fn take_entry(&mut self, number: u64) -> Option<(QueueEntry, Option<Waiter>)> {
        let entry = self.queue_entries.remove(number)?;
        let waiter = match entry.recipient {
            Recipient::One(op) => self.waiters.take(op),
            Recipient::Cohort => {
                let id = entry.cohort();
                let waiter = self.cohorts.take_turn(&id).and_then(|op| self.waiters.take(op));
                if let Some(waiter) = &waiter {
                    self.cohorts.serve(&id, waiter.arrival);
                }
                waiter
            }
        };
        if let Some(waiter) = waiter.as_ref().filter(|_| entry.is_queued()) {
            waiter.stats.waited_for(self.cx.now.since(waiter.since));
            waiter.stats.remote_hand_offs.up();
        }
        Some((entry, waiter))
    }

    /// Takes up the exclusive lease with `fence` that the place `number` of the queue entry `id`
    /// was handed. Returns `false` if the engine has to ask the store.
    pub(super) fn take_up(&mut self, id: u64, number: u64, fence: Fence) -> bool {
        let now = self.cx.now;
        let Some(entry) = self.queue_entries.get(id) else { return true };
        let Some(sent) = entry.place_since(number) else { return false };
        let sent = if mutants::is(Mutant::GrantFromNotice) { now } else { sent };
        let ttl = entry.lock_request.ttl.min(grant_ttl());
        let deadline = validity::deadline(sent, ttl);
        if deadline.since(now) < least_time_left(ttl.as_duration()) || !self.may_take_up(entry) {
            return false;
        }
        let Some((entry, Some(waiter))) = self.take_entry(id) else { return true };
        let is_cohort = entry.recipient == Recipient::Cohort;
        let most = self.clients.hand_offs(entry.lock_request.client);
        // The notice does not tell whether others wait, so assume that they do.
        let budget =
            is_cohort.then(|| HandOffBudget::new(most, Fence(fence.0 + 1), GRANT_FENCES - 1, true, now));
        let token = entry.lock_request.token;
        let grant = Grant::on_notice(token, fence, ttl, deadline, now).with_budget(budget);
        let op = waiter.acquire.op;
        self.held_leases.start(waiter, grant, true, &self.clients, &mut self.cx);
        if is_cohort {
            let id = entry.cohort();
            let place = self.cohorts.set_holder(&id, op);
            self.see_to_place(&id, place);
            self.refill(&id);
        }
        if let Some(outgoing) = self.held_leases.confirm(op, &self.clients, now) {
            self.stores.send(outgoing);
        }
        true
    }

    /// Returns whether a waiter of the queue entry wants an exclusive lease that is renewed.
    fn may_take_up(&self, entry: &QueueEntry) -> bool {
        let is_wanted = match entry.recipient {
            Recipient::One(op) => self.waiters.get(op).is_some_and(|waiter| waiter.acquire.auto_renew),
            Recipient::Cohort => self.cohorts.get(&entry.cohort()).is_some_and(Cohort::has_waiters),
        };
        is_wanted && entry.lock_request.mode == Mode::Exclusive
    }

    /// Lets a queue entry poll again when the lease in the way may have changed.
    fn poll_later(&mut self, number: u64, held: &Held) {
        let Some((recipient, at_once)) = self.queue_entries.wait(number, held, &mut self.cx) else { return };
        if at_once {
            self.poll(number);
        }
        self.start_patience_of(number, recipient);
    }

    /// Handles a failure of the store. The queue entry polls again later if that may help and a
    /// waiter still waits. Otherwise its waiters fail.
    fn poll_failed(&mut self, number: u64, error: StoreError) {
        let jitter = 0.5 + 0.5 * self.cx.jitter();
        let Some((recipient, in_doubt)) = self.queue_entries.failed(number, &error) else { return };
        if let Some((token, ttl)) = in_doubt {
            self.clean_ups.doubt(token, ttl, self.cx.now);
        }
        let once = matches!(recipient, Recipient::One(op) if !self.waiters.waits(op));
        if once || !error.kind.is_transient() {
            return self.fail_entry(number, &error);
        }
        self.fail_fast(number, &error);
        if self.queue_entries.retry(number, error, jitter, &mut self.cx) {
            self.start_patience_of(number, recipient);
        }
    }

    /// Starts the patience of the waiter that the queue entry serves, because that waiter has to
    /// wait. In a cohort, this is the first waiter; the patience of the others started when they
    /// came.
    fn start_patience_of(&mut self, number: u64, recipient: Recipient) {
        let op = match recipient {
            Recipient::One(op) => Some(op),
            Recipient::Cohort => {
                let id = self.queue_entries.get(number).map(QueueEntry::cohort);
                id.and_then(|id| self.cohorts.get(&id)).and_then(Cohort::head)
            }
        };
        if let Some(op) = op {
            self.waiters.start_patience(op, &mut self.cx);
        }
    }

    /// Returns the waiters that the queue entry serves.
    fn served_by(&self, entry: &QueueEntry) -> Vec<OpId> {
        match entry.recipient {
            Recipient::One(op) => vec![op],
            Recipient::Cohort => {
                let cohort = self.cohorts.get(&entry.cohort());
                cohort.map(|cohort| cohort.waiters().collect()).unwrap_or_default()
            }
        }
    }

    /// Ends the waiters of the queue entry that fail fast, because a poll failed while the store is
    /// not usable. If the queue entry has no other waiters, it is then gone.
    fn fail_fast(&mut self, number: u64, error: &StoreError) {
        let Some(entry) = self.queue_entries.get(number) else { return };
        if !self.stores.is_unusable(entry.lock_request.store) {
            return;
        }
        for op in self.served_by(entry) {
            if self.waiters.get(op).is_some_and(|waiter| waiter.acquire.fail_fast) {
                self.fail(op, error);
            }
        }
    }

    /// Fails one of several waiters. A panic does not keep the others from failing.
    pub(super) fn fail(&mut self, op: OpId, error: &StoreError) {
        self.catch_panic(Some(op), |core| core.end_waiter(op, Outcome::Failed(error.clone())));
    }

    /// Ends the waiters of the queue entry without a lease.
    fn fail_entry(&mut self, number: u64, error: &StoreError) {
        let Some(entry) = self.queue_entries.get(number) else { return };
        let (cohort, is_cohort) = (entry.cohort(), entry.recipient == Recipient::Cohort);
        for op in self.served_by(entry) {
            self.end_waiter(op, Outcome::Failed(error.clone()));
        }
        // The cohort may have no waiters any more, but a lease.
        if is_cohort && self.cohorts.get(&cohort).is_some_and(|cohort| cohort.entry() == Some(number)) {
            self.cohorts.take_entry(&cohort);
            self.drop_entry(number);
        }
    }

    /// Gives up the place of a queue entry, and a lease that its polls may have left at the store.
    pub(super) fn drop_entry(&mut self, number: u64) {
        if let Some(lease) = self.queue_entries.give_up(number, self.cx.now) {
            self.clean_up(lease);
        }
    }
}
