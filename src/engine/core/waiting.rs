//! Waiting: an acquire from its command to its place at the store, or to its end without a lease.
//! Routes between waiters, cohorts and queue entries; each waiter is served by a queue entry of its
//! own or by that of its cohort.

use super::Core;
use super::state::cohorts::{Cohort, Place};
use super::state::queue_entries::{LastReply, Recipient};
use super::state::waiters::Waiter;
use crate::engine::command::{AcquireCommand, Outcome, Wait};
use crate::engine::ids::{ClientId, CohortId, OpId};
use crate::lease::Key;
use crate::store::{StoreError, StoreErrorKind};

impl Core {
    pub(super) fn acquire(&mut self, acquire: AcquireCommand) {
        let op = acquire.op;
        let Some(client) = self.clients.get_acquiring(acquire.client) else {
            return self.cx.settle(op, Outcome::Closed);
        };
        // While the store is unusable, an acquire that fails fast gets a queue entry of its own:
        // the one of its cohort may pause, or wait for a silent server.
        let fails_at_once = acquire.fail_fast && self.stores.is_unusable(client.store);
        let mut waiter = Waiter::new(acquire, client.store, client.settings.stats.clone(), self.cx.now);
        waiter.arrival = self.waiters.next_arrival();
        // If the patience is longer than the store's time-out, it starts when the store has
        // answered. A timer for each acquire that is granted at once would cost more than the
        // acquire.
        let times_out_first =
            waiter.give_up.is_some_and(|at| at.since(self.cx.now) < client.settings.store_timeout);
        let may_join_cohort = client.settings.hand_offs > 0 && !fails_at_once && waiter.may_join_cohort();
        let joined = if may_join_cohort { self.cohorts.join(&waiter.acquire, waiter.arrival) } else { None };
        self.waiters.add(waiter);
        match joined {
            Some((cohort, is_first)) => {
                self.leave_inherited_place(&cohort);
                let place = self.cohorts.place(&cohort);
                self.see_to_place(&cohort, place);
                self.refill(&cohort);
                if !is_first {
                    self.waiters.start_patience(op, &mut self.cx);
                }
            }
            None => self.serve_alone(op),
        }
        if times_out_first {
            self.waiters.start_patience(op, &mut self.cx);
        }
    }

    /// Gives the waiter a queue entry of its own.
    fn serve_alone(&mut self, op: OpId) {
        let Some(lock_request) = self.waiters.lock_request(op) else { return };
        let entry = self.queue_entries.add(lock_request, Recipient::One(op), &mut self.cx);
        self.waiters.set_entry(op, entry);
        self.poll(entry);
    }

    /// Gives up a place that was kept without waiters, if other processes wait: the waiter that has
    /// just come to the cohort goes behind theirs.
    fn leave_inherited_place(&mut self, id: &CohortId) {
        if let Some(holder) = self.cohorts.holder_with_one_waiter(id)
            && self.held_leases.others_wait(holder)
            && let Some(entry) = self.cohorts.take_entry(id)
        {
            self.drop_entry(entry);
        }
    }

    /// Takes or gives up the cohort's place at the store after the cohort has changed.
    pub(super) fn see_to_place(&mut self, id: &CohortId, place: Place) {
        match place {
            Place::Keep => {}
            Place::Leave(entry) => self.drop_entry(entry),
            Place::Take(head) => {
                let Some(lock_request) = self.waiters.lock_request(head) else { return };
                let entry = self.queue_entries.add(lock_request, Recipient::Cohort, &mut self.cx);
                self.cohorts.set_entry(id, entry);
                self.poll(entry);
            }
        }
    }

    pub(super) fn wake_waiter(&mut self, op: OpId) {
        if self.waiters.wake(op, &mut self.cx) {
            self.give_up(op);
        }
    }

    /// Ends a waiter whose patience is over.
    fn give_up(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get(op) else { return };
        let in_cohort = || self.cohorts.get(&waiter.cohort());
        let entry = waiter.entry.or_else(|| in_cohort().and_then(Cohort::entry));
        let held_here = in_cohort().is_some_and(|cohort| cohort.holder().is_some());
        let last = entry.and_then(|number| self.queue_entries.get(number)).map(|entry| entry.last_reply());
        match last.cloned() {
            Some(LastReply::Failed(error)) => self.end_waiter(op, Outcome::Failed(error)),
            Some(LastReply::Unanswered) | None if !held_here => {
                let message = "the store did not answer within the time that the acquire would wait";
                let error = StoreError::maybe_done(StoreErrorKind::TimedOut, message);
                self.end_waiter(op, Outcome::Failed(error));
            }
            _ => self.time_out(op),
        }
    }

    fn time_out(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get(op) else { return };
        waiter.stats.timeouts.up();
        let by_itself = self.cohorts.get(&waiter.cohort()).is_some_and(|cohort| cohort.holder().is_some());
        self.end_waiter(op, Outcome::TimedOut { by_itself });
    }

    /// Ends a waiter that polls only once, because the lock is held.
    pub(super) fn found_busy(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get(op) else { return };
        waiter.stats.contended.up();
        match waiter.acquire.wait {
            Wait::Never => self.end_waiter(op, Outcome::Busy),
            _ => self.time_out(op),
        }
    }

    /// Ends an acquire without a lease, and gives up its place at the store.
    pub(super) fn end_waiter(&mut self, op: OpId, outcome: Outcome) {
        let Some(waiter) = self.waiters.take(op) else { return };
        match waiter.entry {
            Some(entry) => self.drop_entry(entry),
            None => {
                let id = waiter.cohort();
                let place = self.cohorts.leave(&id, waiter.arrival);
                self.see_to_place(&id, place);
            }
        }
        self.cx.settle(op, outcome);
    }

    pub(super) fn cancel(&mut self, op: OpId) {
        if let Some(waiter) = self.waiters.get(op) {
            waiter.stats.aborted.up();
            self.end_waiter(op, Outcome::Cancelled);
        } else if self.adoptions.contains(op) {
            self.end_adoption(op, Outcome::Cancelled);
        } else if self.held_leases.contains(op) {
            self.give_back_unseen(op);
            self.cx.settle(op, Outcome::Cancelled);
        }
        // Otherwise its last outcome is already on its way to the caller.
    }

    /// Returns how many waiters the lock has in this process.
    pub(super) fn waiting_for(&self, client: ClientId, key: &Key) -> usize {
        self.clients.store_of(client).map_or(0, |store| self.waiters.count(store, key))
    }
}
