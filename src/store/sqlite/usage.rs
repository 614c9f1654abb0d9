//! What this store has in the files, as far as it matters when they are exchanged: leases of its process.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::super::{Answer, Ask, Reply, Request};
use crate::lease::{Instant, Token};

/// How long the files stay open after the last request, if nothing is held. Shorter: a process that holds a lock now and then
/// opens them each time, which takes some 100 µs. Longer: the process is woken for longer, to look after its files.
const REST_AFTER: Duration = Duration::from_secs(2);

/// How often leases are looked for that ended without a word.
const PRUNE_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub struct Usage {
    /// When each lease ends that is not renewed.
    leases: FxHashMap<Token, Instant>,
    used: Instant,
    prune_at: Instant,
}

impl Usage {
    /// Something was asked at `now`.
    pub fn touch(&mut self, now: Instant) {
        self.used = now;
    }

    /// Remembers how a request was answered at `now`.
    pub fn note(&mut self, request: &Request, answer: &Answer, now: Instant) {
        match (request, answer) {
            (Request::Acquire(Ask { token, ttl, .. }), Ok(Reply::Acquired { .. }))
            | (Request::Renew { token, ttl, .. }, Ok(Reply::Renewed { .. })) => {
                self.lives(*token, now + ttl.as_duration());
            }
            (Request::Adopt { token, heir, ttl, .. }, Ok(Reply::Adopted)) => {
                self.leases.remove(token);
                self.lives(*heir, now + ttl.as_duration());
            }
            (Request::Detach { token, .. }, Ok(Reply::Renewed { .. } | Reply::NotHeld(_)))
            | (Request::Release { token, .. }, Ok(_))
            | (Request::Renew { token, .. }, Ok(Reply::NotHeld(_))) => {
                self.leases.remove(token);
            }
            _ => {}
        }
    }

    fn lives(&mut self, token: Token, until: Instant) {
        let known = self.leases.entry(token).or_insert(until);
        *known = until.max(*known);
    }

    /// Returns when the last of the leases ends; `None` if there is none.
    pub fn last_end(&self) -> Option<Instant> {
        self.leases.values().max().copied()
    }

    /// Returns whether no lease is left.
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Returns whether the files may be closed at `now`.
    pub fn may_rest(&mut self, now: Instant) -> bool {
        if now >= self.prune_at {
            self.prune_at = now + PRUNE_EVERY;
            self.leases.retain(|_, until| *until > now);
        }
        self.leases.is_empty() && now >= self.used + REST_AFTER
    }

    /// Forgets the leases: they are lost.
    pub fn clear(&mut self) {
        self.leases.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Fence, Ttl};
    use crate::store::Absence;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn the_files_may_be_closed_once_every_lease_has_ended_and_nothing_is_asked_any_more() {
        let (mut usage, one, other) = (Usage::default(), Token::random(), Token::random());
        let ttl = Ttl::from_millis(10_000).unwrap();
        let acquire = |token| Request::Acquire(Ask::new("k".into(), token, ttl, "h".into()));
        let acquired = Ok(Reply::Acquired { fence: Fence(1), waiting: 0 });
        usage.touch(at(0));
        usage.note(&acquire(one), &acquired, at(0));
        usage.note(&acquire(other), &acquired, at(5_000));
        assert_eq!(usage.last_end(), Some(at(15_000)));
        let release = Request::Release { key: "k".into(), token: other, used: None };
        usage.note(&release, &Ok(Reply::Released), at(6_000));
        assert!(!usage.may_rest(at(9_999)), "one lives");
        let renew = Request::Renew { key: "k".into(), token: one, ttl, fences: 0 };
        usage.note(&renew, &Ok(Reply::Renewed { block: None }), at(9_999));
        assert!(!usage.may_rest(at(12_000)), "it was renewed");
        usage.note(&renew, &Ok(Reply::NotHeld(Absence::Missing)), at(12_500));
        assert!(usage.may_rest(at(12_500)));
        usage.touch(at(13_000));
        assert!(!usage.may_rest(at(14_999)));
        assert!(usage.may_rest(at(15_000)));
    }

    #[test]
    fn a_lease_that_ran_out_without_a_word_keeps_nothing_open() {
        let mut usage = Usage::default();
        let ask = Ask::new("k".into(), Token::random(), Ttl::from_millis(1_000).unwrap(), "h".into());
        let acquired = Ok(Reply::Acquired { fence: Fence(1), waiting: 0 });
        usage.note(&Request::Acquire(ask), &acquired, at(0));
        assert!(!usage.may_rest(at(999)));
        assert!(usage.may_rest(at(3_000)));
    }
}
