//! What may go wrong with a store: facts about it, and what follows from them in plain words.
//!
//! A store tells the facts ([`Request::Diagnose`](super::Request::Diagnose)); [`findings`] is pure, so that whoever uses a store
//! for more than it knows of, such as a quorum for its nodes, can draw the conclusions anew.

use std::sync::Arc;
use std::time::Duration;

use super::{Request, StoreError, StoreErrorKind};
use crate::lease::Ttl;

/// How far a server's clock may be from ours before that is told: it is the least of what fences of different servers have in
/// common.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);
/// A round trip is too slow when a ttl is less than so many of them: acquiring, renewing and trying again take a few each.
const ROUND_TRIPS: u32 = 20;
/// A server has nearly all the clients that it takes when it has this part of them, in percent.
const CROWDED: u64 = 90;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Good to know.
    Info,
    /// Locks may fail, or be had twice, under circumstances that the message names.
    Warning,
    /// Locks can't be had there.
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

/// What is known of a server; `None` where it would not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
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
    /// What it does when that is used up.
    pub eviction: Option<String>,
    /// Whether it writes each change to a log.
    pub has_log: Option<bool>,
    /// When the log gets to the disk: `always`, `everysec` or `no`.
    pub log_sync: Option<String>,
    /// Whether it saves all of its data now and then.
    pub has_snapshots: Option<bool>,
    /// How many replicas follow it.
    pub replicas: Option<u64>,
    /// How many of them have to be there for it to take a write.
    pub replicas_needed: Option<u64>,
    /// How many clients it has, and how many it takes.
    pub clients: Option<(u64, u64)>,
    /// How long a question and its answer take: the middle of a few.
    pub round_trip: Option<Duration>,
    /// By how many µs its clock is ahead of ours.
    pub clock_ahead: Option<i64>,
    /// By how much that may be wrong: half a round trip.
    pub clock_doubt: Duration,
    /// Whether those who wait are sent notices.
    pub notices: bool,
    /// The commands that it would not carry out for us.
    pub refused: Vec<&'static str>,
}

/// Which requests of a batch ask for a diagnosis, and for leases of which ttl.
pub fn asked(batch: &[Request]) -> Vec<(usize, Ttl)> {
    let ttl_of = |(index, request): (usize, &Request)| match request {
        Request::Diagnose { ttl } => Some((index, *ttl)),
        _ => None,
    };
    batch.iter().enumerate().filter_map(ttl_of).collect()
}

/// What follows from `facts` for leases of `ttl`. A node of a `quorum` has to keep its promises over a restart, since others
/// count on them.
pub fn findings(facts: &Facts, ttl: Ttl, quorum: bool) -> Vec<Finding> {
    match facts {
        Facts::Process => {
            let message = "locks in memory exclude only this process and its worker threads";
            vec![Finding::new(Level::Info, "process-only", message)]
        }
        Facts::Host { network: None } => {
            vec![Finding::new(Level::Info, "host-only", "locks in a file exclude only processes of one host")]
        }
        Facts::Host { network: Some(name) } => {
            let message = format!(
                "the lock file lies on a network filesystem ({name}), where SQLite's locks do not hold: move it to a local disk, \
                 or use a server if several hosts are to exclude each other"
            );
            vec![Finding::new(Level::Error, "network-filesystem", message)]
        }
        Facts::Unusable { kind, message } => {
            vec![Finding::new(Level::Error, kind.name(), message.to_string())]
        }
        Facts::Server(server) => of_server(server, ttl, quorum),
    }
}

