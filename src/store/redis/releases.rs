//! Remembers the last releases at a master. Pure: the caller passes in the time.
//!
//! A replica that becomes the master may not have received the last releases. It would keep those
//! leases, and their locks, until the ttls end. So the store repeats these releases at the new
//! master. A release names its token. If the new master has carried it out before, it changes
//! nothing.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::{Key, Token};

/// How much older than the newest release a remembered one may be. If this is smaller, a replica
/// that is further behind keeps more released leases until their ttls end. If it is larger, the
/// releases take more memory and longer to repeat.
const WINDOW: Duration = Duration::from_secs(2);
/// The most releases to remember. The oldest ones are dropped first. 20 000 with short keys take
/// about 2 MB. If this is smaller, a failover under load leaves more leases to their ttls. If it is
/// larger, the releases take more memory.
const MOST: usize = 20_000;

/// Keeps the last releases. See the module.
#[derive(Debug, Default)]
pub struct Releases {
    recent: VecDeque<(Instant, Key, Token)>,
}

impl Releases {
    /// Remembers a release that was carried out at `now`, and forgets releases that are too old.
    /// Only a new release makes old ones forgotten: the last releases before a server died are
    /// needed when its successor is known, however long that takes. If `keep` is true, as during a
    /// failover, forgets none because of its age.
    pub fn add(&mut self, key: Key, token: Token, now: Instant, keep: bool) {
        let is_old = |(at, ..): &(Instant, Key, Token)| !keep && now.duration_since(*at) > WINDOW;
        while self.recent.len() >= MOST || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, key, token));
    }

    /// Takes all remembered releases, the oldest first.
    pub fn take(&mut self) -> Vec<(Key, Token)> {
        std::mem::take(&mut self.recent).into_iter().map(|(_, key, token)| (key, token)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(releases: &mut Releases) -> Vec<String> {
        releases.take().into_iter().map(|(key, _)| key.to_string()).collect()
    }

    fn add(releases: &mut Releases, key: &str, at: Instant, keep: bool) {
        releases.add(key.into(), Token::random(), at, keep);
    }

    #[test]
    fn releases_are_forgotten_as_newer_ones_come() {
        let (mut releases, start) = (Releases::default(), Instant::now());
        add(&mut releases, "a", start, false);
        add(&mut releases, "b", start + WINDOW, false);
        add(&mut releases, "c", start + WINDOW + Duration::from_millis(1), false);
        assert_eq!(keys(&mut releases), ["b", "c"]);
        assert!(keys(&mut releases).is_empty());
    }

    #[test]
    fn none_is_forgotten_while_a_failover_is_under_way() {
        let (mut releases, start) = (Releases::default(), Instant::now());
        add(&mut releases, "a", start, false);
        add(&mut releases, "b", start + 2 * WINDOW, true);
        assert_eq!(keys(&mut releases), ["a", "b"]);
    }

    #[test]
    fn there_are_never_too_many() {
        let (mut releases, start) = (Releases::default(), Instant::now());
        for i in 0..=MOST {
            add(&mut releases, &i.to_string(), start, true);
        }
        let kept = keys(&mut releases);
        assert_eq!((kept.len(), &*kept[0]), (MOST, "1"));
    }
}
