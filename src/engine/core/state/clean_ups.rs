//! Clean-ups: releases of leases that an ambiguous request may have left at the store, or that a
//! holder could not release in time. No caller waits for them.
//!
//! **A clean-up lasts until the store answers.** A server that hangs carries out its pending
//! requests when it resumes, however late that is. A lease that it grants then lives for its whole
//! ttl from that moment. So a clean-up that gets no answer has no limit in time. It has a limit in
//! memory: at most [`MOST_OVERDUE`] clean-ups go on after the time at which the lease would have
//! ended at a working server.
//!
//! **A refusal is an answer.** By then, the store has carried out all requests that were sent
//! before the refused release. So the lease ends by itself, one ttl later at the latest. Until
//! then, the clean-up repeats the release: an administrator may remove the cause of the refusal.
//!
//! **A clean-up may wait before its first release:** that of a detached lease waits until the
//! environment of its caller ends. See [`unseen_tickets`](super::unseen_tickets).
//!
//! Touches its own map, and uses the time, the timers and the random numbers of the [`Context`].
//! Returns a [`Progress`] that says what the client and the store no longer have to wait for.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::context::{Context, Wake};
use super::outgoing::Outgoing;
use super::tags::Tag;
use crate::engine::ids::{ClientId, StoreId};
use crate::lease::in_doubt::{InDoubt, LONGEST_IN_DOUBT};
use crate::lease::{Instant, Key, Token, Ttl};
use crate::store::{Answer, Request, StoreError, StoreErrorKind};

/// The first pause before a failed release is sent again. It doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause between two attempts to release.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between two attempts of an overdue clean-up. If this is smaller, the attempts
/// cost more work while a server is gone. If it is larger, a lock may be held for longer after the
/// server is back. It must be shorter than the breaker's idle time (10 s): the breaker probes a
/// server only for that long after the last request, and ends the pause when the server answers.
const LONGEST_OVERDUE_PAUSE: Duration = Duration::from_secs(2);
/// The most overdue clean-ups in a process; they take about 3 MB with short keys. If this is
/// smaller, more leases are left to their ttl, which begins when the server resumes. If it is
/// larger, a long outage takes more memory.
pub const MOST_OVERDUE: usize = 10_000;
/// How often the release of a lease is repeated when its acquire may still be under way: one second
/// after the first answer, and three seconds after that. If this is smaller, an acquire that
/// arrives late holds the lock for its ttl. If it is larger, clean-ups send more requests.
const REPEATS: u32 = 2;
/// The pause before the first repetition. The pause before the second one is three times as long.
const FIRST_REPEAT: Duration = Duration::from_secs(1);

/// A lease or a place that a token may have at the store.
pub struct PossibleLease {
    pub client: ClientId,
    pub store: StoreId,
    pub key: Key,
    pub token: Token,
    /// The token of the ticket if `token` belongs to an adopter whose adoption failed. A quorum
    /// gives the lease back to the ticket.
    pub from_ticket: Option<Token>,
    /// When the lease has ended by itself at a store that works.
    pub until: Instant,
    /// Whether the request that creates the lease may still be under way.
    pub straggler: bool,
}

/// One clean-up. See the module.
struct CleanUp {
    lease: PossibleLease,
    /// The longest time that the lease may live after the store has carried out the request that
    /// creates it.
    life: Duration,
    timeout: Duration,
    failures: u32,
    /// Whether the store has answered a release, even by refusing it. Then the lease ends at
    /// `lease.until`.
    heard: bool,
    /// Whether the clean-up lasts beyond `lease.until` because the store does not answer.
    overdue: bool,
    /// How often the release is still repeated after it succeeded: the acquire may arrive only
    /// then.
    repeats: u32,
    /// Whether the clean-up counts as an outstanding request of its client: until the first release
    /// succeeds, or until the clean-up is overdue.
    counted: bool,
    wake: Option<Instant>,
}

/// What a step of a clean-up means for its client and its store.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// The clean-up goes on as before.
    Continues,
    /// The end of the client no longer waits for the clean-up.
    Uncounted(ClientId),
    /// The clean-up is over. It names its client if it was still counted.
    Ended { store: StoreId, counted: Option<ClientId> },
}

/// See the module.
#[derive(Default)]
pub struct CleanUps {
    clean_ups: FxHashMap<u64, CleanUp>,
    /// The number of overdue clean-ups.
    overdue: usize,
    /// The tokens whose acquires may still arrive at a store after their leases were released.
    in_doubt: InDoubt,
}

impl CleanUps {
    /// Notes that an acquire of a lease with this `ttl` by `token` got no answer, so it may still
    /// arrive.
    pub fn doubt(&mut self, token: Token, ttl: Ttl, now: Instant) {
        self.in_doubt.add(now, token, ttl.as_duration());
    }

    /// Notes that `token` is being released. If its acquire may still arrive, returns when the
    /// lease that this acquire gets has ended.
    pub fn settle_doubt(&mut self, token: Token, now: Instant) -> Option<Instant> {
        self.in_doubt.settle(now, token).map(|life| now + life.max(LONGEST_IN_DOUBT))
    }

    /// Adds a clean-up whose releases may take `timeout`. It sends nothing yet. If `counted`, it
    /// counts as an outstanding request of its client.
    pub fn add(
        &mut self,
        mut lease: PossibleLease,
        timeout: Duration,
        counted: bool,
        cx: &mut Context,
    ) -> u64 {
        if let Some(until) = self.settle_doubt(lease.token, cx.now) {
            if !lease.straggler {
                lease.until = lease.until.max(until);
            }
            lease.straggler = true;
        }
        let id = cx.next_serial();
        let (repeats, life) = (if lease.straggler { REPEATS } else { 0 }, lease.until.since(cx.now));
        let clean_up = CleanUp {
            lease,
            life,
            timeout,
            failures: 0,
            heard: false,
            overdue: false,
            repeats,
            counted,
            wake: None,
        };
        self.clean_ups.insert(id, clean_up);
        id
    }

