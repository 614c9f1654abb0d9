//! Handing on: a lease from one waiter of a cohort to the next, by the engine or by the JavaScript
//! thread. Routes between held leases, cohorts, waiters and [offers](super::state::offers).

use std::collections::VecDeque;

use super::Core;
use super::state::cohorts::Cohort;
use super::state::held_leases::HeldLease;
use crate::engine::ids::{CohortId, OpId};
use crate::engine::thread_hand_offs::{HandedOn, MOST_SUCCESSORS, Successor, Successors};
use crate::lease::{Fence, Instant};

impl Core {
    /// Hands the lease that `op` has just released on to the next waiter of its cohort. Returns
    /// `false` if there is none, or if the lease has to go back to the store.
    pub(super) fn hand_on(&mut self, op: OpId, held: &mut HeldLease) -> bool {
        let id = held.cohort();
        let Some(cohort) = self.cohorts.get(&id).filter(|cohort| cohort.holder() == Some(op)) else {
            return false;
        };
        let Some(next) = cohort.head() else { return false };
        let Some(fence) = held.take_fence(cohort.ttl(), self.cx.now) else { return false };
        if !self.pass_on(held, next, fence, true) {
            return false;
        }
        self.refill(&id);
        self.offers.add(id);
        true
    }

    /// Gives the lease to `next`, and tells that waiter if `tell`: its thread may have told it
    /// already. Returns `false` if the waiter is gone.
    fn pass_on(&mut self, held: &mut HeldLease, next: OpId, fence: Fence, tell: bool) -> bool {
        let waiter = self.waiters.take(next);
        self.cohorts.pass_on(&held.cohort(), next, waiter.as_ref().map(|waiter| waiter.arrival));
        let Some(waiter) = waiter else { return false };
        if tell {
            waiter.stats.handed_on(self.cx.now.since(waiter.since));
        }
        self.held_leases.start(waiter, held.pass_on(fence, self.cx.now), tell, &self.clients, &mut self.cx);
        true
    }

    /// Asks the store for more fences, and whether others wait, if the cohort will soon need that.
    pub(super) fn refill(&mut self, id: &CohortId) {
        let cohort = self.cohorts.get(id).filter(|cohort| cohort.has_waiters());
        if let Some(holder) = cohort.and_then(Cohort::holder)
            && let Some(outgoing) = self.held_leases.refill(holder, &self.clients, self.cx.now)
        {
            self.stores.send(outgoing);
        }
    }

    /// Takes the lease of `op` away from its cohort. The next waiter polls the store.
    pub(super) fn end_cohort_lease(&mut self, op: OpId, held: &HeldLease) {
        let id = held.cohort();
        let place = self.cohorts.end_lease(&id, op);
        self.see_to_place(&id, place);
        let cohort = self.cohorts.get(&id).filter(|cohort| cohort.has_waiters());
        if let Some(entry) = cohort.and_then(Cohort::entry) {
            self.poll(entry);
        }
    }

    /// Sets the time of an event. Before that, records the hand-offs that JavaScript threads made
    /// by themselves, and takes the other offered hand-offs back.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.offers.has_offered() {
            self.recall(now);
        }
        self.cx.now = now;
    }

    fn recall(&mut self, now: Instant) {
        for handed in self.envs.recall_hand_offs() {
            self.cx.now = handed.at;
            self.catch_panic(Some(handed.to), |core| core.handed_on(handed));
        }
        self.cx.now = now;
        let cohorts = self.offers.take_offered();
        for cohort in &cohorts {
            self.catch_panic(None, |core| core.refill(cohort));
        }
        self.offers.add_all(cohorts);
    }

    /// Records that a JavaScript thread has handed a lease on.
    fn handed_on(&mut self, handed: HandedOn) {
        let HandedOn { from, to, fence, .. } = handed;
        let Some(mut held) = self.held_leases.take_handed_on(from) else { return };
        // The thread has already counted this hand-off: one lease is still held, and one waiter
        // fewer waits.
        held.stats.waiting.up();
        let taken = held.take_promised_fence(self.cx.now);
        debug_assert_eq!(taken, Some(fence), "as it was left");
        if !self.pass_on(&mut held, to, fence, false) {
            held.stats.held.down();
        }
    }

    /// Lets JavaScript threads hand on the leases that are likely to be handed on next. Call this
    /// last, after all settlements were delivered: a thread that hands a lease on puts that behind
    /// the settlements that it finds in its outbox.
    pub fn offer_hand_offs(&mut self, now: Instant) {
        let mut cohorts = self.offers.take_next();
        cohorts.retain(|id| {
            let mut offered = false;
            self.catch_panic(None, |core| offered = core.offer(id, now).unwrap_or(false));
            offered
        });
        self.offers.set_offered(cohorts);
    }

    /// Lets the holder's thread carry out the next hand-offs of the cohort, if they may be left to
    /// it. Returns whether it may.
    fn offer(&self, id: &CohortId, now: Instant) -> Option<bool> {
        let cohort = self.cohorts.get(id)?;
        let holder = cohort.holder()?;
        let held = self.held_leases.get(holder)?;
        let (mut budget, until) = held.hand_offs(cohort.ttl(), now)?;
        let mut next = VecDeque::new();
        for op in cohort.waiters().take(MOST_SUCCESSORS) {
            let waiter = self.waiters.get(op)?;
            if waiter.acquire.max_hold.is_some() {
                break;
            }
            let Some(fence) = budget.take(now) else { break };
            next.push_back(Successor { op, fence, state: waiter.acquire.state.clone(), since: waiter.since });
        }
        if next.is_empty() || now >= until {
            return None;
        }
        let (cohort, token, stats) = (id.clone(), held.token, held.stats.clone());
        Some(self.envs.offer_hand_offs(holder, Successors { next, token, until, cohort, stats }))
    }
}
