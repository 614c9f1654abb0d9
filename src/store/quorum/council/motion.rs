//! A ballot under way, and whose it is.

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
    /// Whether those nodes were asked again at which a lease in the way was about to end.
    pub asked_again: bool,
    /// Whether it has waited for the rest of the nodes, so that the time it took says nothing of the network.
    pub held: bool,
}

impl Motion {
    /// The ballot of the request at `index` of `batch`, which the nodes are asked at `now`.
    pub fn new(ballot: Ballot, batch: u64, index: usize, now: Instant, timeout: Duration) -> Self {
        let (asked_again, held) = (false, false);
        Self { ballot, batch, index, asked: now, timeout, asked_again, held }
    }
}