    /// Returns the next release of a clean-up.
    pub fn release(&mut self, id: u64) -> Option<Outgoing> {
        let clean_up = self.clean_ups.get_mut(&id)?;
        clean_up.wake = None;
        let (store, timeout) = (clean_up.lease.store, clean_up.timeout);
        // Which fences of the token were used is unknown here.
        let (key, token) = (clean_up.lease.key.clone(), clean_up.lease.token);
        let request = match clean_up.lease.from_ticket {
            Some(ticket) => Request::GiveBack { key, token, ticket },
            None => Request::Release { key, token, used: None },
        };
        Some(Outgoing { store, request, tag: Tag::CleanUp(id), timeout })
    }

    /// Handles the answer to a release.
    pub fn answered(&mut self, id: u64, answer: Answer, cx: &mut Context) -> Progress {
        match answer {
            Err(error) if is_silent(&error) => self.retry(id, cx),
            // The key holds other data, so there is no lease to release.
            Err(error) if error.kind == StoreErrorKind::WrongType => self.forget(id),
            Err(_) => {
                self.heard(id, cx.now);
                self.retry(id, cx)
            }
            Ok(_) => {
                self.heard(id, cx.now);
                self.repeat(id, cx)
            }
        }
    }

    /// Returns the clean-ups of `store` that pause after a failure, in the order in which they
    /// began.
    pub fn failed_on(&self, store: StoreId) -> Vec<u64> {
        let waits = |clean_up: &CleanUp| {
            clean_up.lease.store == store && clean_up.failures > 0 && clean_up.wake.is_some()
        };
        let mut waiting: Vec<u64> =
            self.clean_ups.iter().filter(|(_, clean_up)| waits(clean_up)).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        waiting
    }

    /// Notes that the store has answered. By then, it has carried out all requests that were sent
    /// before. So a lease that one of them created has begun by now.
    fn heard(&mut self, id: u64, now: Instant) {
        let Some(clean_up) = self.clean_ups.get_mut(&id).filter(|clean_up| !clean_up.heard) else { return };
        clean_up.heard = true;
        clean_up.lease.until = clean_up.lease.until.max(now + clean_up.life);
        if std::mem::take(&mut clean_up.overdue) {
            self.overdue -= 1;
        }
    }

    /// Schedules the next repetition after a release that succeeded: an acquire that is still under
    /// way may create the lease again. Forgets the clean-up if no repetition is left.
    pub fn repeat(&mut self, id: u64, cx: &mut Context) -> Progress {
        let Some(clean_up) = self.clean_ups.get_mut(&id) else { return Progress::Continues };
        let at = cx.now + FIRST_REPEAT * 3u32.pow(REPEATS - clean_up.repeats);
        if clean_up.repeats == 0 || at >= clean_up.lease.until {
            return self.forget(id);
        }
        clean_up.repeats -= 1;
        clean_up.failures = 0;
        clean_up.wake = Some(at);
        cx.timers.schedule(at, Wake::CleanUp(id));
        clean_up.stop_counting()
    }

    /// Schedules the release again after it failed. Forgets the clean-up if the lease has ended by
    /// then, or if too many clean-ups are overdue.
    pub fn retry(&mut self, id: u64, cx: &mut Context) -> Progress {
        let jitter = cx.jitter();
        let Some(clean_up) = self.clean_ups.get_mut(&id) else { return Progress::Continues };
        let longest = if clean_up.overdue { LONGEST_OVERDUE_PAUSE } else { LONGEST_PAUSE };
        let pause = SHORTEST_PAUSE.saturating_mul(1 << clean_up.failures.min(10)).min(longest);
        let at = cx.now + pause.mul_f64(0.5 + 0.5 * jitter);
        if at >= clean_up.lease.until && !clean_up.overdue {
            if clean_up.heard || self.overdue >= MOST_OVERDUE {
                return self.forget(id);
            }
            clean_up.overdue = true;
            self.overdue += 1;
        }
        clean_up.failures += 1;
        clean_up.wake = Some(at);
        cx.timers.schedule(at, Wake::CleanUp(id));
        if clean_up.overdue { clean_up.stop_counting() } else { Progress::Continues }
    }

    /// Forgets a clean-up, because nothing has to be released any more.
    pub fn forget(&mut self, id: u64) -> Progress {
        let Some(clean_up) = self.clean_ups.remove(&id) else { return Progress::Continues };
        self.overdue -= usize::from(clean_up.overdue);
        let PossibleLease { store, client, .. } = clean_up.lease;
        Progress::Ended { store, counted: clean_up.counted.then_some(client) }
    }

    /// Returns when the clean-up is due.
    pub fn due_at(&self, id: u64) -> Option<Instant> {
        self.clean_ups.get(&id).and_then(|clean_up| clean_up.wake)
    }

    pub fn len(&self) -> usize {
        self.clean_ups.len()
    }

    #[cfg(test)]
    pub fn overdue(&self) -> usize {
        self.overdue
    }
}

impl CleanUp {
    fn stop_counting(&mut self) -> Progress {
        if std::mem::take(&mut self.counted) {
            Progress::Uncounted(self.lease.client)
        } else {
            Progress::Continues
        }
    }
}

/// Returns true if the error does not tell whether the store has carried out the request, or will.
fn is_silent(error: &StoreError) -> bool {
    use StoreErrorKind::{Quorum, TimedOut, Unreachable};
    matches!(error.kind, Unreachable | TimedOut | Quorum)
}
