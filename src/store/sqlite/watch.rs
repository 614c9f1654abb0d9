//! What this process waits for in the file, and when the thread has to look whether it has come.
//!
//! Another process that hands us a lease only writes it into the file. So while somebody of ours waits, and only then,
//! the thread looks every few milliseconds whether the file has changed, which costs some µs, and less often whether
//! a process is gone or a lease has run out, which nobody writes down.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::{Answer, Ask, Notice, Reply, Request, WAITER_LIFE};
use super::leases::Handed;
use crate::lease::{Instant, Key, Token};

/// How often the thread looks whether the file has changed: at first, for locks that go to and fro, and when nothing has
/// happened for a while. The latter is what an hour of waiting costs: about 1 % of a core.
const CHANGE_FIRST: Duration = Duration::from_micros(300);
const CHANGE_LAST: Duration = Duration::from_millis(4);
/// Which part of the time since anything happened may pass before the next look.
const PATIENCE: u32 = 32;

/// How often the thread looks for processes that are gone and leases that have run out.
const ENDS_EVERY: Duration = Duration::from_millis(25);

/// The waiters of this process.
#[derive(Debug, Default)]
pub struct Watch {
    waiting: FxHashMap<Token, Waiter>,
    /// Who was told of a lease and has not taken it up yet.
    told: FxHashSet<Token>,
    /// Whether whatever was in the way may have given place to something else.
    doubted: bool,
    /// When one of them came or went last.
    news: Instant,
    change_at: Instant,
    ends_at: Instant,
}

#[derive(Debug)]
struct Waiter {
    key: Key,
    /// When something in its way may end unless that is prolonged.
    look_at: Instant,
    /// When its place is lost unless it is heard of.
    until: Instant,
}

