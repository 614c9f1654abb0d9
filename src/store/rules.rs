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
//! - The lease has ended. Then the fence is not above the floor: the step that takes a lease out of
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
//! With one counter that each reservation moves, 64 contended keys ran ahead of the wall clock by
//! seconds, and fences went back by as much when the store's data was lost. Now fences advance only
//! by those that are used. They stay at the wall clock below a million leases per second.

use std::sync::Arc;
use std::time::Duration;

use super::inheritance::{limit, split_note, with_note};
use super::{
    Absence, Ask, GRANT_FENCES, GRANT_TTL, Inherited, LeaseInfo, LockInfo, Reply, Source, WAITER_LIFE,
    WaiterInfo,
};
use crate::lease::{Fence, Instant, Mode, Token, Ttl};
use crate::mutants::{self, Mutant};

/// A lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Whose it is.
    pub token: Token,
    /// The holder's name, and the note of a lease that was detached; see
    /// [`inheritance`](super::inheritance).
    pub holder: Arc<str>,
    /// Which other leases it bears.
    pub mode: Mode,
    /// Its fence; `None` until whoever was handed a shared one has taken it up. An exclusive one has its fence with the
    /// grant, so that the notice can tell it.
    pub fence: Option<Fence>,
    /// The last fence that was reserved with the lease; [`Fence::NONE`] as long as it has none.
    pub last: Fence,
    /// When it ends unless it is renewed.
    pub ends: Instant,
}

impl Held {
    /// Returns the last fence that counts as used when the holder releases the lease.
    fn last_used(&self, used: Option<Fence>) -> Fence {
        match (self.mode, used) {
            (Mode::Exclusive, Some(used)) => used.max(self.fence.unwrap_or(self.last)).min(self.last),
            _ => self.last,
        }
    }

    /// Lets the lease have the `count` fences from `fence` on.
    fn has_from(&mut self, fence: Fence, count: u32) {
        self.fence = Some(fence);
        // Another node's proposal may be below the fences that this node has reserved.
        self.last = self.last.max(fence.last_of(count));
    }

    /// Reserves the `count` fences from `fence` on with the lease.
    ///
    /// They become the lease's own unless the lease was detached: see
    /// [`inheritance`](super::inheritance).
    fn reserves(&mut self, fence: Fence, count: u32) {
        match (self.fence, split_note(&self.holder)) {
            (Some(_), (_, Some(_))) if !mutants::is(Mutant::DetachedFenceReplaced) => {
                self.last = self.last.max(fence.last_of(count));
            }
            _ => self.has_from(fence, count),
        }
    }

    fn inherited(&self) -> Inherited {
        let (_, ttl) = split_note(&self.holder);
        Inherited { first: self.fence.unwrap_or(self.last), last: self.last, mode: self.mode, ttl }
    }
}

/// Returns the holder's name as an inspection shows it, without a note.
fn shown(holder: &Arc<str>) -> Arc<str> {
    match split_note(holder) {
        (_, None) => holder.clone(),
        (name, Some(_)) => name.into(),
    }
}

/// Someone who waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// Whose lease it will be.
    pub token: Token,
    /// Its name.
    pub holder: Arc<str>,
    /// What it waits for.
    pub mode: Mode,
    /// What it is called in a notice. 0 for a repair, which gets no notice.
    pub number: u64,
    /// How long a handed exclusive lease lasts: [`GRANT_TTL`], or the waiter's own ttl if that is
    /// shorter. A handed shared lease always lasts for [`GRANT_TTL`], because the waiter has to
    /// take it up. Zero for a repair, whose lease lasts until its place would end.
    pub grant: Duration,
    /// When it came.
    pub since: Instant,
    /// Until when it keeps its place unless it is heard of.
    pub until: Instant,
}

impl Waiting {
    /// Returns true if the place belongs to a repair. See [`Ask::repairs`].
    pub fn repairs(&self) -> bool {
        self.grant.is_zero()
    }

