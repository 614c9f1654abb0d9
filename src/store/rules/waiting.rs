//! A waiter in the queue of a lock.

use std::sync::Arc;
use std::time::Duration;

use super::super::GRANT_TTL;
use crate::lease::{Instant, Mode, Token};

/// A waiter in the queue of a lock, or a repair.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The token that will have the lease.
    pub token: Token,
    /// The waiter's name.
    pub holder: Arc<str>,
    /// The mode of the lease that it waits for.
    pub mode: Mode,
    /// The number that a notice has for the waiter. 0 for a repair, which gets no notice.
    pub number: u64,
    /// How long a handed exclusive lease lasts: [`GRANT_TTL`], or the waiter's own ttl if that is
    /// shorter. A handed shared lease always lasts for [`GRANT_TTL`], because the waiter has to
    /// take it up. Zero for a repair, whose lease lasts until its place would end.
    pub grant: Duration,
    /// When the waiter came.
    pub since: Instant,
    /// Until when the waiter keeps its place if it does not poll again.
    pub until: Instant,
}

impl Waiting {
    /// Returns true if the place belongs to a repair. See
    /// [`AcquireRequest::repairs`](crate::store::AcquireRequest::repairs).
    pub fn repairs(&self) -> bool {
        self.grant.is_zero()
    }

    /// Returns when a lease that is handed over at `now` ends.
    pub fn handed_until(&self, now: Instant) -> Instant {
        match self.mode {
            _ if self.repairs() => self.until,
            Mode::Exclusive => now + self.grant,
            Mode::Shared { .. } => now + GRANT_TTL,
        }
    }
}