impl Watch {
    /// Whether nobody waits, and nothing needs to be looked at.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When to look next, if at all.
    pub fn due(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.change_at)
    }

    /// Remembers how a request was answered at `now`.
    pub fn note(&mut self, request: &Request, answer: &Answer, now: Instant) {
        match (request, answer) {
            // A repair needs no notice: the next renewal finds the lease.
            (
                Request::Acquire(Ask { key, token, repairs: false, .. }),
                Ok(Reply::Queued { remaining, .. }),
            ) => {
                let look_at = remaining.map_or(now, |remaining| now + remaining);
                let waiter = Waiter { key: key.clone(), look_at, until: now + WAITER_LIFE };
                if self.is_empty() {
                    self.ends_at = now + ENDS_EVERY;
                }
                if self.waiting.insert(*token, waiter).is_none() {
                    self.happened(now);
                }
            }
            (Request::Acquire(Ask { token, .. }) | Request::Release { token, .. }, Ok(reply)) => {
                self.doubted |= *reply == Reply::Released;
                self.waiting.remove(token);
                self.told.remove(token);
            }
            _ => {}
        }
    }

    /// Those of `handed` who are to be told, and were not yet.
    pub fn tell(&mut self, handed: &[Handed], now: Instant) -> Vec<Notice> {
        let mut notices = Vec::new();
        for &Handed { token, number } in handed {
            self.waiting.remove(&token);
            if self.told.insert(token) {
                // Without the fence, so that it asks and waits: what it took up early it would have to renew within a second,
                // and a write to a busy disk was seen to take that long.
                notices.push(Notice::Granted { number, fence: None });
                self.happened(now);
            }
        }
        notices
    }

    /// As [`Watch::tell`], of all who have not taken their leases up yet: others are forgotten.
    pub fn tell_all(&mut self, handed: &[Handed], now: Instant) -> Vec<Notice> {
        self.told.retain(|token| handed.iter().any(|handed| handed.token == *token));
        self.tell(handed, now)
    }

    /// Whether it is time to look for what has ended; then the keys about which to ask are [`Watch::doubtful`].
    /// Sets when to look next.
    pub fn begin(&mut self, now: Instant) -> bool {
        self.change_at = now + (now.since(self.news) / PATIENCE).clamp(CHANGE_FIRST, CHANGE_LAST);
        let ends = self.ends_at <= now;
        if ends {
            self.ends_at = now + ENDS_EVERY;
            self.waiting.retain(|_, waiter| now < waiter.until);
        }
        ends
    }

    /// The keys of which something in the way of a waiter may have ended by `now`.
    pub fn doubtful(&self, now: Instant) -> FxHashSet<Key> {
        let doubtful = self.waiting.values().filter(|waiter| self.doubted || waiter.look_at <= now);
        doubtful.map(|waiter| waiter.key.clone()).collect()
    }

    /// All that was doubtful was asked about, and at these keys nothing in the way ends before these instants.
    pub fn trust(&mut self, ends: &FxHashMap<Key, Instant>) {
        self.doubted = false;
        for waiter in self.waiting.values_mut() {
            waiter.look_at = ends.get(&waiter.key).copied().unwrap_or(waiter.look_at);
        }
    }

    /// Somebody else changed the file.
    pub fn doubt(&mut self) {
        self.doubted = true;
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

    fn wait(watch: &mut Watch, key: &str, token: Token, remaining_ms: u64, now: Instant) {
        let ask = Ask::new(key.into(), token, Ttl::MIN, "h".into());
        let request = Request::Acquire(Ask { place: Some(Place { number: 1 }), ..ask });
        let remaining = Some(Duration::from_millis(remaining_ms));
        watch.note(&request, &Ok(Reply::Queued { remaining, ahead: 0, told: true, by: None }), now);
    }

    #[test]
    fn nothing_is_looked_at_unless_somebody_waits() {
        let (mut watch, token) = (Watch::default(), Token::random());
        assert_eq!(watch.due(), None);
        wait(&mut watch, "k", token, 60_000, at(0));
        assert!(watch.due().is_some());
        let release = Request::Release { key: "k".into(), token, used: None };
        watch.note(&release, &Ok(Reply::NotHeld(crate::store::Absence::Taken)), at(1));
        assert_eq!(watch.due(), None);
    }

    #[test]
    fn looks_become_rarer_while_nothing_happens_and_never_too_rare() {
        let (mut watch, mut now, mut looks) = (Watch::default(), at(1_000), 0);
        wait(&mut watch, "k", Token::random(), 60_000, now);
        while now < at(2_000) {
            watch.begin(now);
            let next = watch.due().unwrap();
            assert!((CHANGE_FIRST..=CHANGE_LAST).contains(&next.since(now)));
            assert!(now > at(1_009) || next.since(now) == CHANGE_FIRST);
            (now, looks) = (next, looks + 1);
        }
        assert!((250..400).contains(&looks), "{looks} in a second");
    }

    #[test]
    fn a_waiter_that_is_not_heard_of_is_forgotten_with_its_place() {
        let mut watch = Watch::default();
        wait(&mut watch, "k", Token::random(), 60_000, at(0));
        watch.begin(at(2_499));
        assert!(!watch.is_empty());
        watch.begin(at(2_525));
        assert!(watch.is_empty());
    }

    #[test]
    fn everybody_is_told_once_until_they_have_taken_up_their_lease() {
        let (mut watch, token) = (Watch::default(), Token::random());
        let handed = [Handed { token, number: 7 }];
        let told = Notice::Granted { number: 7, fence: None };
        wait(&mut watch, "k", token, 60_000, at(0));
        assert_eq!(watch.tell(&handed, at(1)), std::slice::from_ref(&told));
        assert!(watch.is_empty());
        assert_eq!(watch.tell_all(&handed, at(2)), []);
        let repeated = Request::Acquire(Ask::new("k".into(), token, Ttl::MIN, "h".into()));
        let fence = crate::lease::Fence(1);
        watch.note(&repeated, &Ok(Reply::Acquired { fence, waiting: 0 }), at(3));
        assert_eq!(watch.tell_all(&handed, at(4)), [told]);
    }

    #[test]
    fn only_what_may_have_ended_is_asked_about() {
        let mut watch = Watch::default();
        wait(&mut watch, "soon", Token::random(), 10, at(0));
        wait(&mut watch, "late", Token::random(), 1_000, at(0));
        assert!(watch.doubtful(at(9)).is_empty());
        assert_eq!(watch.doubtful(at(10)), FxHashSet::from_iter(["soon".into()]));
        watch.trust(&FxHashMap::from_iter([("soon".into(), at(500))]));
        assert!(watch.doubtful(at(499)).is_empty());
        watch.doubt();
        assert_eq!(watch.doubtful(at(11)).len(), 2);
        watch.trust(&FxHashMap::default());
        assert!(watch.doubtful(at(11)).is_empty());
    }
}
