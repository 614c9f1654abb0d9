//! Counts the answers of the nodes to a claim.

use crate::store::{Answer, Reply};

/// Counts the nodes by their answers to the claim.
#[derive(Default)]
pub(super) struct Tally {
    /// The nodes that hold the lease for this adopter.
    pub(super) mine: usize,
    /// The nodes that another adopter claims, and may give back.
    pub(super) other_adopters: usize,
    /// The nodes that do not know the ticket any more.
    pub(super) gone: usize,
    pub(super) failed: usize,
    /// The nodes that have not answered yet.
    pub(super) open: usize,
}

impl Tally {
    /// Counts `claims`: the answer of each node, or `None` until the node answers.
    pub(super) fn of(claims: &[Option<Answer>]) -> Self {
        let mut tally = Self::default();
        for claim in claims {
            match claim {
                None => tally.open += 1,
                Some(Ok(Reply::Adopted(_))) => tally.mine += 1,
                Some(Ok(Reply::Claimed { .. })) => tally.other_adopters += 1,
                Some(Ok(_)) => tally.gone += 1,
                Some(Err(_)) => tally.failed += 1,
            }
        }
        tally
    }
}
