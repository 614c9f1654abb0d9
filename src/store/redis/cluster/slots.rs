//! Which node of a cluster has which hash slot. Pure: what is known, and when to ask again.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use crc::{CRC_16_XMODEM, Crc};
use redis::Value;
use tokio::time::Instant;

use super::super::address::{MOST_HOST_BYTES, RedisAddress, named_host};
use super::super::endpoint::Endpoint;
use super::super::short_text::short_text;

/// How many hash slots a Redis Cluster has.
pub const SLOTS: usize = 16384;
/// The most masters that a map may name. Redis recommends at most 1000 nodes. If this is larger, a
/// false map costs more time and connections; if it is smaller, the store refuses large clusters.
pub const MOST_MASTERS: usize = 1024;
/// The owner of a slot that no known node has.
const NOBODY: u16 = u16::MAX;
/// The pause after a question for the map whose answer was news. If this is smaller, many redirects
/// cause more questions; if it is larger, the client follows a series of moves more slowly.
const SHORTEST_GAP: Duration = Duration::from_millis(100);
/// The longest pause. The pause doubles with each answer that is not news. If this is smaller,
/// nodes get more questions while a node is silent; if it is larger, the client notices a failover
/// later.
const LONGEST_GAP: Duration = Duration::from_millis(400);

/// Returns the part of `key` that the cluster hashes to find the key's slot. Returns `None` if it
/// hashes the whole key.
pub fn hash_tag(key: &str) -> Option<&str> {
    let (tag, _) = key.split_once('{')?.1.split_once('}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

/// Returns the hash slot of a key.
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

/// The host and port of a node, as the cluster names them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeAddress {
    /// A host name or literal address. IPv6 without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl NodeAddress {
    /// Returns the host and port of a server. Returns `None` for a unix socket, and for a master
    /// that sentinels name.
    pub fn of_address(address: &RedisAddress) -> Option<Self> {
        match &address.endpoint {
            Endpoint::Tcp(host, port) => Some(Self { host: host.clone(), port: *port }),
            Endpoint::Unix(_) | Endpoint::Master(_) => None,
        }
    }

    /// Reads `HOST:PORT`. An empty or unknown host is that of the node that said so.
    pub fn read(text: &str, said_by: &NodeAddress) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::of(host, port.parse().ok()?, said_by)
    }

    fn of(host: &str, port: u16, said_by: &NodeAddress) -> Option<Self> {
        #[cfg(test)]
        HOSTS.set(HOSTS.get() + 1);
        let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inside.filter(|host| host.contains(':')).unwrap_or(host);
        let host = if matches!(host, "" | "?") { said_by.host.clone() } else { named_host(host) };
        (port != 0).then_some(Self { host, port })
    }
}

/// Maps each slot to the master that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    /// The masters, each once. Some may have lost their last slot since.
    places: Vec<NodeAddress>,
    /// The index of each place in `places`.
    numbers: HashMap<NodeAddress, u16>,
    /// The index in `places` of the owner of each slot, or [`NOBODY`].
    owners: Box<[u16]>,
    /// How many slots each of `places` has.
    counts: Vec<u16>,
    /// How many of `places` have slots.
    masters: usize,
}

impl SlotMap {
    /// Returns the map of a cluster that the client does not know yet.
    pub fn empty() -> Self {
        Self {
            places: Vec::new(),
            numbers: HashMap::new(),
            owners: vec![NOBODY; SLOTS].into(),
            counts: Vec::new(),
            masters: 0,
        }
    }

