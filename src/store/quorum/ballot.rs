//! Counts the answers of the nodes to one request, and decides what follows from them. Pure.

mod accepting;
mod obstacles;
mod tally;

use std::sync::Arc;
use std::time::Duration;

use self::accepting::{Accepting, Said, fence_of};
use self::tally::{Tally, Voice, voice};
use super::council::is_of_lease;
use super::reports::reports;
use super::sightings::{Counts, counted, inspected, listed, merged};
use super::votes;
use crate::lease::{Fence, Instant};
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Ask, Reply, Request, StoreError};

/// Knows the names of the nodes, and how many of them make a majority.
pub struct Nodes {
    pub names: Vec<Arc<str>>,
}

impl Nodes {
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The fewest nodes of which any two sets share one.
    pub fn majority(&self) -> usize {
        self.count() / 2 + usize::from(!mutants::is(Mutant::HalfIsMost))
    }

    /// The fewest nodes without which no majority is left.
    pub fn veto(&self) -> usize {
        self.count() - self.majority() + 1
    }
}

/// One request. See the module.
pub struct Ballot {
    pub request: Request,
    /// What each node answered.
    votes: Vec<Option<Answer>>,
    stage: Stage,
    /// The nodes that granted the request and then refused its fence, as bits.
    refused: u64,
    /// The nodes that had accepted the fence when a majority had accepted it, as bits.
    fenced: u64,
    /// The number of answers that the nodes still have to give, in both rounds.
    pub awaited: usize,
}

enum Stage {
    Asking,
    /// Too few nodes have granted the lock, and another client has other nodes: until that instant,
    /// more nodes may still grant it. Or a majority has answered an inspection or a listing, and
    /// until then the other nodes may answer, too.
    Holding(Instant),
    Accepting(Accepting),
    Settled {
        /// The fences that a node which grants the lease late has to accept.
        fence: Option<(Fence, u32)>,
    },
}

/// Says what follows from an answer.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Nothing yet.
    Open,
    /// The request may wait for the other nodes for a while.
    Hold,
    /// These nodes have to accept the fence.
    Accept { nodes: Vec<usize>, fence: Fence, count: u32 },
    /// The request is decided.
    Settle(Answer),
}

impl Ballot {
    /// Creates the ballot of a request that goes to all nodes but the `spared` ones, as bits. At a
    /// spared node, the waiter counts as next in the queue, because the node has handed it the lock
    /// before.
    pub fn new(request: Request, spared: u64, nodes: &Nodes) -> Self {
        let next = Reply::Queued { remaining: Some(Duration::ZERO), ahead: 0, told: true, by: None };
        let vote = |node: usize| (spared & 1 << node != 0).then(|| Ok(next.clone()));
        Self {
            request,
            votes: (0..nodes.count()).map(vote).collect(),
            stage: Stage::Asking,
            refused: 0,
            fenced: 0,
            awaited: nodes.count() - spared.count_ones() as usize,
        }
    }

