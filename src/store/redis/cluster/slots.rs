//! Which node of a cluster has which hash slot. Pure: what is known, and when to ask anew.

use std::sync::LazyLock;
use std::time::Duration;

use crc::{CRC_16_XMODEM, Crc};
use redis::Value;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::super::address::{Endpoint, RedisAddress, told_host};

/// How many hash slots a Redis Cluster has.
pub const SLOTS: usize = 16384;
/// The most masters that a map may name. Redis recommends at most 1000 nodes. If this is larger, a
/// false map costs more time and connections; if it is smaller, the store refuses large clusters.
pub const MOST_MASTERS: usize = 1024;
/// A slot that nobody is known to have.
const NOBODY: u16 = u16::MAX;
/// How long after one question for the map the next may be asked, if the first has just told something new.
const SHORTEST_GAP: Duration = Duration::from_millis(100);
/// The same, if several told nothing new. A failover takes longer, and is noticed no later than this after it.
const LONGEST_GAP: Duration = Duration::from_millis(400);

/// Returns the part of `key` that the cluster hashes to find the key's slot. Returns `None` if it
/// hashes the whole key.
pub fn hash_tag(key: &str) -> Option<&str> {
    let (tag, _) = key.split_once('{')?.1.split_once('}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

/// The hash slot of a key.
pub fn slot_of(key: &str) -> u16 {
    const XMODEM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    XMODEM.checksum(hash_tag(key).unwrap_or(key).as_bytes()) % SLOTS as u16
}

/// Returns the smallest number whose hash slot is `slot`, as the hash tag of a name that has to be
/// in that slot. Names of side keys contain this number, so every version must return the same one.
pub fn tag_in(slot: u16) -> String {
    /// The number for each slot. The table is made once, because a search takes about 16 384 steps.
    static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut numbers = vec![None; SLOTS];
        let mut missing = SLOTS;
        // The last slot is found at the number 109 757.
        for number in 0_u32.. {
            let place = &mut numbers[usize::from(slot_of(&number.to_string()))];
            if place.is_none() {
                *place = Some(number);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        numbers.into_iter().flatten().collect()
    });
    NUMBERS[usize::from(slot) % SLOTS].to_string()
}

/// Where a node listens, as the cluster tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// A name or literal address; IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Place {
    /// Where a server listens, unless on a unix socket.
    pub fn of_address(address: &RedisAddress) -> Option<Self> {
        match &address.endpoint {
            Endpoint::Tcp(host, port) => Some(Self { host: host.clone(), port: *port }),
            Endpoint::Unix(_) | Endpoint::Master(_) => None,
        }
    }

    /// Reads `HOST:PORT`. An empty or unknown host is that of whoever said so.
    pub fn read(text: &str, said_by: &Place) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, said_by)
    }

    fn of(host: &str, port: u16, said_by: &Place) -> Option<Self> {
        let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inside.filter(|host| host.contains(':')).unwrap_or(host);
        let host = if matches!(host, "" | "?") { said_by.host.clone() } else { told_host(host) };
        (port != 0).then_some(Self { host, port })
    }
}

/// The masters, and which of them has which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    /// Each once; some may have lost their last slot since.
    places: Vec<Place>,
    /// The index of each place in `places`.
    numbers: FxHashMap<Place, u16>,
    /// Of each slot, the place among `places`.
    owners: Box<[u16]>,
}

impl SlotMap {
    /// Of a cluster of which nothing is known.
    pub fn empty() -> Self {
        Self { places: Vec::new(), numbers: FxHashMap::default(), owners: vec![NOBODY; SLOTS].into() }
    }

    /// Reads the reply of the node `said_by` to `CLUSTER SLOTS`. Returns `None` if the reply has
    /// another form or names more than [`MOST_MASTERS`].
    pub fn read(reply: &Value, said_by: &Place) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let (mut map, mut filled) = (Self::empty(), 0);
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else {
                return None;
            };
            let [host, Value::Int(port), ..] = &master[..] else { return None };
            let host = match host {
                Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
                Value::SimpleString(text) => text,
                Value::Nil => "",
                _ => return None,
            };
            let place = Place::of(host, u16::try_from(*port).ok()?, said_by)?;
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let number = map.number_of(place)?;
            let owned = map.owners.get_mut(first..=last)?;
            filled += owned.len().max(1);
            // A valid map names each slot once. Ranges that overlap would take long to fill in.
            if filled > SLOTS {
                return None;
            }
            owned.fill(number);
        }
        Some(map)
    }

    /// Returns the number of `place`, and adds an unknown place. Returns `None` if the map is
    /// full.
    fn number_of(&mut self, place: Place) -> Option<u16> {
        if let Some(&number) = self.numbers.get(&place) {
            return Some(number);
        }
        if self.places.len() >= MOST_MASTERS {
            return None;
        }
        let number = self.places.len() as u16;
        self.numbers.insert(place.clone(), number);
        self.places.push(place);
        Some(number)
    }

    /// Who has a slot.
    pub fn owner(&self, slot: u16) -> Option<&Place> {
        self.places.get(usize::from(self.owners[usize::from(slot) % SLOTS]))
    }

    /// A number of the node that has a slot, the same for all its slots.
    pub fn part(&self, slot: u16) -> u16 {
        self.owners[usize::from(slot) % SLOTS]
    }

    /// A node said that `slot` is another's. Whether that is news.
    pub fn moved(&mut self, slot: u16, to: Place) -> bool {
        if self.owner(slot) == Some(&to) {
            return false;
        }
        let Some(number) = self.number_of(to) else { return false };
        self.owners[usize::from(slot) % SLOTS] = number;
        true
    }

    /// Whether a slot that had a master has another now.
    pub fn differs_from(&self, before: &SlotMap) -> bool {
        (0..SLOTS as u16).any(|slot| before.owner(slot).is_some_and(|owner| self.owner(slot) != Some(owner)))
    }

    /// Those who have slots, each with the last and the first of them: slots that are moved away are mostly taken from the
    /// lower end.
    pub fn masters(&self) -> impl Iterator<Item = (&Place, [u16; 2])> {
        let mut homes: Vec<Option<[u16; 2]>> = vec![None; self.places.len()];
        for (slot, &owner) in (0..).zip(&self.owners) {
            match homes.get_mut(usize::from(owner)) {
                Some(Some([last, _])) => *last = slot,
                Some(none) => *none = Some([slot, slot]),
                None => {}
            }
        }
        self.places.iter().zip(homes).filter_map(|(place, homes)| Some((place, homes?)))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many slots nobody has.
    pub fn uncovered(&self) -> usize {
        self.owners.iter().filter(|&&owner| owner == NOBODY).count()
    }
}

/// How often the map may be asked for.
#[derive(Debug, Default)]
pub struct Pace {
    last: Option<(Instant, Duration)>,
}

impl Pace {
    /// When the next question may be asked.
    pub fn next(&self, now: Instant) -> Instant {
        self.last.map_or(now, |(at, gap)| (at + gap).max(now))
    }

    /// A question was answered, or was not; `news`: what is known has changed by it.
    pub fn asked(&mut self, now: Instant, news: bool) {
        let gap = match self.last {
            Some((_, gap)) if !news => (gap * 2).min(LONGEST_GAP),
            _ => SHORTEST_GAP,
        };
        self.last = Some((now, gap));
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
