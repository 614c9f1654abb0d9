//! Describes what may go wrong with a store: the facts, and the findings in plain words.
//!
//! A store tells the facts ([`Request::Diagnose`](super::Request::Diagnose)). [`findings`] is pure:
//! a quorum, which knows more than each of its nodes, draws the conclusions from their facts again.

mod finding;
mod server;
mod server_facts;

use std::sync::Arc;

pub use self::finding::{Finding, Level};
pub use self::server_facts::{ReplicaClock, ServerFacts};
use super::{Request, StoreError, StoreErrorKind};
use crate::lease::{Key, Ttl};

/// The result of the diagnosis of one server, file or table.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The store's URL without a password.
    pub store: Arc<str>,
    /// The facts about the store.
    pub facts: Facts,
    /// The findings that follow from the facts.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the report on `store` for leases of `ttl`. `quorum` is true for a node of a quorum.
    pub fn new(store: impl Into<Arc<str>>, facts: Facts, ttl: Ttl, quorum: bool) -> Self {
        let findings = findings(&facts, ttl, quorum);
        Self { store: store.into(), facts, findings }
    }

    /// Returns the report on a store that can't be reached or used.
    pub fn unusable(store: impl Into<Arc<str>>, error: &StoreError) -> Self {
        let facts = Facts::Unusable { kind: error.kind, message: error.message.clone() };
        // The findings about an unusable store do not depend on the ttl or on a quorum.
        Self::new(store, facts, Ttl::MAX, false)
    }

    /// Returns true if the report says only that the store did not answer.
    pub fn is_silence(&self) -> bool {
        matches!(
            self.facts,
            Facts::Unusable { kind: StoreErrorKind::Unreachable | StoreErrorKind::TimedOut, .. }
        )
    }
}

/// The facts about a store.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// The store is memory of this process.
    Process,
    /// The store is a file, which should be on a disk of this host.
    Host {
        /// The name of the network file system that the file is on, if it is on one.
        network: Option<&'static str>,
        /// How other users can access the file, if they can.
        exposure: Option<Exposure>,
    },
    /// The store is a server.
    Server(Box<ServerFacts>),
    /// The store can't be reached or used.
    Unusable {
        /// The reason.
        kind: StoreErrorKind,
        /// The error message, for people.
        message: Arc<str>,
    },
}

/// How other users of the machine can access a lock file.
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
                "other users may open the lock file (its mode is {mode:04o}), so they can keep it locked and stop all \
                 locks: unless they are to use it, run chmod 600 on it and on its -wal and -shm"
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

/// Returns the requests of a batch that ask for a diagnosis: the index, the ttl of the leases, and
/// the lock to try.
pub fn asked(batch: &[Request]) -> Vec<(usize, Ttl, Option<Key>)> {
    let asked = |(index, request): (usize, &Request)| match request {
        Request::Diagnose { ttl, key } => Some((index, *ttl, key.clone())),
        _ => None,
    };
    batch.iter().enumerate().filter_map(asked).collect()
}

/// Returns the findings that follow from `facts` for leases of `ttl`. `quorum` is true for a node
/// of a quorum: it has to keep its leases over a restart, because the other nodes count on them.
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

/// Returns the finding that follows from the file system of a lock file.
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
