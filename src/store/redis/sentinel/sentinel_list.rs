//! Keeps the list of the sentinels to listen to. Pure.
//!
//! Sentinels remember others that are gone until `SENTINEL RESET`. So the list has a limit, and a
//! sentinel that can't be heard makes room for another one. A sentinel that the URL names stays.

use std::time::Duration;

use tokio::time::Instant;

use super::super::address::RedisAddress;

/// The most sentinels to listen to. If this is smaller, the client may miss a sentinel that leads a
/// failover. If it is larger, the addresses of sentinels that are gone cost more connection
/// attempts.
const MOST: usize = 16;
/// The shortest time between two replacements. Each one costs a connection attempt, also to a
/// server that is no sentinel. If this is smaller, a hostile sentinel causes more attempts; if it
/// is larger, a new sentinel waits longer for its place.
const REPLACE_AFTER: Duration = Duration::from_secs(1);

/// Holds the list. See the module.
#[derive(Default)]
pub struct SentinelList {
    sentinels: Vec<KnownSentinel>,
    /// The number of the next sentinel.
    next: usize,
    /// When a sentinel last made room for another one.
    replaced: Option<Instant>,
}

struct KnownSentinel {
    number: usize,
    node: RedisAddress,
    /// True if the URL names the sentinel.
    is_named: bool,
    /// How many attempts in a row to listen to it have failed.
    failures: u32,
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
    /// or if the last replacement was less than [`REPLACE_AFTER`] ago.
    pub fn admit(&mut self, node: &RedisAddress, now: Instant) -> Option<AdmittedSentinel> {
        if self.sentinels.iter().any(|known| known.node.endpoint == node.endpoint) {
            return None;
        }
        let mut dropped = None;
        if self.sentinels.len() >= MOST {
            if self.replaced.is_some_and(|at| now < at + REPLACE_AFTER) {
                return None;
            }
            let silent = self.sentinels.iter().enumerate();
            let silent = silent.filter(|(_, known)| !known.is_named && known.failures > 0);
            let (place, _) = silent.max_by_key(|(_, known)| known.failures)?;
            dropped = Some(self.sentinels.remove(place).number);
            self.replaced = Some(now);
        }
        Some(AdmittedSentinel { number: self.add(node.clone(), false), dropped })
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

    fn added(number: usize) -> Option<AdmittedSentinel> {
        Some(AdmittedSentinel { number, dropped: None })
    }

    #[test]
    fn a_sentinel_that_can_not_be_heard_makes_room_for_another_one() {
        let (mut sentinel_list, mut now) = (SentinelList::default(), Instant::now());
        assert_eq!([sentinel_list.name(node(1)), sentinel_list.name(node(2))], [0, 1]);
        for number in 2..MOST {
            assert_eq!(sentinel_list.admit(&node(number + 1), now), added(number));
        }
        assert_eq!(sentinel_list.admit(&node(3), now), None, "it is known");
        assert_eq!(sentinel_list.admit(&node(100), now), None, "none has failed so far");
        for number in [0, 4, 7, 7] {
            sentinel_list.failed(number);
        }
        assert_eq!(
            sentinel_list.admit(&node(100), now),
            Some(AdmittedSentinel { number: MOST, dropped: Some(7) })
        );
        now += REPLACE_AFTER - Duration::from_millis(1);
        assert_eq!(sentinel_list.admit(&node(8), now), None, "another one was replaced just before");
        now += Duration::from_millis(1);
        assert_eq!(
            sentinel_list.admit(&node(8), now),
            Some(AdmittedSentinel { number: MOST + 1, dropped: Some(4) })
        );
        now += REPLACE_AFTER;
        assert_eq!(sentinel_list.admit(&node(5), now), None, "the URL names the one that failed");
        sentinel_list.failed(9);
        sentinel_list.heard(9);
        assert_eq!(sentinel_list.admit(&node(5), now), None, "it is back");
    }
}
