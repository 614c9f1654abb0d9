//! Counts the answers of the nodes to one request, and decides what follows from them. Pure.

mod accept_state;
mod accepting;
mod obstacles;
mod tally;

use std::time::Duration;

use self::accept_state::{AcceptState, Accepting, fence_of};
use self::tally::{Tally, VoteKind, vote_kind};
use super::nodes::Nodes;
use super::reports::reports;
use super::votes;
use crate::lease::{Fence, Instant};
use crate::store::node_views::{NodeCounts, NodeViews, ShownLocks};
use crate::store::{Absence, AcquireRequest, Answer, Reply, Request, StoreError};

/// See the module.
pub struct VoteRound {
    pub request: Request,
    /// The answer of each node; `None` until the node answers.
    votes: Vec<Option<Answer>>,
    stage: RoundStage,
    /// The nodes that granted the request and then refused its fence, as bits.
    refused: u64,
    /// The nodes that had accepted the fence when a majority had accepted it, as bits.
    fenced: u64,
    /// The number of answers that the nodes still have to give, in both rounds.
    pub awaited: usize,
    /// If the request releases a lease that its holder may still use, the nodes that granted or
    /// last renewed the lease, as bits.
    pub held_at: Option<u64>,
}

enum RoundStage {
    Voting,
    /// The request waits for more nodes until that instant. It is one of these:
    ///
    /// - an acquire that a minority of the nodes has granted, while another client has other nodes;
    /// - an inspection or a listing that a majority has answered: the reply says how many nodes
    ///   have each lease, so it waits for the other nodes, too.
    Holding(Instant),
    Accepting(Accepting),
    Settled {
        /// The first fence that a node has to accept if it grants the lease late, and the number of
        /// fences.
        fence: Option<(Fence, u32)>,
    },
}

/// Says what follows from an answer.
#[derive(Debug, PartialEq)]
pub enum Decision {
    /// Nothing yet.
    Open,
    /// The request may wait for the other nodes for a while.
    Hold,
    /// These nodes have to accept the fence.
    Accept { nodes: Vec<usize>, fence: Fence, count: u32 },
    /// The request is decided.
    Settle(Answer),
}

impl VoteRound {
    /// Creates the vote round of a request that goes to all nodes but the `skipped` ones, as bits.
    /// At a skipped node, the waiter counts as next in the queue, because the node has handed it
    /// the lock before.
    pub fn new(request: Request, skipped: u64, nodes: &Nodes) -> Self {
        let next = Reply::Queued { remaining: Some(Duration::ZERO), ahead: 0, notified: true, by: None };
        let vote = |node: usize| (skipped & 1 << node != 0).then(|| Ok(next.clone()));
        Self {
            request,
            votes: (0..nodes.count()).map(vote).collect(),
            stage: RoundStage::Voting,
            refused: 0,
            fenced: 0,
            awaited: nodes.count() - skipped.count_ones() as usize,
            held_at: None,
        }
    }

