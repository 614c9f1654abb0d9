//! The store in memory: one process and its worker threads, for tests and for those who need no more.
//!
//! [`LeaseTable`] is the whole of it and is pure: time comes in as an argument, so that any number of
//! stores can be simulated at any instant. [`MemoryStore`] puts it behind the contract, with the real clock.

mod pace;
mod shared;

use std::cell::{Cell, OnceCell};
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use rustc_hash::{FxHashMap, FxHashSet};

use self::pace::Pace;
use self::shared::{Shared, lock};
use super::diagnosis::{Facts, Report};
use super::listing::{Listing, Wanted};
use super::rules::{Lock, Turn, Waiting};
use super::{
    Absence, Answer, BROKEN_LIFE, Listener, Notice, Reply, Request, Store, StoreError, StoreErrorKind,
};
use crate::engine::clock;
use crate::lease::{Fence, Instant, Key};

/// How long a lock whose leases ran out, and about which nobody asked again, may stay in the table while the
/// table is used.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How many new locks are let in between two sweeps at least: a sweep looks at every lock, so it has to
/// be rare against what fills the table.
const SWEEP_AFTER: usize = 1024;

/// Locks by key, under the rules of the store contract.
#[derive(Debug)]
pub struct LeaseTable {
    /// What it is called in a diagnosis.
    name: Arc<str>,
    locks: FxHashMap<Key, Lock>,
    /// Until when the table refuses repairs of locks that were broken. See
    /// [`Ask::repairs`](super::Ask::repairs).
    broken: FxHashMap<Key, Instant>,
    /// The largest fence of leases that have ended. One number serves all keys, so that the table
    /// can forget a key. See [`rules`](super::rules).
    floor: Fence,
    /// Limits how fast locks are broken.
    pace: Pace,
    /// At which instant the next sweep is due.
    sweep_at: Instant,
    /// After how many more new locks the next sweep is due, should it be sooner.
    sweep_in: usize,
    /// What there is to tell since [`LeaseTable::take_notices`].
    notices: Vec<Notice>,
}

impl Default for LeaseTable {
    fn default() -> Self {
        Self {
            name: "memory:".into(),
            locks: FxHashMap::default(),
            broken: FxHashMap::default(),
            floor: Fence::NONE,
            pace: Pace::default(),
            sweep_at: Instant::from_micros(0),
            sweep_in: SWEEP_AFTER,
            notices: Vec::new(),
        }
    }
}

impl LeaseTable {
    /// Carries out `request` at `now`; `wall_us` is the wall clock for fences, in µs since 1970.
    ///
    /// `now` must not go back from one call to the next.
    pub fn apply(&mut self, request: Request, now: Instant, wall_us: u64) -> Answer {
        let reached = self.floor.0.max(wall_us);
        let answer = self.carry_out(request, now, wall_us);
        self.pace.lose(now, self.floor.0.saturating_sub(reached));
        answer
    }

