//! Holds the locks of the store in memory. The caller passes the time as an argument.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use super::fence_limiter::FenceLimiter;
use crate::lease::{Fence, Instant, Key};
use crate::store::diagnosis::{Facts, Report};
use crate::store::listing::{ListFilter, Listing};
use crate::store::rules::{Lock, RuleContext, Waiting};
use crate::store::{Absence, Answer, BROKEN_LIFE, Notice, Reply, Request};

/// How long an expired lock may stay in a table that is in use. If this is larger, expired locks
/// take more memory. If this is smaller, sweeps take more time.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The table adds at least this many locks between two sweeps, unless [`SWEEP_EVERY`] passes first.
/// A sweep visits every lock: if this is smaller, a growing table spends more time on sweeps.
const SWEEP_AFTER: usize = 1024;

/// Locks by key, under the rules of the store contract.
#[derive(Debug)]
pub struct LeaseTable {
    /// The name of the table in a diagnosis.
    name: Arc<str>,
    locks: HashMap<Key, Lock>,
    /// Until when the table refuses repairs of locks that were broken. See
    /// [`AcquireRequest::repairs`](crate::store::AcquireRequest::repairs).
    broken: HashMap<Key, Instant>,
    /// The largest fence of leases that have ended. One number serves all keys, so that the table
    /// can forget a key. See [`rules`](crate::store::rules).
    floor: Fence,
    /// Limits how fast locks are broken.
    fence_limiter: FenceLimiter,
    /// When the next sweep is due.
    sweep_at: Instant,
    /// How many new locks cause a sweep before `sweep_at`.
    sweep_in: usize,
    /// The notices since the last call of [`LeaseTable::take_notices`].
    notices: Vec<Notice>,
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            name: "memory:".into(),
            locks: HashMap::new(),
            broken: HashMap::new(),
            floor: Fence::NONE,
            fence_limiter: FenceLimiter::default(),
            sweep_at: Instant::from_micros(0),
            sweep_in: SWEEP_AFTER,
            notices: Vec::new(),
        }
    }
}

impl LeaseTable {
    /// Returns an empty table whose fences are larger than `floor`. `name` is its name in a
    /// diagnosis.
    pub(super) fn named(name: Arc<str>, floor: Fence) -> Self {
        Self { name, floor, ..Self::default() }
    }

    /// Returns the name of the table in a diagnosis.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the largest fence that the table gave, or `None` if one of its leases is valid at
    /// `now`.
    pub(super) fn last_fence(&mut self, now: Instant) -> Option<Fence> {
        self.sweep(now);
        self.locks.is_empty().then_some(self.floor)
    }

    /// Carries out `request` at `now`; `wall_us` is the wall clock for fences, in µs since 1970.
    ///
    /// `now` must not go back from one call to the next.
    pub fn apply(&mut self, request: Request, now: Instant, wall_us: u64) -> Answer {
        let reached = self.floor.0.max(wall_us);
        let answer = self.carry_out(request, now, wall_us);
        self.fence_limiter.lose(now, self.floor.0.saturating_sub(reached));
        answer
    }