    /// Returns true if the request has its answer.
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, RoundStage::Settled { .. })
    }

    /// Returns until when the request waits for more nodes, if it does.
    pub fn holds_until(&self) -> Option<Instant> {
        match self.stage {
            RoundStage::Holding(until) => Some(until),
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
        let yes = |vote: &Option<Answer>| vote.as_ref().is_some_and(|vote| vote_kind(vote) == VoteKind::Yes);
        self.votes
            .iter()
            .enumerate()
            .filter(|(_, vote)| yes(vote))
            .fold(0, |bits, (node, _)| bits | 1 << node)
            & !self.refused
    }

    /// Returns the nodes that have answered the request, as bits.
    pub fn answered(&self) -> u64 {
        self.votes.iter().enumerate().fold(0, |bits, (node, vote)| bits | u64::from(vote.is_some()) << node)
    }

    /// Returns the first of the fences that a majority has accepted, and their number.
    pub fn fence(&self) -> Option<(Fence, u32)> {
        match self.stage {
            RoundStage::Settled { fence } => fence,
            _ => None,
        }
    }

    /// Returns the nodes that had accepted these fences when a majority had, as bits. `None` if the
    /// request got no fence.
    pub fn fenced(&self) -> Option<u64> {
        self.fence().map(|_| self.fenced)
    }

    /// Returns the nodes at which the token has no lease, and whether another token has one there.
    pub fn absences(&self) -> impl Iterator<Item = (usize, Absence)> {
        self.votes.iter().enumerate().filter_map(|(node, vote)| match vote {
            Some(Ok(Reply::NotHeld(absence))) => Some((node, *absence)),
            _ => None,
        })
    }

    /// Returns the nodes that may have granted the lease although their answers failed.
    pub fn possibly_granted(&self) -> impl Iterator<Item = usize> {
        let possibly_granted = |vote: &Option<Answer>| matches!(vote, Some(Err(error)) if error.maybe_done);
        self.votes.iter().enumerate().filter(move |(_, vote)| possibly_granted(vote)).map(|(node, _)| node)
    }

    /// Returns the nodes that certainly have not granted the lease, as bits.
    pub fn undone(&self) -> u64 {
        let lacks = |vote: &Option<Answer>| vote.as_ref().is_some_and(is_certain_no);
        self.votes
            .iter()
            .enumerate()
            .filter(|(_, vote)| lacks(vote))
            .fold(0, |bits, (node, _)| bits | 1 << node)
    }

    /// Returns true if the answer says how many nodes have a lease. After a majority has answered,
    /// such a request waits for the other nodes.
    pub fn counts_nodes(&self) -> bool {
        matches!(self.request, Request::Inspect { .. } | Request::List(_))
    }

    /// Lets the request wait for the other nodes until that instant.
    pub fn hold(&mut self, until: Instant) {
        self.stage = RoundStage::Holding(until);
    }

    /// Handles a node's answer to the request.
    pub fn voted(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Decision {
        self.votes[node] = Some(answer);
        match &mut self.stage {
            RoundStage::Voting | RoundStage::Holding(_) => self.decide(nodes),
            RoundStage::Accepting(round) => {
                // The node granted the lease late, but it may still be in the majority that accepts
                // the fence. Its own fence does not matter: the compared fences are those of a
                // majority, and no later lease gets a smaller fence there.
                let is_late = self.votes[node].as_ref().and_then(fence_of).is_some();
                // A node that was asked once more while the request held a minority may have
                // accepted by now.
                if is_late && round.said[node] != AcceptState::Accepted {
                    round.said[node] = AcceptState::Asked;
                }
                let accept = Decision::Accept { nodes: vec![node], fence: round.fence, count: round.count };
                // Without this node, a majority may be impossible now.
                match self.count_accepted(nodes) {
                    Decision::Open if is_late => accept,
                    decision => decision,
                }
            }
            RoundStage::Settled { fence } => match (fence, self.votes[node].as_ref().and_then(fence_of)) {
                (Some((fence, count)), Some(_)) => {
                    Decision::Accept { nodes: vec![node], fence: *fence, count: *count }
                }
                _ => Decision::Open,
            },
        }
    }

    /// Replaces the vote of a node that has lost its leases with `error`.
    pub fn lost(&mut self, node: usize, error: StoreError, nodes: &Nodes) -> Decision {
        let said = self.votes[node].as_ref().and_then(|vote| vote.as_ref().ok());
        if self.is_settled() || !said.is_some_and(Reply::is_of_lease) {
            return Decision::Open;
        }
        self.votes[node] = Some(Err(error.clone()));
        let RoundStage::Accepting(round) = &mut self.stage else { return self.decide(nodes) };
        if round.said[node] != AcceptState::Nothing {
            round.said[node] = AcceptState::Refused(Err(error));
        }
        self.count_accepted(nodes)
    }

    /// Ends the request, which has waited for long enough.
    pub fn back_off(&mut self, nodes: &Nodes) -> Decision {
        if self.counts_nodes() {
            return self.agreed(nodes);
        }
        self.settle(Ok(Reply::Split), None)
    }

    fn settle(&mut self, answer: Answer, fence: Option<(Fence, u32)>) -> Decision {
        self.stage = RoundStage::Settled { fence };
        Decision::Settle(answer)
    }

    fn decide(&mut self, nodes: &Nodes) -> Decision {
        let Tally { yes, no, failed, open } = Tally::of(&self.votes);
        if let Request::Diagnose { ttl, .. } = self.request {
            // A diagnosis waits for all nodes.
            return match open {
                0 => self.settle(Ok(Reply::Diagnosed(reports(nodes, &self.votes, ttl))), None),
                _ => Decision::Open,
            };
        }
        let (majority, veto) = (nodes.majority(), nodes.veto());
        if yes >= majority {
            return match self.stage {
                RoundStage::Voting if open > 0 && self.counts_nodes() => Decision::Hold,
                RoundStage::Holding(_) if open > 0 && self.counts_nodes() => Decision::Open,
                _ => self.agreed(nodes),
            };
        }
        if yes + open >= majority {
            return Decision::Open;
        }
        if failed >= veto {
            let error = votes::error(nodes, &self.votes, majority);
            return self.settle(Err(error), None);
        }
        if no < veto && open > 0 {
            // It is still open whether other clients or failures are in the way.
            return Decision::Open;
        }
        match &self.request {
            Request::Acquire(acquire) if yes > 0 => match (acquire.place, &self.stage) {
                (None, _) => self.back_off(nodes),
                // Nodes that have granted the lease may make a majority together with nodes that
                // hand it over later.
                (Some(_), RoundStage::Voting) if self.held_by(majority).is_some() => {
                    let answer = self.in_the_way(acquire, nodes);
                    self.settle(Ok(answer), None)
                }
                (Some(_), RoundStage::Holding(_)) => Decision::Open,
                (Some(_), _) => Decision::Hold,
            },
            Request::Acquire(acquire) => {
                let answer = self.in_the_way(acquire, nodes);
                self.settle(Ok(answer), None)
            }
            Request::Inspect { .. } => self.settle(Ok(Reply::Inspected(None)), None),
            // Fewer nodes than a majority have released the lease, but some nodes failed. If more
            // nodes had the lease than did not have it, the lease may have been at a majority.
            Request::Release { .. } | Request::GiveBack { .. } | Request::Break { .. }
                if yes > no || (no < veto && self.may_be_held()) =>
            {
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

    /// Returns true if the request releases a lease that may have lasted until now. That is so if
    /// its holder may still use the lease, unless a node that had the lease answers that another
    /// token has it. A node without any lease may have lost its data, or never had the lease. Such
    /// a node does not show that the lease has ended, because the nodes that failed may have it.
    fn may_be_held(&self) -> bool {
        let taken = |vote: &Option<Answer>| matches!(vote, Some(Ok(Reply::NotHeld(Absence::Taken))));
        self.held_at.is_some_and(|nodes| {
            !self.votes.iter().enumerate().any(|(node, vote)| nodes & 1 << node != 0 && taken(vote))
        })
    }

    fn not_held(&mut self) -> Decision {
        let taken = |vote: &Option<Answer>| matches!(vote, Some(Ok(Reply::NotHeld(Absence::Taken))));
        let absence = if self.votes.iter().any(taken) { Absence::Taken } else { Absence::Missing };
        self.settle(Ok(Reply::NotHeld(absence)), None)
    }

    /// Handles the yes of a majority.
    fn agreed(&mut self, nodes: &Nodes) -> Decision {
        let unheard = self.votes.iter().filter(|vote| !matches!(vote, Some(Ok(_)))).count();
        let counts = NodeCounts { total: nodes.count(), unheard };
        let mut said = self.votes.iter_mut().flatten().filter_map(|vote| vote.as_mut().ok());
        let reply = match &self.request {
            Request::Ping | Request::Diagnose { .. } => Reply::Ready,
            Request::Release { .. } | Request::GiveBack { .. } | Request::Break { .. } => Reply::Released,
            // Adoptions do not vote; see `adoption`.
            Request::Adopt { .. } | Request::Move { .. } => {
                said.find(|reply| reply.is_adopted()).cloned().unwrap_or(Reply::Split)
            }
            Request::Accept { .. } => Reply::Accepted,
            Request::Renew { fences: 0, .. } | Request::Detach { .. } => Reply::Renewed { block: None },
            Request::Inspect { .. } => {
                let inspected = |reply: &mut Reply| match reply {
                    Reply::Inspected(info) => info.take(),
                    _ => None,
                };
                Reply::Views(NodeViews {
                    shown: ShownLocks::One(said.filter_map(inspected).collect()),
                    counts,
                })
            }
            Request::List(filter) => {
                let listed = |reply: &mut Reply| match reply {
                    Reply::Listed(listing) => Some(std::mem::take(listing)),
                    _ => None,
                };
                let listings = said.filter_map(listed).collect();
                let shown = ShownLocks::All { filter: filter.clone(), listings, enough: nodes.majority() };
                Reply::Views(NodeViews { shown, counts })
            }
            Request::Acquire(AcquireRequest { fences: count, .. }) | Request::Renew { fences: count, .. } => {
                return self.accept((*count).max(1), nodes);
            }
        };
        self.settle(Ok(reply), None)
    }
}

/// Returns true if a node that answers an acquire in this way has certainly not granted the lease.
pub fn is_certain_no(answer: &Answer) -> bool {
    matches!(answer, Ok(Reply::Busy { .. }) | Err(StoreError { maybe_done: false, .. }))
}

#[cfg(test)]
#[path = "vote_round_tests.rs"]
mod tests;
