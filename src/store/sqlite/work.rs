//! The work of one transaction, and its result.

use std::fs::File;

use uuid::Uuid;

use super::super::{Answer, Request};
use super::leases::HandedLease;
use crate::lease::{Instant, Key};

/// The work of one transaction.
#[derive(Debug, Default)]
pub struct Work<'a> {
    /// Requests to carry out.
    pub batches: Vec<&'a [Request]>,
    /// Locks with a lease that may have ended.
    pub looks: Vec<Key>,
    /// Owners whose processes are gone.
    pub dead: Vec<(Uuid, File)>,
    /// Former owners of this store. The current owner takes over their rows.
    pub former: Vec<Uuid>,
    /// True if a step of the sweep is taken even if it is not due.
    pub sweep: bool,
    /// True if the leases and waiters of this store's owner are freed.
    pub retire: bool,
}

impl Work<'_> {
    /// Returns the same work without batches, looks and dead owners. The next transaction that
    /// looks for dead owners finds these again.
    pub fn bare(&self) -> Self {
        let Self { former, sweep, retire, .. } = self;
        Self { former: former.clone(), sweep: *sweep, retire: *retire, ..Self::default() }
    }
}

/// The result of a transaction.
#[derive(Debug)]
pub struct Done {
    /// The answers to each batch.
    pub answers: Vec<Vec<Answer>>,
    /// Waiters of this store that were handed leases.
    pub handed: Vec<HandedLease>,
    /// When the transaction happened.
    pub at: Instant,
}

/// Returns whether `request` may write into the database.
pub fn is_change(request: &Request) -> bool {
    !matches!(request, Request::Ping | Request::Inspect { .. } | Request::List(_) | Request::Diagnose { .. })
}

/// Returns whether the commit of `request` has to wait for the disk.
pub fn is_to_outlive(request: &Request) -> bool {
    matches!(request, Request::Detach { .. })
}