fn of_server(server: &ServerFacts, ttl: Ttl, quorum: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |level, code, message: String| found.push(Finding::new(level, code, message));
    if server.is_replica == Some(true) {
        let message = "it is a replica: a lock taken there excludes nobody at the master, if it can be taken at all; give the \
                       master's address";
        add(Level::Error, "readonly", message.into());
    }
    if server.is_loading == Some(true) {
        add(Level::Warning, "loading", "it is reading its data from disk and will take requests soon".into());
    }
    if let (Some(most @ 1..), Some(policy)) = (server.max_memory, server.eviction.as_deref())
        && policy != "noeviction"
    {
        let message = format!(
            "when its maxmemory of {most} bytes is used up it drops keys ({policy}), and a lock that is held may be one of them: \
             set maxmemory-policy to noeviction, or use a server of its own for locks"
        );
        add(Level::Warning, "eviction", message);
    }
    if let Some(message) = persistence(server, quorum) {
        add(if quorum { Level::Warning } else { Level::Info }, "persistence", message);
    }
    if let Some(ahead) = server.clock_ahead {
        let off = Duration::from_micros(ahead.unsigned_abs());
        if off.saturating_sub(server.clock_doubt) > CLOCK_TOLERANCE {
            let way = if ahead > 0 { "ahead of" } else { "behind" };
            let message = format!(
                "its clock is {:.1} s {way} this host's; fences are made with the server's clock, and may go back when it is set \
                 right or another server takes over: let both follow NTP",
                off.as_secs_f64()
            );
            add(Level::Warning, "clock", message);
        }
    }
    if let Some(round_trip) = server.round_trip.filter(|took| *took * ROUND_TRIPS > ttl.as_duration()) {
        let message = format!(
            "a round trip takes {:.1} ms, which is much beside a ttl of {} ms: leases may end before they are renewed; raise the \
             ttl to {} ms at least",
            round_trip.as_secs_f64() * 1e3,
            ttl.as_millis(),
            (round_trip * ROUND_TRIPS).as_millis() + 1
        );
        add(Level::Warning, "slow", message);
    }
    if !server.notices {
        let message = "whoever waits for a lock is not told when it is free, and has to ask every few milliseconds: the user needs \
                       the channels &leasehold:* and +subscribe +publish, and the server has to speak RESP3 (HELLO 3)";
        add(Level::Warning, "notices", message.into());
    }
    if let Some((clients, most)) = server.clients
        && clients * 100 >= most.saturating_mul(CROWDED)
    {
        let message = format!(
            "{clients} of its {most} connections are in use: when there are none left, nobody can connect; raise maxclients"
        );
        add(Level::Warning, "clients", message);
    }
    if let (Some(replicas @ 1..), Some(0)) = (server.replicas, server.replicas_needed) {
        let message = format!(
            "it has {replicas} replicas and waits for none of them: a failover forgets what they have not got yet, and a lock may \
             then be had twice; min-replicas-to-write narrows that, and fences make it harmless"
        );
        add(Level::Info, "replicas", message);
    }
    if server.is_old {
        let message = format!(
            "it runs version {}, of the oldest series that serves; the next leasehold may want a newer one",
            server.version.as_deref().unwrap_or("?")
        );
        add(Level::Info, "old", message);
    }
    if !server.refused.is_empty() {
        let message = format!(
            "not everything could be looked at: it refused {} to this user (managed servers often do)",
            server.refused.join(", ")
        );
        add(Level::Info, "unchecked", message);
    }
    found
}

/// What a restart of the server costs.
fn persistence(server: &ServerFacts, quorum: bool) -> Option<String> {
    let forgets = match (server.has_log, server.has_snapshots, server.log_sync.as_deref()) {
        (Some(false), Some(false), _) => "it keeps nothing on disk: a restart forgets all leases",
        (Some(false), _, _) => {
            "it saves its data only now and then (no appendonly): a restart forgets the leases since then"
        }
        (Some(true), _, Some("always")) | (None, ..) => return None,
        (Some(true), _, Some(_)) => {
            "its log reaches the disk later than its answers do (appendfsync is not always): when its host crashes, it forgets \
             the leases of the last seconds"
        }
        (Some(true), _, None) => return None,
    };
    let cure = if quorum {
        "in a quorum that can give a lock to two: set appendonly yes and appendfsync always, or start it again only after the \
         longest ttl"
    } else {
        "their holders learn of it by their next renewal, and fences keep late writers out; appendonly yes with appendfsync \
         always prevents it"
    };
    Some(format!("{forgets}; {cure}"))
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
