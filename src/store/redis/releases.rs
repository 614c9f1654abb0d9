//! Remembers the last releases at a master. Pure: the caller passes in the time.
//!
//! A replica that becomes the master may not have received the last releases. It would keep those
//! leases, and their locks, until the ttls end. So the store repeats these releases at the new
//! master until that one has answered. A release names its token. If the new master has carried it
//! out before, it changes nothing.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::{Key, Token};

/// How much older than the newest release a remembered one may be. If this is smaller, a replica
/// that is further behind keeps more released leases until their ttls end. If it is larger, the
/// releases take more memory and longer to repeat.
const WINDOW: Duration = Duration::from_secs(2);
/// How long the store tries to repeat a release at the new master. If this is smaller, a lease with
/// a longer ttl stays taken when the new master can't be reached for long. If it is larger, a store
/// without a master tries to connect for longer.
const LIFE: Duration = Duration::from_secs(600);
/// The most bytes for remembered releases. The oldest ones are dropped first. This is enough for
/// 20 000 releases with keys of up to 36 bytes. If this is smaller, a failover under load leaves
/// more leases to their ttls. If it is larger, the releases take more memory.
const MOST_BYTES: usize = 2_000_000;
/// What a release takes in addition to its key, in bytes.
const ENTRY: usize = 64;

/// A release that was carried out at a master, or asked for there.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    pub key: Key,
    pub token: Token,
    at: Instant,
}

impl Released {
    fn size(&self) -> usize {
        ENTRY + self.key.len()
    }
}

/// Keeps the last releases. See the module.
#[derive(Debug, Default)]
pub struct Releases {
    /// The releases that the current master has carried out.
    recent: VecDeque<Released>,
    /// The releases that the new master has not answered yet.
    pending: VecDeque<Released>,
    /// The bytes that all of them take.
    bytes: usize,
}

impl Releases {
    /// Remembers a release that was carried out at `now`, and forgets releases that are too old.
    /// Time alone removes none here: the last releases before a server died are needed when the new
    /// master is known, however long that takes. If `keep` is true, as during a failover, forgets
    /// none because of its age.
    pub fn add(&mut self, key: Key, token: Token, now: Instant, keep: bool) {
        while !keep && self.recent.front().is_some_and(|oldest| now.duration_since(oldest.at) > WINDOW) {
            let oldest = self.recent.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.size());
        }
        let released = Released { key, token, at: now };
        self.bytes += released.size();
        self.recent.push_back(released);
        while self.bytes > MOST_BYTES {
            let Some(oldest) = self.pending.pop_front().or_else(|| self.recent.pop_front()) else { return };
            self.bytes -= oldest.size();
        }
    }

    /// Notes that the master has changed: all remembered releases have to be repeated.
    pub fn keep_all(&mut self) {
        self.pending.append(&mut self.recent);
    }

    /// Takes up to `most` releases that have to be repeated, the oldest first. Forgets those that
    /// were made too long before `now`.
    pub fn take(&mut self, most: usize, now: Instant) -> Vec<Released> {
        let is_too_old = |released: &Released| now.duration_since(released.at) > LIFE;
        while self.pending.front().is_some_and(is_too_old) {
            let oldest = self.pending.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.size());
        }
        let taken: Vec<Released> = self.pending.drain(..most.min(self.pending.len())).collect();
        self.bytes -= taken.iter().map(Released::size).sum::<usize>();
        taken
    }

    /// Takes back releases that the new master did not answer.
    pub fn put_back(&mut self, failed: Vec<Released>) {
        self.bytes += failed.iter().map(Released::size).sum::<usize>();
        for released in failed.into_iter().rev() {
            self.pending.push_front(released);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(releases: &mut Releases, now: Instant) -> Vec<String> {
        releases.keep_all();
        releases.take(usize::MAX, now).into_iter().map(|released| released.key.to_string()).collect()
    }

    fn add(releases: &mut Releases, key: &str, at: Instant, keep: bool) {
        releases.add(key.into(), Token::random(), at, keep);
    }

    #[test]
    fn releases_are_forgotten_as_newer_ones_come() {
        let (mut releases, start) = (Releases::default(), Instant::now());
        add(&mut releases, "a", start, false);
        add(&mut releases, "b", start + WINDOW, false);
        let last = start + WINDOW + Duration::from_millis(1);
        add(&mut releases, "c", last, false);
        assert_eq!(keys(&mut releases, last), ["b", "c"]);
        assert!(keys(&mut releases, last).is_empty());
        assert_eq!(releases.bytes, 0);
    }

    #[test]
    fn none_is_forgotten_while_a_failover_is_under_way() {
        let (mut releases, start) = (Releases::default(), Instant::now());
        add(&mut releases, "a", start, false);
        add(&mut releases, "b", start + 2 * WINDOW, true);
        assert_eq!(keys(&mut releases, start + 2 * WINDOW), ["a", "b"]);
    }

    #[test]
    fn a_release_is_pending_until_the_new_master_has_answered() {
        let (mut releases, start) = (Releases::default(), Instant::now());
        for key in ["a", "b", "c"] {
            add(&mut releases, key, start, false);
        }
        releases.keep_all();
        let first = releases.take(2, start);
        releases.put_back(first);
        add(&mut releases, "d", start + 2 * WINDOW, false);
        assert_eq!(
            keys(&mut releases, start + LIFE),
            ["a", "b", "c", "d"],
            "pending releases are kept for longer"
        );
        let (mut releases, later) = (Releases::default(), start + LIFE + Duration::from_millis(1));
        add(&mut releases, "a", start, false);
        assert!(keys(&mut releases, later).is_empty());
        assert_eq!(releases.bytes, 0);
    }

    #[test]
    fn remembered_releases_never_take_too_much_memory() {
        for length in [1, 500] {
            let (mut releases, start) = (Releases::default(), Instant::now());
            for i in 0..40_000 {
                add(&mut releases, &format!("{i:0length$}"), start, true);
                assert!(releases.bytes <= MOST_BYTES);
                if i == 1_000 {
                    releases.keep_all();
                }
            }
            let kept = keys(&mut releases, start);
            assert!(kept.iter().map(|key| ENTRY + key.len()).sum::<usize>() > MOST_BYTES - 600);
            assert_eq!(kept.last().map(|key| key.trim_start_matches('0')), Some("39999"), "the newest stay");
        }
    }
}
