//! Clean-up: releases that nobody waits for but that have to happen, of what an ambiguous request may have left at the
//! store, and of what a holder could not give back in time.
//!
//! **A clean-up ends when the store has answered it.** A server that hangs carries out what it was sent when it goes on,
//! however late that is, and the lease lives from then on. So a clean-up that meets silence has no end in time. It has
//! one in memory: [`MOST_OVERDUE`] of them outlast the time in which the lease would have ended at a server that works.
//!
//! **A store that refuses has answered.** What was sent before the refused release has been carried out by then, so the
//! lease ends by itself a ttl later. Until then the release is repeated, for an administrator may be mending just that.

use std::time::Duration;

use super::outgoing::Tag;
use super::{Core, Wake};
use crate::engine::command::{ClientId, StoreId};
use crate::lease::doubts::LONGEST_DOUBT;
use crate::lease::{Instant, Key, Token};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Request, StoreError, StoreErrorKind};

/// The first pause before a release that failed is tried again; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause between two attempts to release.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The same for a clean-up that is overdue. Shorter ones cost work as long as a server is gone. A breaker that finds the
/// server ends the pause; it probes only while somebody asks, so longer than its idle time is too long.
const LONGEST_OVERDUE_PAUSE: Duration = Duration::from_secs(2);
/// The most clean-ups that stay overdue, in a process: about 3 MB with short keys. What one more would release is left to
/// its ttl, which begins when the server goes on.
pub(super) const MOST_OVERDUE: usize = 10_000;
/// How often the release of a lease is repeated when nobody knows whether its acquire is still on its way: after a second,
/// and after three more.
const REPEATS: u32 = 2;
/// The pause before the first repetition; the second comes three times as long after that.
const FIRST_REPEAT: Duration = Duration::from_secs(1);

/// A lease or a place that a token may have at the store.
pub struct Leftover {
    pub client: ClientId,
    pub store: StoreId,
    pub key: Key,
    pub token: Token,
    /// When it has ended by itself at a store that works.
    pub until: Instant,
    /// Whether the request that makes it may still be on its way.
    pub straggler: bool,
}

/// One clean-up. See the module.
pub struct Cleanup {
    left: Leftover,
    /// How long it lives at most from when the store carries out the request that makes it.
    life: Duration,
    timeout: Duration,
    failures: u32,
    /// Whether the store has answered a release, in whatever way. Then `left.until` is when it ends.
    heard: bool,
    /// Whether it outlasts `left.until` because the store is silent.
    overdue: bool,
    /// How often it is to be repeated after it was done, because what it cleans up after may arrive only then.
    repeats: u32,
    /// Whether it is among its client's outstanding requests: until it was done once, or is overdue.
    counted: bool,
    pub(super) wake: Option<Instant>,
}

impl Core {
    /// Releases it, now and again until the store has answered.
    pub(super) fn clean_up(&mut self, left: Leftover) {
        if mutants::is(Mutant::NoCleanUp) {
            return;
        }
        let id = self.remember_cleanup(left);
        self.wake_cleanup(id);
    }

    /// The same, after a release that has just failed.
    pub(super) fn clean_up_later(&mut self, left: Leftover) {
        let id = self.remember_cleanup(left);
        self.retry_cleanup(id);
    }

    /// The same, after one that was done but may have come too soon.
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
        let request = Request::Release { key, token, used: None };
        self.send(store, request, Tag::Cleanup(id), timeout);
    }

    pub(super) fn cleaned_up(&mut self, id: u64, answer: Answer) {
        match answer {
            Err(error) if is_silent(&error) => self.retry_cleanup(id),
            // What lies there is no lease.
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

    /// Does without a pause what has met a store's silence: one of the store's servers is back.
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

    /// The store answers again, so it has carried out what it was sent before: a lease that came of that lives from now
    /// on at the latest.
    fn heard_of_cleanup(&mut self, id: u64) {
        let now = self.now;
        let Some(cleanup) = self.cleanups.get_mut(&id).filter(|cleanup| !cleanup.heard) else { return };
        cleanup.heard = true;
        cleanup.left.until = cleanup.left.until.max(now + cleanup.life);
        if std::mem::take(&mut cleanup.overdue) {
            self.overdue -= 1;
        }
    }

    /// It is done; what is still on its way may change that.
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

    /// The end of its client waits for it no longer.
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

/// Returns true if the error says nothing about what the store has carried out, or will.
fn is_silent(error: &StoreError) -> bool {
    use StoreErrorKind::{Quorum, TimedOut, Unreachable};
    matches!(error.kind, Unreachable | TimedOut | Quorum)
}
