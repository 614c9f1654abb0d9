//! Tracks the waiters of this process, and says when the thread has to look at the file for them.
//!
//! Another process that hands a lease to this one only writes it into the file. So while a caller
//! of this process waits, and only then, the thread looks every few milliseconds whether the file
//! has changed, which costs some µs. Less often, it looks whether a process is gone or a lease has
//! run out, which no process writes down.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::super::{AcquireRequest, Answer, Notice, Reply, Request, WAITER_LIFE};
use super::leases::HandedLease;
use crate::lease::{Instant, Key, Token};

/// The shortest and the longest pause between two checks of the file. The shortest one comes after
/// a change, for locks that go to and fro: if it is larger, hand-overs take longer. The longest one
/// comes when nothing has happened for a while, and costs about 1 % of a core: if it is smaller,
/// long waits cost more.
const CHANGE_FIRST: Duration = Duration::from_micros(300);
const CHANGE_LAST: Duration = Duration::from_millis(4);
/// The pause before the next check is the time since the last change, divided by this. If this is
/// larger, waits cost more; if it is smaller, hand-overs take longer.
const PATIENCE: u32 = 32;

/// How often the thread looks for processes that are gone and leases that have run out. If this is
/// larger, waiters get such leases later; if it is smaller, waits cost more.
const ENDS_EVERY: Duration = Duration::from_millis(25);

/// The waiters of this process.
#[derive(Debug, Default)]
pub struct ChangeWatcher {
    waiting: HashMap<Token, WatchedWaiter>,
    /// Waiters that got a notice and have not taken up their leases yet.
    notified: HashSet<Token>,
    /// True if other leases may be in the way of the waiters now.
    may_have_changed: bool,
    /// When a waiter last came or was handed a lease.
    news: Instant,
    change_at: Instant,
    ends_at: Instant,
}

#[derive(Debug)]
struct WatchedWaiter {
    key: Key,
    /// When the first lease or place in its way may end, unless it is prolonged.
    look_at: Instant,
    /// When the waiter loses its place if it does not poll again.
    until: Instant,
}

