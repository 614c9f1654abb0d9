//! Waiters: from asking for a lock to its grant, or to the reason why there is none.
//!
//! Of all waiters of a lock in this process only the first in the order of arrival looks at the store: when
//! the lease that it saw there is due to end, with growing pauses before that, and at once when a lease of
//! this process is given back.

use std::sync::Arc;
use std::time::Duration;

use super::outgoing::{AcquireTag, Tag};
use super::{Core, Lock, Wake};
use crate::engine::command::{AcquireCommand, ClientId, OpId, Outcome, StoreId, Wait};
use crate::engine::stats::Stats;
use crate::lease::queue::{Arrival, Queue};
use crate::lease::{Instant, Key, validity};
use crate::store::{Answer, Ask, Reply, Request, StoreError, StoreErrorKind};

/// The pause before the second look at a held lock; it grows by half each time, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(3);
/// The longest pause between two looks at a held lock.
const LONGEST_PAUSE: Duration = Duration::from_millis(30);
/// The pause after the store's first failure; it doubles each time, up to [`LONGEST_OUTAGE_PAUSE`].
const OUTAGE_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause between two attempts to reach a store that fails.
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// Someone who asked for a lock.
pub struct Waiter {
    pub(super) asked: AcquireCommand,
    pub(super) store: StoreId,
    /// Where the client's doings are counted; here, so that they are also when the client is gone.
    pub(super) stats: Arc<Stats>,
    /// Its place among the waiters of the lock.
    arrival: Arrival,
    /// When it stops waiting; `None` if never.
    give_up: Option<Instant>,
    /// Whether a look at the store is on its way.
    looking: bool,
    /// Whether to look again at once when that look finds the lock held, because it was given back meanwhile.
    look_again: bool,
    /// When to look next, if it is first in the queue.
    next_look: Instant,
    /// Looks in a row that found the lock held, or the store failing.
    looks: u32,
    /// Whether an earlier look may have got the lease although the store's answer didn't say so.
    tainted: bool,
    pub(super) wake: Option<Instant>,
}

/// The waiters of one lock.
#[derive(Default)]
pub struct Line {
    queue: Queue<OpId>,
    /// What the last look of any of them said. It tells those who never got to look why they waited in vain.
    last: LastLook,
}

#[derive(Clone, Default)]
enum LastLook {
    #[default]
    Unanswered,
    Held,
    Failed(StoreError),
}

impl Waiter {
    fn lock(&self) -> Lock {
        (self.store, self.asked.key.clone())
    }

    /// Whether it looks once and takes what it sees.
    fn looks_once(&self) -> bool {
        matches!(self.asked.wait, Wait::Never) || self.asked.wait == Wait::For(Duration::ZERO)
    }
}

impl Core {
    pub(super) fn acquire(&mut self, asked: AcquireCommand) {
        let op = asked.op;
        let Some(client) = self.open_client(asked.client) else { return self.settle(op, Outcome::Closed) };
        let (store, stats) = (client.store, client.settings.stats.clone());
        let patient = asked.wait != Wait::Never;
        let give_up = match asked.wait {
            Wait::For(span) if !span.is_zero() => Some(self.now + span),
            _ => None,
        };
        // The store answers within its time-out, and only then is there something to wait for; a timer for
        // every acquire that is granted at once would cost more than the acquire.
        let timer_now = give_up.filter(|at| at.since(self.now) < client.settings.store_timeout);
        stats.waiting.up();
        self.arrivals += 1;
        let waiter = Waiter {
            asked,
            store,
            stats,
            arrival: self.arrivals,
            give_up,
            looking: false,
            look_again: false,
            next_look: self.now,
            looks: 0,
            tainted: false,
            wake: None,
        };
        let lock = waiter.lock();
        let others_wait = patient && self.lines.contains_key(&lock);
        self.waiters.insert(op, waiter);
        if others_wait && !self.waiters[&op].looks_once() {
            self.join_line(op, None);
        } else {
            self.look(op);
        }
        if let Some(at) = timer_now {
            self.schedule_waiter(op, at);
        }
    }

    /// Asks the store for the lock.
    fn look(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        waiter.looking = true;
        waiter.look_again = false;
        let AcquireCommand { client, token, ttl, .. } = waiter.asked;
        let (store, key) = (waiter.store, waiter.asked.key.clone());
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.outstanding += 1;
        let (holder, timeout) = (known.settings.name.clone(), known.settings.store_timeout);
        let request = Request::Acquire(Ask::new(key.clone(), token, ttl, holder));
        self.send(store, request, Tag::Acquire(AcquireTag { op, client, key, token, ttl }), timeout);
    }