    fn carry_out(&mut self, request: Request, now: Instant, wall_us: u64) -> Answer {
        if now >= self.sweep_at || self.sweep_in == 0 {
            self.sweep(now);
        }
        match &request {
            Request::Break { key, bars_repairs: true } => {
                self.broken.insert(key.clone(), now + BROKEN_LIFE);
            }
            Request::Acquire(ask)
                if ask.repairs && self.broken.get(&ask.key).is_some_and(|until| now < *until) =>
            {
                return Ok(Reply::Busy { remaining: Some(Duration::ZERO) });
            }
            _ => {}
        }
        let floor = Cell::from_mut(&mut self.floor);
        let mut fences = |after: Fence, _: u32| floor.get().max(after).next(wall_us);
        let mut raise = |fence: Fence| floor.set(floor.get().max(fence));
        let notices = &mut self.notices;
        let mut handed = |waiting: &Waiting, fence: Option<Fence>| {
            if !waiting.repairs() {
                notices.push(Notice::Granted { number: waiting.number, fence });
            }
        };
        let mut turn = Turn { now, fences: &mut fences, raise: &mut raise, handed: &mut handed };
        let (key, known) = match &request {
            Request::Ping => return Ok(Reply::Ready),
            Request::Diagnose { ttl, .. } => {
                return Ok(Reply::Diagnosed(vec![Report::new(
                    self.name.clone(),
                    Facts::Process,
                    *ttl,
                    false,
                )]));
            }
            Request::Inspect { key } => {
                return Ok(self.locks.get(key).map_or(Reply::Inspected(None), |lock| lock.inspect(now)));
            }
            Request::List(wanted) => return Ok(Reply::Listed(self.list(wanted, now))),
            Request::Acquire(ask) => (&ask.key, true),
            Request::Renew { key, .. }
            | Request::Release { key, .. }
            | Request::Adopt { key, .. }
            | Request::Move { key, .. }
            | Request::GiveBack { key, .. }
            | Request::Accept { key, .. }
            | Request::Break { key, .. }
            | Request::Detach { key, .. } => (key, false),
        };
        let mut entry = match self.locks.entry(key.clone()) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(_) if !known => return Ok(Reply::NotHeld(Absence::Missing)),
            Entry::Vacant(entry) => {
                self.sweep_in -= 1;
                entry.insert_entry(Lock::default())
            }
        };
        let lock = entry.get_mut();
        let reply = match request {
            Request::Acquire(ask) => lock.acquire(&ask, &mut turn),
            Request::Renew { token, ttl, fences, .. } => lock.renew(token, ttl, fences, &mut turn),
            // Nothing here ends with anybody's end.
            Request::Detach { token, ttl, fence, own_ttl, .. } => {
                lock.detach(token, ttl, fence, own_ttl, &mut turn)
            }
            Request::Release { token, used, .. } => lock.release(token, used, &mut turn),
            Request::Adopt { token, heir, ttl, holder, source, .. } => {
                lock.adopt(token, heir, ttl, source, &holder, &mut turn)
            }
            Request::Move { token, to, heir, .. } => lock.pass(token, to, heir, &mut turn),
            Request::GiveBack { token, .. } => lock.release(token, None, &mut turn),
            Request::Accept { token, fence, count, .. } => lock.accept(token, fence, count, &mut turn),
            Request::Break { .. } => lock.break_all(&mut turn),
            Request::Ping | Request::Inspect { .. } | Request::List(_) | Request::Diagnose { .. } => {
                unreachable!("answered above")
            }
        };
        if lock.is_empty() {
            entry.remove();
        }
        Ok(reply)
    }

    /// Returns how long `request` has to wait from `now` before [`LeaseTable::apply`]; `None` if it
    /// need not. Only breaks wait, and only if many came shortly before: see [`pace`].
    pub fn delay(&self, request: &Request, now: Instant) -> Option<Duration> {
        matches!(request, Request::Break { .. }).then(|| self.pace.delay(now)).flatten()
    }

    fn list(&self, wanted: &Wanted, now: Instant) -> Listing {
        let mut keys: Vec<&Key> = self.locks.keys().filter(|key| wanted.matches(key)).collect();
        keys.sort_unstable();
        let mut listing = Listing::default();
        for key in keys {
            if let Reply::Inspected(Some(info)) = self.locks[key].inspect(now)
                && !listing.add(wanted, key.clone(), info)
            {
                break;
            }
        }
        listing
    }

    /// What those are to be told who were handed a lease since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// How many locks the table remembers, those included that ran out and were not swept yet.
    pub fn len(&self) -> usize {
        self.locks.len()
    }

    /// Returns true if the table remembers no lock at all, not even one that was broken.
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.broken.is_empty()
    }

    /// Forgets what has run out.
    fn sweep(&mut self, now: Instant) {
        let floor = &mut self.floor;
        self.locks.retain(|_, lock| {
            let lives = now < lock.ends();
            if !lives {
                *floor = lock.last_fence().max(*floor);
            }
            lives
        });
        self.broken.retain(|_, until| now < *until);
        // Room that a burst needed is given back once it is four times what is used.
        if self.locks.capacity() > 4 * self.locks.len().max(SWEEP_AFTER) {
            self.locks.shrink_to(2 * self.locks.len());
        }
        self.sweep_at = now + SWEEP_EVERY;
        self.sweep_in = self.locks.len().max(SWEEP_AFTER);
    }
}