impl ChangeWatcher {
    /// Returns true if there are no waiters, so that nothing has to be checked.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns when the next check is due; `None` if there is nothing to check.
    pub fn due(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.change_at)
    }

    /// Notes the answer to a request at `now`.
    pub fn note(&mut self, request: &Request, answer: &Answer, now: Instant) {
        match (request, answer) {
            // A repair needs no notice: the next renewal finds the lease.
            (
                Request::Acquire(AcquireRequest { key, token, repairs: false, .. }),
                Ok(Reply::Queued { remaining, .. }),
            ) => {
                let look_at = remaining.map_or(now, |remaining| now + remaining);
                let waiter = WatchedWaiter { key: key.clone(), look_at, until: now + WAITER_LIFE };
                if self.is_empty() {
                    self.ends_at = now + ENDS_EVERY;
                }
                if self.waiting.insert(*token, waiter).is_none() {
                    self.happened(now);
                }
            }
            (Request::Acquire(AcquireRequest { token, .. }) | Request::Release { token, .. }, Ok(reply)) => {
                self.may_have_changed |= *reply == Reply::Released;
                self.waiting.remove(token);
                self.notified.remove(token);
            }
            _ => {}
        }
    }

    /// Returns notices for those of `handed` that have not got one yet.
    pub fn tell(&mut self, handed: &[HandedLease], now: Instant) -> Vec<Notice> {
        let mut notices = Vec::new();
        for &HandedLease { token, number } in handed {
            self.waiting.remove(&token);
            if self.notified.insert(token) {
                // Leave out the fence, so that the waiter polls and waits for the answer. A lease
                // that it takes up on notice has to be renewed within a second, and a write to a
                // busy disk was seen to take that long.
                notices.push(Notice::Granted { number, fence: None });
                self.happened(now);
            }
        }
        notices
    }

    /// Returns the same as [`ChangeWatcher::tell`], for a `handed` that has all waiters that have
    /// not taken up their leases. Forgets the other waiters that got a notice.
    pub fn tell_all(&mut self, handed: &[HandedLease], now: Instant) -> Vec<Notice> {
        self.notified.retain(|token| handed.iter().any(|handed| handed.token == *token));
        self.tell(handed, now)
    }

    /// Begins a check, and sets when the next one is due. Returns true if it is time to look for
    /// what has ended, at the keys of [`ChangeWatcher::possibly_ended`].
    pub fn begin(&mut self, now: Instant) -> bool {
        self.change_at = now + (now.since(self.news) / PATIENCE).clamp(CHANGE_FIRST, CHANGE_LAST);
        let ends = self.ends_at <= now;
        if ends {
            self.ends_at = now + ENDS_EVERY;
            self.waiting.retain(|_, waiter| now < waiter.until);
        }
        ends
    }

    /// Returns the keys where a lease or place in the way of a waiter may have ended by `now`.
    pub fn possibly_ended(&self, now: Instant) -> HashSet<Key> {
        let possibly_ended =
            self.waiting.values().filter(|waiter| self.may_have_changed || waiter.look_at <= now);
        possibly_ended.map(|waiter| waiter.key.clone()).collect()
    }

    /// Notes that all keys of [`ChangeWatcher::possibly_ended`] were checked. At the keys of
    /// `ends`, nothing in the way ends before these instants.
    pub fn trust(&mut self, ends: &HashMap<Key, Instant>) {
        self.may_have_changed = false;
        for waiter in self.waiting.values_mut() {
            waiter.look_at = ends.get(&waiter.key).copied().unwrap_or(waiter.look_at);
        }
    }

    /// Notes that another thread or process may have changed the file.
    pub fn set_changed(&mut self) {
        self.may_have_changed = true;
    }

    fn happened(&mut self, now: Instant) {
        self.news = now;
        self.change_at = self.change_at.min(now + CHANGE_FIRST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Ttl;
    use crate::store::Place;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    fn wait(change_watcher: &mut ChangeWatcher, key: &str, token: Token, remaining_ms: u64, now: Instant) {
        let ask = AcquireRequest::new(key.into(), token, Ttl::MIN, "h".into());
        let request = Request::Acquire(AcquireRequest { place: Some(Place { number: 1 }), ..ask });
        let remaining = Some(Duration::from_millis(remaining_ms));
        change_watcher.note(
            &request,
            &Ok(Reply::Queued { remaining, ahead: 0, notified: true, by: None }),
            now,
        );
    }

    #[test]
    fn nothing_is_checked_unless_there_is_a_waiter() {
        let (mut change_watcher, token) = (ChangeWatcher::default(), Token::random());
        assert_eq!(change_watcher.due(), None);
        wait(&mut change_watcher, "k", token, 60_000, at(0));
        assert!(change_watcher.due().is_some());
        let release = Request::Release { key: "k".into(), token, used: None };
        change_watcher.note(&release, &Ok(Reply::NotHeld(crate::store::Absence::Taken)), at(1));
        assert_eq!(change_watcher.due(), None);
    }

    #[test]
    fn checks_become_rarer_while_nothing_happens_down_to_a_limit() {
        let (mut change_watcher, mut now, mut looks) = (ChangeWatcher::default(), at(1_000), 0);
        wait(&mut change_watcher, "k", Token::random(), 60_000, now);
        while now < at(2_000) {
            change_watcher.begin(now);
            let next = change_watcher.due().unwrap();
            assert!((CHANGE_FIRST..=CHANGE_LAST).contains(&next.since(now)));
            assert!(now > at(1_009) || next.since(now) == CHANGE_FIRST);
            (now, looks) = (next, looks + 1);
        }
        assert!((250..400).contains(&looks), "{looks} in a second");
    }

    #[test]
    fn a_waiter_that_does_not_poll_is_forgotten_with_its_place() {
        let mut change_watcher = ChangeWatcher::default();
        wait(&mut change_watcher, "k", Token::random(), 60_000, at(0));
        change_watcher.begin(at(2_499));
        assert!(!change_watcher.is_empty());
        change_watcher.begin(at(2_525));
        assert!(change_watcher.is_empty());
    }

    #[test]
    fn each_waiter_gets_one_notice_until_it_has_taken_up_its_lease() {
        let (mut change_watcher, token) = (ChangeWatcher::default(), Token::random());
        let handed = [HandedLease { token, number: 7 }];
        let notified = Notice::Granted { number: 7, fence: None };
        wait(&mut change_watcher, "k", token, 60_000, at(0));
        assert_eq!(change_watcher.tell(&handed, at(1)), std::slice::from_ref(&notified));
        assert!(change_watcher.is_empty());
        assert_eq!(change_watcher.tell_all(&handed, at(2)), []);
        let repeated = Request::Acquire(AcquireRequest::new("k".into(), token, Ttl::MIN, "h".into()));
        let fence = crate::lease::Fence(1);
        change_watcher.note(&repeated, &Ok(Reply::Acquired { fence, waiting: 0 }), at(3));
        assert_eq!(change_watcher.tell_all(&handed, at(4)), [notified]);
    }

    #[test]
    fn only_keys_where_a_lease_may_have_ended_are_checked() {
        let mut change_watcher = ChangeWatcher::default();
        wait(&mut change_watcher, "soon", Token::random(), 10, at(0));
        wait(&mut change_watcher, "late", Token::random(), 1_000, at(0));
        assert!(change_watcher.possibly_ended(at(9)).is_empty());
        assert_eq!(change_watcher.possibly_ended(at(10)), HashSet::from_iter(["soon".into()]));
        change_watcher.trust(&HashMap::from_iter([("soon".into(), at(500))]));
        assert!(change_watcher.possibly_ended(at(499)).is_empty());
        change_watcher.set_changed();
        assert_eq!(change_watcher.possibly_ended(at(11)).len(), 2);
        change_watcher.trust(&HashMap::new());
        assert!(change_watcher.possibly_ended(at(11)).is_empty());
    }
}
