//! What may go wrong with a store: facts about it, and what follows from them in plain words.
//!
//! A store tells the facts ([`Request::Diagnose`](super::Request::Diagnose)); [`findings`] is pure, so that whoever uses a store
//! for more than it knows of, such as a quorum for its nodes, can draw the conclusions anew.

mod server;

use std::sync::Arc;
use std::time::Duration;

use super::{Request, StoreError, StoreErrorKind};
use crate::lease::{Key, Ttl};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Locks may fail, or be had twice, under circumstances that the message names.
    Warning,
    /// Locks can't be had there, or don't do what they promise.
    Error,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// Which it is, for programs.
    pub code: &'static str,
    /// For people: what it is, what it can lead to, what to do about it.
    pub message: String,
}

impl Finding {
    /// A finding.
    pub fn new(level: Level, code: &'static str, message: impl Into<String>) -> Self {
        Self { level, code, message: message.into() }
    }
}

/// What was found out about one server, file or table.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which one: its URL without a password.
    pub store: Arc<str>,
    /// What is known of it.
    pub facts: Facts,
    /// What follows from that.
    pub findings: Vec<Finding>,
}

impl Report {
    /// The report on `store` for leases of `ttl`; `quorum` says whether it is one node of several.
    pub fn new(store: impl Into<Arc<str>>, facts: Facts, ttl: Ttl, quorum: bool) -> Self {
        let findings = findings(&facts, ttl, quorum);
        Self { store: store.into(), facts, findings }
    }

    /// The report on a store that can't be reached or used.
    pub fn unusable(store: impl Into<Arc<str>>, error: &StoreError) -> Self {
        let facts = Facts::Unusable { kind: error.kind, message: error.message.clone() };
        // Of neither of the two does it depend.
        Self::new(store, facts, Ttl::MAX, false)
    }

    /// Whether it tells of nothing but silence.
    pub fn is_silence(&self) -> bool {
        matches!(
            self.facts,
            Facts::Unusable { kind: StoreErrorKind::Unreachable | StoreErrorKind::TimedOut, .. }
        )
    }
}

/// What is known of a store.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// It is memory of this process.
    Process,
    /// It is a file of this host, or should be: the network filesystem that it lies on, if it does.
    Host {
        /// Its name.
        network: Option<&'static str>,
        /// How other users can get at the file, if they can.
        exposure: Option<Exposure>,
    },
    /// It is a server.
    Server(Box<ServerFacts>),
    /// It can't be reached or used.
    Unusable {
        /// Why.
        kind: StoreErrorKind,
        /// For people.
        message: Arc<str>,
    },
}

/// How other users of the machine can get at a lock file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exposure {
    /// The mode of the file, if other users may read or write it.
    pub file_mode: Option<u32>,
    /// The mode of the file's directory, if every user may write there.
    pub directory_mode: Option<u32>,
}

impl Exposure {
    fn finding(self) -> Finding {
        let file = self.file_mode.map(|mode| {
            format!(
                "other users may open the lock file (its mode is {mode:04o}), so they can keep it locked and stop all                  locks: unless they are to use it, run chmod 600 on it and on its -wal and -shm"
            )
        });
        let directory = self.directory_mode.map(|mode| {
            format!(
                "every user may write the lock file's directory (its mode is {mode:04o}), and put files there that \
                 break the locks: move the lock file to a private directory"
            )
        });
        let is_open_to_all =
            self.directory_mode.is_some() || self.file_mode.is_some_and(|mode| mode & 0o006 != 0);
        let level = if is_open_to_all { Level::Warning } else { Level::Info };
        let message: Vec<_> = [file, directory].into_iter().flatten().collect();
        Finding::new(level, "exposed", message.join("; "))
    }
}