/// A [`LeaseTable`] as a [`Store`]. Whoever is to share its locks shares the one `Rc`.
#[derive(Default)]
pub struct MemoryStore {
    table: Shared,
    listener: OnceCell<Listener>,
}

impl MemoryStore {
    /// A store in which nothing is held.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Opens the store of this URL. All stores of one URL in the process have the same locks.
    pub fn named(url: &str) -> Rc<Self> {
        Rc::new(Self { table: shared::table(url), listener: OnceCell::new() })
    }

    /// Waits until `request` may be carried out.
    ///
    /// # Errors
    /// If that is after `deadline`.
    async fn wait(&self, request: &Request, deadline: Instant) -> Result<(), StoreError> {
        loop {
            let now = clock::now();
            let Some(delay) = lock(&self.table).delay(request, now) else { return Ok(()) };
            if now + delay > deadline {
                let message = format!(
                    "{} did not break the lock: locks are broken so often that their fences would run ahead \
                     of the clock; break locks less often",
                    lock(&self.table).name
                );
                return Err(StoreError::not_done(StoreErrorKind::Loading, message));
            }
            // Waiters that were handed leases need not wait for this request.
            self.tell();
            tokio::time::sleep(delay).await;
        }
    }

    /// Notifies the waiters that were handed leases.
    fn tell(&self) {
        let notices = lock(&self.table).take_notices();
        if let Some(listener) = self.listener.get() {
            notices.into_iter().for_each(|notice| listener(notice));
        }
    }

    /// How many locks are remembered, those included that ran out and were not swept yet.
    pub fn len(&self) -> usize {
        lock(&self.table).len()
    }

    /// Whether no lock is remembered.
    pub fn is_empty(&self) -> bool {
        lock(&self.table).is_empty()
    }
}

/// Returns the wall clock and the monotonic clock, read in this order: the thread may lose its core
/// in between. In the other order, [`Pace`] would take the wall clock for later than it is, and
/// breaks would put fences ahead of it by the time that was lost.
fn read_clocks() -> (u64, Instant) {
    let wall_us = clock::wall_us();
    (wall_us, clock::now())
}

