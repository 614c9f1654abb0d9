//! A ballot under way, and the request that it belongs to.

use std::time::Duration;

use super::super::ballot::Ballot;
use crate::lease::Instant;

/// See the module.
pub struct Motion {
    pub ballot: Ballot,
    pub batch: u64,
    pub index: usize,
    /// When the nodes were asked, and how long each may take.
    pub asked: Instant,
    pub timeout: Duration,
    /// Whether the request has asked again the nodes at which a lease in its way was about to end.
    pub asked_again: bool,
    /// Whether the request has waited for more nodes. If so, its duration does not measure the
    /// network.
    pub held: bool,
    /// True if the request is a renewal that most nodes have carried out in time for the holder.
    pub is_renewed: bool,
}

impl Motion {
    /// Creates the motion for the request at `index` of `batch`, which goes to the nodes at `now`.
    pub fn new(ballot: Ballot, batch: u64, index: usize, now: Instant, timeout: Duration) -> Self {
        let (asked_again, held, is_renewed) = (false, false, false);
        Self { ballot, batch, index, asked: now, timeout, asked_again, held, is_renewed }
    }
}
