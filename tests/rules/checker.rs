//! Checks one lock against the contract from outside. The checker keeps its own record of leases
//! and waiters, and compares it with every answer and every hand-over.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Mode, Token};
use leasehold::store::{
    Absence, AcquireRequest, AdoptedLease, GRANT_FENCES, GRANT_TTL, LockInfo, Reply, Request, WAITER_LIFE,
};

/// Says what is wrong, as an error.
pub type CheckResult = Result<(), String>;

macro_rules! require {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use require;

/// A token that was handed a lease, and the fence in its notice.
pub type Handed = (Token, Option<Fence>);

/// What the lock did with one request.
pub struct Operation<'a> {
    pub now: Instant,
    pub request: &'a Request,
    pub reply: &'a Reply,
    /// The tokens that were handed leases, in order, with their fences.
    pub handed: &'a [Handed],
    /// The blocks of fences that were reserved: first and count.
    pub reserved: &'a [(Fence, u32)],
}

struct Lease {
    token: Token,
    /// Tokens of the lease before it was taken over. Their owners may not know of that yet.
    before: Vec<Token>,
    mode: Mode,
    fence: Option<Fence>,
    /// The largest fence that was reserved with the lease, 0 if none was.
    last: u64,
    ends: Instant,
}

struct Waiter {
    token: Token,
    mode: Mode,
    ttl: Duration,
    since: Instant,
    heard: Instant,
}

#[derive(Default)]
pub struct Checker {
    leases: Vec<Lease>,
    queue: Vec<Waiter>,
    /// The largest fence that any actor has used.
    used: u64,
    /// Tokens whose lease has ended, each with the smallest fence that was reserved with other
    /// leases since then. Owners that do not know of the end may still use fences below that fence.
    ended: HashMap<Token, u64>,
}

/// Returns true if a lease of `mode` may be granted together with leases of the modes `beside`.
pub fn fits(mode: Mode, beside: impl Iterator<Item = Mode> + Clone) -> bool {
    match mode {
        Mode::Exclusive => beside.count() == 0,
        Mode::Shared { most } => {
            beside.clone().all(Mode::is_shared) && (beside.count() as u64) < u64::from(most)
        }
    }
}

/// Returns the blocks of fences that were reserved for the request itself, and not for tokens that
/// were handed leases.
fn asked_for(operation: &Operation<'_>) -> Vec<(Fence, u32)> {
    let notified = |block: &(Fence, u32)| {
        operation.handed.iter().any(|(_, fence)| *block == (fence.unwrap_or(Fence(0)), GRANT_FENCES))
    };
    operation.reserved.iter().filter(|block| !notified(block)).copied().collect()
}

impl Checker {
    fn lease(&mut self, token: Token) -> Option<&mut Lease> {
        self.leases.iter_mut().find(|lease| lease.token == token)
    }

    fn place(&self, token: Token) -> usize {
        self.queue.iter().position(|waiter| waiter.token == token).unwrap_or(self.queue.len())
    }

