//! Counts what the nodes said.

use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply};

/// Says how a node's answer counts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum VoteKind {
    Yes,
    No,
    Failed,
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) yes: usize,
    pub(super) no: usize,
    pub(super) failed: usize,
    pub(super) open: usize,
}

pub(super) fn vote_kind(answer: &Answer) -> VoteKind {
    match answer {
        Ok(
            Reply::Ready
            | Reply::Acquired { .. }
            | Reply::Renewed { .. }
            | Reply::Released
            | Reply::Adopted(_)
            | Reply::Accepted
            | Reply::Inspected(Some(_))
            | Reply::Listed(_)
            | Reply::Diagnosed(_),
        ) => VoteKind::Yes,
        Ok(Reply::NotHeld(Absence::Missing)) if mutants::is(Mutant::MissingCountsAsYes) => VoteKind::Yes,
        Ok(
            Reply::Busy { .. }
            | Reply::Queued { .. }
            | Reply::Split
            | Reply::Claimed { .. }
            | Reply::NotHeld(_)
            | Reply::Inspected(None)
            | Reply::Views(_),
        ) => VoteKind::No,
        Err(_) => VoteKind::Failed,
    }
}

impl Tally {
    pub(super) fn of(votes: &[Option<Answer>]) -> Self {
        let mut tally = Self::default();
        for vote in votes {
            match vote.as_ref().map(vote_kind) {
                None => tally.open += 1,
                Some(VoteKind::Yes) => tally.yes += 1,
                Some(VoteKind::No) => tally.no += 1,
                Some(VoteKind::Failed) => tally.failed += 1,
            }
        }
        tally
    }
}
