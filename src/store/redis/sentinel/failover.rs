//! Decides from the sentinels' messages whether a failover is under way. Pure: the caller passes in
//! each message and its time.
//!
//! A planned failover (`SENTINEL FAILOVER`) takes about a second from the choice of the replica to
//! `+switch-master`. In that second, the old master still accepts writes, and the other replicas
//! still acknowledge them. The new master never receives those writes. So no grant counts between
//! the election of the leader and the switch.
//!
//! ```text
//!  idle ──+elected-leader, +selected-slave, …──▶ under way
//!   ▲                                               │ │
//!   ├── -failover-abort-…, the leader denies it, ───┘ │
//!   │   or the leader is silent for SILENCE           │
//!   └── +promoted-slave, +switch-master: ─────────────┘
//!       idle at the new master
//! ```
//!
//! The client does not listen to `+try-failover`. A sentinel that finds no majority sends it again
//! and again, for up to 10 s each time, and changes nothing. If the client asks a sentinel in that
//! state (`FailoverStage::Tried`), the client may have missed the election. So the failover counts
//! as under way for [`SILENCE`] from then on, and further answers of that kind do not prolong that
//! time. Between `+elected-leader` and the promotion, a sentinel goes through three states. It
//! enters at most one of them per turn of its timer, and a turn takes 50 to 100 ms.

use std::time::Duration;

use tokio::time::Instant;

use super::super::address::named_host;

/// How long a failover counts as under way after the last message or answer of the sentinel that
/// leads it. Sentinels tell each other of a new master every 2 s, and a leader that has promoted a
/// replica may die before it tells. If this is less than 2 s, clients use the old master again
/// before another sentinel names the new one, and two clients may hold a lock. If it is larger,
/// clients get no leases for a longer time after a sentinel died during a failover.
const SILENCE: Duration = Duration::from_secs(3);

/// The channels on which a sentinel tells of a failover, other than [`SWITCH`].
pub const CHANNELS: [&str; 7] = [
    "+elected-leader",
    "+selected-slave",
    "+failover-state-send-slaveof-noone",
    "+failover-state-wait-promotion",
    "+promoted-slave",
    "-failover-abort-no-good-slave",
    "-failover-abort-slave-timeout",
];
/// The channel on which every sentinel names the new master.
pub const SWITCH: &str = "+switch-master";
/// The channel on which a sentinel tells of another sentinel that it has found.
pub const FOUND: &str = "+sentinel";

/// A message of a sentinel about our master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The sentinel leads a failover and has not promoted a replica yet.
    UnderWay,
    /// The sentinel has given up the failover.
    Aborted,
    /// The sentinel has found another sentinel of our master.
    Found {
        /// The other sentinel's id.
        id: String,
        /// The other sentinel's host and port.
        at: (String, u16),
    },
    /// Another server is the master now.
    Switched {
        /// The host and port of the old master.
        old: (String, u16),
        /// The host and port of the new master.
        new: (String, u16),
    },
}

impl Event {
    /// Reads the message `said` on `channel`. Returns `None` if the message is about another master
    /// than `name`, or if it can't be read.
    pub fn read(channel: &str, said: &str, name: &str) -> Option<Self> {
        let words: Vec<&str> = said.split(' ').collect();
        if channel == SWITCH {
            let [of, old_host, old_port, new_host, new_port] = words[..] else { return None };
            let (old, new) = (place(old_host, old_port)?, place(new_host, new_port)?);
            return (of == name).then_some(Self::Switched { old, new });
        }
        if channel == FOUND {
            let ["sentinel", id, host, port, "@", of, ..] = words[..] else { return None };
            return (of == name).then_some(Self::Found { id: id.to_owned(), at: place(host, port)? });
        }
        // `master NAME HOST PORT`, or `slave NAME HOST PORT @ MASTER-NAME MASTER-HOST MASTER-PORT`.
        let (host, port, of, old) = match words[..] {
            ["master", of, host, port, ..] => (host, port, of, None),
            ["slave", _, host, port, "@", of, old_host, old_port, ..] => {
                (host, port, of, place(old_host, old_port))
            }
            _ => return None,
        };
        if of != name {
            return None;
        }
        match channel {
            "+promoted-slave" => Some(Self::Switched { old: old?, new: place(host, port)? }),
            _ if channel.starts_with('-') => Some(Self::Aborted),
            _ => Some(Self::UnderWay),
        }
    }
}

fn place(host: &str, port: &str) -> Option<(String, u16)> {
    Some((named_host(host), port.parse().ok()?))
}

/// Tracks which sentinels lead a failover. Each sentinel has a number.
#[derive(Debug, Default)]
pub struct Failover {
    /// The sentinels that lead a failover. Each failover counts as over at the given time, unless
    /// its sentinel is heard again before.
    leaders: Vec<(usize, Instant)>,
}

impl Failover {
    /// Notes that `sentinel` leads a failover.
    pub fn begun(&mut self, sentinel: usize, now: Instant) {
        self.over(sentinel);
        self.leaders.push((sentinel, now + SILENCE));
    }

    /// Notes that `sentinel` still leads its failover. Does nothing if it is not known to lead one.
    ///
    /// A sentinel that was stopped for more than 2 s does nothing for 30 s (TILT mode), and answers
    /// meanwhile that it leads. It may still promote a replica after that, so there is no limit.
    pub fn goes_on(&mut self, sentinel: usize, now: Instant) {
        if self.leads(sentinel) {
            self.begun(sentinel, now);
        }
    }

    /// Notes that `sentinel` leads no failover.
    pub fn over(&mut self, sentinel: usize) {
        self.leaders.retain(|(leader, _)| *leader != sentinel);
    }

    /// Notes that the new master is known.
    pub fn switched(&mut self) {
        self.leaders.clear();
    }

    /// Returns true if `sentinel` was heard to lead a failover and was not heard to end it.
    pub fn leads(&self, sentinel: usize) -> bool {
        self.leaders.iter().any(|(leader, _)| *leader == sentinel)
    }

    /// Returns the time at which the failover counts as over if no sentinel is heard before.
    /// Returns `None` if no failover is under way at `now`.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.leaders.iter().map(|(_, until)| *until).max().filter(|until| now < *until)
    }
}

#[cfg(test)]
#[path = "failover_tests.rs"]
mod tests;