    /// Records what the lock did, or says what is wrong with it.
    pub fn record(&mut self, operation: &Operation<'_>) -> CheckResult {
        let now = operation.now;
        self.end(|lease| now >= lease.ends);
        self.queue.retain(|waiter| now < waiter.heard + WAITER_LIFE);
        let mut wanted = self.fences_wanted(operation.request);
        match operation.request {
            Request::Acquire(ask) => self.acquire(ask, wanted, operation)?,
            Request::Renew { token, ttl, fences, .. } => {
                self.hand(operation.handed, now)?;
                let (waiting, absent) = (self.queue.len() as u32, self.absent());
                let expected = match self.lease(*token) {
                    None => absent,
                    Some(lease) => {
                        lease.ends = lease.ends.max(now + ttl.as_duration());
                        let first = asked_for(operation).first().map(|(first, _)| (*first, waiting));
                        require!((*fences > 0) == first.is_some(), "{fences} fences wanted, {first:?}");
                        Reply::Renewed { block: first }
                    }
                };
                require!(*operation.reply == expected, "{:?} instead of {expected:?}", operation.reply);
            }
            Request::Release { token, .. } => {
                let held = self.lease(*token).is_some();
                self.end(|lease| lease.token == *token);
                self.queue.retain(|waiter| waiter.token != *token);
                self.hand(operation.handed, now)?;
                let expected = if held { Reply::Released } else { self.absent() };
                require!(*operation.reply == expected, "{:?} instead of {expected:?}", operation.reply);
            }
            Request::Adopt { token, adopter, ttl, .. } => {
                self.hand(operation.handed, now)?;
                let absent = self.absent();
                let block = asked_for(operation).first().copied();
                let lease =
                    self.leases.iter_mut().find(|lease| lease.token == *token || lease.token == *adopter);
                let expected = match lease {
                    None => absent,
                    Some(lease) => {
                        let ends = now + ttl.as_duration();
                        if lease.token == *adopter {
                            lease.ends = lease.ends.max(ends);
                        } else {
                            lease.before.push(lease.token);
                            (lease.token, lease.ends) = (*adopter, ends);
                        }
                        require!(
                            lease.fence.is_none() == block.is_some(),
                            "{:?}, reserved: {block:?}",
                            lease.fence
                        );
                        wanted = block.map(|_| 1);
                        lease.fence = lease.fence.or(block.map(|(first, _)| first));
                        let first = lease.fence.expect("the lease has a fence now");
                        let last = Fence(lease.last.max(block.map_or(0, |(first, _)| first.0)));
                        Reply::Adopted(AdoptedLease {
                            first,
                            last,
                            granted: first,
                            mode: lease.mode,
                            ttl: None,
                            remaining: None,
                        })
                    }
                };
                require!(*operation.reply == expected, "{:?} instead of {expected:?}", operation.reply);
            }
            Request::Inspect { .. } => {
                require!(operation.handed.is_empty(), "an inspection handed over a lease");
                // Leases that ended may still have to be handed on; the next request does that.
                return self.inspected(now, operation.reply);
            }
            Request::Accept { .. }
            | Request::Detach { .. }
            | Request::Move { .. }
            | Request::GiveBack { .. }
            | Request::Break { .. }
            | Request::List(_)
            | Request::Ping
            | Request::Diagnose { .. } => {}
        }
        self.reserved(wanted, operation)?;
        if let Some(first) = self.queue.first() {
            let idle = fits(first.mode, self.leases.iter().map(|lease| lease.mode));
            require!(!idle, "the first of {} waits although there is room", self.queue.len());
        }
        Ok(())
    }

    /// Returns how many fences the request has to reserve if its token holds a lease.
    fn fences_wanted(&mut self, request: &Request) -> Option<u32> {
        match request {
            Request::Acquire(ask) => match self.lease(ask.token) {
                Some(lease) if lease.fence.is_some() && ask.fences == 1 => None,
                _ => Some(ask.fences),
            },
            Request::Renew { fences, .. } => (*fences > 0).then_some(*fences),
            _ => None,
        }
    }

    /// Notes that the owner of `token` has used `fence`, and none above it.
    pub fn used(&mut self, token: Token, fence: Option<Fence>) -> CheckResult {
        let Some(Fence(fence)) = fence else { return Ok(()) };
        let later = self.ended.get(&token).copied().unwrap_or(u64::MAX);
        require!(fence < later, "{token} uses {fence}, and another lease began later with {later}");
        self.used = self.used.max(fence);
        Ok(())
    }

    /// Removes leases, and remembers their tokens.
    fn end(&mut self, is_over: impl Fn(&Lease) -> bool) {
        for lease in self.leases.extract_if(.., |lease| is_over(lease)) {
            let tokens = lease.before.into_iter().chain([lease.token]);
            self.ended.extend(tokens.map(|token| (token, u64::MAX)));
        }
    }

