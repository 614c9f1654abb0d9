//! What the contract says of one lock, looked at from outside: it keeps its own books of who holds and who waits, and
//! compares with them every answer and everyone who is handed a lease.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Mode, Token};
use leasehold::store::{
    Absence, Ask, GRANT_FENCES, GRANT_TTL, Inherited, LockInfo, Reply, Request, WAITER_LIFE,
};

/// What is wrong.
pub type Verdict = Result<(), String>;

macro_rules! demand {
    ($holds:expr, $($complaint:tt)+) => {
        if !$holds {
            return Err(format!($($complaint)+));
        }
    };
}
pub(crate) use demand;

/// A token that was handed a lease, and the fence that it was told.
pub type Handed = (Token, Option<Fence>);

/// What the lock did at one request.
pub struct Deed<'a> {
    pub now: Instant,
    pub request: &'a Request,
    pub reply: &'a Reply,
    /// Who was handed a lease, in order, and with which fence.
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
    /// leases since then. Owners that do not know of the end may still use fences; those have to be
    /// below it.
    ended: HashMap<Token, u64>,
}

/// Whether a lease of that mode may be granted beside those of these modes.
pub fn fits(mode: Mode, beside: impl Iterator<Item = Mode> + Clone) -> bool {
    match mode {
        Mode::Exclusive => beside.count() == 0,
        Mode::Shared { most } => {
            beside.clone().all(Mode::is_shared) && (beside.count() as u64) < u64::from(most)
        }
    }
}

/// The blocks of fences that were reserved but for those who were handed leases.
fn asked_for(deed: &Deed<'_>) -> Vec<(Fence, u32)> {
    let told = |block: &(Fence, u32)| {
        deed.handed.iter().any(|(_, fence)| *block == (fence.unwrap_or(Fence(0)), GRANT_FENCES))
    };
    deed.reserved.iter().filter(|block| !told(block)).copied().collect()
}

impl Checker {
    fn lease(&mut self, token: Token) -> Option<&mut Lease> {
        self.leases.iter_mut().find(|lease| lease.token == token)
    }

    fn place(&self, token: Token) -> usize {
        self.queue.iter().position(|waiter| waiter.token == token).unwrap_or(self.queue.len())
    }

