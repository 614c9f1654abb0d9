//! The contract's rules for one lock as pure functions: its holders, its waiters, and the next
//! holder.
//!
//! Stores that carry out the requests themselves use them. Time and fences come in as arguments.
//!
//! **Why fences grow.** Each lease keeps `last`, the last fence that was reserved with it. The
//! store keeps one number for all keys, the *floor*: the largest fence of leases that have ended. A
//! reservation for a key begins above the floor and above the `last` of each live lease of the key.
//! It does not move the floor. Every fence that a key ever gave comes from a reservation of one of
//! its leases, so it is one of two kinds:
//!
//! - The lease lives. Then the fence is not above its `last`.
//! - The lease has ended. Then the fence is not above the floor: the step that removes a lease from
//!   a lock also raises the floor to the lease's `last`. A lease ends by its ttl, by
//!   [`Lock::break_all`], or with the holder's process.
//!
//! So the next reservation is above all of them, without any clock. It does not matter when the
//! holder uses its fences: if a process still hands on a broken lease, its fences stay below the
//! floor.
//!
//! A release may raise the floor by less: only to the last fence that was *used*. That is safe
//! because the holder's process uses no fence of the token afterwards:
//!
//! - It sends the release when it ends the lease, and it uses a token for one lease only.
//! - It knows the local hand-offs of its JavaScript threads: it counts them before it handles the
//!   release.
//! - If a refill is still on its way, no holder will use the fences that it reserves.
//! - A repeated or late release finds no lease and changes nothing. If a repeated acquire has
//!   reserved more fences meanwhile, the lease's own fence counts, too.
//! - A process that adopted a lease, or that cleans up, does not know which fences were used. Its
//!   release names none, and `last` counts.
//! - Each shared lease has its own fences, and gives none back.
//!
//! If each reservation moved one counter for all keys, the fences of 64 contended keys would run
//! ahead of the wall clock by seconds, and would go back by as much when the store's data is lost.
//! With the floor, fences advance only by those that are used. They stay at the wall clock below a
//! million leases per second.

mod adoption;
mod held;
mod waiting;

use std::time::Duration;

pub use self::held::Held;
use self::held::shown;
pub use self::waiting::Waiting;
use super::adopted_lease::with_note;
use super::{
    Absence, AcquireRequest, GRANT_FENCES, GRANT_TTL, LeaseInfo, LockInfo, Reply, WAITER_LIFE, WaiterInfo,
};
use crate::lease::{Fence, Instant, Mode, Token, Ttl};
use crate::mutants::{self, Mutant};

/// One lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    /// The leases.
    pub held: Vec<Held>,
    /// The waiters, in the order in which they came.
    pub queue: Vec<Waiting>,
}

/// The time, and the callbacks, with which one request on a lock is carried out.
pub struct RuleContext<'a> {
    /// The instant of the request.
    pub now: Instant,
    /// Reserves the given number of fences in a row, larger than the given fence and than the
    /// floor. Returns the first one. See the module.
    pub fences: &'a mut dyn FnMut(Fence, u32) -> Fence,
    /// Raises the floor to the given fence, because a lease has ended.
    pub raise: &'a mut dyn FnMut(Fence),
    /// Takes each waiter that was handed a lease, and the lease's fence if it has one.
    pub handed: &'a mut dyn FnMut(&Waiting, Option<Fence>),
}

impl Lock {
    /// Returns true if the lock has no leases and no waiters.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// Returns when the last lease or place ends if no further request comes.
    pub fn ends(&self) -> Instant {
        let ends = self.held.iter().map(|held| held.ends).chain(self.queue.iter().map(|w| w.until));
        ends.max().unwrap_or_default()
    }

    /// Returns the last fence that is reserved with any of the lock's leases.
    pub fn last_fence(&self) -> Fence {
        self.held.iter().map(|held| held.last).max().unwrap_or(Fence::NONE)
    }

    /// Reserves `count` fences and returns the first one.
    fn reserve(&self, count: u32, context: &mut RuleContext<'_>) -> Fence {
        (context.fences)(self.last_fence(), count)
    }

    /// Removes the leases that have run out.
    fn expire(&mut self, context: &mut RuleContext<'_>) {
        self.held.retain(|held| {
            let lives = context.now < held.ends;
            if !lives && !mutants::is(Mutant::ExpiredFencesForgotten) {
                (context.raise)(held.last);
            }
            lives
        });
        self.queue.retain(|waiting| context.now < waiting.until);
    }

    /// Removes what has run out, and hands the lock on. Stops at the waiter `but`: its own request
    /// is being carried out, and takes the lease by itself.
    fn refresh(&mut self, context: &mut RuleContext<'_>, but: Option<Token>) {
        self.expire(context);
        self.hand_on(context, but);
    }

