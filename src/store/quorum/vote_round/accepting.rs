//! Runs the second round of a lease, in which most nodes accept its fence.

use super::super::nodes::Nodes;
use super::super::votes;
use super::accept_state::{AcceptState, Accepting, fence_of};
use super::{Decision, RoundStage, VoteRound};
use crate::lease::Fence;
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Reply, Request};

impl VoteRound {
    /// Handles a node's answer to the lease's fence.
    pub fn accepted(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Decision {
        let RoundStage::Accepting(round) = &mut self.stage else { return Decision::Open };
        if round.said[node] != AcceptState::Asked {
            return Decision::Open;
        }
        round.said[node] = match answer {
            Ok(Reply::Accepted) => AcceptState::Accepted,
            other => {
                self.refused |= 1 << node;
                AcceptState::Refused(other)
            }
        };
        self.count_accepted(nodes)
    }

    /// Begins the second round.
    pub(super) fn accept(&mut self, count: u32, nodes: &Nodes) -> Decision {
        let candidates: Vec<_> = self.votes.iter().map(|vote| vote.as_ref().and_then(fence_of)).collect();
        let fence = candidates.iter().flatten().map(|(fence, _)| *fence).max().unwrap_or(Fence(0));
        let waiting = candidates.iter().flatten().map(|(_, waiting)| *waiting).max().unwrap_or(0);
        let said = candidates.iter().map(|candidate| match candidate {
            // The node chose this fence itself, and has given no larger one.
            Some((first, _)) if *first == fence => AcceptState::Accepted,
            Some(_) if mutants::is(Mutant::FenceNotWrittenBack) => AcceptState::Accepted,
            Some(_) => AcceptState::Asked,
            None => AcceptState::Nothing,
        });
        let said: Vec<AcceptState> = said.collect();
        let asked = said.iter().enumerate().filter(|(_, said)| **said == AcceptState::Asked);
        let asked: Vec<usize> = asked.map(|(node, _)| node).collect();
        self.stage = RoundStage::Accepting(Accepting { fence, count, waiting, said });
        match self.count_accepted(nodes) {
            Decision::Open => Decision::Accept { nodes: asked, fence, count },
            // No node needs to be asked: a majority has chosen this fence.
            settled => settled,
        }
    }

    pub(super) fn count_accepted(&mut self, nodes: &Nodes) -> Decision {
        let RoundStage::Accepting(round) = &self.stage else { return Decision::Open };
        let how_many = |what: AcceptState| round.said.iter().filter(|said| **said == what).count();
        let (accepted, asked) = (how_many(AcceptState::Accepted), how_many(AcceptState::Asked));
        let (fence, count, waiting) = (round.fence, round.count, round.waiting);
        // A node that has not voted yet may still accept.
        let late = self.votes.iter().filter(|vote| vote.is_none()).count();
        if accepted >= nodes.majority() {
            let has = round.said.iter().enumerate().filter(|(_, said)| **said == AcceptState::Accepted);
            self.fenced = has.fold(0, |bits, (node, _)| bits | 1 << node);
            let reply = match self.request {
                Request::Renew { .. } => Reply::Renewed { block: Some((fence, waiting)) },
                _ => Reply::Acquired { fence, waiting },
            };
            return self.settle(Ok(reply), Some((fence, count)));
        }
        if accepted + asked + late >= nodes.majority() {
            return Decision::Open;
        }
        let mut said = self.votes.clone();
        for (vote, what) in said.iter_mut().zip(&round.said) {
            match what {
                AcceptState::Refused(answer) => *vote = Some(answer.clone()),
                // The node granted the lease, but was not asked to accept the fence.
                AcceptState::Nothing if vote.as_ref().and_then(fence_of).is_some() => *vote = None,
                _ => {}
            }
        }
        let error = votes::error(nodes, &said, nodes.majority());
        self.settle(Err(error), None)
    }
}
