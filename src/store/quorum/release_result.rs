//! Decides from a node's answer whether a release or a move is repeated. Pure.

use crate::lease::Instant;
use crate::store::{Answer, StoreErrorKind};

/// Says whether a node still has to carry out a release or a move after its answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReleaseResult {
    /// Nothing is left to do.
    Done,
    /// The node refused the request, for example for missing rights, and the lease may still live
    /// there.
    Refused,
    /// The node may not have heard of the request, or can't carry out any request.
    Failed,
}

impl ReleaseResult {
    /// Returns the result of an answer at `now`. `ends` says when the lease ends at the node by its
    /// ttl, if that is known.
    pub fn of(answer: &Answer, now: Instant, ends: Option<Instant>) -> Self {
        let Err(error) = answer else { return Self::Done };
        // If other data lies under the key, no lease does.
        let may_live = error.kind != StoreErrorKind::WrongType && ends.is_some_and(|ends| now < ends);
        match error {
            error if error.maybe_done || error.kind.is_transient() => Self::Failed,
            _ if may_live => Self::Refused,
            _ => Self::Done,
        }
    }
}