impl Store for MemoryStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        Box::pin(async move {
            let (mut wall_us, mut now) = read_clocks();
            let deadline = now + timeout;
            let mut answers = Vec::with_capacity(batch.len());
            for request in batch {
                if lock(&self.table).delay(&request, now).is_some() {
                    if let Err(error) = self.wait(&request, deadline).await {
                        answers.push(Err(error));
                        continue;
                    }
                    (wall_us, now) = read_clocks();
                }
                answers.push(lock(&self.table).apply(request, now, wall_us));
            }
            self.tell();
            answers
        })
    }

    /// Puts requests for locks that are broken into a separate part, because breaks may have to
    /// wait.
    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        let is_break = |request: &&Request| matches!(request, Request::Break { .. });
        let broken: FxHashSet<&Key> = batch.iter().filter(is_break).filter_map(Request::key).collect();
        let part = |request: &Request| u32::from(request.key().is_some_and(|key| broken.contains(key)));
        (!broken.is_empty()).then(|| batch.iter().map(part).collect())
    }

    fn listen(&self, listener: Listener) {
        // The contract says once; a second one would find the first in its place.
        let _ = self.listener.set(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        drop(self);
        shared::forget_unused(clock::now());
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Token, Ttl};
    use crate::store::{Ask, Place};

    const WALL: u64 = 1_700_000_000_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    fn acquire(table: &mut LeaseTable, key: &str, token: Token, ttl_ms: u32, now_ms: u64) -> Reply {
        let ttl = Ttl::from_millis(ttl_ms).unwrap();
        table.apply(Request::Acquire(Ask::new(key.into(), token, ttl, "h".into())), at(now_ms), WALL).unwrap()
    }

    #[test]
    fn a_broken_lock_may_be_repaired_after_a_while_and_leaves_nothing_behind() {
        let mut table = LeaseTable::default();
        let ask = Ask::new("k".into(), Token::random(), Ttl::MIN, "h".into());
        let repair = || Request::Acquire(Ask { repairs: true, ..ask.clone() });
        let break_it = Request::Break { key: "k".into(), bars_repairs: true };
        assert_eq!(table.apply(break_it, at(0), WALL), Ok(Reply::NotHeld(Absence::Missing)));
        let end = at(0) + BROKEN_LIFE;
        let almost = Instant::from_micros(end.as_micros() - 1);
        let refused = table.apply(repair(), almost, WALL);
        assert_eq!(refused, Ok(Reply::Busy { remaining: Some(Duration::ZERO) }));
        assert!(matches!(table.apply(repair(), end, WALL), Ok(Reply::Acquired { .. })));
        table.apply(Request::Ping, end + Duration::from_secs(10), WALL).unwrap();
        assert!(table.is_empty());
    }

    #[test]
    fn a_lease_ends_at_the_very_microsecond_of_its_ttl() {
        let (a, b) = (Token::random(), Token::random());
        let mut table = LeaseTable::default();
        let ttl = Ttl::from_millis(10).unwrap();
        let wants = |token| Request::Acquire(Ask::new("k".into(), token, ttl, "h".into()));
        table.apply(wants(a), Instant::from_micros(5), WALL).unwrap();
        let last = table.apply(wants(b), Instant::from_micros(10_004), WALL).unwrap();
        assert_eq!(last, Reply::Busy { remaining: Some(Duration::from_micros(1)) });
        let next = table.apply(wants(b), Instant::from_micros(10_005), WALL).unwrap();
        assert_eq!(next, Reply::Acquired { fence: Fence(WALL + 1), waiting: 0 });
    }

    fn fence(reply: Reply) -> u64 {
        match reply {
            Reply::Acquired { fence, .. } => fence.0,
            other => panic!("not granted: {other:?}"),
        }
    }

    #[test]
    fn fences_grow_while_the_wall_clock_stands_still_or_goes_back() {
        let mut table = LeaseTable::default();
        let mut last = 0;
        for (i, wall) in [WALL, WALL, WALL - 1_000_000, 0, WALL + 9].into_iter().enumerate() {
            let ttl = Ttl::from_millis(10).unwrap();
            let request = Request::Acquire(Ask::new("k".into(), Token::random(), ttl, "h".into()));
            let fence = fence(table.apply(request, at(i as u64 * 10), wall).unwrap());
            assert!(fence > last, "{fence:?} after {last:?}");
            last = fence;
        }
        assert_eq!(last, WALL + 9);
    }

    #[test]
    fn a_reservation_for_one_key_does_not_move_the_fences_of_others() {
        let (mut table, ttl) = (LeaseTable::default(), Ttl::from_millis(10).unwrap());
        for i in 0..1_000 {
            let ask = Ask::new(format!("k{i}").into(), Token::random(), ttl, "h".into());
            let request = Request::Acquire(Ask { fences: 64, ..ask });
            assert_eq!(fence(table.apply(request, at(0), WALL).unwrap()), WALL);
        }
    }

    #[test]
    fn fences_grow_past_those_of_a_lease_that_was_swept() {
        let (mut table, ttl) = (LeaseTable::default(), Ttl::from_millis(10).unwrap());
        let ask = Ask::new("k".into(), Token::random(), ttl, "h".into());
        table.apply(Request::Acquire(Ask { fences: 64, ..ask }), at(0), WALL).unwrap();
        table.apply(Request::Ping, at(1_000), WALL).unwrap();
        assert!(table.is_empty());
        assert_eq!(fence(acquire(&mut table, "k", Token::random(), 10, 1_000)), WALL + 64);
    }

    /// Breaks a lock with a waiter every 40 µs, for one second. Before each break, `others` leases
    /// of another lock end. Returns how many µs the last fence was ahead of the wall clock, the
    /// number of breaks, and the total time that the breaks had to wait.
    fn storm(table: &mut LeaseTable, others: u32) -> (i64, u32, Duration) {
        let (mut now, mut breaks, mut waited, mut last) = (at(10_000), 0, Duration::ZERO, Fence::NONE);
        let wall = |now: Instant| WALL + now.as_micros();
        let (end, ttl) = (now + Duration::from_secs(1), Ttl::from_millis(10_000).unwrap());
        let ask = || Ask::new("k".into(), Token::random(), ttl, "h".into());
        table.apply(Request::Acquire(ask()), now, wall(now)).unwrap();
        while now < end {
            let waiter = Ask { place: Some(Place { number: 1 }), ..ask() };
            table.apply(Request::Acquire(waiter), now, wall(now)).unwrap();
            for _ in 0..others {
                let token = Token::random();
                let ask = Ask::new("other".into(), token, ttl, "h".into());
                table.apply(Request::Acquire(ask), now, wall(now)).unwrap();
                let release = Request::Release { key: "other".into(), token, used: None };
                table.apply(release, now, wall(now)).unwrap();
            }
            let request = Request::Break { key: "k".into(), bars_repairs: false };
            while let Some(delay) = table.delay(&request, now) {
                (now, waited) = (now + delay, waited + delay);
            }
            table.apply(request, now, wall(now)).unwrap();
            let told = table.take_notices();
            let [Notice::Granted { fence: Some(fence), .. }] = told[..] else { panic!("{told:?}") };
            assert!(fence > last);
            (now, breaks, last) = (now + Duration::from_micros(40), breaks + 1, fence);
        }
        (last.0.cast_signed() - wall(now).cast_signed(), breaks, waited)
    }

    #[test]
    fn fences_do_not_run_ahead_of_the_clock_while_a_lock_with_waiters_is_broken_again_and_again() {
        let mut table = LeaseTable::default();
        let (ahead, breaks, _) = storm(&mut table, 0);
        assert!(ahead < 1_000, "{ahead} µs ahead after {breaks} breaks");
        assert!(breaks > 10_000, "{breaks}");
    }

    #[test]
    fn fences_of_other_leases_count_while_locks_are_broken_again_and_again() {
        let mut table = LeaseTable::default();
        let (ahead, breaks, _) = storm(&mut table, 4);
        assert!(ahead < 1_000, "{ahead} µs ahead after {breaks} breaks");
        assert!(breaks > 5_000, "{breaks}");
    }

    #[test]
    fn breaks_wait_no_longer_after_the_wall_clock_was_set_back() {
        let mut table = LeaseTable::default();
        let (_, breaks, waited) = storm(&mut table, 0);
        let mut table = LeaseTable { floor: Fence(WALL + 3_600_000_000), ..LeaseTable::default() };
        let (ahead, late_breaks, late_waited) = storm(&mut table, 0);
        assert!(ahead > 3_500_000_000, "{ahead}");
        assert!(late_breaks + 100 > breaks, "{late_breaks} breaks, {breaks} before");
        assert!(late_waited < waited + Duration::from_millis(10), "{late_waited:?}, {waited:?} before");
    }

    #[test]
    fn leases_that_ran_out_are_forgotten_though_nobody_asks_about_them() {
        let mut table = LeaseTable::default();
        for i in 0..500 {
            acquire(&mut table, &format!("k{i}"), Token::random(), 10, 0);
        }
        assert_eq!(table.len(), 500);
        table.apply(Request::Ping, at(1_000), WALL).unwrap();
        assert!(table.is_empty());
    }

    #[test]
    fn the_table_stays_in_proportion_to_what_lives() {
        let mut table = LeaseTable::default();
        // 100 000 leases of 10 ms each, 100 of them alive at a time, within less than a sweep's interval.
        for i in 0..100_000u64 {
            let now = Instant::from_micros(i * 100);
            let ttl = Ttl::from_millis(10).unwrap();
            let key = format!("k{i}").into();
            let request = Request::Acquire(Ask::new(key, Token::random(), ttl, "h".into()));
            table.apply(request, now, WALL).unwrap();
            assert!(table.len() <= 100 + SWEEP_AFTER, "{} after {i}", table.len());
        }
    }
}
