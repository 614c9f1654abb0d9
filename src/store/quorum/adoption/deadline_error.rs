//! Says why an attempt did not get most nodes by its deadline.

use super::super::nodes::Nodes;
use super::super::votes;
use super::{AdoptionAttempt, AdoptionStage, Confirmed};
use crate::store::{Answer, Reply, StoreError, StoreErrorKind};

impl AdoptionAttempt {
    /// Returns the error of an attempt that did not get most nodes by its deadline.
    pub fn overdue(&self, nodes: &Nodes) -> StoreError {
        let answers: Vec<Option<Answer>> = (0..nodes.count()).map(|node| self.last_answer(node)).collect();
        let is_claimed = |answer: &Option<Answer>| matches!(answer, Some(Ok(Reply::Claimed { .. })));
        let message = if self.has_met_others {
            "no quorum: several clients tried to adopt the lease at the same time, and this one did not get \
             most of the servers in time; adopt the ticket again"
        } else if matches!(self.stage, AdoptionStage::Resting(_)) || answers.iter().any(is_claimed) {
            "no quorum: another client, or an earlier request of this adoption, still had the lock at some of \
             the servers, and this client did not get most of them in time; adopt the ticket again"
        } else {
            return votes::error(nodes, &answers, nodes.majority());
        };
        StoreError::maybe_done(StoreErrorKind::TimedOut, message)
    }

    /// Returns a node's answer to the last request of this attempt; `None` until the node answers.
    fn last_answer(&self, node: usize) -> Option<Answer> {
        match &self.confirmed[node] {
            Confirmed::Asked => None,
            Confirmed::No(answer) => Some(answer.clone()),
            Confirmed::NotAsked | Confirmed::Yes => self.claims[node].clone(),
        }
    }

    /// Notes whether `answer` to a claim shows that another client adopts the same ticket. A claim
    /// with the mark of this adopter is one of its own, from an earlier request.
    pub(super) fn note_others(&mut self, answer: &Answer) {
        let mark = self.request.adopter.mark();
        self.has_met_others |= matches!(answer, Ok(Reply::Claimed { by }) if by.mark() != mark);
    }
}
