//! What can go wrong between us and a store, told apart.

use std::sync::Arc;

/// Why a store did not do what it was asked. The names are what JavaScript sees as `error.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreErrorKind {
    /// No connection: refused, reset, name not resolved, socket or file missing.
    Unreachable,
    /// Connected, but no answer in time.
    TimedOut,
    /// The server is reading its data from disk and will answer soon (Redis `LOADING`), or is busy with
    /// a long script (`BUSY`), or the database file stayed locked.
    Loading,
    /// The server takes no writes: a replica, mostly after a failover (Redis `READONLY`, `MASTERDOWN`).
    ReadOnly,
    /// The server takes no writes for want of memory or disk (Redis `OOM`, `MISCONF`, a full disk).
    Full,
    /// User, password or rights are wrong (Redis `WRONGPASS`, `NOAUTH`, `NOPERM`; file permissions).
    Denied,
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
}

impl StoreErrorKind {
    /// Whether the same request may well succeed a little later, without anyone changing anything.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Unreachable | Self::TimedOut | Self::Loading | Self::ReadOnly | Self::Full)
    }
}

/// An error of a store. Its message is made for people and never has a password in it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    /// What went wrong.
    pub kind: StoreErrorKind,
    /// Whether the request may have been carried out although no answer says so. A lease that may have
    /// been granted this way has to be released.
    pub maybe_done: bool,
    /// For people: what happened, where, and what to do about it if we know.
    pub message: Arc<str>,
}

impl StoreError {
    /// An error of a request that certainly was not carried out.
    pub fn not_done(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, maybe_done: false, message: message.into() }
    }

    /// An error of a request that may have been carried out.
    pub fn maybe_done(kind: StoreErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, maybe_done: true, message: message.into() }
    }
}
