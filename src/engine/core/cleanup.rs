//! Clean-up: releases of leases that an ambiguous request may have left at the store, or that a
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

use std::time::Duration;

use super::outgoing::Tag;
use super::{Core, Wake};
use crate::engine::command::{ClientId, StoreId};
use crate::lease::doubts::LONGEST_DOUBT;
use crate::lease::{Instant, Key, Token};
use crate::mutants::{self, Mutant};
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
pub(super) const MOST_OVERDUE: usize = 10_000;
/// How often the release of a lease is repeated when its acquire may still be under way: one second
/// after the first answer, and three seconds after that. If this is smaller, an acquire that
/// arrives late holds the lock for its ttl. If it is larger, clean-ups send more requests.
const REPEATS: u32 = 2;
/// The pause before the first repetition. The pause before the second one is three times as long.
const FIRST_REPEAT: Duration = Duration::from_secs(1);

/// A lease or a place that a token may have at the store.
pub struct Leftover {
    pub client: ClientId,
    pub store: StoreId,
    pub key: Key,
    pub token: Token,
    /// The token of the ticket if `token` belongs to an heir whose adoption failed. A quorum gives
    /// the lease back to the ticket.
    pub ticket: Option<Token>,
    /// When the lease has ended by itself at a store that works.
    pub until: Instant,
    /// Whether the request that creates the lease may still be under way.
    pub straggler: bool,
}

/// One clean-up. See the module.
pub struct Cleanup {
    left: Leftover,
    /// The longest time that the lease may live after the store has carried out the request that
    /// creates it.
    life: Duration,
    timeout: Duration,
    failures: u32,
    /// Whether the store has answered a release, even by refusing it. Then the lease ends at
    /// `left.until`.
    heard: bool,
    /// Whether the clean-up lasts beyond `left.until` because the store does not answer.
    overdue: bool,
    /// How often the release is still repeated after it succeeded: the acquire may arrive only
    /// then.
    repeats: u32,
    /// Whether the clean-up counts as an outstanding request of its client: until the first release
    /// succeeds, or until the clean-up is overdue.
    counted: bool,
    pub(super) wake: Option<Instant>,
}

impl Core {
    /// Sends the release now, and repeats it until the store has answered.
    pub(super) fn clean_up(&mut self, left: Leftover) {
        if mutants::is(Mutant::NoCleanUp) {
            return;
        }
        let id = self.remember_cleanup(left);
        self.wake_cleanup(id);
    }

    /// Does the same as [`Core::clean_up`] after a release that has just failed.
    pub(super) fn clean_up_later(&mut self, left: Leftover) {
        let id = self.remember_cleanup(left);
        self.retry_cleanup(id);
    }

    /// Does the same after a release that succeeded but may have come too early.
    pub(super) fn clean_up_again(&mut self, left: Leftover) {
        let id = self.remember_cleanup(left);
        self.repeat_cleanup(id);
    }

    fn remember_cleanup(&mut self, mut left: Leftover) -> u64 {
        if self.doubts.settle(self.now, left.token) {
            if !left.straggler {
                left.until = left.until.max(self.now + LONGEST_DOUBT);
            }
            left.straggler = true;
        }
        let id = self.next_serial();
        let timeout = self.store_timeout(left.client);
        self.stores.entry(left.store).or_default().cleanups += 1;
        let counted = self.clients.get_mut(&left.client).map(|client| client.outstanding += 1).is_some();
        let (repeats, life) = (if left.straggler { REPEATS } else { 0 }, left.until.since(self.now));
        let cleanup = Cleanup {
            left,
            life,
            timeout,
            failures: 0,
            heard: false,
            overdue: false,
            repeats,
            counted,
            wake: None,
        };
        self.cleanups.insert(id, cleanup);
        id
    }