    fn carry_out(&mut self, request: Request, now: Instant, wall_us: u64) -> Answer {
        if now >= self.sweep_at || self.sweep_in == 0 {
            self.sweep(now);
        }
        match &request {
            Request::Break { key, bars_repairs: true } => {
                self.broken.insert(key.clone(), now + BROKEN_LIFE);
            }
            Request::Acquire(acquire)
                if acquire.repairs && self.broken.get(&acquire.key).is_some_and(|until| now < *until) =>
            {
                return Ok(Reply::Busy { remaining: Some(Duration::ZERO) });
            }
            _ => {}
        }
        let floor = Cell::from_mut(&mut self.floor);
        let mut fences = |after: Fence, _: u32| floor.get().max(after).next(wall_us);
        let mut raise = |fence: Fence| floor.set(floor.get().max(fence));
        let notices = &mut self.notices;
        let mut handed = |waiting: &Waiting, fence: Option<Fence>| {
            if !waiting.repairs() {
                notices.push(Notice::Granted { number: waiting.number, fence });
            }
        };
        let mut context = RuleContext { now, fences: &mut fences, raise: &mut raise, handed: &mut handed };
        let (key, known) = match &request {
            Request::Ping => return Ok(Reply::Ready),
            Request::Diagnose { ttl, .. } => {
                return Ok(Reply::Diagnosed(vec![Report::new(
                    self.name.clone(),
                    Facts::Process,
                    *ttl,
                    false,
                )]));
            }
            Request::Inspect { key } => {
                return Ok(self.locks.get(key).map_or(Reply::Inspected(None), |lock| lock.inspect(now)));
            }
            Request::List(filter) => return Ok(Reply::Listed(self.list(filter, now))),
            Request::Acquire(acquire) => (&acquire.key, true),
            Request::Renew { key, .. }
            | Request::Release { key, .. }
            | Request::Adopt { key, .. }
            | Request::Move { key, .. }
            | Request::GiveBack { key, .. }
            | Request::Accept { key, .. }
            | Request::Break { key, .. }
            | Request::Detach { key, .. } => (key, false),
        };
        let mut entry = match self.locks.entry(key.clone()) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(_) if !known => return Ok(Reply::NotHeld(Absence::Missing)),
            Entry::Vacant(entry) => {
                self.sweep_in -= 1;
                entry.insert_entry(Lock::default())
            }
        };
        let lock = entry.get_mut();
        let reply = match request {
            Request::Acquire(acquire) => lock.acquire(&acquire, &mut context),
            Request::Renew { token, ttl, fences, .. } => lock.renew(token, ttl, fences, &mut context),
            // Leases in this store do not end with a process.
            Request::Detach { token, ttl, fence, own_ttl, .. } => {
                lock.detach(token, ttl, fence, own_ttl, &mut context)
            }
            Request::Release { token, used, .. } => lock.release(token, used, &mut context),
            Request::Adopt { token, adopter, ttl, holder, source, .. } => {
                lock.adopt(token, adopter, ttl, source, &holder, &mut context)
            }
            Request::Move { token, to, adopter, most, .. } => {
                lock.pass(token, to, adopter, most, &mut context)
            }
            Request::GiveBack { token, .. } => lock.release(token, None, &mut context),
            Request::Accept { token, fence, count, .. } => lock.accept(token, fence, count, &mut context),
            Request::Break { .. } => lock.break_all(&mut context),
            Request::Ping | Request::Inspect { .. } | Request::List(_) | Request::Diagnose { .. } => {
                unreachable!("these requests were answered above")
            }
        };
        if lock.is_empty() {
            entry.remove();
        }
        Ok(reply)
    }

    /// Returns how long `request` has to wait from `now` before [`LeaseTable::apply`], or `None` if
    /// it does not wait. Only breaks wait, and only shortly after many other breaks: see
    /// [`FenceLimiter`].
    pub fn delay(&self, request: &Request, now: Instant) -> Option<Duration> {
        matches!(request, Request::Break { .. }).then(|| self.fence_limiter.delay(now)).flatten()
    }

    fn list(&self, filter: &ListFilter, now: Instant) -> Listing {
        let mut keys: Vec<&Key> = self.locks.keys().filter(|key| filter.matches(key)).collect();
        keys.sort_unstable();
        let mut listing = Listing::default();
        for key in keys {
            if let Reply::Inspected(Some(info)) = self.locks[key].inspect(now)
                && !listing.add(filter, key.clone(), info)
            {
                break;
            }
        }
        listing
    }

    /// Takes the notices for waiters that were handed a lease since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Returns the number of locks in the table, including expired ones that no sweep has removed.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Returns true if the table remembers no lock at all, not even one that was broken.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.broken.is_empty()
    }

    /// Removes expired locks, and forgets breaks after [`BROKEN_LIFE`].
    fn sweep(&mut self, now: Instant) {
        let floor = &mut self.floor;
        self.locks.retain(|_, lock| {
            let lives = now < lock.ends();
            if !lives {
                *floor = lock.last_fence().max(*floor);
            }
            lives
        });
        self.broken.retain(|_, until| now < *until);
        // After a burst, free the memory that the table does not need.
        if self.locks.capacity() > 4 * self.locks.len().max(SWEEP_AFTER) {
            self.locks.shrink_to(2 * self.locks.len());
        }
        self.sweep_at = now + SWEEP_EVERY;
        self.sweep_in = self.locks.len().max(SWEEP_AFTER);
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