    /// Returns true if the request has its answer.
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Settled { .. })
    }

    /// Returns until when the request holds a minority, if it does.
    pub fn holds_until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Holding(until) => Some(until),
            _ => None,
        }
    }

    /// Returns the nodes that have granted the lease, as bits.
    pub fn granted(&self) -> u64 {
        let yes = |vote: &Option<Answer>| matches!(vote, Some(Ok(Reply::Acquired { .. })));
        self.votes
            .iter()
            .enumerate()
            .filter(|(_, vote)| yes(vote))
            .fold(0, |bits, (node, _)| bits | 1 << node)
    }

    /// Returns the nodes that said yes and did not refuse the fence, as bits.
    pub fn agreeing(&self) -> u64 {
        let yes = |vote: &Option<Answer>| vote.as_ref().is_some_and(|vote| voice(vote) == Voice::Yes);
        self.votes
            .iter()
            .enumerate()
            .filter(|(_, vote)| yes(vote))
            .fold(0, |bits, (node, _)| bits | 1 << node)
            & !self.refused
    }

    /// Returns the first of the fences that a majority has accepted, and their number.
    pub fn fence(&self) -> Option<(Fence, u32)> {
        match self.stage {
            Stage::Settled { fence } => fence,
            _ => None,
        }
    }

    /// Returns the nodes in that majority, as bits; `None` if the request got no fence.
    pub fn fenced(&self) -> Option<u64> {
        self.fence().map(|_| self.fenced)
    }

    /// Returns the nodes that said that the token has no lease there, and what else they said.
    pub fn absences(&self) -> impl Iterator<Item = (usize, Absence)> {
        self.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
            Some(Ok(Reply::NotHeld(absence))) => Some((node, *absence)),
            _ => None,
        })
    }

    /// Returns the nodes that may have granted the lease although their answers failed.
    pub fn doubtful(&self) -> impl Iterator<Item = usize> {
        let doubtful = |vote: &Option<Answer>| matches!(vote, Some(Err(error)) if error.maybe_done);
        self.votes.iter().enumerate().filter(move |(_, vote)| doubtful(vote)).map(|(node, _)| node)
    }

    /// Returns true if the answer says how many nodes have a lease. After a majority has answered,
    /// such a request waits for the other nodes.
    pub fn counts_nodes(&self) -> bool {
        matches!(self.request, Request::Inspect { .. } | Request::List(_))
    }

    /// Lets the request wait for the other nodes until that instant.
    pub fn hold(&mut self, until: Instant) {
        self.stage = Stage::Holding(until);
    }

    /// Handles a node's answer to the request.
    pub fn voted(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Verdict {
        self.votes[node] = Some(answer);
        match &mut self.stage {
            Stage::Asking | Stage::Holding(_) => self.decide(nodes),
            Stage::Accepting(round) => {
                // The node granted the lease late, but it may still be in the majority that accepts
                // the fence. Its own fence does not matter: the compared fences are those of a
                // majority, and no later lease gets a smaller fence there.
                let is_late = self.votes[node].as_ref().and_then(fence_of).is_some();
                // A node that was asked once more while the request held a minority may have
                // accepted by now.
                if is_late && round.said[node] != Said::Accepted {
                    round.said[node] = Said::Asked;
                }
                let accept = Verdict::Accept { nodes: vec![node], fence: round.fence, count: round.count };
                // Without this node, a majority may be impossible now.
                match self.count_accepted(nodes) {
                    Verdict::Open if is_late => accept,
                    verdict => verdict,
                }
            }
            Stage::Settled { fence } => match (fence, self.votes[node].as_ref().and_then(fence_of)) {
                (Some((fence, count)), Some(_)) => {
                    Verdict::Accept { nodes: vec![node], fence: *fence, count: *count }
                }
                _ => Verdict::Open,
            },
        }
    }

    /// Replaces the vote of a node that has lost its leases with `error`.
    pub fn lost(&mut self, node: usize, error: StoreError, nodes: &Nodes) -> Verdict {
        let said = self.votes[node].as_ref().and_then(|vote| vote.as_ref().ok());
        if self.is_settled() || !said.is_some_and(is_of_lease) {
            return Verdict::Open;
        }
        self.votes[node] = Some(Err(error.clone()));
        let Stage::Accepting(round) = &mut self.stage else { return self.decide(nodes) };
        if round.said[node] != Said::Nothing {
            round.said[node] = Said::Refused(Err(error));
        }
        self.count_accepted(nodes)
    }

    /// Ends the request, which has waited for long enough.
    pub fn give_way(&mut self, nodes: &Nodes) -> Verdict {
        if self.counts_nodes() {
            return self.agreed(nodes);
        }
        self.settle(Ok(Reply::Split), None)
    }

    fn settle(&mut self, answer: Answer, fence: Option<(Fence, u32)>) -> Verdict {
        self.stage = Stage::Settled { fence };
        Verdict::Settle(answer)
    }

    fn decide(&mut self, nodes: &Nodes) -> Verdict {
        let Tally { yes, no, failed, open } = self.tally();
        if let Request::Diagnose { ttl, .. } = self.request {
            // A diagnosis waits for all nodes.
            return match open {
                0 => self.settle(Ok(Reply::Diagnosed(reports(nodes, &self.votes, ttl))), None),
                _ => Verdict::Open,
            };
        }
        let (majority, veto) = (nodes.majority(), nodes.veto());
        if yes >= majority {
            return match self.stage {
                Stage::Asking if open > 0 && self.counts_nodes() => Verdict::Hold,
                Stage::Holding(_) if open > 0 && self.counts_nodes() => Verdict::Open,
                _ => self.agreed(nodes),
            };
        }
        if yes + open >= majority {
            return Verdict::Open;
        }
        if failed >= veto {
            let error = votes::error(nodes, &self.votes, majority);
            return self.settle(Err(error), None);
        }
        if no < veto && open > 0 {
            // It is still open whether other clients or failures are in the way.
            return Verdict::Open;
        }
        match &self.request {
            Request::Acquire(ask) if yes > 0 => match (ask.place, &self.stage) {
                (None, _) => self.give_way(nodes),
                // Nodes that have granted the lease may make a majority together with nodes that
                // hand it over later.
                (Some(_), Stage::Asking) if self.held_by(majority).is_some() => {
                    let answer = self.in_the_way(ask, nodes);
                    self.settle(Ok(answer), None)
                }
                (Some(_), Stage::Holding(_)) => Verdict::Open,
                (Some(_), _) => Verdict::Hold,
            },
            Request::Acquire(ask) => {
                let answer = self.in_the_way(ask, nodes);
                self.settle(Ok(answer), None)
            }
            Request::Inspect { .. } => self.settle(Ok(Reply::Inspected(None)), None),
            Request::Release { .. } | Request::GiveBack { .. } | Request::Break { .. } if yes > no => {
                self.settle(Ok(Reply::Released), None)
            }
            Request::Release { .. } | Request::GiveBack { .. } | Request::Break { .. } => self.not_held(),
            _ if no >= veto => self.not_held(),
            _ => {
                let error = votes::error(nodes, &self.votes, majority);
                self.settle(Err(error), None)
            }
        }
    }

    fn not_held(&mut self) -> Verdict {
        let taken = |vote: &Option<Answer>| matches!(vote, Some(Ok(Reply::NotHeld(Absence::Taken))));
        let absence = if self.votes.iter().any(taken) { Absence::Taken } else { Absence::Missing };
        self.settle(Ok(Reply::NotHeld(absence)), None)
    }

    /// Handles the yes of a majority.
    fn agreed(&mut self, nodes: &Nodes) -> Verdict {
        let mut said = self.votes.iter().flatten().filter_map(|vote| vote.as_ref().ok());
        let counts = Counts { total: nodes.count(), unheard: nodes.count() - said.clone().count() };
        let reply = match &self.request {
            Request::Ping | Request::Diagnose { .. } => Reply::Ready,
            Request::Release { .. } | Request::GiveBack { .. } | Request::Break { .. } => Reply::Released,
            // Adoptions do not vote; see `adoption`.
            Request::Adopt { .. } | Request::Move { .. } => {
                said.find(|reply| matches!(reply, Reply::Adopted(_))).cloned().unwrap_or(Reply::Split)
            }
            Request::Accept { .. } => Reply::Accepted,
            Request::Renew { fences: 0, .. } | Request::Detach { .. } => Reply::Renewed { block: None },
            Request::Inspect { .. } => Reply::Inspected(counted(said.filter_map(inspected), counts)),
            Request::List(wanted) => {
                Reply::Listed(merged(wanted, said.filter_map(listed), nodes.majority(), counts))
            }
            Request::Acquire(Ask { fences: count, .. }) | Request::Renew { fences: count, .. } => {
                return self.accept((*count).max(1), nodes);
            }
        };
        self.settle(Ok(reply), None)
    }
}

#[cfg(test)]
#[path = "ballot_tests.rs"]
mod tests;
