//! Classifies the errors of stores.

use std::sync::Arc;

use super::printable::printable_message;

/// The reason why a store did not carry out a request. JavaScript sees a word
/// for it as `error.reason`: see `kind_number` in `src/binding/records.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// No connection: refused, reset, name not resolved, socket or file missing.
    Unreachable,
    /// Connected, but no answer in time.
    TimedOut,
    /// The server carried out the request, but too few of its replicas had the lease in time for it
    /// to count.
    Unreplicated,
    /// The server is reading its data from disk and will answer soon (Redis `LOADING`), or is busy
    /// with a long script (`BUSY`). Or the database file stayed locked. Or some sentinels have not
    /// said yet whether a failover is under way.
    Loading,
    /// The server takes no writes because it is a replica, mostly after a failover (Redis
    /// `READONLY`, `MASTERDOWN`).
    ReadOnly,
    /// The server takes no writes because it has no memory or disk space left (Redis `OOM`,
    /// `MISCONF`, a full disk).
    Full,
    /// User, password or rights are wrong (Redis `WRONGPASS`, `NOAUTH`, `NOPERM`; file
    /// permissions).
    Denied,
    /// The user may use the server, but not that key (Redis `NOPERM`).
    Forbidden,
    /// The server or file is not a store that this library can use: no Redis, too old, no database
    /// file, or a database number that does not exist.
    Unsupported,
    /// The key exists, but is not a lock (Redis `WRONGTYPE`).
    WrongType,
    /// A bug in the store or in this library.
    Internal,
    /// The server's certificate does not prove its identity: no trusted authority signed it, it was
    /// made for another name, or it is not valid now.
    Untrusted,
    /// Too few nodes of a quorum answered to grant or renew a lease. The error has the votes.
    Quorum,
}

impl StoreErrorKind {
    /// Returns its name in JavaScript.
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

    /// Returns true if the same request may succeed a little later without any change.
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

/// An error of a store. Its message is written for people and never contains a password.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// The reason of the error.
    pub kind: StoreErrorKind,
    /// True if the request may have been carried out although no answer says so. A lease that it
    /// may have got has to be released.
    pub maybe_done: bool,
    /// Says what happened, where, and what to do if that is known.
    pub message: Arc<str>,
    /// The answer of each node of a quorum, in the order of the nodes. Empty if no quorum failed.
    pub votes: Arc<[Vote]>,
}

/// The answer of one node of a quorum.
#[derive(Clone, Debug, PartialEq)]
pub struct Vote {
    /// The node's URL without a password.
    pub store: Arc<str>,
    /// The node's answer.
    pub said: NodeAnswer,
}

/// The answer of a node of a quorum, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAnswer {
    /// The node agreed.
    Granted,
    /// The node refused: another client holds the lock there, or waits for it.
    Busy,
    /// The node refused: it does not know the lease.
    Missing,
    /// The node had not answered when the others had decided, so the quorum did not wait for it. A
    /// node that timed out has failed instead.
    Unheard,
    /// The node failed, with this reason and message.
    Failed(StoreErrorKind, Arc<str>),
}

impl StoreError {
    /// Returns the error of a request that certainly was not carried out.
    pub fn not_done(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, maybe_done: false, message: printable_message(message), votes: Arc::default() }
    }

    /// Returns the error of a request that may have been carried out.
    pub fn maybe_done(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, maybe_done: true, message: printable_message(message), votes: Arc::default() }
    }
}
