//! Keeps the list of the sentinels to listen to. Pure.
//!
//! Sentinels remember others that are gone until `SENTINEL RESET`. So the list has a limit, and a
//! sentinel that can't be heard makes room for another one. A sentinel that the URL names stays.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::super::address::RedisAddress;
use super::super::endpoint::Endpoint;

/// The most sentinels to listen to. If this is smaller, the client may miss a sentinel that leads a
/// failover. If it is larger, the addresses of sentinels that are gone cost more connection
/// attempts.
const MOST: usize = 16;
/// The shortest time between two replacements. Each one costs a connection attempt, also to a
/// server that is no sentinel. If this is smaller, a hostile sentinel causes more attempts; if it
/// is larger, a new sentinel waits longer for its place.
const REPLACE_AFTER: Duration = Duration::from_secs(1);

/// The most sentinels that wait for the next replacement. If this is smaller, a sentinel that was
/// found may be asked only when another one tells of it again. If it is larger, a hostile sentinel
/// takes more memory.
const MOST_WAITING: usize = 16;

/// Holds the list. See the module.
#[derive(Default)]
pub struct SentinelList {
    sentinels: Vec<KnownSentinel>,
    /// The number of the next sentinel.
    next: usize,
    /// When a sentinel last made room for another one.
    replaced: Option<Instant>,
    /// The sentinels that were found within [`REPLACE_AFTER`] after the last replacement.
    waiting: VecDeque<FoundSentinel>,
}

/// Describes a sentinel that another sentinel has named.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundSentinel {
    pub node: RedisAddress,
    /// The sentinel's id, if it is known.
    pub id: Option<String>,
}

struct KnownSentinel {
    number: usize,
    node: RedisAddress,
    /// True if the URL names the sentinel.
    is_named: bool,
    /// How many attempts in a row to listen to it have failed.
    failures: u32,
}

/// Says what place the list has for a sentinel.
enum Place {
    /// The list has the sentinel already, or is full.
    None,
    /// The list has room.
    Free,
    /// The place of a sentinel on the list that can't be heard.
    Of(usize),
    /// The sentinel has to wait, because another one was replaced just before.
    Later,
}

/// A sentinel that was put on the list.
#[derive(Debug, PartialEq)]
pub struct AdmittedSentinel {
    pub number: usize,
    /// The number of the sentinel that was taken off the list for it.
    pub dropped: Option<usize>,
}

impl SentinelList {
    /// Puts a sentinel that the URL names on the list. Returns its number.
    pub fn name(&mut self, node: RedisAddress) -> usize {
        self.add(node, true)
    }

    /// Puts a sentinel that another one has told of on the list. Returns `None` if the list has it
    /// already. If the list is full, also returns `None` if all sentinels on it may still be heard,
    /// or if the last replacement was less than [`REPLACE_AFTER`] ago. In the latter case, the
    /// sentinel waits for [`SentinelList::next_waiting`].
    pub fn admit(&mut self, found: &FoundSentinel, now: Instant) -> Option<AdmittedSentinel> {
        let dropped = match self.place_for(&found.node.endpoint, now) {
            Place::None => return None,
            Place::Free => None,
            Place::Of(place) => {
                self.replaced = Some(now);
                Some(self.sentinels.remove(place).number)
            }
            Place::Later => {
                self.waiting.push_back(found.clone());
                return None;
            }
        };
        Some(AdmittedSentinel { number: self.add(found.node.clone(), false), dropped })
    }

    /// Returns true if [`SentinelList::admit`] would put the sentinel at `endpoint` on the list, or
    /// let it wait. Must cost little: a hostile sentinel may name many others.
    pub fn has_place_for(&self, endpoint: &Endpoint<RedisAddress>, now: Instant) -> bool {
        !matches!(self.place_for(endpoint, now), Place::None)
    }

    fn place_for(&self, endpoint: &Endpoint<RedisAddress>, now: Instant) -> Place {
        if self.sentinels.iter().any(|known| known.node.endpoint == *endpoint) {
            return Place::None;
        }
        if self.sentinels.len() < MOST {
            return Place::Free;
        }
        if self.replaced.is_some_and(|at| now < at + REPLACE_AFTER) {
            let is_full = self.waiting.len() >= MOST_WAITING;
            let is_known = is_full || self.waiting.iter().any(|known| known.node.endpoint == *endpoint);
            return if is_known { Place::None } else { Place::Later };
        }
        let silent = self.sentinels.iter().enumerate();
        let silent = silent.filter(|(_, known)| !known.is_named && known.failures > 0);
        silent.max_by_key(|(_, known)| known.failures).map_or(Place::None, |(place, _)| Place::Of(place))
    }

    /// Returns when the next waiting sentinel may replace another one. Returns `None` if no
    /// sentinel waits.
    pub fn replaces_at(&self) -> Option<Instant> {
        self.replaced.filter(|_| !self.waiting.is_empty()).map(|at| at + REPLACE_AFTER)
    }

    /// Removes the sentinel that has waited longest and returns it, if its time has come.
    pub fn next_waiting(&mut self, now: Instant) -> Option<FoundSentinel> {
        self.replaces_at().filter(|at| *at <= now)?;
        self.waiting.pop_front()
    }

    /// Notes that the client listens to that sentinel.
    pub fn heard(&mut self, number: usize) {
        self.of(number, |known| known.failures = 0);
    }