    /// The store answered a look that was sent at `sent`.
    pub(super) fn looked(&mut self, store: StoreId, sent: Instant, tag: AcquireTag, answer: Answer) {
        let client = tag.client;
        self.take_look(store, sent, tag, answer);
        self.answered_one(client);
    }

    fn take_look(&mut self, store: StoreId, sent: Instant, tag: AcquireTag, answer: Answer) {
        let now = self.now;
        let waiter = self.waiters.get_mut(&tag.op).filter(|w| w.asked.token == tag.token);
        let Some(waiter) = waiter else {
            // Nobody waits for it any more; a lease that it may have got is to be given back.
            let until = now + tag.ttl.as_duration();
            match &answer {
                Ok(Reply::Acquired { .. }) => {
                    self.clean_up(store, tag.client, tag.key, tag.token, until, false)
                }
                Err(error) if error.maybe_done => {
                    self.clean_up(store, tag.client, tag.key, tag.token, until, true);
                }
                _ => {}
            }
            return;
        };
        waiter.looking = false;
        let once = waiter.looks_once();
        match answer {
            Ok(Reply::Acquired { fence, .. }) => {
                let deadline = validity::deadline(sent, tag.ttl);
                if now < deadline {
                    let (waiter, was_next) = self.take_waiter(tag.op).expect("found above");
                    if was_next {
                        self.promote(&waiter.lock(), now + SHORTEST_PAUSE);
                    }
                    return self.hold(waiter, sent, fence);
                }
                // The answer took longer than the lease lives: as good as none.
                waiter.tainted = true;
                let late = StoreError::maybe_done(
                    StoreErrorKind::TimedOut,
                    format!("the store's answer took longer than the ttl of {} ms", tag.ttl.as_millis()),
                );
                self.look_failed(tag.op, late);
            }
            Ok(Reply::Busy { remaining }) => {
                waiter.stats.contended.up();
                if once {
                    let patient = waiter.asked.wait != Wait::Never;
                    return self.end_waiter(tag.op, if patient { Outcome::TimedOut } else { Outcome::Busy });
                }
                if waiter.look_again {
                    waiter.looks = 0;
                    return self.look(tag.op);
                }
                self.look_later(tag.op, remaining);
            }
            Ok(other) => {
                let message = format!("the store answered {other:?} to an acquire");
                self.look_failed(tag.op, StoreError::maybe_done(StoreErrorKind::Internal, message));
            }
            Err(error) => self.look_failed(tag.op, error),
        }
    }

    /// The lock is held: look again later, and let nobody who came later look first.
    fn look_later(&mut self, op: OpId, remaining: Option<Duration>) {
        let jitter = self.jitter();
        let now = self.now;
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        let growth = 1.5f64.powi(waiter.looks.min(20) as i32);
        waiter.looks += 1;
        let pause = SHORTEST_PAUSE.mul_f64(growth).min(LONGEST_PAUSE).mul_f64(0.5 + 0.5 * jitter);
        // A millisecond more than the store said, because it counts in whole ones.
        let expiry = remaining.map(|left| left + Duration::from_millis(1));
        waiter.next_look = now + expiry.map_or(pause, |left| left.min(pause));
        self.join_line(op, Some(LastLook::Held));
    }

    /// The store failed: try again later if that may help and the caller waits, else say so.
    fn look_failed(&mut self, op: OpId, error: StoreError) {
        let jitter = self.jitter();
        let now = self.now;
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        waiter.stats.errors.up();
        waiter.tainted |= error.maybe_done;
        if waiter.looks_once() || !error.kind.is_transient() {
            return self.fail_waiter(op, error);
        }
        let pause = OUTAGE_PAUSE.saturating_mul(1 << waiter.looks.min(10)).min(LONGEST_OUTAGE_PAUSE);
        waiter.looks += 1;
        waiter.next_look = now + pause.mul_f64(0.5 + 0.5 * jitter);
        self.join_line(op, Some(LastLook::Failed(error)));
    }

    /// Takes a waiter's place in the line, and notes what it has just seen.
    fn join_line(&mut self, op: OpId, seen: Option<LastLook>) {
        let waiter = &self.waiters[&op];
        let (lock, arrival, give_up, next_look) =
            (waiter.lock(), waiter.arrival, waiter.give_up, waiter.next_look);
        let line = self.lines.entry(lock).or_default();
        if let Some(seen) = seen {
            line.last = seen;
        }
        line.queue.join(arrival, op);
        let is_head = line.queue.head() == Some(op);
        if let Some(at) =
            if is_head { Some(give_up.map_or(next_look, |g| g.min(next_look))) } else { give_up }
        {
            self.schedule_waiter(op, at);
        }
    }

