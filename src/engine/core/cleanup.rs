//! Clean-up: releases that nobody waits for but that have to happen, of what an ambiguous request may have left at the
//! store, and of what somebody could not give back in time.

use std::time::Duration;

use super::outgoing::Tag;
use super::{Core, Wake};
use crate::engine::command::{ClientId, StoreId};
use crate::lease::doubts::LONGEST_DOUBT;
use crate::lease::{Instant, Key, Token};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Request};

/// The first pause before a release that failed is tried again; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause between two attempts to release.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
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
    /// The token of the ticket, if it may be that of an heir who was not told.
    pub ticket: Option<Token>,
    /// When it has ended by itself at the store, and there is nothing left to do.
    pub until: Instant,
    /// Whether the request that makes it may still be on its way.
    pub straggler: bool,
}

/// One clean-up. See the module.
pub struct Cleanup {
    left: Leftover,
    timeout: Duration,
    failures: u32,
    /// How often it is to be repeated after it was done, because what it cleans up after may arrive only then.
    repeats: u32,
    /// Whether it is among its client's outstanding requests: until it was done once.
    counted: bool,
    pub(super) wake: Option<Instant>,
}

impl Core {
    /// Releases it, now and again until the store has said that it is done.
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
        let repeats = if left.straggler { REPEATS } else { 0 };
        self.cleanups.insert(id, Cleanup { left, timeout, failures: 0, repeats, counted, wake: None });
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
            Err(error) if error.kind.is_transient() => self.retry_cleanup(id),
            Ok(_) => self.repeat_cleanup(id),
            // No repetition mends it, and the ttl has to do it.
            Err(_) => self.forget_cleanup(id),
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
        cleanup.wake = Some(at);
        self.timers.schedule(at, Wake::Cleanup(id));
        if std::mem::take(&mut cleanup.counted) {
            let client = cleanup.left.client;
            self.answered_one(client);
        }
    }

    fn retry_cleanup(&mut self, id: u64) {
        let jitter = self.jitter();
        let Some(cleanup) = self.cleanups.get_mut(&id) else { return };
        let pause = SHORTEST_PAUSE.saturating_mul(1 << cleanup.failures.min(10)).min(LONGEST_PAUSE);
        let at = self.now + pause.mul_f64(0.5 + 0.5 * jitter);
        if at >= cleanup.left.until {
            return self.forget_cleanup(id);
        }
        cleanup.failures += 1;
        cleanup.wake = Some(at);
        self.timers.schedule(at, Wake::Cleanup(id));
    }

    fn forget_cleanup(&mut self, id: u64) {
        let Some(cleanup) = self.cleanups.remove(&id) else { return };
        if let Some(link) = self.stores.get_mut(&cleanup.left.store) {
            link.cleanups -= 1;
        }
        self.drop_if_unused(cleanup.left.store);
        if cleanup.counted {
            self.answered_one(cleanup.left.client);
        }
    }
}
