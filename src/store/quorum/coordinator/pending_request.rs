//! Keeps a vote round that is under way, and the place of its request in a batch.

use std::time::Duration;

use super::super::vote_round::VoteRound;
use crate::lease::Instant;

/// See the module.
pub struct PendingRequest {
    pub vote_round: VoteRound,
    pub batch: u64,
    pub index: usize,
    /// When the nodes were asked, and how long each may take.
    pub asked: Instant,
    pub timeout: Duration,
    /// True if the request has asked the nodes again at which a lease in its way was about to end.
    pub asked_again: bool,
    /// True if the request has waited for more nodes. Its duration then does not measure the
    /// network.
    pub held: bool,
    /// True if the request is a renewal that most nodes have carried out in time for the holder.
    pub is_renewed: bool,
    /// If the request is a release, the nodes that may have the lease, as bits, and the latest time
    /// at which it ends there by its ttl; `None` if that is not known.
    pub lease_ends: Option<(u64, Instant)>,
    /// If the request is the release of a waiter's token, the nodes that may have a lease or a
    /// place of the token, as bits, and for how long such a lease lives.
    pub waited: Option<(u64, Duration)>,
}

impl PendingRequest {
    /// Creates the pending request for the request at `index` of `batch`, which goes to the nodes
    /// at `now`.
    pub fn new(vote_round: VoteRound, batch: u64, index: usize, now: Instant, timeout: Duration) -> Self {
        let (asked_again, held, is_renewed) = (false, false, false);
        let (lease_ends, waited) = (None, None);
        Self {
            vote_round,
            batch,
            index,
            asked: now,
            timeout,
            asked_again,
            held,
            is_renewed,
            lease_ends,
            waited,
        }
    }
}