    /// Checks the fences that were reserved. Each waiter that was handed an exclusive lease gets
    /// its own fence; the actor that asked gets a block of the size that it asked for. Each fence
    /// is above all used fences, and above all fences that a holder may still use.
    fn reserved(&mut self, wanted: Option<u32>, operation: &Operation<'_>) -> CheckResult {
        for (first, count) in operation.reserved {
            let handed = operation.handed.iter().find(|(_, fence)| *fence == Some(*first));
            let asks = match operation.request {
                Request::Acquire(AcquireRequest { token, .. })
                | Request::Renew { token, .. }
                | Request::Adopt { adopter: token, .. } => Some(*token),
                _ => None,
            };
            let owner = handed.map(|(token, _)| *token).or(asks);
            let most = self.leases.iter().map(|lease| lease.last).max().unwrap_or(0).max(self.used);
            require!(first.0 > most, "fence {} after {most}", first.0);
            for (_, later) in self.ended.iter_mut().filter(|(token, _)| Some(**token) != owner) {
                *later = first.0.min(*later);
            }
            if let Some(lease) = owner.and_then(|token| self.lease(token)) {
                lease.last = first.last_of(*count).0;
            }
        }
        for (token, fence) in operation.handed {
            let known = fence.is_none_or(|fence| operation.reserved.contains(&(fence, GRANT_FENCES)));
            require!(known, "the notice for {token} has {fence:?}, reserved: {:?}", operation.reserved);
        }
        let asked = asked_for(operation);
        require!(asked.len() <= 1, "{} blocks of fences for one request", asked.len());
        let Some((_, count)) = asked.first() else { return Ok(()) };
        require!(wanted == Some(*count), "{count} fences reserved, wanted: {wanted:?}");
        Ok(())
    }

    fn absent(&self) -> Reply {
        Reply::NotHeld(if self.leases.is_empty() { Absence::Missing } else { Absence::Taken })
    }

    /// Records that `token` is granted a lease. It must be next, and there must be room.
    fn grant(&mut self, token: Token, mode: Mode, ends: Instant) -> CheckResult {
        let ahead = self.place(token);
        require!(ahead == 0, "{token} was granted a lease before {ahead} earlier live waiters");
        require!(
            fits(mode, self.leases.iter().map(|lease| lease.mode)),
            "{token} was granted {mode:?} together with {} others",
            self.leases.len()
        );
        self.queue.retain(|waiter| waiter.token != token);
        // The token may have had a lease before.
        self.ended.remove(&token);
        self.leases.push(Lease { token, before: Vec::new(), mode, fence: None, last: 0, ends });
        Ok(())
    }

    fn hand(&mut self, handed: &[Handed], now: Instant) -> CheckResult {
        for (token, fence) in handed {
            let place = self.place(*token);
            require!(place < self.queue.len(), "{token} was handed a lease, but does not wait");
            let mode = self.queue[place].mode;
            require!(mode.is_shared() != fence.is_some(), "{token} was handed {mode:?} with {fence:?}");
            // A shared lease, which has no fence yet, always has to be taken up.
            let ttl = if mode.is_shared() { GRANT_TTL } else { self.queue[place].ttl.min(GRANT_TTL) };
            self.grant(*token, mode, now + ttl)?;
            self.lease(*token).expect("just granted").fence = *fence;
        }
        Ok(())
    }

    fn acquire(
        &mut self,
        ask: &AcquireRequest,
        wanted: Option<u32>,
        operation: &Operation<'_>,
    ) -> CheckResult {
        let (now, token) = (operation.now, ask.token);
        let ends = now + ask.ttl.as_duration();
        require!(
            !operation.handed.iter().any(|(handed, _)| *handed == token),
            "{token} was sent a notice and a reply"
        );
        let Reply::Acquired { fence, waiting } = operation.reply else {
            return self.refused(ask, operation);
        };
        if self.lease(token).is_none() {
            // Some waiters may have been granted leases before this token, and some together with
            // it.
            let own = self.place(token);
            let split = operation.handed.iter().position(|(other, _)| self.place(*other) > own);
            let (before, after) = operation.handed.split_at(split.unwrap_or(operation.handed.len()));
            self.hand(before, now)?;
            self.grant(token, ask.mode, ends)?;
            self.hand(after, now)?;
        } else {
            self.hand(operation.handed, now)?;
        }
        let asked = asked_for(operation);
        require!(asked.is_empty() == wanted.is_none(), "{wanted:?} wanted, {asked:?}");
        let queued = self.queue.len();
        let block = asked.first().map(|(first, _)| *first);
        let lease = self.lease(token).expect("the lease exists");
        // A waiter that takes up its lease gets its ttl from now on, even if the lease ends earlier
        // then.
        lease.ends = if lease.fence.is_none() { ends } else { lease.ends.max(ends) };
        let expected = block.or(lease.fence);
        require!(Some(*fence) == expected, "fence {fence:?}, reserved or known: {expected:?}");
        lease.fence = Some(*fence);
        require!(*waiting as usize == queued, "the reply says that {waiting} wait, but {queued} do");
        Ok(())
    }

