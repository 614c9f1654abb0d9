//! Cohorts: the waiters of one client for one key. They count as one waiter at the store, and hand
//! the lease on among themselves within the bounds of [`hand_off`](crate::lease::hand_off). Touches
//! its own map only; what a cohort needs at the store is returned as a [`Place`].

use std::collections::HashMap;

use crate::engine::command::AcquireCommand;
use crate::engine::ids::{CohortId, OpId};
use crate::lease::Ttl;
use crate::lease::queue::{Arrival, Queue};

/// One cohort. It exists as long as it has a waiter or a holder.
pub struct Cohort {
    /// The ttl of the lease, which is one lease at the store for all its waiters.
    ttl: Ttl,
    queue: Queue<OpId>,
    /// The place of its waiters at the store. While the lease is held, the cohort keeps the place
    /// for a while even without waiters, for the next waiter.
    entry: Option<u64>,
    /// The holder of the lease that is handed on.
    holder: Option<OpId>,
}

impl Cohort {
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Returns the queue entry of the cohort.
    pub fn entry(&self) -> Option<u64> {
        self.entry
    }

    /// Returns the holder of the cohort's lease.
    pub fn holder(&self) -> Option<OpId> {
        self.holder
    }

    /// Returns the waiter that is served next.
    pub fn head(&self) -> Option<OpId> {
        self.queue.head()
    }

    /// Returns the waiters, in the order of their arrival.
    pub fn waiters(&self) -> impl Iterator<Item = OpId> {
        self.queue.ids()
    }

    pub fn has_waiters(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns whether the cohort has more than one waiter.
    pub fn is_crowd(&self) -> bool {
        self.queue.len() > 1
    }
}

/// The change that a cohort's place at the store needs.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing.
    Keep,
    /// Gives up the place of that queue entry.
    Leave(u64),
    /// Takes a place for the request of that waiter.
    Take(OpId),
}

/// See the module.
#[derive(Default)]
pub struct Cohorts {
    cohorts: HashMap<CohortId, Cohort>,
}

impl Cohorts {
    /// Puts a waiter into its cohort, unless the cohort's leases have another ttl. Returns the
    /// cohort, and whether it had no waiter and no holder before.
    pub fn join(&mut self, acquire: &AcquireCommand, arrival: Arrival) -> Option<(CohortId, bool)> {
        let (id, ttl) = ((acquire.client, acquire.key.clone()), acquire.ttl);
        let new = || Cohort { ttl, queue: Queue::default(), entry: None, holder: None };
        let cohort = self.cohorts.entry(id.clone()).or_insert_with(new);
        if cohort.ttl != ttl {
            return None;
        }
        let is_first = cohort.queue.is_empty() && cohort.holder.is_none();
        cohort.queue.join(arrival, acquire.op);
        Some((id, is_first))
    }

    pub fn get(&self, id: &CohortId) -> Option<&Cohort> {
        self.cohorts.get(id)
    }

    /// Removes a waiter that leaves without a lease. Gives up a place that has no waiters any more,
    /// so that the next waiter does not inherit it.
    pub fn leave(&mut self, id: &CohortId, arrival: Arrival) -> Place {
        let mut given_up = None;
        let place = self.change(id, |cohort| {
            cohort.queue.leave(arrival);
            given_up = if cohort.queue.is_empty() { cohort.entry.take() } else { None };
        });
        given_up.map_or(place, Place::Leave)
    }

    /// Removes a waiter that gets a lease.
    pub fn serve(&mut self, id: &CohortId, arrival: Arrival) {
        if let Some(cohort) = self.cohorts.get_mut(id) {
            cohort.queue.leave(arrival);
        }
    }

    /// Returns the holder of a lease whose place a new waiter would inherit: the place was kept
    /// while the cohort had no waiters.
    pub fn holder_with_one_waiter(&self, id: &CohortId) -> Option<OpId> {
        self.cohorts.get(id).filter(|cohort| cohort.queue.len() == 1)?.holder
    }

    /// Takes the queue entry from the cohort.
    pub fn take_entry(&mut self, id: &CohortId) -> Option<u64> {
        self.cohorts.get_mut(id)?.entry.take()
    }

    /// Takes that queue entry from the cohort if the cohort has no waiters any more.
    pub fn take_idle_entry(&mut self, id: &CohortId, entry: u64) -> bool {
        let is_idle = |cohort: &&mut Cohort| cohort.queue.is_empty() && cohort.entry == Some(entry);
        self.cohorts.get_mut(id).filter(is_idle).is_some_and(|cohort| cohort.entry.take().is_some())
    }

    /// Returns what the cohort needs at the store.
    pub fn place(&mut self, id: &CohortId) -> Place {
        self.change(id, |_| {})
    }

    /// Changes a cohort, and returns what it needs at the store after that. Forgets a cohort
    /// without waiters and holder.
    fn change(&mut self, id: &CohortId, change: impl FnOnce(&mut Cohort)) -> Place {
        let Some(cohort) = self.cohorts.get_mut(id) else { return Place::Keep };
        change(cohort);
        match cohort.queue.head() {
            None if cohort.holder.is_none() => {
                let entry = cohort.entry;
                self.cohorts.remove(id);
                entry.map_or(Place::Keep, Place::Leave)
            }
            Some(head) if cohort.entry.is_none() => Place::Take(head),
            _ => Place::Keep,
        }
    }

    /// Notes the queue entry of the cohort.
    pub fn set_entry(&mut self, id: &CohortId, entry: u64) {
        if let Some(cohort) = self.cohorts.get_mut(id) {
            cohort.entry = Some(entry);
        }
    }

    /// Removes the cohort's queue entry, because it has the lease. Returns the waiter that gets the
    /// lease.
    pub fn take_turn(&mut self, id: &CohortId) -> Option<OpId> {
        let cohort = self.cohorts.get_mut(id)?;
        cohort.entry = None;
        cohort.queue.head()
    }

    /// Notes that the cohort has a lease that it may hand on. Returns what its next waiter needs.
    pub fn set_holder(&mut self, id: &CohortId, holder: OpId) -> Place {
        self.change(id, |cohort| cohort.holder = Some(holder))
    }

    /// Notes that the lease is handed on to the waiter `next`, which arrived at `arrival` if it is
    /// still there.
    pub fn pass_on(&mut self, id: &CohortId, next: OpId, arrival: Option<Arrival>) {
        if let Some(cohort) = self.cohorts.get_mut(id) {
            cohort.holder = Some(next);
            if let Some(arrival) = arrival {
                cohort.queue.leave(arrival);
            }
        }
    }

    /// Notes that the lease of `op` does not belong to the cohort any more. Returns what its
    /// waiters need.
    pub fn end_lease(&mut self, id: &CohortId, op: OpId) -> Place {
        self.change(id, |cohort| cohort.holder = cohort.holder.filter(|holder| *holder != op))
    }

    pub fn len(&self) -> usize {
        self.cohorts.len()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn each_engine_hashes_a_key_in_its_own_way() {
        // Otherwise, a user who chooses keys could make all of them collide.
        let hash = || Cohorts::default().cohorts.hasher().hash_one("key");
        assert_ne!(hash(), hash());
    }
}
