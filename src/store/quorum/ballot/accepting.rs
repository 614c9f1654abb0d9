//! Runs the second round of a lease, in which most nodes accept its fence.

use super::super::votes;
use super::{Ballot, Nodes, Stage, Verdict};
use crate::lease::Fence;
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Reply, Request};

/// The second round of a lease.
pub(super) struct Accepting {
    pub(super) fence: Fence,
    pub(super) count: u32,
    waiting: u32,
    /// The answer of each node that granted the lease.
    pub(super) said: Vec<Said>,
}

#[derive(Clone, PartialEq)]
pub(super) enum Said {
    /// The node has not granted the lease, so it is not asked.
    Nothing,
    Asked,
    Accepted,
    Refused(Answer),
}

impl Ballot {
    /// Handles a node's answer to the lease's fence.
    pub fn accepted(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Verdict {
        let Stage::Accepting(round) = &mut self.stage else { return Verdict::Open };
        if round.said[node] != Said::Asked {
            return Verdict::Open;
        }
        round.said[node] = match answer {
            Ok(Reply::Accepted) => Said::Accepted,
            other => {
                self.refused |= 1 << node;
                Said::Refused(other)
            }
        };
        self.count_accepted(nodes)
    }

    /// Begins the second round.
    pub(super) fn accept(&mut self, count: u32, nodes: &Nodes) -> Verdict {
        let candidates: Vec<_> = self.votes.iter().map(|vote| vote.as_ref().and_then(fence_of)).collect();
        let fence = candidates.iter().flatten().map(|(fence, _)| *fence).max().unwrap_or(Fence(0));
        let waiting = candidates.iter().flatten().map(|(_, waiting)| *waiting).max().unwrap_or(0);
        let said = candidates.iter().map(|candidate| match candidate {
            // The node chose this fence itself, and has given no larger one.
            Some((first, _)) if *first == fence => Said::Accepted,
            Some(_) if mutants::is(Mutant::FenceNotWrittenBack) => Said::Accepted,
            Some(_) => Said::Asked,
            None => Said::Nothing,
        });
        let said: Vec<Said> = said.collect();
        let asked = said.iter().enumerate().filter(|(_, said)| **said == Said::Asked);
        let asked: Vec<usize> = asked.map(|(node, _)| node).collect();
        self.stage = Stage::Accepting(Accepting { fence, count, waiting, said });
        match self.count_accepted(nodes) {
            Verdict::Open => Verdict::Accept { nodes: asked, fence, count },
            // No node needs to be asked: a majority has chosen this fence.
            settled => settled,
        }
    }

    pub(super) fn count_accepted(&mut self, nodes: &Nodes) -> Verdict {
        let Stage::Accepting(round) = &self.stage else { return Verdict::Open };
        let how_many = |what: Said| round.said.iter().filter(|said| **said == what).count();
        let (accepted, asked) = (how_many(Said::Accepted), how_many(Said::Asked));
        let (fence, count, waiting) = (round.fence, round.count, round.waiting);
        // A node that has not voted yet may still accept.
        let late = self.votes.iter().filter(|vote| vote.is_none()).count();
        if accepted >= nodes.majority() {
            let has = round.said.iter().enumerate().filter(|(_, said)| **said == Said::Accepted);
            self.fenced = has.fold(0, |bits, (node, _)| bits | 1 << node);
            let reply = match self.request {
                Request::Renew { .. } => Reply::Renewed { block: Some((fence, waiting)) },
                _ => Reply::Acquired { fence, waiting },
            };
            return self.settle(Ok(reply), Some((fence, count)));
        }
        if accepted + asked + late >= nodes.majority() {
            return Verdict::Open;
        }
        let mut said = self.votes.clone();
        for (vote, what) in said.iter_mut().zip(&round.said) {
            match what {
                Said::Refused(answer) => *vote = Some(answer.clone()),
                // The node granted the lease, but was not asked to accept the fence.
                Said::Nothing if vote.as_ref().and_then(fence_of).is_some() => *vote = None,
                _ => {}
            }
        }
        let error = votes::error(nodes, &said, nodes.majority());
        self.settle(Err(error), None)
    }
}

/// Returns the first fence in the answer, and the number of waiters.
pub(super) fn fence_of(answer: &Answer) -> Option<(Fence, u32)> {
    match answer {
        Ok(Reply::Acquired { fence, waiting }) => Some((*fence, *waiting)),
        Ok(Reply::Renewed { block }) => *block,
        _ => None,
    }
}
