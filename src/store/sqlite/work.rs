//! What one transaction is to do, and what came of it.

use std::fs::File;

use uuid::Uuid;

use super::super::{Answer, Request};
use super::leases::Handed;
use crate::lease::{Instant, Key};

/// What one transaction is to do.
#[derive(Debug, Default)]
pub struct Work<'a> {
    /// Requests to carry out.
    pub batches: Vec<&'a [Request]>,
    /// Locks of which a lease may have ended.
    pub looks: Vec<Key>,
    /// Owners whose processes are gone.
    pub dead: Vec<(Uuid, File)>,
    /// Former owners of this store, whose rows the current one takes over.
    pub former: Vec<Uuid>,
    /// Take a step of the sweep, though it may not be due.
    pub sweep: bool,
    /// Free what the owner of this store has.
    pub retire: bool,
}

impl Work<'_> {
    /// Returns the same without batches, looks and dead owners. The next look finds dead owners again.
    pub fn bare(&self) -> Self {
        let Self { former, sweep, retire, .. } = self;
        Self { former: former.clone(), sweep: *sweep, retire: *retire, ..Self::default() }
    }
}

/// What came of a transaction.
#[derive(Debug)]
pub struct Done {
    /// To each batch.
    pub answers: Vec<Vec<Answer>>,
    /// Waiters of this store that were handed leases.
    pub handed: Vec<Handed>,
    /// When it happened.
    pub at: Instant,
}

/// Returns whether `request` may write.
pub fn is_change(request: &Request) -> bool {
    !matches!(request, Request::Ping | Request::Inspect { .. } | Request::List(_) | Request::Diagnose { .. })
}

/// Returns whether the commit of `request` has to wait for the disk.
pub fn is_to_outlive(request: &Request) -> bool {
    matches!(request, Request::Detach { .. })
}