    /// Returns when a lease that is handed over at `now` ends.
    pub fn handed_until(&self, now: Instant) -> Instant {
        match self.mode {
            _ if self.repairs() => self.until,
            Mode::Exclusive => now + self.grant,
            Mode::Shared { .. } => now + GRANT_TTL,
        }
    }
}

/// One lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    /// Its leases.
    pub held: Vec<Held>,
    /// Those who wait, in the order in which they came.
    pub queue: Vec<Waiting>,
}

/// What one request on a lock is carried out with.
pub struct Turn<'a> {
    /// The instant of the request.
    pub now: Instant,
    /// Reserves the given number of fences in a row, larger than the given fence and than the
    /// floor. Returns the first one. See the module.
    pub fences: &'a mut dyn FnMut(Fence, u32) -> Fence,
    /// Raises the floor to the given fence, because a lease has ended.
    pub raise: &'a mut dyn FnMut(Fence),
    /// Takes those who were handed a lease, and its fence if it has one.
    pub handed: &'a mut dyn FnMut(&Waiting, Option<Fence>),
}

impl Lock {
    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// When there is nothing left of it, should nobody ask any more.
    pub fn ends(&self) -> Instant {
        let ends = self.held.iter().map(|held| held.ends).chain(self.queue.iter().map(|w| w.until));
        ends.max().unwrap_or_default()
    }

    /// Returns the last fence that is reserved with any of the lock's leases.
    pub fn last_fence(&self) -> Fence {
        self.held.iter().map(|held| held.last).max().unwrap_or(Fence::NONE)
    }

    /// Reserves `count` fences and returns the first one.
    fn reserve(&self, count: u32, turn: &mut Turn<'_>) -> Fence {
        (turn.fences)(self.last_fence(), count)
    }

    /// Removes the leases that have run out.
    fn expire(&mut self, turn: &mut Turn<'_>) {
        self.held.retain(|held| {
            let lives = turn.now < held.ends;
            if !lives && !mutants::is(Mutant::ExpiredFencesForgotten) {
                (turn.raise)(held.last);
            }
            lives
        });
        self.queue.retain(|waiting| turn.now < waiting.until);
    }

    /// Forgets what has run out, and hands on what that made room for; `but` is asking, and takes it by itself.
    fn refresh(&mut self, turn: &mut Turn<'_>, but: Option<Token>) {
        self.expire(turn);
        self.hand_on(turn, but);
    }

