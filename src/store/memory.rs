//! The store in memory: one process and its worker threads, for tests and for those who need no more.
//!
//! [`LeaseTable`] is the whole of it and is pure: time comes in as an argument, so that any number of
//! stores can be simulated at any instant. [`MemoryStore`] puts it behind the contract, with the real clock.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use rustc_hash::FxHashMap;

use super::{Absence, Answer, LeaseInfo, Reply, Request, Store};
use crate::engine::clock;
use crate::lease::{Fence, Instant, Key, Token};

/// How long a lease that ran out, and about which nobody asked again, may stay in the table while the
/// table is used.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How many new leases are let in between two sweeps at least: a sweep looks at every lease, so it has to
/// be rare against what fills the table.
const SWEEP_AFTER: usize = 1024;

/// Leases by key, under the rules of the store contract.
#[derive(Debug)]
pub struct LeaseTable {
    leases: FxHashMap<Key, Held>,
    /// One counter for all keys, so that nothing has to be remembered of a key whose lease has ended.
    last: Fence,
    /// At which instant the next sweep is due.
    sweep_at: Instant,
    /// After how many more new leases the next sweep is due, should it be sooner.
    sweep_in: usize,
}

#[derive(Debug)]
struct Held {
    token: Token,
    fence: Fence,
    holder: Arc<str>,
    ends: Instant,
}

impl Default for LeaseTable {
    fn default() -> Self {
        let epoch = Instant::from_micros(0);
        Self { leases: FxHashMap::default(), last: Fence(0), sweep_at: epoch, sweep_in: SWEEP_AFTER }
    }
}

impl LeaseTable {
    /// Carries out `request` at `now`; `wall_us` is the wall clock for fences, in µs since 1970.
    ///
    /// `now` must not go back from one call to the next.
    pub fn apply(&mut self, request: Request, now: Instant, wall_us: u64) -> Answer {
        if now >= self.sweep_at || self.sweep_in == 0 {
            self.sweep(now);
        }
        Ok(match request {
            Request::Ping => Reply::Ready,
            Request::Acquire { key, token, ttl, holder } => {
                let ends = now + ttl.as_duration();
                match self.leases.entry(key) {
                    Entry::Occupied(mut entry) => {
                        let held = entry.get_mut();
                        if held.ends <= now {
                            self.last = self.last.next(wall_us);
                            *held = Held { token, fence: self.last, holder, ends };
                        } else if held.token == token {
                            held.ends = ends;
                        } else {
                            return Ok(Reply::Busy { remaining: Some(held.ends.since(now)) });
                        }
                        Reply::Acquired { fence: held.fence }
                    }
                    Entry::Vacant(entry) => {
                        self.sweep_in -= 1;
                        self.last = self.last.next(wall_us);
                        entry.insert(Held { token, fence: self.last, holder, ends });
                        Reply::Acquired { fence: self.last }
                    }
                }
            }
            Request::Renew { key, token, ttl } => match self.owned(&key, token, now) {
                Ok(held) => {
                    held.ends = held.ends.max(now + ttl.as_duration());
                    Reply::Renewed
                }
                Err(absence) => Reply::NotHeld(absence),
            },
            Request::Release { key, token } => match self.owned(&key, token, now) {
                Ok(_) => {
                    self.leases.remove(&key);
                    Reply::Released
                }
                Err(absence) => Reply::NotHeld(absence),
            },
            Request::Inspect { key } => {
                Reply::Inspected(self.leases.get(&key).filter(|held| now < held.ends).map(|held| LeaseInfo {
                    holder: Some(held.holder.clone()),
                    fence: Some(held.fence),
                    remaining: Some(held.ends.since(now)),
                }))
            }
        })
    }

