//! The leases that were released at a server a moment ago. Pure: the caller passes in the time.
//!
//! A replica that becomes the master may not have heard of the last releases. It would keep those leases until their ttls end,
//! and the locks with them. So they are released once more at the new master. A release is bound to its token: if the new master
//! knows of it already, it changes nothing.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::{Key, Token};

/// How much older than the newest release one may be to be remembered. A replica that is further behind lets the older ones
/// end by their ttls. A larger value takes more memory.
const WINDOW: Duration = Duration::from_secs(2);
/// The most releases to remember; with short keys they take about 2 MB. The oldest go first.
const MOST: usize = 20_000;

/// See the module.
#[derive(Debug, Default)]
pub struct Releases {
    recent: VecDeque<(Instant, Key, Token)>,
}

impl Releases {
    /// Remembers a release that was carried out at `now`. Older ones are forgotten as new ones come, and not while time passes:
    /// what was released just before a server died is needed when its successor is known, whenever that is. `keep`: forget
    /// none because of its age, as during a failover.
    pub fn add(&mut self, key: Key, token: Token, now: Instant, keep: bool) {
        let is_old = |(at, ..): &(Instant, Key, Token)| !keep && now.duration_since(*at) > WINDOW;
        while self.recent.len() >= MOST || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.push_back((now, key, token));
    }

    /// Takes all that are remembered, the oldest first.
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
