//! Counts what the nodes said.

use super::Ballot;
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply};

/// Says how a node's answer counts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Voice {
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

pub(super) fn voice(answer: &Answer) -> Voice {
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
        ) => Voice::Yes,
        Ok(Reply::NotHeld(Absence::Missing)) if mutants::is(Mutant::MissingCountsAsYes) => Voice::Yes,
        Ok(
            Reply::Busy { .. }
            | Reply::Queued { .. }
            | Reply::Split
            | Reply::Claimed { .. }
            | Reply::NotHeld(_)
            | Reply::Inspected(None),
        ) => Voice::No,
        Err(_) => Voice::Failed,
    }
}

impl Ballot {
    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for vote in &self.votes {
            match vote.as_ref().map(voice) {
                None => tally.open += 1,
                Some(Voice::Yes) => tally.yes += 1,
                Some(Voice::No) => tally.no += 1,
                Some(Voice::Failed) => tally.failed += 1,
            }
        }
        tally
    }
}