    /// How many leases the table remembers, those included that ran out and were not swept yet.
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether the table remembers no lease at all.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// The lease of `key`, if it lives at `now` and is `token`'s.
    fn owned(&mut self, key: &Key, token: Token, now: Instant) -> Result<&mut Held, Absence> {
        match self.leases.get_mut(key) {
            Some(held) if now >= held.ends => Err(Absence::Missing),
            Some(held) if held.token != token => Err(Absence::Taken),
            Some(held) => Ok(held),
            None => Err(Absence::Missing),
        }
    }

    /// Forgets what has run out.
    fn sweep(&mut self, now: Instant) {
        self.leases.retain(|_, held| now < held.ends);
        // Room that a burst needed is given back once it is four times what is used.
        if self.leases.capacity() > 4 * self.leases.len().max(SWEEP_AFTER) {
            self.leases.shrink_to(2 * self.leases.len());
        }
        self.sweep_at = now + SWEEP_EVERY;
        self.sweep_in = self.leases.len().max(SWEEP_AFTER);
    }
}

/// A [`LeaseTable`] as a [`Store`]. Whoever is to share its locks shares the one `Rc`.
#[derive(Debug, Default)]
pub struct MemoryStore {
    table: RefCell<LeaseTable>,
}

impl MemoryStore {
    /// A store in which nothing is held.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// How many leases are remembered, those included that ran out and were not swept yet.
    pub fn len(&self) -> usize {
        self.table.borrow().len()
    }

    /// Whether no lease is remembered.
    pub fn is_empty(&self) -> bool {
        self.table.borrow().is_empty()
    }
}

impl Store for MemoryStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        _timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        Box::pin(async move {
            let (now, wall_us) = (clock::now(), clock::wall_us());
            let mut table = self.table.borrow_mut();
            batch.into_iter().map(|request| table.apply(request, now, wall_us)).collect()
        })
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Ttl;

    const WALL: u64 = 1_700_000_000_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    fn acquire(table: &mut LeaseTable, key: &str, token: Token, ttl_ms: u32, now_ms: u64) -> Reply {
        let ttl = Ttl::from_millis(ttl_ms).unwrap();
        let request = Request::Acquire { key: key.into(), token, ttl, holder: "h".into() };
        table.apply(request, at(now_ms), WALL).unwrap()
    }

    #[test]
    fn a_lease_ends_at_the_very_microsecond_of_its_ttl() {
        let (a, b) = (Token::random(), Token::random());
        let mut table = LeaseTable::default();
        let ttl = Ttl::from_millis(10).unwrap();
        let wants = |token| Request::Acquire { key: "k".into(), token, ttl, holder: "h".into() };
        table.apply(wants(a), Instant::from_micros(5), WALL).unwrap();
        let last = table.apply(wants(b), Instant::from_micros(10_004), WALL).unwrap();
        assert_eq!(last, Reply::Busy { remaining: Some(Duration::from_micros(1)) });
        let next = table.apply(wants(b), Instant::from_micros(10_005), WALL).unwrap();
        assert_eq!(next, Reply::Acquired { fence: Fence(WALL + 1) });
    }

    #[test]
    fn fences_grow_over_all_keys_while_the_wall_clock_stands_still_or_goes_back() {
        let mut table = LeaseTable::default();
        let ttl = Ttl::from_millis(10).unwrap();
        let mut last = Fence(0);
        for (i, wall) in [WALL, WALL, WALL - 1_000_000, 0, WALL + 9].into_iter().enumerate() {
            let key = format!("k{i}").into();
            let request = Request::Acquire { key, token: Token::random(), ttl, holder: "h".into() };
            let Ok(Reply::Acquired { fence }) = table.apply(request, at(0), wall) else {
                panic!("not granted")
            };
            assert!(fence > last, "{fence:?} after {last:?}");
            last = fence;
        }
        assert_eq!(last, Fence(WALL + 9));
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
            let request = Request::Acquire { key, token: Token::random(), ttl, holder: "h".into() };
            table.apply(request, now, WALL).unwrap();
            assert!(table.len() <= 100 + SWEEP_AFTER, "{} after {i}", table.len());
        }
    }
}
