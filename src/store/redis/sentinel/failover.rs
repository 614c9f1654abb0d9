//! Decides from what sentinels say whether a failover is under way. Pure: the caller passes in what was heard, and when.
//!
//! A planned failover (`SENTINEL FAILOVER`) takes about a second from the choice of the replica to `+switch-master`. In between,
//! the old master still takes writes, and the replicas that stay replicas still acknowledge them. Those writes are lost. So
//! between the election of the leader and the switch no grant counts.
//!
//! ```text
//!  idle ──+elected-leader, +selected-slave, …──▶ under way ──+promoted-slave, +switch-master──▶ idle, at the new master
//!   ▲                                               │
//!   └── -failover-abort-…, the leader says so, ─────┘
//!       or nothing is heard of it for SILENCE
//! ```
//!
//! `+try-failover` does not begin it: a sentinel that finds no majority tries again and again, for up to 10 s each time, and
//! such a try changes nothing. Between `+elected-leader` and the promotion a sentinel goes through three states, and through at
//! most one in each turn of its timer, which takes 50 to 100 ms.

use std::time::Duration;

use tokio::time::Instant;

/// How long a failover is taken to go on after the last sign of the sentinel that leads it. A smaller value lets clients use
/// the old master again while another sentinel is about to tell of the new one: sentinels tell each other every 2 s. A larger
/// one keeps locks from being granted for longer when a sentinel dies in the middle of a failover.
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

/// What a sentinel says of a failover of our master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It leads a failover, and has not promoted a replica yet.
    UnderWay,
    /// The failover is given up.
    Aborted,
    /// Another server is the master: host and port of the one before, and of the new one.
    Switched {
        /// The one before.
        old: (String, u16),
        /// The new one.
        new: (String, u16),
    },
}

impl Event {
    /// Reads what was `said` on `channel`; `None` if it is not about the master called `name`, or can't be read.
    pub fn read(channel: &str, said: &str, name: &str) -> Option<Self> {
        let words: Vec<&str> = said.split(' ').collect();
        if channel == SWITCH {
            let [of, old_host, old_port, new_host, new_port] = words[..] else { return None };
            let (old, new) = (place(old_host, old_port)?, place(new_host, new_port)?);
            return (of == name).then_some(Self::Switched { old, new });
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
    Some((host.to_owned(), port.parse().ok()?))
}

/// The failovers that sentinels lead, each sentinel known by a number.
#[derive(Debug, Default)]
pub struct Failover {
    /// Each with when it is taken to be over if nothing more is heard of it.
    leaders: Vec<(usize, Instant)>,
}

impl Failover {
    /// Notes that `sentinel` leads a failover.
    pub fn begun(&mut self, sentinel: usize, now: Instant) {
        self.over(sentinel);
        self.leaders.push((sentinel, now + SILENCE));
    }

    /// Notes that `sentinel` still leads its failover, if it is known to lead one.
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

    /// Returns true if `sentinel` was heard to lead a failover whose end is not known.
    pub fn leads(&self, sentinel: usize) -> bool {
        self.leaders.iter().any(|(leader, _)| *leader == sentinel)
    }

    /// Returns when the failover is taken to be over if nothing more is heard; `None` if none is under way at `now`.
    pub fn until(&self, now: Instant) -> Option<Instant> {
        self.leaders.iter().map(|(_, until)| *until).max().filter(|until| now < *until)
    }
}

#[cfg(test)]
#[path = "failover_tests.rs"]
mod tests;