    /// Notes that an attempt to listen to that sentinel has failed.
    pub fn failed(&mut self, number: usize) {
        self.of(number, |known| known.failures = known.failures.saturating_add(1));
    }

    fn of(&mut self, number: usize, change: impl FnOnce(&mut KnownSentinel)) {
        if let Some(known) = self.sentinels.iter_mut().find(|known| known.number == number) {
            change(known);
        }
    }

    fn add(&mut self, node: RedisAddress, is_named: bool) -> usize {
        let number = self.next;
        self.next += 1;
        self.sentinels.push(KnownSentinel { number, node, is_named, failures: 0 });
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Access;

    fn node(port: usize) -> RedisAddress {
        RedisAddress::parse(&format!("redis://127.0.0.1:{port}"), &Access::default()).unwrap()
    }

    fn found(port: usize) -> FoundSentinel {
        FoundSentinel { node: node(port), id: None }
    }

    /// Returns a full list whose sentinels with these numbers can't be heard.
    fn full(silent: &[usize], now: Instant) -> SentinelList {
        let mut sentinel_list = SentinelList::default();
        for number in 0..MOST {
            assert_eq!(sentinel_list.admit(&found(number + 1), now), added(number));
        }
        for number in silent {
            sentinel_list.failed(*number);
        }
        sentinel_list
    }

    fn added(number: usize) -> Option<AdmittedSentinel> {
        Some(AdmittedSentinel { number, dropped: None })
    }

    #[test]
    fn a_sentinel_that_can_not_be_heard_makes_room_for_another_one() {
        let (mut sentinel_list, mut now) = (SentinelList::default(), Instant::now());
        assert_eq!([sentinel_list.name(node(1)), sentinel_list.name(node(2))], [0, 1]);
        for number in 2..MOST {
            assert_eq!(sentinel_list.admit(&found(number + 1), now), added(number));
        }
        assert_eq!(sentinel_list.admit(&found(3), now), None, "it is known");
        assert_eq!(sentinel_list.admit(&found(100), now), None, "none has failed so far");
        for number in [0, 4, 7, 7] {
            sentinel_list.failed(number);
        }
        assert_eq!(
            sentinel_list.admit(&found(100), now),
            Some(AdmittedSentinel { number: MOST, dropped: Some(7) })
        );
        now += REPLACE_AFTER - Duration::from_millis(1);
        assert_eq!(sentinel_list.admit(&found(8), now), None, "another one was replaced just before");
        now += Duration::from_millis(1);
        assert_eq!(
            sentinel_list.admit(&found(8), now),
            Some(AdmittedSentinel { number: MOST + 1, dropped: Some(4) })
        );
        now += REPLACE_AFTER;
        assert_eq!(sentinel_list.admit(&found(5), now), None, "the URL names the one that failed");
        sentinel_list.failed(9);
        sentinel_list.heard(9);
        assert_eq!(sentinel_list.admit(&found(5), now), None, "it is back");
    }

    #[test]
    fn a_sentinel_that_is_found_just_after_a_replacement_waits_for_the_next_one() {
        let mut now = Instant::now();
        let mut sentinel_list = full(&[3, 4, 5], now);
        assert_eq!(sentinel_list.replaces_at(), None);
        assert!(sentinel_list.admit(&found(100), now).is_some());
        for port in [101, 102, 101] {
            assert_eq!(sentinel_list.admit(&found(port), now), None);
        }
        assert_eq!(sentinel_list.replaces_at(), Some(now + REPLACE_AFTER));
        assert_eq!(sentinel_list.next_waiting(now), None, "it is too early");
        now += REPLACE_AFTER;
        assert_eq!(sentinel_list.next_waiting(now), Some(found(101)));
        assert!(sentinel_list.admit(&found(101), now).is_some());
        assert_eq!(sentinel_list.next_waiting(now), None, "another one was replaced just before");
        now += REPLACE_AFTER;
        assert_eq!(sentinel_list.next_waiting(now), Some(found(102)));
        assert_eq!(sentinel_list.replaces_at(), None, "each one waits once");
    }

    #[test]
    fn a_sentinel_has_a_place_only_if_it_is_admitted_or_waits() {
        let mut now = Instant::now();
        let has_place = |list: &SentinelList, port, now| list.has_place_for(&node(port).endpoint, now);
        let mut sentinel_list = SentinelList::default();
        assert!(has_place(&sentinel_list, 1, now));
        sentinel_list.admit(&found(1), now);
        assert!(!has_place(&sentinel_list, 1, now), "it is known");
        sentinel_list = full(&[], now);
        assert!(!has_place(&sentinel_list, 100, now), "the list is full, and none has failed so far");
        sentinel_list = full(&[3], now);
        assert!(has_place(&sentinel_list, 100, now), "one can't be heard");
        for port in 100..=100 + MOST_WAITING {
            assert!(has_place(&sentinel_list, port, now));
            sentinel_list.admit(&found(port), now);
            assert!(!has_place(&sentinel_list, port, now), "it is known, or waits");
        }
        assert!(!has_place(&sentinel_list, 200, now), "too many wait");
        now += REPLACE_AFTER;
        assert!(!has_place(&sentinel_list, 200, now), "the one that could not be heard was replaced");
    }

    #[test]
    fn only_so_many_sentinels_wait() {
        let now = Instant::now();
        let mut sentinel_list = full(&[3], now);
        for port in 100..200 {
            sentinel_list.admit(&found(port), now);
        }
        assert_eq!(sentinel_list.waiting.len(), MOST_WAITING);
    }
}
