//! Queue entries: the places in the queues at the stores, and the polls that find out whose turn it
//! is.
//!
//! A queue entry asks for the lock by a token. Repeating the request keeps the place, and takes up
//! a lease that the store has handed over. The engine repeats it when the store sends a notice,
//! when a lease in the way is due to end, after a failure, and from time to time. If a notice tells
//! the fence, the engine may take up the lease at once instead.
//!
//! Touches its own map, counts its requests at the [`Clients`], and uses the time, the timers and
//! the random numbers of the [`Context`].
//!
//! - this file: which queue entries there are, and their requests;
//! - [`replies`]: what the answers mean for them.

pub mod replies;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::clean_ups::PossibleLease;
use super::clients::Clients;
use super::context::Context;
use super::outgoing::Outgoing;
use super::tags::{AcquireTag, Tag};
use crate::engine::ids::{ClientId, CohortId, OpId, StoreId};
use crate::engine::stats::Stats;
use crate::lease::hand_off::BLOCK;
use crate::lease::{self, Instant, Key, Mode, Token, Ttl};
use crate::mutants::{self, Mutant};
use crate::store::{AcquireRequest, Place, Request, StoreError, WAITER_LIFE};

/// What a queue entry asks for, and for which client.
#[derive(Clone)]
pub struct LockRequest {
    pub client: ClientId,
    pub store: StoreId,
    pub key: Key,
    pub token: Token,
    pub ttl: Ttl,
    pub mode: Mode,
    pub outlives_process: bool,
    pub stats: Arc<Stats>,
}

/// How many numbers of its last polls a queue entry remembers. If this is smaller, the engine more
/// often ignores a notice that names an earlier poll, and the waiter polls again later. If it is
/// larger, waiters take more memory.
const NUMBERS: usize = 4;

/// A place in the queue at the store.
pub struct QueueEntry {
    /// Its position in the order in which queue entries poll after an outage.
    arrival: u64,
    pub lock_request: LockRequest,
    pub recipient: Recipient,
    /// Whether a poll of the store is on its way.
    polling: bool,
    /// The number of polls so far.
    sent: usize,
    /// The numbers of the last polls after the first one, see [`QueueEntries::noticed`]. 0 means
    /// none.
    numbers: [u64; NUMBERS],
    /// The number of the last poll, and when it was sent, if the store has answered that it waits.
    /// `None` while a poll is on its way: its answer would find the queue entry gone, and the
    /// engine would then release a lease that was taken up meanwhile.
    place: Option<(u64, Instant)>,
    /// Whether to poll again at once if the poll on its way finds the lock held, because something
    /// has happened since it was sent.
    poll_again: bool,
    /// Whether it stands in the queue at the store, as far as the engine knows.
    queued: bool,
    /// Whether an earlier poll may have left a lease or a place, although no answer said so.
    tainted: bool,
    /// The number of polls in a row that failed, or that found the lock held at a store that sends
    /// no notice.
    polls: u32,
    /// What the last poll said.
    last: LastReply,
    wake: Option<Instant>,
}

/// Which waiter gets the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// That waiter.
    One(OpId),
    /// The first waiter in the client's cohort for that key.
    Cohort,
}

/// The reply to the last poll of a queue entry. If a waiter gives up, this is the reason.
#[derive(Clone, Default)]
pub enum LastReply {
    #[default]
    Unanswered,
    Held,
    Failed(StoreError),
}

/// What the next poll of a queue entry tells the store about its waiters.
pub struct Asker {
    /// Whether they wait, so that the poll takes a place in the queue.
    pub waits: bool,
    /// Whether more than one waits, so that the poll asks for more fences.
    pub is_crowd: bool,
    /// The holder's name of the first waiter, if it differs from the client's name.
    pub holder: Option<Arc<str>>,
}

impl QueueEntry {
    /// Returns the cohort of the queue entry's waiters, if they are a cohort.
    pub fn cohort(&self) -> CohortId {
        (self.lock_request.client, self.lock_request.key.clone())
    }

    /// Returns whether the queue entry is in the queue at the store, as far as the engine knows.
    pub fn is_queued(&self) -> bool {
        self.queued
    }

    /// Returns what its last poll said.
    pub fn last_reply(&self) -> &LastReply {
        &self.last
    }

    /// Returns when the poll with the number `number` was sent. Returns `None` unless that is the
    /// last poll and the store has answered that the queue entry waits.
    pub fn place_since(&self, number: u64) -> Option<Instant> {
        self.place.filter(|(place, _)| *place == number).map(|(_, sent)| sent)
    }
}

/// See the module.
#[derive(Default)]
pub struct QueueEntries {
    entries: FxHashMap<u64, QueueEntry>,
    /// The queue entries by the numbers of their last polls, except the first poll of each.
    numbers: FxHashMap<u64, u64>,
}

impl QueueEntries {
    /// Adds a queue entry. It does not poll yet. Returns its number.
    pub fn add(&mut self, lock_request: LockRequest, recipient: Recipient, cx: &mut Context) -> u64 {
        let number = self.unused_number();
        let entry = QueueEntry {
            arrival: cx.next_serial(),
            lock_request,
            recipient,
            polling: false,
            sent: 0,
            numbers: [0; NUMBERS],
            place: None,
            poll_again: false,
            queued: false,
            tainted: false,
            polls: 0,
            last: LastReply::Unanswered,
            wake: None,
        };
        self.entries.insert(number, entry);
        number
    }