    /// Enters what was done into the books, or says what is wrong with it.
    pub fn enter(&mut self, deed: &Deed<'_>) -> Verdict {
        let now = deed.now;
        self.end(|lease| now >= lease.ends);
        self.queue.retain(|waiter| now < waiter.heard + WAITER_LIFE);
        let mut wanted = self.fences_wanted(deed.request);
        match deed.request {
            Request::Acquire(ask) => self.acquire(ask, wanted, deed)?,
            Request::Renew { token, ttl, fences, .. } => {
                self.hand(deed.handed, now)?;
                let (waiting, absent) = (self.queue.len() as u32, self.absent());
                let expected = match self.lease(*token) {
                    None => absent,
                    Some(lease) => {
                        lease.ends = lease.ends.max(now + ttl.as_duration());
                        let first = asked_for(deed).first().map(|(first, _)| (*first, waiting));
                        demand!((*fences > 0) == first.is_some(), "{fences} fences wanted, {first:?}");
                        Reply::Renewed { block: first }
                    }
                };
                demand!(*deed.reply == expected, "{:?} instead of {expected:?}", deed.reply);
            }
            Request::Release { token, .. } => {
                let held = self.lease(*token).is_some();
                self.end(|lease| lease.token == *token);
                self.queue.retain(|waiter| waiter.token != *token);
                self.hand(deed.handed, now)?;
                let expected = if held { Reply::Released } else { self.absent() };
                demand!(*deed.reply == expected, "{:?} instead of {expected:?}", deed.reply);
            }
            Request::Adopt { token, heir, ttl, .. } => {
                self.hand(deed.handed, now)?;
                let absent = self.absent();
                let block = asked_for(deed).first().copied();
                let lease =
                    self.leases.iter_mut().find(|lease| lease.token == *token || lease.token == *heir);
                let expected = match lease {
                    None => absent,
                    Some(lease) => {
                        let ends = now + ttl.as_duration();
                        if lease.token == *heir {
                            lease.ends = lease.ends.max(ends);
                        } else {
                            lease.before.push(lease.token);
                            (lease.token, lease.ends) = (*heir, ends);
                        }
                        demand!(
                            lease.fence.is_none() == block.is_some(),
                            "{:?}, reserved: {block:?}",
                            lease.fence
                        );
                        wanted = block.map(|_| 1);
                        lease.fence = lease.fence.or(block.map(|(first, _)| first));
                        let first = lease.fence.expect("it has one now");
                        let last = Fence(lease.last.max(block.map_or(0, |(first, _)| first.0)));
                        Reply::Adopted(Inherited { first, last, mode: lease.mode, ttl: None })
                    }
                };
                demand!(*deed.reply == expected, "{:?} instead of {expected:?}", deed.reply);
            }
            Request::Inspect { .. } => {
                demand!(deed.handed.is_empty(), "a look changes something");
                // What it could hand on, nobody has asked for yet.
                return self.inspected(now, deed.reply);
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
        self.reserved(wanted, deed)?;
        if let Some(first) = self.queue.first() {
            let idle = fits(first.mode, self.leases.iter().map(|lease| lease.mode));
            demand!(!idle, "the first of {} waits although there is room", self.queue.len());
        }
        Ok(())
    }

    /// How many fences the request has to reserve, if it finds the token holding.
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
    pub fn used(&mut self, token: Token, fence: Option<Fence>) -> Verdict {
        let Some(Fence(fence)) = fence else { return Ok(()) };
        let later = self.ended.get(&token).copied().unwrap_or(u64::MAX);
        demand!(fence < later, "{token} uses {fence}, and another lease began later with {later}");
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
    fn reserved(&mut self, wanted: Option<u32>, deed: &Deed<'_>) -> Verdict {
        for (first, count) in deed.reserved {
            let handed = deed.handed.iter().find(|(_, fence)| *fence == Some(*first));
            let asks = match deed.request {
                Request::Acquire(Ask { token, .. })
                | Request::Renew { token, .. }
                | Request::Adopt { heir: token, .. } => Some(*token),
                _ => None,
            };
            let owner = handed.map(|(token, _)| *token).or(asks);
            let most = self.leases.iter().map(|lease| lease.last).max().unwrap_or(0).max(self.used);
            demand!(first.0 > most, "fence {} after {most}", first.0);
            for (_, later) in self.ended.iter_mut().filter(|(token, _)| Some(**token) != owner) {
                *later = first.0.min(*later);
            }
            if let Some(lease) = owner.and_then(|token| self.lease(token)) {
                lease.last = first.last_of(*count).0;
            }
        }
        for (token, fence) in deed.handed {
            let known = fence.is_none_or(|fence| deed.reserved.contains(&(fence, GRANT_FENCES)));
            demand!(known, "{token} was told {fence:?}, reserved: {:?}", deed.reserved);
        }
        let asked = asked_for(deed);
        demand!(asked.len() <= 1, "{} blocks of fences for one request", asked.len());
        let Some((_, count)) = asked.first() else { return Ok(()) };
        demand!(wanted == Some(*count), "{count} fences reserved, wanted: {wanted:?}");
        Ok(())
    }

    fn absent(&self) -> Reply {
        Reply::NotHeld(if self.leases.is_empty() { Absence::Missing } else { Absence::Taken })
    }

    /// `token` is granted a lease: its turn must have come, and there must be room.
    fn grant(&mut self, token: Token, mode: Mode, ends: Instant) -> Verdict {
        let ahead = self.place(token);
        demand!(ahead == 0, "{token} was let in before {ahead} live waiters who had come earlier");
        demand!(
            fits(mode, self.leases.iter().map(|lease| lease.mode)),
            "{token} was let in for {mode:?} beside {} others",
            self.leases.len()
        );
        self.queue.retain(|waiter| waiter.token != token);
        // The token may have had a lease before.
        self.ended.remove(&token);
        self.leases.push(Lease { token, before: Vec::new(), mode, fence: None, last: 0, ends });
        Ok(())
    }

    fn hand(&mut self, handed: &[Handed], now: Instant) -> Verdict {
        for (token, fence) in handed {
            let place = self.place(*token);
            demand!(place < self.queue.len(), "{token} was handed a lease and does not wait");
            let mode = self.queue[place].mode;
            demand!(mode.is_shared() != fence.is_some(), "{token} was handed {mode:?} with {fence:?}");
            // A shared lease, which has no fence yet, has to be taken up in any case.
            let ttl = if mode.is_shared() { GRANT_TTL } else { self.queue[place].ttl.min(GRANT_TTL) };
            self.grant(*token, mode, now + ttl)?;
            self.lease(*token).expect("just granted").fence = *fence;
        }
        Ok(())
    }

    fn acquire(&mut self, ask: &Ask, wanted: Option<u32>, deed: &Deed<'_>) -> Verdict {
        let (now, token) = (deed.now, ask.token);
        let ends = now + ask.ttl.as_duration();
        demand!(
            !deed.handed.iter().any(|(handed, _)| *handed == token),
            "{token} asks itself: it needs no notice"
        );
        let Reply::Acquired { fence, waiting } = deed.reply else { return self.turned_away(ask, deed) };
        if self.lease(token).is_none() {
            // Some may have been let in before it, and some beside it.
            let own = self.place(token);
            let split = deed.handed.iter().position(|(other, _)| self.place(*other) > own);
            let (before, after) = deed.handed.split_at(split.unwrap_or(deed.handed.len()));
            self.hand(before, now)?;
            self.grant(token, ask.mode, ends)?;
            self.hand(after, now)?;
        } else {
            self.hand(deed.handed, now)?;
        }
        let asked = asked_for(deed);
        demand!(asked.is_empty() == wanted.is_none(), "{wanted:?} wanted, {asked:?}");
        let queued = self.queue.len();
        let block = asked.first().map(|(first, _)| *first);
        let lease = self.lease(token).expect("just looked");
        // Whoever takes up what it was handed gets its ttl from now, be it shorter than a grant.
        lease.ends = if lease.fence.is_none() { ends } else { lease.ends.max(ends) };
        let expected = block.or(lease.fence);
        demand!(Some(*fence) == expected, "fence {fence:?}, reserved or known: {expected:?}");
        lease.fence = Some(*fence);
        demand!(*waiting as usize == queued, "{waiting} are said to wait, {queued} do");
        Ok(())
    }

    fn turned_away(&mut self, ask: &Ask, deed: &Deed<'_>) -> Verdict {
        let (now, token) = (deed.now, ask.token);
        demand!(self.lease(token).is_none(), "{token} holds it, and is told {:?}", deed.reply);
        demand!(asked_for(deed).is_empty(), "fences for nothing");
        self.hand(deed.handed, now)?;
        let room = fits(ask.mode, self.leases.iter().map(|lease| lease.mode));
        let index = self.place(token);
        demand!(index > 0 || !room, "{token} is next, and there is room: {:?}", deed.reply);
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
                Reply::Queued { remaining, ahead: index as u32, told: true, by }
            }
        };
        demand!(*deed.reply == expected, "{:?} instead of {expected:?}", deed.reply);
        Ok(())
    }

    fn inspected(&self, now: Instant, reply: &Reply) -> Verdict {
        let Reply::Inspected(info) = reply else { return Err(format!("to a look: {reply:?}")) };
        let Some(LockInfo { shared, leases, waiters }) = info else {
            demand!(self.leases.is_empty(), "it is held by {}, and said to be free", self.leases.len());
            return Ok(());
        };
        demand!(*shared == self.leases.iter().all(|lease| lease.mode.is_shared()), "shared: {shared}");
        let mut known: Vec<_> = self.leases.iter().map(|l| (l.fence, Some(l.ends.since(now)))).collect();
        known.sort_by_key(|(fence, _)| fence.unwrap_or(Fence::MAX));
        let told: Vec<_> = leases.iter().map(|lease| (lease.fence, lease.remaining)).collect();
        // Those without a fence are in no order of their own.
        known.sort();
        let mut in_order = told.clone();
        in_order.sort();
        demand!(in_order == known, "leases {told:?} instead of {known:?}");
        let fenced: Vec<_> = told.iter().map(|(fence, _)| fence.unwrap_or(Fence::MAX)).collect();
        demand!(fenced.is_sorted(), "leases out of order: {told:?}");
        let known: Vec<_> = self.queue.iter().map(|w| (w.mode.is_shared(), now.since(w.since))).collect();
        let told: Vec<_> = waiters.iter().map(|waiter| (waiter.shared, waiter.age)).collect();
        demand!(told == known, "waiters {told:?} instead of {known:?}");
        Ok(())
    }
}