    /// Hands leases to the first waiters, as long as they fit. Stops at the waiter `but`.
    fn hand_on(&mut self, context: &mut RuleContext<'_>, but: Option<Token>) {
        while let Some(first) = self.queue.first() {
            if Some(first.token) == but || !self.fits(first.mode) {
                return;
            }
            let next = self.queue.remove(0);
            let fence = (next.mode == Mode::Exclusive).then(|| self.reserve(GRANT_FENCES, context));
            (context.handed)(&next, fence);
            let ends = next.handed_until(context.now);
            let Waiting { token, holder, mode, .. } = next;
            let last = fence.map_or(Fence::NONE, |fence| fence.last_of(GRANT_FENCES));
            self.held.push(Held { token, holder, mode, fence, last, ends });
        }
    }

    fn fits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.held.is_empty(),
            Mode::Shared { most } => {
                self.held.len() < most as usize && self.held.iter().all(|held| held.mode.is_shared())
            }
        }
    }

    /// Removes what has run out and hands the lock on, as every request does first. A store calls
    /// this when it checks by itself whether a lease has ended.
    pub fn settle(&mut self, context: &mut RuleContext<'_>) {
        self.refresh(context, None);
    }

    /// Carries out [`Request::Acquire`](super::Request::Acquire).
    pub fn acquire(&mut self, acquire: &AcquireRequest, context: &mut RuleContext<'_>) -> Reply {
        let now = context.now;
        self.expire(context);
        // A repaired lease is older than the places of all waiters.
        if !acquire.repairs || self.held.iter().any(|held| held.token == acquire.token) {
            self.hand_on(context, Some(acquire.token));
        }
        let waiting = |lock: &Lock| u32::try_from(lock.queue.len()).unwrap_or(u32::MAX);
        let others = waiting(self);
        let known_last = self.last_fence();
        if let Some(held) = self.held.iter_mut().find(|held| held.token == acquire.token) {
            let ends = now + acquire.ttl.as_duration();
            // A shared lease that was handed over lives for GRANT_TTL. The ttl of the waiter that
            // takes it up may be shorter.
            held.ends = if held.fence.is_none() { ends } else { held.ends.max(ends) };
            if acquire.fences > 1 || held.fence.is_none() {
                let first = (context.fences)(known_last, acquire.fences);
                held.reserves(first, acquire.fences);
                return Reply::Acquired { fence: first, waiting: others };
            }
            return Reply::Acquired { fence: held.fence.expect("just checked"), waiting: others };
        }
        let place = self.queue.iter().position(|waiting| waiting.token == acquire.token);
        if (acquire.repairs || place.unwrap_or(self.queue.len()) == 0) && self.fits(acquire.mode) {
            let fence = self.reserve(acquire.fences, context);
            let (last, ends) = (fence.last_of(acquire.fences), now + acquire.ttl.as_duration());
            self.queue.retain(|waiting| waiting.token != acquire.token);
            let AcquireRequest { token, ref holder, mode, .. } = *acquire;
            self.held.push(Held { token, holder: holder.clone(), mode, fence: Some(fence), last, ends });
            // The next waiter may fit, too.
            self.hand_on(context, None);
            return Reply::Acquired { fence, waiting: waiting(self) };
        }
        let remaining = Some(self.held.iter().map(|held| held.ends.since(now)).min().unwrap_or_default());
        let exclusive = self.held.first().filter(|held| held.mode == Mode::Exclusive);
        let by = exclusive.map(|held| held.token.mark());
        if acquire.repairs && !mutants::is(Mutant::RepairDoesNotWait) {
            self.reserve_place(acquire, now);
            return Reply::Queued { remaining, ahead: 0, notified: true, by };
        }
        let Some(asked) = acquire.place else { return Reply::Busy { remaining } };
        let (until, grant) = (now + WAITER_LIFE, acquire.ttl.as_duration().min(GRANT_TTL));
        let AcquireRequest { token, ref holder, mode, .. } = *acquire;
        let ahead = match place {
            // A late poll must not turn the place of a repair into that of a waiter.
            Some(index) if self.queue[index].repairs() => index,
            Some(index) => {
                let waiting = &mut self.queue[index];
                (waiting.mode, waiting.number, waiting.until) = (mode, asked.number, until);
                (waiting.grant, waiting.holder) = (grant, holder.clone());
                index
            }
            None => {
                let holder = holder.clone();
                let number = asked.number;
                self.queue.push(Waiting { token, holder, mode, number, grant, since: now, until });
                self.queue.len() - 1
            }
        };
        Reply::Queued { remaining, ahead: u32::try_from(ahead).unwrap_or(u32::MAX), notified: true, by }
    }

    /// Gives a repair the first place in the queue until the ttl ends.
    fn reserve_place(&mut self, acquire: &AcquireRequest, now: Instant) {
        let AcquireRequest { token, ref holder, mode, ttl, .. } = *acquire;
        let (holder, until) = (holder.clone(), now + ttl.as_duration());
        self.queue.retain(|waiting| waiting.token != token);
        let (number, grant, since) = (0, Duration::ZERO, now);
        self.queue.insert(0, Waiting { token, holder, mode, number, grant, since, until });
    }

    /// Carries out [`Request::Renew`](super::Request::Renew).
    pub fn renew(&mut self, token: Token, ttl: Ttl, fences: u32, context: &mut RuleContext<'_>) -> Reply {
        self.refresh(context, None);
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let known_last = self.last_fence();
        let Some(held) = self.held.iter_mut().find(|held| held.token == token) else {
            return self.absence();
        };
        held.ends = held.ends.max(context.now + ttl.as_duration());
        let block = (fences > 0).then(|| {
            let first = (context.fences)(known_last, fences);
            held.last = first.last_of(fences);
            (first, waiting)
        });
        Reply::Renewed { block }
    }

    /// Carries out [`Request::Release`](super::Request::Release).
    pub fn release(&mut self, token: Token, used: Option<Fence>, context: &mut RuleContext<'_>) -> Reply {
        self.queue.retain(|waiting| waiting.token != token);
        self.refresh(context, None);
        let is_its = |held: &Held| held.token == token || mutants::is(Mutant::ReleaseWithoutToken);
        let Some(index) = self.held.iter().position(is_its) else {
            return self.absence();
        };
        let held = self.held.remove(index);
        (context.raise)(held.last_used(used));
        self.hand_on(context, None);
        Reply::Released
    }

    /// Carries out [`Request::Break`](super::Request::Break).
    pub fn break_all(&mut self, context: &mut RuleContext<'_>) -> Reply {
        // Ends only the leases of now: the waiter that gets the lock next must not lose it again.
        self.expire(context);
        let was_held = !self.held.is_empty();
        (context.raise)(self.last_fence());
        self.held.clear();
        // The broken lease must not come back.
        self.queue.retain(|waiting| !waiting.repairs());
        self.hand_on(context, None);
        if was_held { Reply::Released } else { Reply::NotHeld(Absence::Missing) }
    }

    /// Carries out [`Request::Detach`](super::Request::Detach).
    pub fn detach(
        &mut self,
        token: Token,
        ttl: Ttl,
        fence: Fence,
        own_ttl: Ttl,
        context: &mut RuleContext<'_>,
    ) -> Reply {
        self.refresh(context, None);
        let is_of = |held: &Held| held.granted().is_some_and(|granted| granted <= fence);
        let found = self.held.iter().find(|held| held.token == token);
        // The lease is newer than the detachment, or its waiter has not taken it up.
        if found.is_some_and(|held| !is_of(held)) && !mutants::is(Mutant::NewerLeaseDetached) {
            return Reply::NotHeld(Absence::Taken);
        }
        let reply = self.renew(token, ttl, 0, context);
        if let Some(held) = self.held.iter_mut().find(|held| held.token == token) {
            held.has_from(fence, 1);
            held.holder = with_note(&held.holder, Some(own_ttl));
        }
        reply
    }

    /// Carries out [`Request::Accept`](super::Request::Accept).
    pub fn accept(&mut self, token: Token, fence: Fence, count: u32, context: &mut RuleContext<'_>) -> Reply {
        self.refresh(context, None);
        let Some(held) = self.held.iter_mut().find(|held| held.token == token) else {
            return self.absence();
        };
        held.reserves(fence, count);
        Reply::Accepted
    }

    /// Carries out [`Request::Inspect`](super::Request::Inspect). Changes nothing.
    pub fn inspect(&self, now: Instant) -> Reply {
        let held: Vec<&Held> = self.held.iter().filter(|held| now < held.ends).collect();
        if held.is_empty() {
            return Reply::Inspected(None);
        }
        let mut leases: Vec<LeaseInfo> = held
            .iter()
            .map(|held| LeaseInfo {
                mark: Some(held.token.mark()),
                servers: None,
                holder: Some(shown(&held.holder)),
                fence: held.fence,
                remaining: Some(held.ends.since(now)),
            })
            .collect();
        // Leases without a fence will get the largest ones.
        leases.sort_by_key(|lease| lease.fence.unwrap_or(Fence::MAX));
        let waiters = self.queue.iter().filter(|waiting| now < waiting.until && !waiting.repairs());
        let waiters = waiters.map(|waiting| WaiterInfo {
            holder: waiting.holder.clone(),
            shared: waiting.mode.is_shared(),
            age: now.since(waiting.since),
        });
        let shared = held.iter().all(|held| held.mode.is_shared());
        Reply::Inspected(Some(LockInfo { shared, leases, waiters: waiters.collect() }))
    }

    fn absence(&self) -> Reply {
        Reply::NotHeld(if self.held.is_empty() { Absence::Missing } else { Absence::Taken })
    }
}

#[cfg(test)]
mod tests;