    /// Grants to those in front, as long as they fit.
    fn hand_on(&mut self, turn: &mut Turn<'_>, but: Option<Token>) {
        while let Some(first) = self.queue.first() {
            if Some(first.token) == but || !self.fits(first.mode) {
                return;
            }
            let next = self.queue.remove(0);
            let fence = (next.mode == Mode::Exclusive).then(|| self.reserve(GRANT_FENCES, turn));
            (turn.handed)(&next, fence);
            let ends = next.handed_until(turn.now);
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

    /// What every request begins with, alone: for a store that looks by itself whether a lease has ended.
    pub fn settle(&mut self, turn: &mut Turn<'_>) {
        self.refresh(turn, None);
    }

    /// [`Request::Acquire`](super::Request::Acquire).
    pub fn acquire(&mut self, ask: &Ask, turn: &mut Turn<'_>) -> Reply {
        let now = turn.now;
        self.expire(turn);
        // A repaired lease is older than the places of all waiters.
        if !ask.repairs || self.held.iter().any(|held| held.token == ask.token) {
            self.hand_on(turn, Some(ask.token));
        }
        let waiting = |lock: &Lock| u32::try_from(lock.queue.len()).unwrap_or(u32::MAX);
        let others = waiting(self);
        let known_last = self.last_fence();
        if let Some(held) = self.held.iter_mut().find(|held| held.token == ask.token) {
            let ends = now + ask.ttl.as_duration();
            // A shared one that was handed over lived for GRANT_TTL: the ttl of whoever takes it up may be shorter.
            held.ends = if held.fence.is_none() { ends } else { held.ends.max(ends) };
            if ask.fences > 1 || held.fence.is_none() {
                let first = (turn.fences)(known_last, ask.fences);
                held.reserves(first, ask.fences);
                return Reply::Acquired { fence: first, waiting: others };
            }
            return Reply::Acquired { fence: held.fence.expect("just checked"), waiting: others };
        }
        let place = self.queue.iter().position(|waiting| waiting.token == ask.token);
        if (ask.repairs || place.unwrap_or(self.queue.len()) == 0) && self.fits(ask.mode) {
            let fence = self.reserve(ask.fences, turn);
            let (last, ends) = (fence.last_of(ask.fences), now + ask.ttl.as_duration());
            self.queue.retain(|waiting| waiting.token != ask.token);
            let Ask { token, ref holder, mode, .. } = *ask;
            self.held.push(Held { token, holder: holder.clone(), mode, fence: Some(fence), last, ends });
            // Whoever is next may fit, too.
            self.hand_on(turn, None);
            return Reply::Acquired { fence, waiting: waiting(self) };
        }
        let remaining = Some(self.held.iter().map(|held| held.ends.since(now)).min().unwrap_or_default());
        let exclusive = self.held.first().filter(|held| held.mode == Mode::Exclusive);
        let by = exclusive.map(|held| held.token.mark());
        if ask.repairs && !mutants::is(Mutant::RepairDoesNotWait) {
            self.reserve_place(ask, now);
            return Reply::Queued { remaining, ahead: 0, told: true, by };
        }
        let Some(asked) = ask.place else { return Reply::Busy { remaining } };
        let (until, grant) = (now + WAITER_LIFE, ask.ttl.as_duration().min(GRANT_TTL));
        let Ask { token, ref holder, mode, .. } = *ask;
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
        Reply::Queued { remaining, ahead: u32::try_from(ahead).unwrap_or(u32::MAX), told: true, by }
    }

    /// Gives a repair the first place in the queue until the ttl ends.
    fn reserve_place(&mut self, ask: &Ask, now: Instant) {
        let Ask { token, ref holder, mode, ttl, .. } = *ask;
        let (holder, until) = (holder.clone(), now + ttl.as_duration());
        self.queue.retain(|waiting| waiting.token != token);
        let (number, grant, since) = (0, Duration::ZERO, now);
        self.queue.insert(0, Waiting { token, holder, mode, number, grant, since, until });
    }

    /// [`Request::Renew`](super::Request::Renew).
    pub fn renew(&mut self, token: Token, ttl: Ttl, fences: u32, turn: &mut Turn<'_>) -> Reply {
        self.refresh(turn, None);
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let known_last = self.last_fence();
        let Some(held) = self.held.iter_mut().find(|held| held.token == token) else {
            return self.absence();
        };
        held.ends = held.ends.max(turn.now + ttl.as_duration());
        let block = (fences > 0).then(|| {
            let first = (turn.fences)(known_last, fences);
            held.last = first.last_of(fences);
            (first, waiting)
        });
        Reply::Renewed { block }
    }

    /// [`Request::Release`](super::Request::Release).
    pub fn release(&mut self, token: Token, used: Option<Fence>, turn: &mut Turn<'_>) -> Reply {
        self.queue.retain(|waiting| waiting.token != token);
        self.refresh(turn, None);
        let is_its = |held: &Held| held.token == token || mutants::is(Mutant::ReleaseWithoutToken);
        let Some(index) = self.held.iter().position(is_its) else {
            return self.absence();
        };
        let held = self.held.remove(index);
        (turn.raise)(held.last_used(used));
        self.hand_on(turn, None);
        Reply::Released
    }

    /// [`Request::Break`](super::Request::Break).
    pub fn break_all(&mut self, turn: &mut Turn<'_>) -> Reply {
        // Only what is held now: whoever is handed the lock by this is not to lose it again.
        self.expire(turn);
        let was_held = !self.held.is_empty();
        (turn.raise)(self.last_fence());
        self.held.clear();
        // The broken lease must not come back.
        self.queue.retain(|waiting| !waiting.repairs());
        self.hand_on(turn, None);
        if was_held { Reply::Released } else { Reply::NotHeld(Absence::Missing) }
    }

    /// [`Request::Detach`](super::Request::Detach).
    pub fn detach(
        &mut self,
        token: Token,
        ttl: Ttl,
        fence: Fence,
        own_ttl: Ttl,
        turn: &mut Turn<'_>,
    ) -> Reply {
        let reply = self.renew(token, ttl, 0, turn);
        if let Some(held) = self.held.iter_mut().find(|held| held.token == token) {
            held.has_from(fence, 1);
            held.holder = with_note(&held.holder, Some(own_ttl));
        }
        reply
    }

    /// [`Request::Adopt`](super::Request::Adopt).
    pub fn adopt(
        &mut self,
        token: Token,
        heir: Token,
        ttl: Ttl,
        source: Source,
        holder: &Arc<str>,
        turn: &mut Turn<'_>,
    ) -> Reply {
        self.refresh(turn, None);
        self.forget_repairs(&[token, heir]);
        let known_last = self.last_fence();
        let Some(held) = self.first_of(&[heir, token]) else { return self.absence() };
        // Keep the note, so that a repeated request gets the same answer.
        let (_, noted) = split_note(&held.holder);
        let is_passed = held.token != heir;
        held.token = heir;
        held.holder = with_note(holder, noted);
        let ends = turn.now + limit(ttl, source, noted).as_duration();
        held.ends = if is_passed && source.ends_ticket() { ends } else { held.ends.max(ends) };
        if let Source::Quorum(fence) = source {
            held.has_from(fence, 1);
        } else if held.fence.is_none() {
            held.has_from((turn.fences)(known_last, 1), 1);
        }
        Reply::Adopted(held.inherited())
    }

    /// Carries out [`Request::Move`](super::Request::Move).
    pub fn pass(&mut self, token: Token, to: Token, heir: Token, turn: &mut Turn<'_>) -> Reply {
        self.refresh(turn, None);
        self.forget_repairs(&[token, to, heir]);
        if let Some(held) = self.first_of(&[heir, to, token]) {
            if held.token == token {
                held.token = to;
            }
            return Reply::Adopted(held.inherited());
        }
        match self.held.iter().find(|held| held.token.claims(token)) {
            Some(held) => Reply::Claimed { by: held.token },
            None => self.absence(),
        }
    }

    /// Returns the lease of the first of these tokens that has one. Of a shared lock, a ticket and
    /// its heir may both have one.
    fn first_of(&mut self, tokens: &[Token]) -> Option<&mut Held> {
        let index = |token: &Token| self.held.iter().position(|held| held.token == *token);
        tokens.iter().find_map(index).map(|index| &mut self.held[index])
    }

    /// Removes the places of repairs by these tokens. No client uses the former token of a lease
    /// that moves, and the new token may have the lease at this node already.
    fn forget_repairs(&mut self, tokens: &[Token]) {
        self.queue.retain(|waiting| !waiting.repairs() || !tokens.contains(&waiting.token));
    }

    /// [`Request::Accept`](super::Request::Accept).
    pub fn accept(&mut self, token: Token, fence: Fence, count: u32, turn: &mut Turn<'_>) -> Reply {
        self.refresh(turn, None);
        let Some(held) = self.held.iter_mut().find(|held| held.token == token) else {
            return self.absence();
        };
        held.reserves(fence, count);
        Reply::Accepted
    }

    /// [`Request::Inspect`](super::Request::Inspect): changes nothing.
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
        // Those who have none yet will get the largest.
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
