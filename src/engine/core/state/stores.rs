//! Stores: what the engine knows about each store, and its unsent requests. Touches its own map,
//! and reports unused stores through the [`Context`].

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::context::Context;
use super::outgoing::{Batch, Outgoing, Unsent};
use crate::engine::ids::StoreId;
use crate::engine::stats::ServersHealth;
use crate::lease::Instant;
use crate::store::Availability;
use crate::store::breaker::{BreakerState, Health};

/// One store as the engine sees it.
#[derive(Default)]
struct KnownStore {
    /// How many clients use it.
    clients: usize,
    /// The most requests in one batch.
    most: usize,
    /// How many batches are not answered yet.
    in_flight: usize,
    /// How many clean-ups have not ended yet.
    clean_ups: usize,
    /// When the store last said that it has lost all leases.
    lost_at: Option<Instant>,
    /// The health of those of its servers whose state has ever changed.
    health: Vec<Arc<Health>>,
    /// Whether the store can grant leases. Usable until the store reports a change.
    availability: Availability,
    unsent: Unsent,
}

impl KnownStore {
    fn is_unused(&self) -> bool {
        self.clients == 0 && self.in_flight == 0 && self.clean_ups == 0 && self.unsent.is_empty()
    }
}

/// See the module.
#[derive(Default)]
pub struct Stores {
    stores: FxHashMap<StoreId, KnownStore>,
}

impl Stores {
    /// Notes a new client of the store, and reports the state of the store's servers to `servers`.
    pub fn join(&mut self, store: StoreId, most: usize, servers: &ServersHealth) {
        let known = self.stores.entry(store).or_default();
        known.clients += 1;
        known.most = most;
        known.health.iter().for_each(|health| servers.tell(health.clone()));
    }

    /// Notes that a client of the store has gone.
    pub fn leave(&mut self, store: StoreId, cx: &mut Context) {
        self.change(store, cx, |known| known.clients -= 1);
    }

    /// Notes that a clean-up begins, so that the store is kept until its end.
    pub fn begin_clean_up(&mut self, store: StoreId) {
        self.stores.entry(store).or_default().clean_ups += 1;
    }

    pub fn end_clean_up(&mut self, store: StoreId, cx: &mut Context) {
        self.change(store, cx, |known| known.clean_ups -= 1);
    }

    /// Notes that a batch was answered.
    pub fn answered(&mut self, store: StoreId, cx: &mut Context) {
        self.change(store, cx, |known| known.in_flight -= 1);
    }

    /// Changes the state of a store. Reports the store as unused if nothing needs it any more.
    fn change(&mut self, store: StoreId, cx: &mut Context, change: impl FnOnce(&mut KnownStore)) {
        let Some(known) = self.stores.get_mut(&store) else { return };
        change(known);
        if known.is_unused() {
            cx.effects.unused.push(store);
        }
    }

    /// Puts a request into the next batch of its store.
    pub fn send(&mut self, outgoing: Outgoing) {
        self.stores.entry(outgoing.store).or_default().unsent.add(outgoing);
    }

    /// Takes the unsent requests. Deadlines count from `now`.
    pub fn take_batches(&mut self, now: Instant) -> Vec<Batch> {
        let mut batches = Vec::new();
        for known in self.stores.values_mut() {
            known.in_flight += known.unsent.take(known.most, now, &mut batches);
        }
        batches
    }

    /// Divides a batch. `parts` has the number of the part of each request.
    pub fn split(&mut self, batch: Batch, parts: &[u32]) -> Vec<Batch> {
        let store = batch.sent.store;
        let batches = batch.split(parts);
        if let Some(known) = self.stores.get_mut(&store) {
            known.in_flight += batches.len().saturating_sub(1);
        }
        batches
    }

    /// Returns whether a client, a request or a clean-up needs `store`.
    pub fn is_used(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_some_and(|known| !known.is_unused())
    }

    /// Forgets an unused store, which is about to be closed.
    pub fn forget(&mut self, store: StoreId) {
        self.stores.remove(&store);
    }

    /// Notes whether the store can grant leases. Returns `false` if the store is being closed.
    pub fn set_availability(&mut self, store: StoreId, availability: Availability) -> bool {
        self.stores.get_mut(&store).map(|known| known.availability = availability).is_some()
    }

    /// Returns why the store can't grant leases, or `None` if it can.
    pub fn outage(&self, store: StoreId) -> Option<&Availability> {
        self.stores
            .get(&store)
            .map(|known| &known.availability)
            .filter(|availability| !availability.is_usable())
    }

    /// Returns true if the store is away or refuses acquires.
    pub fn is_unusable(&self, store: StoreId) -> bool {
        self.outage(store).is_some()
    }

    /// Returns the health of those of the store's servers whose state has ever changed.
    pub fn health(&self, store: StoreId) -> &[Arc<Health>] {
        self.stores.get(&store).map_or(&[], |known| &known.health)
    }

    /// Notes the state of one of the store's servers. Returns the state of its breaker before that,
    /// or `None` if the store is being closed.
    pub fn set_health(&mut self, store: StoreId, health: &Arc<Health>) -> Option<BreakerState> {
        let known = self.stores.get_mut(&store)?;
        Some(match known.health.iter_mut().find(|known| known.store == health.store) {
            Some(known) => std::mem::replace(known, health.clone()).state,
            None => {
                known.health.push(health.clone());
                BreakerState::Closed
            }
        })
    }

    /// Notes that the store has lost all leases.
    pub fn lost(&mut self, store: StoreId, now: Instant) {
        if let Some(known) = self.stores.get_mut(&store) {
            known.lost_at = Some(now);
        }
    }

    /// Returns whether the answer of `store` to a request sent at `sent` may concern leases that
    /// the store has lost since.
    pub fn is_outdated(&self, store: StoreId, sent: Instant) -> bool {
        self.stores.get(&store).is_some_and(|known| known.lost_at.is_some_and(|lost_at| sent <= lost_at))
    }

    /// Returns whether there is something to send.
    #[cfg(test)]
    pub fn has_unsent(&self) -> bool {
        self.stores.values().any(|known| !known.unsent.is_empty())
    }
}
