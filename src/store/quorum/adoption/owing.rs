//! What the nodes are owed after an attempt: the tokens that they have to give back or pass on.

use super::super::debts::Owed;
use super::{Adoption, Claimant, Confirmed, Fate, Stage};
use crate::lease::Token;
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply};

impl Adoption {
    /// Ends the attempt. Returns what each node is owed. The flag is true if a request of the
    /// attempt may still be on its way to the node.
    pub fn end(&mut self, fate: Fate) -> Vec<(usize, Owed, bool)> {
        self.stage = Stage::Over(fate);
        let mut owed = Vec::new();
        for node in 0..self.claims.len() {
            match self.confirmed[node].clone() {
                Confirmed::NotAsked => {
                    let Some(claim) = &self.claims[node] else { continue };
                    owed.extend(self.after_claim(fate, claim).map(|(what, late)| (node, what, late)));
                }
                Confirmed::Yes => {
                    owed.extend(self.after_yes(fate).map(|(o, late)| (node, o, late)));
                }
                Confirmed::No(answer) => {
                    owed.extend(self.after_confirm(fate, &answer).map(|(o, late)| (node, o, late)));
                }
                // When the node answers, `after_confirm` says what it is owed.
                Confirmed::Asked => {}
            }
        }
        owed
    }

    /// Returns what a node is owed after it answered the claim with `answer` and the attempt ended
    /// with `fate`. The flag is the same as in [`end`](Self::end).
    pub fn after_claim(&self, fate: Fate, answer: &Answer) -> impl Iterator<Item = (Owed, bool)> {
        let (claims, late) = match answer {
            Ok(Reply::Adopted(_)) => (true, false),
            Ok(_) => (false, false),
            Err(error) => (error.maybe_done, error.maybe_done),
        };
        // An earlier attempt may have given the node to the heir, and no later one will follow.
        let heirs = matches!(fate, Fate::Lost | Fate::Released) && (claims || answer.is_err());
        let claims = claims.then(|| (self.owed(self.claim, fate), late));
        let heirs = heirs.then(|| (self.owed(self.who.heir, fate), late));
        let rivals = match answer {
            Ok(Reply::Claimed { by }) if passes_to_heir(fate) => Some((self.owed(*by, fate), false)),
            _ => None,
        };
        claims.into_iter().chain(heirs).chain(rivals).chain(self.ticket_after(fate, answer))
    }

    /// Returns what a node is owed after it answered the second round with `answer` and the attempt
    /// ended with `fate`. The flag is the same as in [`end`](Self::end).
    pub fn after_confirm(&self, fate: Fate, answer: &Answer) -> impl Iterator<Item = (Owed, bool)> {
        let (heirs, claims, late) = match answer {
            Ok(Reply::Adopted(_)) => (true, false, false),
            Ok(_) => (false, false, false),
            Err(error) => (error.maybe_done, true, error.maybe_done),
        };
        self.after_second(fate, heirs, claims, late).chain(self.ticket_after(fate, answer))
    }

    /// Returns what a node is owed that agreed in the second round.
    fn after_yes(&self, fate: Fate) -> impl Iterator<Item = (Owed, bool)> {
        self.after_second(fate, true, false, false)
    }

    /// Returns what a node is owed that may hold the lease for the heir, or for the claim.
    fn after_second(
        &self,
        fate: Fate,
        heirs: bool,
        claims: bool,
        late: bool,
    ) -> impl Iterator<Item = (Owed, bool)> {
        let heirs = heirs && matches!(fate, Fate::Lost | Fate::GaveUp | Fate::Released);
        let heirs = heirs.then(|| (self.owed(self.who.heir, fate), late));
        let claims = claims.then(|| (self.owed(self.claim, fate), late));
        heirs.into_iter().chain(claims)
    }

    /// Returns the move from the ticket to the heir if a node may have the ticket after the heir
    /// adopted the lease: the node said that another token has the lock. The move is repeated,
    /// because another heir may give the node back to the ticket a little later.
    fn ticket_after(&self, fate: Fate, answer: &Answer) -> Option<(Owed, bool)> {
        let is_taken = matches!(answer, Ok(Reply::Claimed { .. } | Reply::NotHeld(Absence::Taken)));
        (is_taken && passes_to_heir(fate)).then(|| {
            let Claimant { key, ticket, heir, .. } = &self.who;
            (Owed::ticket(key.clone(), *ticket, *heir), true)
        })
    }

    /// Returns what a node is owed that holds the lease for `token` after the attempt ended with
    /// `fate`.
    fn owed(&self, token: Token, fate: Fate) -> Owed {
        let to = match fate {
            Fate::Won => Some(self.who.heir),
            Fate::Released => None,
            Fate::GaveWay | Fate::GaveUp if mutants::is(Mutant::ClaimsFreed) => None,
            Fate::Lost | Fate::GaveWay | Fate::GaveUp => Some(self.who.ticket),
        };
        Owed { key: self.who.key.clone(), token, to, release: false, ticket: false }
    }
}

/// Returns true if the heir gets the ticket, and the claims to it, after `fate`.
fn passes_to_heir(fate: Fate) -> bool {
    fate == Fate::Won && !mutants::is(Mutant::TicketLeftBehind)
}