    pub(super) fn wake_waiter(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        waiter.wake = None;
        if waiter.give_up.is_some_and(|at| at <= self.now) {
            return self.give_up(op);
        }
        let (looking, next_look, give_up) = (waiter.looking, waiter.next_look, waiter.give_up);
        let is_head =
            self.lines.get(&self.waiters[&op].lock()).and_then(|line| line.queue.head()) == Some(op);
        if is_head && !looking {
            if next_look <= self.now {
                self.look(op);
            } else {
                return self.schedule_waiter(op, give_up.map_or(next_look, |g| g.min(next_look)));
            }
        }
        if let Some(at) = give_up {
            self.schedule_waiter(op, at);
        }
    }

    /// The caller's patience is over.
    fn give_up(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get(&op) else { return };
        match self.lines.get(&waiter.lock()).map(|line| line.last.clone()).unwrap_or_default() {
            LastLook::Failed(error) => self.fail_waiter(op, error),
            LastLook::Unanswered => {
                let message = "the store did not answer within the time that the acquire would wait";
                self.fail_waiter(op, StoreError::maybe_done(StoreErrorKind::TimedOut, message));
            }
            LastLook::Held => {
                waiter.stats.timeouts.up();
                self.end_waiter(op, Outcome::TimedOut);
            }
        }
    }

    pub(super) fn fail_waiter(&mut self, op: OpId, error: StoreError) {
        self.end_waiter(op, Outcome::Failed(error));
    }

    /// Ends an acquire that got nothing, and gives back what it may have got without knowing.
    pub(super) fn end_waiter(&mut self, op: OpId, outcome: Outcome) {
        if let Some((lock, true)) = self.drop_waiter(op, outcome) {
            self.promote(&lock, self.now);
        }
    }

    /// The same, but nobody is told to look instead. Returns the lock, and whether that one was next.
    pub(super) fn drop_waiter(&mut self, op: OpId, outcome: Outcome) -> Option<(Lock, bool)> {
        let (waiter, was_next) = self.take_waiter(op)?;
        let lock = waiter.lock();
        // A look that is still on its way is cleaned up after by its own answer.
        if waiter.tainted && !waiter.looking {
            let AcquireCommand { client, key, token, ttl, .. } = waiter.asked;
            self.clean_up(waiter.store, client, key, token, self.now + ttl.as_duration(), true);
        }
        self.settle(op, outcome);
        Some((lock, was_next))
    }

    /// Takes a waiter out. Says whether it was the next of several.
    fn take_waiter(&mut self, op: OpId) -> Option<(Waiter, bool)> {
        let waiter = self.waiters.remove(&op)?;
        waiter.stats.waiting.down();
        let lock = waiter.lock();
        let Some(line) = self.lines.get_mut(&lock) else { return Some((waiter, false)) };
        let was_next = line.queue.leave(waiter.arrival);
        if line.queue.is_empty() {
            self.lines.remove(&lock);
        }
        Some((waiter, was_next))
    }

    /// The lock may be free at `at`: whoever is next in this process looks then.
    pub(super) fn promote(&mut self, lock: &Lock, at: Instant) {
        let Some(op) = self.lines.get(lock).and_then(|line| line.queue.head()) else { return };
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        waiter.looks = 0;
        if waiter.looking {
            waiter.look_again = true;
        } else if at <= self.now {
            self.look(op);
        } else {
            waiter.next_look = at;
            let wake = waiter.give_up.map_or(at, |g| g.min(at));
            self.schedule_waiter(op, wake);
        }
    }

    pub(super) fn cancel(&mut self, op: OpId) {
        if let Some(waiter) = self.waiters.get(&op) {
            waiter.stats.aborted.up();
            self.end_waiter(op, Outcome::Cancelled);
        } else if self.tenures.contains_key(&op) {
            self.give_back_unseen(op);
            self.settle(op, Outcome::Cancelled);
        }
        // Else its last word is on the way to the caller already.
    }

    fn schedule_waiter(&mut self, op: OpId, at: Instant) {
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        if waiter.wake.is_none_or(|wake| at < wake) {
            waiter.wake = Some(at);
            self.timers.schedule(at, Wake::Waiter(op));
        }
    }

    /// How many wait for the lock in this process.
    pub(super) fn waiting_for(&self, client: ClientId, key: &Key) -> usize {
        let lock = self.clients.get(&client).map(|c| (c.store, key.clone()));
        lock.and_then(|lock| self.lines.get(&lock)).map_or(0, |line| line.queue.len())
    }
}