    /// Returns a number for a queue entry. It is random: a user of the store who may only publish,
    /// or who also sees the notices of others, must not guess which notice makes a waiter take up a
    /// lease.
    fn unused_number(&self) -> u64 {
        loop {
            let number = lease::random_number();
            if number != 0 && self.numbered(number).is_none() {
                return number;
            }
        }
    }

    /// Returns the queue entry whose place a notice of `store` calls `number`. Each poll has a
    /// random number of its own: a user of the store who hears the number of one poll must not
    /// guess that of the next. A notice with the number of the last poll makes its waiter take up a
    /// lease. So a store must not notify the waiters of another store, whose numbers it may know:
    /// a server may be a store and also a node of a quorum. The first poll has the number of its
    /// queue entry.
    pub fn noticed(&self, store: StoreId, number: u64) -> Option<u64> {
        self.numbered(number)
            .filter(|id| self.entries.get(id).is_some_and(|entry| entry.lock_request.store == store))
    }

    fn numbered(&self, number: u64) -> Option<u64> {
        if self.entries.contains_key(&number) { Some(number) } else { self.numbers.get(&number).copied() }
    }

    pub fn get(&self, number: u64) -> Option<&QueueEntry> {
        self.entries.get(&number)
    }

    /// Removes a queue entry whose waiter is served.
    pub fn remove(&mut self, number: u64) -> Option<QueueEntry> {
        let entry = self.entries.remove(&number)?;
        for called in entry.numbers {
            self.numbers.remove(&called);
        }
        Some(entry)
    }

    /// Removes a queue entry whose waiters have left. Returns what its polls may have left at the
    /// store.
    pub fn give_up(&mut self, number: u64, now: Instant) -> Option<PossibleLease> {
        let entry = self.remove(number)?;
        // The answer to a poll that is still on its way starts a clean-up for that poll, but not
        // for the polls before.
        if !entry.queued && !entry.tainted {
            return None;
        }
        let LockRequest { client, store, key, token, ttl, .. } = entry.lock_request;
        let until = now + ttl.as_duration().max(WAITER_LIFE);
        let straggler = entry.tainted;
        Some(PossibleLease { client, store, key, token, from_ticket: None, until, straggler })
    }

    /// Returns the request that asks the store for the lock. If a poll is on its way, returns
    /// `None`, and the queue entry polls again at once if that poll finds the lock held.
    pub fn poll(&mut self, number: u64, asker: Asker, clients: &mut Clients) -> Option<Outgoing> {
        let is_first = self.entries.get(&number)?.sent == 0;
        let called = if is_first { number } else { self.unused_number() };
        let entry = self.entries.get_mut(&number)?;
        if entry.polling {
            entry.poll_again = true;
            return None;
        }
        let LockRequest { client, store, token, ttl, mode, outlives_process, .. } = entry.lock_request;
        let known = clients.begin_request(client)?;
        (entry.polling, entry.poll_again, entry.wake) = (true, false, None);
        entry.sent += 1;
        entry.place = None;
        if !is_first {
            let forgotten = std::mem::replace(&mut entry.numbers[entry.sent % NUMBERS], called);
            self.numbers.remove(&forgotten);
            self.numbers.insert(called, number);
        }
        let holder = asker.holder.unwrap_or_else(|| known.settings.name.clone());
        let timeout = known.settings.store_timeout;
        let key = entry.lock_request.key.clone();
        let fences = if asker.is_crowd { BLOCK } else { 1 };
        let place = asker.waits.then_some(Place { number: called });
        let acquire = AcquireRequest {
            key: key.clone(),
            token,
            ttl,
            holder,
            mode,
            fences,
            place,
            outlives_process,
            repairs: false,
        };
        let tag = Tag::Acquire(AcquireTag { entry: number, number: called, client, key, token, ttl, fences });
        Some(Outgoing { store, request: Request::Acquire(acquire), tag, timeout })
    }

    /// Lets the queue entry continue with another token. The engine or the quorum releases what the
    /// last poll may have got for the old one. The nodes of a quorum get requests at different
    /// times, so that release must not meet a later poll by the same token.
    fn renew_token(&mut self, number: u64) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if !mutants::is(Mutant::TokenUsedAgain) {
            entry.lock_request.token = Token::random();
        }
        (entry.tainted, entry.place) = (false, None);
    }

    /// Returns the queue entries of the store that stand in its queue, in the order of their
    /// arrival: if the store has lost the queue, their polls rebuild it in that order. A queue
    /// entry whose poll is on its way may have been queued before.
    pub fn queued_at(&self, store: StoreId) -> Vec<u64> {
        self.in_order(store, |entry| entry.queued || entry.polling)
    }

    /// Returns the queue entries that pause because the store has failed, in the order of their
    /// arrival.
    pub fn failed_at(&self, store: StoreId) -> Vec<u64> {
        self.in_order(store, |entry| !entry.polling && matches!(entry.last, LastReply::Failed(_)))
    }

    fn in_order(&self, store: StoreId, is_meant: impl Fn(&QueueEntry) -> bool) -> Vec<u64> {
        let meant =
            self.entries.iter().filter(|(_, entry)| entry.lock_request.store == store && is_meant(entry));
        let mut meant: Vec<(u64, u64)> = meant.map(|(number, entry)| (entry.arrival, *number)).collect();
        meant.sort_unstable();
        meant.into_iter().map(|(_, number)| number).collect()
    }

    /// Returns when the queue entry is due.
    pub fn due_at(&self, number: u64) -> Option<Instant> {
        self.entries.get(&number).and_then(|entry| entry.wake)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no queue entries and no numbers of polls.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.numbers.is_empty()
    }
}
