//! Waiters: acquires from their command to the lease, or to their end without one. Touches its own
//! map, and uses the time and the timers of the [`Context`].

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::context::{Context, Wake};
use super::queue_entries::LockRequest;
use crate::engine::command::{AcquireCommand, Wait};
use crate::engine::ids::{ClientId, CohortId, OpId, StoreId};
use crate::engine::stats::Stats;
use crate::lease::queue::Arrival;
use crate::lease::{Instant, Key, Token};

/// A pending acquire.
pub struct Waiter {
    pub acquire: AcquireCommand,
    pub store: StoreId,
    /// The stats of the client. The waiter keeps them, so that they count after the client is gone.
    pub stats: Arc<Stats>,
    /// Its place among the waiters of this process.
    pub arrival: Arrival,
    pub since: Instant,
    /// When it stops waiting; `None` if never.
    pub give_up: Option<Instant>,
    /// The queue entry of its own; `None` if it is in a cohort.
    pub entry: Option<u64>,
    /// Whether its token has served a queue entry.
    spent: bool,
    wake: Option<Instant>,
}

impl Waiter {
    /// Makes a waiter that comes at `since` and has not asked the store yet.
    pub fn new(acquire: AcquireCommand, store: StoreId, stats: Arc<Stats>, since: Instant) -> Self {
        let give_up = match acquire.wait {
            Wait::For(span) if !span.is_zero() => Some(since + span),
            _ => None,
        };
        Self { acquire, store, stats, arrival: 0, since, give_up, entry: None, spent: false, wake: None }
    }

    /// Returns the cohort of the waiter, which need not be in it.
    pub fn cohort(&self) -> CohortId {
        (self.acquire.client, self.acquire.key.clone())
    }

    /// Returns whether the waiter polls only once.
    pub fn polls_once(&self) -> bool {
        matches!(self.acquire.wait, Wait::Never) || self.acquire.wait == Wait::For(Duration::ZERO)
    }

    /// Returns whether the waiter may have a lease that other waiters have had before it. Such a
    /// lease keeps its lifetime. So only leases that are renewed and end with their process are
    /// handed on.
    pub fn may_join_cohort(&self) -> bool {
        !self.acquire.mode.is_shared()
            && self.acquire.auto_renew
            && !self.acquire.outlives_process
            && !self.polls_once()
    }

    fn schedule(&mut self, at: Instant, cx: &mut Context) {
        if self.wake.is_none_or(|wake| at < wake) {
            self.wake = Some(at);
            cx.timers.schedule(at, Wake::Waiter(self.acquire.op));
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Waiters {
    waiters: FxHashMap<OpId, Waiter>,
    arrivals: Arrival,
}

impl Waiters {
    /// Returns the place of a waiter that comes now.
    pub fn next_arrival(&mut self) -> Arrival {
        self.arrivals += 1;
        self.arrivals
    }

    /// Adds a waiter. The caller gives it a queue entry or puts it into a cohort.
    pub fn add(&mut self, waiter: Waiter) {
        waiter.stats.waiting.up();
        self.waiters.insert(waiter.acquire.op, waiter);
    }

    /// Removes a waiter. The caller also removes it from its cohort, or removes its queue entry.
    pub fn take(&mut self, op: OpId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&op)?;
        waiter.stats.waiting.down();
        Some(waiter)
    }

    pub fn get(&self, op: OpId) -> Option<&Waiter> {
        self.waiters.get(&op)
    }

    /// Returns what a queue entry for the waiter asks for.
    pub fn lock_request(&mut self, op: OpId) -> Option<LockRequest> {
        let waiter = self.waiters.get_mut(&op)?;
        let AcquireCommand { client, token, ttl, mode, outlives_process, .. } = waiter.acquire;
        // A queue entry may have used the waiter's token before. Its clean-up must not meet the
        // next queue entry.
        let token = if std::mem::replace(&mut waiter.spent, true) { Token::random() } else { token };
        let (store, key, stats) = (waiter.store, waiter.acquire.key.clone(), waiter.stats.clone());
        Some(LockRequest { client, store, key, token, ttl, mode, outlives_process, stats })
    }

    /// Notes the queue entry that serves the waiter alone.
    pub fn set_entry(&mut self, op: OpId, entry: u64) {
        if let Some(waiter) = self.waiters.get_mut(&op) {
            waiter.entry = Some(entry);
        }
    }

    /// Starts the patience of the waiter, because the waiter has to wait.
    pub fn start_patience(&mut self, op: OpId, cx: &mut Context) {
        if let Some(waiter) = self.waiters.get_mut(&op)
            && let Some(at) = waiter.give_up
        {
            waiter.schedule(at, cx);
        }
    }

    /// Handles the timer of the waiter when it is due. Returns whether the waiter's patience is
    /// over.
    pub fn wake(&mut self, op: OpId, cx: &mut Context) -> bool {
        let Some(waiter) = self.waiters.get_mut(&op) else { return false };
        waiter.wake = None;
        match waiter.give_up {
            Some(at) if at <= cx.now => return true,
            Some(at) => waiter.schedule(at, cx),
            None => {}
        }
        false
    }

    /// Returns whether the operation is a waiter that polls more than once.
    pub fn waits(&self, op: OpId) -> bool {
        self.waiters.get(&op).is_some_and(|waiter| !waiter.polls_once())
    }

    /// Returns how many waiters the lock at `store` has in this process.
    pub fn count(&self, store: StoreId, key: &Key) -> usize {
        self.waiters.values().filter(|w| w.store == store && w.acquire.key == *key && !w.polls_once()).count()
    }

    /// Returns the waiters of the clients.
    pub fn of_clients(&self, clients: &[ClientId]) -> Vec<OpId> {
        let ours = self.waiters.iter().filter(|(_, waiter)| clients.contains(&waiter.acquire.client));
        ours.map(|(op, _)| *op).collect()
    }

    /// Returns the waiters of the store that fail fast, in the order in which they came.
    pub fn failing_fast_on(&self, store: StoreId) -> Vec<OpId> {
        let waiting = self.waiters.iter().filter(|(_, w)| w.store == store && w.acquire.fail_fast);
        let mut waiting: Vec<(Arrival, OpId)> = waiting.map(|(op, w)| (w.arrival, *op)).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, op)| op).collect()
    }

    /// Returns when the waiter is due.
    pub fn due_at(&self, op: OpId) -> Option<Instant> {
        self.waiters.get(&op).and_then(|waiter| waiter.wake)
    }

    pub fn len(&self) -> usize {
        self.waiters.len()
    }
}
