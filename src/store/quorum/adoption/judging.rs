//! Decides the next step of an attempt, from the answers to the claim and to the second round.

use super::super::nodes::Nodes;
use super::super::votes;
use super::claim_tally::Tally;
use super::{AdoptionAttempt, AdoptionStage, Confirmed, Step};
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply};

/// How often an adopter that finds the lock taken looks again before it is told so. If this is
/// larger, an adopter that comes too late hears of it later. If it is smaller, an adopter is more
/// often told that a ticket is used up although its adopter is giving it back.
const RETRIES: u32 = 2;

impl AdoptionAttempt {
    /// Decides the next step of the first round, or of the second one.
    pub(super) fn judge(&mut self, nodes: &Nodes) -> Step {
        let Tally { mine, other_adopters, gone, failed, open } = Tally::of(&self.claims);
        match self.stage {
            AdoptionStage::Waiting(_) | AdoptionStage::Resting(_) | AdoptionStage::Over(_) => Step::Wait,
            AdoptionStage::Claiming if mine >= nodes.majority() => {
                (self.stage, self.act_at) = (AdoptionStage::Confirming, None);
                self.decided = self.decide();
                self.confirm(nodes)
            }
            AdoptionStage::Claiming if gone >= nodes.veto() => match self.absence() {
                // Another adopter may have these nodes, and may be giving them back to the ticket.
                Absence::Taken if self.before < RETRIES => Step::Retry,
                absence => Step::Settle(Ok(Reply::NotHeld(absence))),
            },
            // Fail only if all nodes have answered, or too many have failed: until then, the nodes
            // may still show that the ticket is gone.
            AdoptionStage::Claiming
                if mine + other_adopters + open < nodes.majority()
                    && (open == 0 || failed >= nodes.veto()) =>
            {
                Step::Settle(Err(votes::error(nodes, &self.claims, nodes.majority())))
            }
            AdoptionStage::Claiming => Step::Wait,
            AdoptionStage::Confirming => self.confirm(nodes),
        }
    }

    /// Decides the next step of the second round. Nodes that answered the claim late take part,
    /// too.
    fn confirm(&mut self, nodes: &Nodes) -> Step {
        let mut ask = Vec::new();
        for (node, claim) in self.claims.iter().enumerate() {
            if matches!(claim, Some(Ok(Reply::Adopted(_)))) && self.confirmed[node] == Confirmed::NotAsked {
                self.confirmed[node] = Confirmed::Asked;
                ask.push(node);
            }
        }
        let count = |what: Confirmed| self.confirmed.iter().filter(|said| **said == what).count();
        let (yes, asked) = (count(Confirmed::Yes), count(Confirmed::Asked));
        let open = self.claims.iter().filter(|claim| claim.is_none()).count();
        if yes >= nodes.majority() || mutants::is(Mutant::ClaimsNotConfirmed) {
            let Some(lease) = self.decided else { return Step::Wait };
            return Step::Settle(Ok(Reply::Adopted(lease)));
        }
        if yes + asked + open >= nodes.majority() {
            return if ask.is_empty() { Step::Wait } else { Step::Confirm(ask) };
        }
        for (claim, said) in self.claims.iter_mut().zip(&self.confirmed) {
            if let Confirmed::No(answer) = said {
                *claim = Some(answer.clone());
            }
        }
        match self.absence() {
            // Other adopters have taken claims over, or one has adopted. The next attempt finds out
            // which.
            Absence::Taken => Step::BackOff,
            absence if Tally::of(&self.claims).gone >= nodes.veto() => {
                Step::Settle(Ok(Reply::NotHeld(absence)))
            }
            Absence::Missing => Step::Settle(Err(votes::error(nodes, &self.claims, nodes.majority()))),
        }
    }

    fn absence(&self) -> Absence {
        let taken = |claim: &Option<Answer>| matches!(claim, Some(Ok(Reply::NotHeld(Absence::Taken))));
        if self.claims.iter().any(taken) { Absence::Taken } else { Absence::Missing }
    }
}
