//! Decides which releases and moves the nodes still have to carry out after an attempt.

use super::super::pending_releases::TokenChange;
use super::{AdoptionAttempt, AdoptionEnd, AdoptionRequest, AdoptionStage, Confirmed};
use crate::lease::Token;
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply};

impl AdoptionAttempt {
    /// Ends the attempt. Returns what each node still has to carry out. The flag is true if a
    /// request of the attempt may still be on its way to that node.
    pub fn end(&mut self, end: AdoptionEnd) -> Vec<(usize, TokenChange, bool)> {
        self.stage = AdoptionStage::Over(end);
        let mut changes = Vec::new();
        for node in 0..self.claims.len() {
            match self.confirmed[node].clone() {
                Confirmed::NotAsked => {
                    let Some(claim) = &self.claims[node] else { continue };
                    changes.extend(self.after_claim(end, claim).map(|(change, late)| (node, change, late)));
                }
                Confirmed::Yes => {
                    changes.extend(self.after_yes(end).map(|(change, late)| (node, change, late)));
                }
                Confirmed::No(answer) => {
                    changes
                        .extend(self.after_confirm(end, &answer).map(|(change, late)| (node, change, late)));
                }
                // When the node answers, `after_confirm` says what it still has to carry out.
                Confirmed::Asked => {}
            }
        }
        changes
    }

    /// Returns what a node still has to carry out after it answered the claim with `answer` and the
    /// attempt ended with `end`. The flag is the same as in [`end`](Self::end).
    pub fn after_claim(
        &self,
        end: AdoptionEnd,
        answer: &Answer,
    ) -> impl Iterator<Item = (TokenChange, bool)> {
        let (claims, late) = match answer {
            Ok(Reply::Adopted(_)) => (true, false),
            Ok(_) => (false, false),
            Err(error) => (error.maybe_done, error.maybe_done),
        };
        // An earlier attempt may have given the node to the adopter, and no later one will follow.
        let adopters =
            matches!(end, AdoptionEnd::Lost | AdoptionEnd::Released) && (claims || answer.is_err());
        let claims = claims.then(|| (self.change(self.claim, end), late));
        let adopters = adopters.then(|| (self.change(self.request.adopter, end), late));
        let other_adopters = match answer {
            Ok(Reply::Claimed { by }) if passes_to_adopter(end) => Some((self.change(*by, end), false)),
            _ => None,
        };
        claims.into_iter().chain(adopters).chain(other_adopters).chain(self.ticket_after(end, answer))
    }

    /// Returns what a node still has to carry out after it answered the second round with `answer`
    /// and the attempt ended with `end`. The flag is the same as in [`end`](Self::end).
    pub fn after_confirm(
        &self,
        end: AdoptionEnd,
        answer: &Answer,
    ) -> impl Iterator<Item = (TokenChange, bool)> {
        let (adopters, claims, late) = match answer {
            Ok(Reply::Adopted(_)) => (true, false, false),
            Ok(_) => (false, false, false),
            Err(error) => (error.maybe_done, true, error.maybe_done),
        };
        self.after_second(end, adopters, claims, late).chain(self.ticket_after(end, answer))
    }

    /// Returns what a node that confirmed the second round still has to carry out.
    fn after_yes(&self, end: AdoptionEnd) -> impl Iterator<Item = (TokenChange, bool)> {
        self.after_second(end, true, false, false)
    }

    /// Returns what a node that may hold the lease for the adopter, or for the claim, still has to
    /// carry out.
    fn after_second(
        &self,
        end: AdoptionEnd,
        adopters: bool,
        claims: bool,
        late: bool,
    ) -> impl Iterator<Item = (TokenChange, bool)> {
        let adopters =
            adopters && matches!(end, AdoptionEnd::Lost | AdoptionEnd::GaveUp | AdoptionEnd::Released);
        let adopters = adopters.then(|| (self.change(self.request.adopter, end), late));
        let claims = claims.then(|| (self.change(self.claim, end), late));
        adopters.into_iter().chain(claims)
    }

    /// Returns the move from the ticket to the adopter, if the adopter has the lease and the node
    /// said that another token has the lock. That token may be the ticket or a claim to it. The
    /// move is repeated, because another adopter may give the node back to the ticket a little
    /// later.
    fn ticket_after(&self, end: AdoptionEnd, answer: &Answer) -> Option<(TokenChange, bool)> {
        let is_taken = matches!(answer, Ok(Reply::Claimed { .. } | Reply::NotHeld(Absence::Taken)));
        (is_taken && passes_to_adopter(end)).then(|| {
            let AdoptionRequest { key, ticket, adopter, .. } = &self.request;
            (TokenChange::ticket(key.clone(), *ticket, *adopter), true)
        })
    }

    /// Returns what a node that holds the lease for `token` still has to carry out after the
    /// attempt ended with `end`.
    fn change(&self, token: Token, end: AdoptionEnd) -> TokenChange {
        let to = match end {
            AdoptionEnd::Won => Some(self.request.adopter),
            AdoptionEnd::Released | AdoptionEnd::Detached => None,
            AdoptionEnd::BackedOff | AdoptionEnd::GaveUp if mutants::is(Mutant::ClaimsFreed) => None,
            AdoptionEnd::Lost | AdoptionEnd::BackedOff | AdoptionEnd::GaveUp => Some(self.request.ticket),
        };
        TokenChange { to, ..TokenChange::release(self.request.key.clone(), token) }
    }
}

/// Returns true if the adopter gets the ticket, and the claims to it, after `end`.
fn passes_to_adopter(end: AdoptionEnd) -> bool {
    end == AdoptionEnd::Won && !mutants::is(Mutant::TicketLeftBehind)
}
