//! Notices: what a store says without a request. Routes from stores to the clients, waiters, queue
//! entries, clean-ups and held leases that the notice concerns.
//!
//! **Acquires that fail fast** do not wait while the store can't grant leases.
//!
//! - When the store goes away, the waiting ones end at once. It does not matter whether they wait
//!   in a queue, for the next poll, or for an answer that may take the whole time-out.
//! - Later ones still ask the store once, by a queue entry of their own. The store answers at once.
//!   If no client has asked it for a long time, it first probes its server, and so finds out that
//!   the server is back.
//! - A poll that fails is repeated only while the store is usable.
//!
//! An acquire that ended this way is cleaned up like any other: see [`Core::end_waiter`].

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::engine::command::Outcome;
use crate::engine::ids::{ClientId, OpId, StoreId};
use crate::lease::Instant;
use crate::store::breaker::{BreakerState, Health};
use crate::store::{Availability, Notice};

/// The time between two renewals when the engine renews all leases of a store. If this is smaller,
/// the renewals of 100 000 leases delay everything else for longer. If it is larger, more leases
/// end before their turn.
const RENEWAL_PACE: Duration = Duration::from_micros(10);

/// Returns the state that the engine reports to clients. It reports only once that a server is
/// away, although probes of the server go on.
fn as_reported(state: BreakerState) -> BreakerState {
    if state == BreakerState::HalfOpen { BreakerState::Open } else { state }
}

impl Core {
    /// Handles a notice of a store.
    pub fn noticed(&mut self, now: Instant, store: StoreId, notice: Notice) {
        self.begin(now);
        match notice {
            Notice::Granted { number, fence } => self.catch_panic(None, |core| {
                let Some(entry) = core.queue_entries.noticed(store, number) else { return };
                if !fence.is_some_and(|fence| core.take_up(entry, number, fence)) {
                    core.poll(entry);
                }
            }),
            Notice::Breaker(health) => self.health_changed(store, health),
            Notice::Availability(availability) => self.availability_changed(store, availability),
            Notice::Missed => self.poll_all(store),
            Notice::Moved => self.moved(store),
            // The acknowledgement is dropped when this returns. By then, every holder's lease
            // counts as lost.
            Notice::Lost(_acknowledgement) => self.lose_all(store),
        }
    }

    /// Polls for all waiters that may be in the store's queue.
    fn poll_all(&mut self, store: StoreId) {
        for number in self.queue_entries.queued_at(store) {
            self.catch_panic(None, |core| core.poll(number));
        }
    }

    /// Lets acquires that failed at the store ask again at once, without waiting for the end of
    /// their pauses.
    fn poll_after_an_outage(&mut self, store: StoreId) {
        for number in self.queue_entries.failed_at(store) {
            self.catch_panic(None, |core| core.poll(number));
        }
    }

    /// Ends the pauses of the clean-ups of `store` that failed before: one of its servers is back.
    fn clean_up_after_an_outage(&mut self, store: StoreId) {
        for id in self.clean_ups.failed_on(store) {
            self.catch_panic(None, |core| core.wake_clean_up(id));
        }
    }

    /// Renews all leases of the store after another server has replaced its server. Then repeats
    /// the releases that failed, and lets waiters and failed acquires ask again.
    fn moved(&mut self, store: StoreId) {
        // Renew first the lease that would end first.
        for (place, op) in self.held_leases.by_deadline(store).into_iter().enumerate() {
            let pause = RENEWAL_PACE * u32::try_from(place).unwrap_or(u32::MAX);
            self.held_leases.renew_soon(op, pause, &self.clients, &mut self.cx);
        }
        self.clean_up_after_an_outage(store);
        self.poll_all(store);
        self.poll_after_an_outage(store);
    }

    /// Marks all leases of the store as lost, and lets its waiters ask again.
    fn lose_all(&mut self, store: StoreId) {
        self.stores.lost(store, self.cx.now);
        for op in self.held_leases.mark_lost(store, self.cx.now) {
            self.catch_panic(Some(op), |core| {
                if let Some(held) = core.held_leases.lose_if_lost(op, &mut core.cx) {
                    core.end_cohort_lease(op, &held);
                }
            });
        }
        self.poll_all(store);
    }

    /// Notes whether the store can grant leases. Tells the clients that watch, and ends the
    /// acquires that fail fast if the store is away.
    fn availability_changed(&mut self, store: StoreId, availability: Availability) {
        if !self.stores.set_availability(store, availability.clone()) {
            return;
        }
        let mut watches = self.clients.watches_of(store);
        watches.sort_unstable();
        for op in watches {
            self.cx.settle(op, Outcome::Availability(availability.clone()));
        }
        if let Availability::Away(error) = availability {
            for op in self.waiters.failing_fast_on(store) {
                self.fail(op, &error);
            }
        }
    }

    /// Notes the state of a server's breaker. Tells the operations that watch that the server is
    /// gone, refuses, or is back. They do not hear of the probes in between, which happen several
    /// times a second: only the stats show those.
    fn health_changed(&mut self, store: StoreId, health: Arc<Health>) {
        let Some(before) = self.stores.set_health(store, &health) else { return };
        self.clients.note_health(store, &health);
        if as_reported(before) != as_reported(health.state) {
            for op in self.clients.watches_of(store) {
                self.cx.settle(op, Outcome::Breaker(health.clone()));
            }
        }
        if health.state == BreakerState::Closed {
            self.clean_up_after_an_outage(store);
            self.poll_after_an_outage(store);
        }
    }

    /// Reports the state of its store to a client from now on.
    pub(super) fn watch(&mut self, op: OpId, client: ClientId) {
        let Some(store) = self.clients.watch(client, op) else {
            return self.cx.settle(op, Outcome::Closed);
        };
        if let Some(outage) = self.stores.outage(store) {
            self.cx.settle(op, Outcome::Availability(outage.clone()));
        }
        let servers = self.stores.health(store).iter();
        for health in servers.filter(|health| health.state != BreakerState::Closed) {
            let mut health = health.clone();
            Arc::make_mut(&mut health).state = as_reported(health.state);
            self.cx.settle(op, Outcome::Breaker(health));
        }
    }
}
