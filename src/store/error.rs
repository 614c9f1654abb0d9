//! What can go wrong between us and a store, told apart.

use std::sync::Arc;

/// Why a store did not do what it was asked. The names are what JavaScript sees as `error.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// No connection: refused, reset, name not resolved, socket or file missing.
    Unreachable,
    /// Connected, but no answer in time.
    TimedOut,
    /// The server has done it, but too few of its replicas had it in time for it to count.
    Unreplicated,
    /// The server is reading its data from disk and will answer soon (Redis `LOADING`), or is busy with
    /// a long script (`BUSY`), or the database file stayed locked, or not all sentinels have said yet
    /// whether a failover is under way.
    Loading,
    /// The server takes no writes: a replica, mostly after a failover (Redis `READONLY`, `MASTERDOWN`).
    ReadOnly,
    /// The server takes no writes for want of memory or disk (Redis `OOM`, `MISCONF`, a full disk).
    Full,
    /// User, password or rights are wrong (Redis `WRONGPASS`, `NOAUTH`, `NOPERM`; file permissions).
    Denied,
    /// The user may use the server, but not that key (Redis `NOPERM`).
    Forbidden,
    /// What answers is not a store that we can use: no Redis, too old, no database file, a database
    /// number that does not exist.
    Unsupported,
    /// The key exists and is something else than a lock (Redis `WRONGTYPE`).
    WrongType,
    /// A bug: in the store, or in this library.
    Internal,
    /// The server can't prove that it is the one we mean: its certificate is of nobody whom we trust, made for another
    /// name, or not valid now.
    Untrusted,
    /// Too few nodes of a quorum were there to grant or renew a lease; the error has the votes.
    Quorum,
}

impl StoreErrorKind {
    /// Its name in JavaScript.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::TimedOut | Self::Unreplicated => "timeout",
            Self::Loading => "loading",
            Self::ReadOnly => "readonly",
            Self::Full => "full",
            Self::Denied | Self::Forbidden => "denied",
            Self::Unsupported => "unsupported",
            Self::WrongType => "wrongtype",
            Self::Internal => "internal",
            Self::Untrusted => "untrusted",
            Self::Quorum => "quorum",
        }
    }

    /// Whether the same request may well succeed a little later, without anyone changing anything.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::TimedOut
                | Self::Unreplicated
                | Self::Loading
                | Self::ReadOnly
                | Self::Full
                | Self::Quorum
        )
    }
}

/// An error of a store. Its message is made for people and never has a password in it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What went wrong.
    pub kind: StoreErrorKind,
    /// Whether the request may have been carried out although no answer says so. A lease that may have
    /// been granted this way has to be released.
    pub maybe_done: bool,
    /// For people: what happened, where, and what to do about it if we know.
    pub message: Arc<str>,
    /// What each node of a quorum said, in the order of the nodes; empty if it was not a quorum that failed.
    pub votes: Arc<[Vote]>,
}

/// What one node of a quorum said.
#[derive(Clone, Debug, PartialEq)]
pub struct Vote {
    /// Which node: its URL without password.
    pub store: Arc<str>,
    /// What it said.
    pub said: Said,
}

/// What a node of a quorum said, or why it said nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// Yes.
    Granted,
    /// No: somebody else holds the lock there, or waits for it.
    Busy,
    /// No: it knows nothing of the lease.
    Missing,
    /// Nothing yet when the others had decided, so it was not waited for. One whose time was over has failed.
    Unheard,
    /// It failed, for that reason and in those words.
    Failed(StoreErrorKind, Arc<str>),
}

impl StoreError {
    /// An error of a request that certainly was not carried out.
    pub fn not_done(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, maybe_done: false, message: message.into(), votes: Arc::default() }
    }

    /// An error of a request that may have been carried out.
    pub fn maybe_done(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, maybe_done: true, message: message.into(), votes: Arc::default() }
    }
}