    fn refused(&mut self, ask: &AcquireRequest, operation: &Operation<'_>) -> CheckResult {
        let (now, token) = (operation.now, ask.token);
        require!(
            self.lease(token).is_none(),
            "{token} holds the lock, but the reply is {:?}",
            operation.reply
        );
        require!(asked_for(operation).is_empty(), "fences were reserved without a grant");
        self.hand(operation.handed, now)?;
        let room = fits(ask.mode, self.leases.iter().map(|lease| lease.mode));
        let index = self.place(token);
        require!(index > 0 || !room, "{token} is next, and there is room: {:?}", operation.reply);
        let soonest = self.leases.iter().map(|lease| lease.ends.since(now)).min().unwrap_or(Duration::ZERO);
        let remaining = Some(soonest);
        let expected = match ask.place {
            None => Reply::Busy { remaining },
            Some(_) => {
                let ttl = ask.ttl.as_duration();
                match self.queue.get_mut(index) {
                    Some(waiter) => (waiter.heard, waiter.mode, waiter.ttl) = (now, ask.mode, ttl),
                    None => self.queue.push(Waiter { token, mode: ask.mode, ttl, since: now, heard: now }),
                }
                let exclusive = self.leases.iter().find(|lease| lease.mode == Mode::Exclusive);
                let by = exclusive.map(|lease| lease.token.mark());
                Reply::Queued { remaining, ahead: index as u32, notified: true, by }
            }
        };
        require!(*operation.reply == expected, "{:?} instead of {expected:?}", operation.reply);
        Ok(())
    }

    fn inspected(&self, now: Instant, reply: &Reply) -> CheckResult {
        let Reply::Inspected(info) = reply else { return Err(format!("to an inspection: {reply:?}")) };
        let Some(LockInfo { shared, leases, waiters }) = info else {
            require!(
                self.leases.is_empty(),
                "{} leases are held, but the reply says that the lock is free",
                self.leases.len()
            );
            return Ok(());
        };
        require!(*shared == self.leases.iter().all(|lease| lease.mode.is_shared()), "shared: {shared}");
        let mut known: Vec<_> = self.leases.iter().map(|l| (l.fence, Some(l.ends.since(now)))).collect();
        known.sort_by_key(|(fence, _)| fence.unwrap_or(Fence::MAX));
        let notified: Vec<_> = leases.iter().map(|lease| (lease.fence, lease.remaining)).collect();
        // Leases without a fence are in no order.
        known.sort();
        let mut in_order = notified.clone();
        in_order.sort();
        require!(in_order == known, "leases {notified:?} instead of {known:?}");
        let fenced: Vec<_> = notified.iter().map(|(fence, _)| fence.unwrap_or(Fence::MAX)).collect();
        require!(fenced.is_sorted(), "leases out of order: {notified:?}");
        let known: Vec<_> = self.queue.iter().map(|w| (w.mode.is_shared(), now.since(w.since))).collect();
        let notified: Vec<_> = waiters.iter().map(|waiter| (waiter.shared, waiter.age)).collect();
        require!(notified == known, "waiters {notified:?} instead of {known:?}");
        Ok(())
    }
}
