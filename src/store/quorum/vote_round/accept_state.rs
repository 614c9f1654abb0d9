//! Keeps the state of the second round of a lease: which nodes have accepted its fence.

use crate::lease::Fence;
use crate::store::{Answer, Reply};

/// The second round of a lease.
pub(super) struct Accepting {
    pub(super) fence: Fence,
    pub(super) count: u32,
    pub(super) waiting: u32,
    /// The answer of each node that granted the lease.
    pub(super) said: Vec<AcceptState>,
}

#[derive(Clone, PartialEq)]
pub(super) enum AcceptState {
    /// The node has not granted the lease, so it is not asked.
    Nothing,
    Asked,
    Accepted,
    Refused(Answer),
}

/// Returns the first fence in the answer, and the number of waiters.
pub(super) fn fence_of(answer: &Answer) -> Option<(Fence, u32)> {
    match answer {
        Ok(Reply::Acquired { fence, waiting }) => Some((*fence, *waiting)),
        Ok(Reply::Renewed { block }) => *block,
        _ => None,
    }
}