    /// Reads the reply of the node `said_by` to `CLUSTER SLOTS`. Returns `None` if the reply has
    /// another form or names more than [`MOST_MASTERS`].
    pub fn read(reply: &Value, said_by: &NodeAddress) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let (mut map, mut filled) = (Self::empty(), 0);
        // A host takes long to escape, and a false map may repeat a host in each range.
        let mut known: HashMap<(&str, i64), u16> = HashMap::new();
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else {
                return None;
            };
            let [host, Value::Int(port), ..] = &master[..] else { return None };
            let host = if *host == Value::Nil { "" } else { short_text(host, MOST_HOST_BYTES)? };
            let number = match known.get(&(host, *port)) {
                Some(&number) => number,
                // Count the hosts as the node sent them: several may be the same when escaped.
                None if known.len() >= MOST_MASTERS => return None,
                None => {
                    let place = NodeAddress::of(host, u16::try_from(*port).ok()?, said_by)?;
                    let number = map.number_of(place)?;
                    known.insert((host, *port), number);
                    number
                }
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            let owned = map.owners.get_mut(first..=last)?;
            filled += owned.len().max(1);
            // A valid map names each slot once. Ranges that overlap would take long to fill in.
            if filled > SLOTS {
                return None;
            }
            owned.fill(number);
        }
        for &owner in &map.owners {
            if let Some(count) = map.counts.get_mut(usize::from(owner)) {
                *count += 1;
            }
        }
        map.masters = map.counts.iter().filter(|&&count| count > 0).count();
        Some(map)
    }

    /// Returns the number of `place`, and adds an unknown place. Returns `None` if the map is
    /// full.
    fn number_of(&mut self, place: NodeAddress) -> Option<u16> {
        if let Some(&number) = self.numbers.get(&place) {
            return Some(number);
        }
        if self.places.len() >= MOST_MASTERS {
            return None;
        }
        let number = self.places.len() as u16;
        self.numbers.insert(place.clone(), number);
        self.places.push(place);
        self.counts.push(0);
        Some(number)
    }

    /// Returns the node that has a slot, if it is known.
    pub fn owner(&self, slot: u16) -> Option<&NodeAddress> {
        self.places.get(usize::from(self.owners[usize::from(slot) % SLOTS]))
    }

    /// Returns the number of the node that has a slot. All slots of a node have the same number.
    pub fn part(&self, slot: u16) -> u16 {
        self.owners[usize::from(slot) % SLOTS]
    }

    /// Notes that the node at `to` has `slot`. Returns true if that is news, and false if the map
    /// is full.
    pub fn moved(&mut self, slot: u16, to: NodeAddress) -> bool {
        if self.owner(slot) == Some(&to) {
            return false;
        }
        let Some(number) = self.number_of(to) else { return false };
        let before = std::mem::replace(&mut self.owners[usize::from(slot) % SLOTS], number);
        if let Some(count) = self.counts.get_mut(usize::from(before)) {
            *count -= 1;
            self.masters -= usize::from(*count == 0);
        }
        let count = &mut self.counts[usize::from(number)];
        self.masters += usize::from(*count == 0);
        *count += 1;
        true
    }

    /// Returns true if a slot that had a master in the map `before` has another one now, or none.
    pub fn differs_from(&self, before: &SlotMap) -> bool {
        (0..SLOTS as u16).any(|slot| before.owner(slot).is_some_and(|owner| self.owner(slot) != Some(owner)))
    }

    /// Returns the nodes that have slots, each with its last and its first slot. The last slot
    /// comes first, because a node mostly loses its first slots when slots are moved away.
    pub fn masters(&self) -> impl Iterator<Item = (&NodeAddress, [u16; 2])> {
        #[cfg(test)]
        WALKS.set(WALKS.get() + 1);
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

    /// Returns how many nodes have slots. Costs little, unlike [`SlotMap::masters`].
    pub fn count_masters(&self) -> usize {
        self.masters
    }

    /// Returns true if the node at `place` has slots. This costs little, too.
    pub fn is_master(&self, place: &NodeAddress) -> bool {
        self.numbers.get(place).is_some_and(|&number| self.counts[usize::from(number)] > 0)
    }

    /// Returns the last and the first slot of the node at `place`, if it has slots.
    pub fn homes_of(&self, place: &NodeAddress) -> Option<[u16; 2]> {
        let number = self.numbers.get(place).filter(|_| self.is_master(place))?;
        let is_its = |owner: &u16| owner == number;
        let (last, first) = (self.owners.iter().rposition(is_its)?, self.owners.iter().position(is_its)?);
        Some([last as u16, first as u16])
    }

    /// Returns true if no master is known.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns how many slots have no known owner.
    pub fn uncovered(&self) -> usize {
        self.owners.iter().filter(|&&owner| owner == NOBODY).count()
    }
}

#[cfg(test)]
thread_local! {
    /// How many times this thread has gone through all slots for their masters.
    pub static WALKS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    /// How many hosts of nodes this thread has read.
    pub static HOSTS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

/// Limits how often the client asks for the map.
#[derive(Debug, Default)]
pub struct RefreshLimiter {
    last: Option<(Instant, Duration)>,
}

impl RefreshLimiter {
    /// Returns when the client may ask the next question.
    pub fn next(&self, now: Instant) -> Instant {
        self.last.map_or(now, |(at, gap)| (at + gap).max(now))
    }

    /// Notes that a question has ended, with or without an answer. `news` is true if the answer
    /// changed the map.
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