/// What is known of a server; `None` where it would not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
    /// What no other process of a server has, and each keeps as long as it runs; `None` also where the address does not always
    /// lead to the same one.
    pub run_id: Option<String>,
    /// As it says it.
    pub version: Option<String>,
    /// Whether it is of the oldest series that serves.
    pub is_old: bool,
    /// Whether it is a replica.
    pub is_replica: Option<bool>,
    /// Whether it is still reading its data from disk.
    pub is_loading: Option<bool>,
    /// How much memory it may use for data, in bytes; 0 is as much as there is.
    pub max_memory: Option<u64>,
    /// How much of that is in use, in bytes.
    pub used_memory: Option<u64>,
    /// What it does when that is used up.
    pub eviction: Option<String>,
    /// Whether it writes each change to a log.
    pub has_log: Option<bool>,
    /// When the log gets to the disk: `always`, `everysec` or `no`.
    pub log_sync: Option<String>,
    /// Whether it saves all of its data now and then.
    pub has_snapshots: Option<bool>,
    /// How many replicas are connected and get what is written.
    pub replicas: Option<u64>,
    /// How many of them have to be there for it to take a write.
    pub replicas_needed: Option<u64>,
    /// How many of them have to have a lease of ours before it counts; 0: none. Not the server's word, but our user's.
    pub min_replicas: u32,
    /// Whether it refuses to tell us what they have.
    pub may_not_wait: bool,
    /// How many clients it has, and how many it takes.
    pub clients: Option<(u64, u64)>,
    /// How long a question and its answer take: the middle of a few.
    pub round_trip: Option<Duration>,
    /// By how many µs its clock is ahead of ours.
    pub clock_ahead: Option<i64>,
    /// By how much that may be wrong: half a round trip.
    pub clock_doubt: Duration,
    /// The clocks of those replicas that answered, compared with the server's own clock.
    pub replica_clocks: Vec<ReplicaClock>,
    /// Whether those who wait are sent notices.
    pub notices: bool,
    /// The commands that it would not carry out for us.
    pub refused: Vec<&'static str>,
    /// What the server says if this user may not lock.
    pub denied: Option<Arc<str>>,
}

/// Compares the clock of a replica with its master's.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaClock {
    /// The URL of the replica, without a password.
    pub replica: Arc<str>,
    /// How many µs the clock is ahead of its master's.
    pub ahead: i64,
    /// By how much `ahead` may be wrong.
    pub doubt: Duration,
}

/// Returns the requests of a batch that ask for a diagnosis: the index, the ttl of the leases, and
/// the lock to try.
pub fn asked(batch: &[Request]) -> Vec<(usize, Ttl, Option<Key>)> {
    let asked = |(index, request): (usize, &Request)| match request {
        Request::Diagnose { ttl, key } => Some((index, *ttl, key.clone())),
        _ => None,
    };
    batch.iter().enumerate().filter_map(asked).collect()
}

/// What follows from `facts` for leases of `ttl`. A node of a `quorum` has to keep its promises over a restart, since others
/// count on them.
pub fn findings(facts: &Facts, ttl: Ttl, quorum: bool) -> Vec<Finding> {
    match facts {
        Facts::Process => {
            let message = "locks in memory exclude only this process and its worker threads";
            vec![Finding::new(Level::Info, "process-only", message)]
        }
        Facts::Host { network, exposure } => {
            let mut findings = vec![place(*network)];
            findings.extend(exposure.map(Exposure::finding));
            findings
        }
        Facts::Unusable { kind, message } => {
            vec![Finding::new(Level::Error, kind.name(), message.to_string())]
        }
        Facts::Server(server) => server::findings(server, ttl, quorum),
    }
}

/// Returns what follows from the file system of a lock file.
fn place(network: Option<&str>) -> Finding {
    match network {
        None => Finding::new(Level::Info, "host-only", "locks in a file exclude only processes of one host"),
        Some(name) => {
            let message = format!(
                "the lock file lies on a network filesystem ({name}), where SQLite's locks do not hold: move it to a local disk, \
                 or use a server if several hosts are to exclude each other"
            );
            Finding::new(Level::Error, "network-filesystem", message)
        }
    }
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
