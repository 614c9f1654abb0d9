//! The leases of this process in the files. They decide what happens when the files are replaced,
//! and when the store may close them.

use std::collections::HashMap;
use std::time::Duration;

use super::super::{AcquireRequest, Answer, Reply, Request};
use crate::lease::{Instant, Token};

/// How long the files stay open after the last request if this process holds no lease. If this is
/// smaller, a process that holds a lock now and then has to open them each time. That takes 1 ms
/// plus 20 µs for each other live owner, because the store looks at all owners twice. If it is
/// larger, the process wakes for longer to check its files.
const REST_AFTER: Duration = Duration::from_secs(2);

/// How often to forget leases that ran out without a request.
const PRUNE_EVERY: Duration = Duration::from_secs(1);

/// The leases of this process; see the module.
#[derive(Debug, Default)]
pub struct Usage {
    /// When each lease ends if it is not renewed.
    leases: HashMap<Token, Instant>,
    used: Instant,
    prune_at: Instant,
}

impl Usage {
    /// Notes that a request came at `now`.
    pub fn touch(&mut self, now: Instant) {
        self.used = now;
    }

    /// Notes the answer to a request at `now`.
    pub fn note(&mut self, request: &Request, answer: &Answer, now: Instant) {
        match (request, answer) {
            (Request::Acquire(AcquireRequest { token, ttl, .. }), Ok(Reply::Acquired { .. }))
            | (Request::Renew { token, ttl, .. }, Ok(Reply::Renewed { .. })) => {
                self.lives(*token, now + ttl.as_duration());
            }
            (Request::Adopt { token, adopter, ttl, .. }, Ok(Reply::Adopted(_))) => {
                self.leases.remove(token);
                self.lives(*adopter, now + ttl.as_duration());
            }
            _ => {}
        }
    }

    /// Returns the leases that `batch` has ended, by its `answers`. They count as living until the
    /// engine has the answers: before that, the holder of a detached lease still counts on it.
    pub fn ended_by(batch: &[Request], answers: &[Answer]) -> Vec<Token> {
        let ended = batch.iter().zip(answers).filter_map(|asked| match asked {
            (Request::Detach { token, .. }, Ok(Reply::Renewed { .. } | Reply::NotHeld(_)))
            | (Request::Move { token, .. }, Ok(Reply::Adopted(_)))
            | (Request::Release { token, .. } | Request::GiveBack { token, .. }, Ok(_))
            | (Request::Renew { token, .. }, Ok(Reply::NotHeld(_))) => Some(*token),
            _ => None,
        });
        ended.collect()
    }

    /// Notes that leases have ended, and that the engine knows it.
    pub fn end(&mut self, ended: &[Token]) {
        for token in ended {
            self.leases.remove(token);
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

    /// Returns whether the store may close the files at `now`.
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
    fn the_files_may_be_closed_once_all_leases_have_ended_and_no_request_has_come_for_a_while() {
        let (mut usage, one, other) = (Usage::default(), Token::random(), Token::random());
        let ttl = Ttl::from_millis(10_000).unwrap();
        let acquire = |token| Request::Acquire(AcquireRequest::new("k".into(), token, ttl, "h".into()));
        let acquired = Ok(Reply::Acquired { fence: Fence(1), waiting: 0 });
        usage.touch(at(0));
        usage.note(&acquire(one), &acquired, at(0));
        usage.note(&acquire(other), &acquired, at(5_000));
        assert_eq!(usage.last_end(), Some(at(15_000)));
        let release = Request::Release { key: "k".into(), token: other, used: None };
        usage.end(&Usage::ended_by(&[release], &[Ok(Reply::Released)]));
        assert!(!usage.may_rest(at(9_999)), "one lease lives");
        let renew = Request::Renew { key: "k".into(), token: one, ttl, fences: 0 };
        usage.note(&renew, &Ok(Reply::Renewed { block: None }), at(9_999));
        assert!(!usage.may_rest(at(12_000)), "the lease was renewed");
        usage.end(&Usage::ended_by(&[renew], &[Ok(Reply::NotHeld(Absence::Missing))]));
        assert!(usage.may_rest(at(12_500)));
        usage.touch(at(13_000));
        assert!(!usage.may_rest(at(14_999)));
        assert!(usage.may_rest(at(15_000)));
    }

    #[test]
    fn a_lease_that_ran_out_without_a_request_does_not_keep_the_files_open() {
        let mut usage = Usage::default();
        let ask =
            AcquireRequest::new("k".into(), Token::random(), Ttl::from_millis(1_000).unwrap(), "h".into());
        let acquired = Ok(Reply::Acquired { fence: Fence(1), waiting: 0 });
        usage.note(&Request::Acquire(ask), &acquired, at(0));
        assert!(!usage.may_rest(at(999)));
        assert!(usage.may_rest(at(3_000)));
    }
}