    pub(super) fn wake_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        cleanup.wake = None;
        let (store, timeout) = (cleanup.left.store, cleanup.timeout);
        // Which fences of the token were used is unknown here.
        let (key, token) = (cleanup.left.key.clone(), cleanup.left.token);
        let request = match cleanup.left.ticket {
            Some(ticket) => Request::GiveBack { key, token, ticket },
            None => Request::Release { key, token, used: None },
        };
        self.send(store, request, Tag::Cleanup(id), timeout);
    }

    pub(super) fn cleaned_up(&mut self, id: u64, answer: Answer) {
        match answer {
            Err(error) if is_silent(&error) => self.retry_cleanup(id),
            // The key holds other data, so there is no lease to release.
            Err(error) if error.kind == StoreErrorKind::WrongType => self.forget_cleanup(id),
            Err(_) => {
                self.heard_of_cleanup(id);
                self.retry_cleanup(id);
            }
            Ok(_) => {
                self.heard_of_cleanup(id);
                self.repeat_cleanup(id);
            }
        }
    }

    /// Ends the pauses of the clean-ups of `store` that failed before: one of its servers is back.
    pub(super) fn clean_up_after_an_outage(&mut self, store: StoreId) {
        let waits =
            |cleanup: &Cleanup| cleanup.left.store == store && cleanup.failures > 0 && cleanup.wake.is_some();
        let mut waiting: Vec<u64> =
            self.cleanups.iter().filter(|(_, cleanup)| waits(cleanup)).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        for id in waiting {
            self.guarded(None, |core| core.wake_cleanup(id));
        }
    }

    /// Notes that the store has answered. By then, it has carried out all requests that were sent
    /// before. So a lease that one of them created has begun by now.
    fn heard_of_cleanup(&mut self, id: u64) {
        let now = self.now;
        let Some(cleanup) = self.cleanups.get_mut(&id).filter(|cleanup| !cleanup.heard) else { return };
        cleanup.heard = true;
        cleanup.left.until = cleanup.left.until.max(now + cleanup.life);
        if std::mem::take(&mut cleanup.overdue) {
            self.overdue -= 1;
        }
    }

    /// Schedules the next repetition after a release that succeeded: an acquire that is still under
    /// way may create the lease again. Forgets the clean-up if no repetition is left.
    fn repeat_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        let at = self.now + FIRST_REPEAT * 3u32.pow(REPEATS - cleanup.repeats);
        if cleanup.repeats == 0 || at >= cleanup.left.until {
            return self.forget_cleanup(id);
        }
        cleanup.repeats -= 1;
        cleanup.failures = 0;
        cleanup.wake = Some(at);
        self.timers.schedule(at, Wake::Cleanup(id));
        self.stop_waiting_for_cleanup(id);
    }

    fn retry_cleanup(&mut self, id: u64) {
        let jitter = self.jitter();
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        let longest = if cleanup.overdue { LONGEST_OVERDUE_PAUSE } else { LONGEST_PAUSE };
        let pause = SHORTEST_PAUSE.saturating_mul(1 << cleanup.failures.min(10)).min(longest);
        let at = self.now + pause.mul_f64(0.5 + 0.5 * jitter);
        if at >= cleanup.left.until && !cleanup.overdue {
            if cleanup.heard || self.overdue >= MOST_OVERDUE {
                return self.forget_cleanup(id);
            }
            cleanup.overdue = true;
            self.overdue += 1;
        }
        cleanup.failures += 1;
        cleanup.wake = Some(at);
        self.timers.schedule(at, Wake::Cleanup(id));
        if cleanup.overdue {
            self.stop_waiting_for_cleanup(id);
        }
    }

    /// Lets the end of its client no longer wait for the clean-up.
    fn stop_waiting_for_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        if std::mem::take(&mut cleanup.counted) {
            let client = cleanup.left.client;
            self.answered_one(client);
        }
    }

    fn forget_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.remove(&id) else { return };
        self.overdue -= usize::from(cleanup.overdue);
        if let Some(link) = self.stores.get_mut(&cleanup.left.store) {
            link.cleanups -= 1;
        }
        self.drop_if_unused(cleanup.left.store);
        if cleanup.counted {
            self.answered_one(cleanup.left.client);
        }
    }
}

/// Returns true if the error does not tell whether the store has carried out the request, or will.
fn is_silent(error: &StoreError) -> bool {
    use StoreErrorKind::{Quorum, TimedOut, Unreachable};
    matches!(error.kind, Unreachable | TimedOut | Quorum)
}
