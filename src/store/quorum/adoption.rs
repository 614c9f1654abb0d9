//! One attempt of an heir to adopt a lease at most nodes of a quorum: what they said, and what follows from it. Pure.
//!
//! An attempt has two rounds. In the first it *claims* the nodes: it moves the lease from the ticket to a fresh token. In
//! the second the nodes that it claimed make the lease the heir's. An attempt that fails gives its nodes back to the ticket,
//! and the next one claims by another token. So a request that was held up on its way finds another token at the node, and
//! does nothing: it can't take a node from an heir that has it by now.

use std::sync::Arc;
use std::time::Duration;

use super::ballot::Nodes;
use super::debts::Owed;
use super::votes;
use crate::lease::{Fence, Instant, Key, Mode, Token, Ttl};
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply, Request, StoreError, StoreErrorKind};

/// Who adopts what.
#[derive(Clone)]
pub struct Claimant {
    pub key: Key,
    /// The token of the ticket.
    pub ticket: Token,
    pub heir: Token,
    pub ttl: Ttl,
    pub holder: Arc<str>,
    pub outlives_process: bool,
    pub mode: Mode,
    pub fence: Fence,
}

/// One attempt. See the module.
pub struct Adoption {
    pub who: Claimant,
    /// Whose the nodes are that it has claimed.
    pub claim: Token,
    /// Which request of which batch it answers, and until when.
    pub batch: u64,
    pub index: usize,
    pub deadline: Instant,
    /// How many attempts before it gave way.
    pub before: u32,
    /// When it asked the nodes first.
    pub asked: Instant,
    /// How often it asked others' nodes again.
    pub asked_again: u32,
    /// When it gives way to others, or asks their nodes again.
    pub act_at: Option<Instant>,
    /// How many answers of nodes are still to come.
    pub awaited: usize,
    /// What each node answered to the claim; `None` while it is asked.
    claims: Vec<Option<Answer>>,
    /// What each node says of the heir.
    confirmed: Vec<Confirmed>,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// It begins at that instant.
    Resting(Instant),
    Claiming,
    Confirming,
    Over(Fate),
}

/// Whose the nodes are that it still has, or gets late, when it is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// The heir's.
    Won,
    /// Nobody's: the ticket is used up or dead.
    Lost,
    /// The ticket's. What is the heir's already stays so for its next attempt.
    GaveWay,
    /// The ticket's, all of it.
    GaveUp,
}

#[derive(Clone, Debug, PartialEq)]
enum Confirmed {
    NotAsked,
    Asked,
    Yes,
    No(Answer),
}

/// What follows from an answer.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Nothing yet.
    Wait,
    /// These nodes are to make the lease the heir's.
    Confirm(Vec<usize>),
    /// It is decided.
    Settle(Answer),
}

/// How many nodes the heir may have, and why not more.
#[derive(Default)]
struct Tally {
    mine: usize,
    /// Another heir claims them, and may give them back.
    rivals: usize,
    /// They know nothing of the ticket any more.
    gone: usize,
    failed: usize,
    open: usize,
}

impl Adoption {
    /// The next attempt of `who`, which begins at `at`.
    pub fn new(
        who: Claimant,
        nodes: &Nodes,
        batch: u64,
        index: usize,
        deadline: Instant,
        at: Instant,
    ) -> Self {
        Self {
            claim: Token::claim(who.ticket, who.heir),
            who,
            batch,
            index,
            deadline,
            before: 0,
            asked: at,
            asked_again: 0,
            act_at: None,
            awaited: 0,
            claims: vec![None; nodes.count()],
            confirmed: vec![Confirmed::NotAsked; nodes.count()],
            stage: Stage::Resting(at),
        }
    }

    /// What makes a node the claim's.
    pub fn claiming(&self) -> Request {
        let Claimant { key, ticket, heir, .. } = &self.who;
        Request::Move { key: key.clone(), token: *ticket, to: self.claim, heir: *heir }
    }

    /// What makes the claim's nodes the heir's.
    pub fn confirming(&self) -> Request {
        let Claimant { key, heir, ttl, holder, outlives_process, mode, fence, .. } = self.who.clone();
        Request::Adopt { key, token: self.claim, heir, ttl, holder, outlives_process, mode, fence }
    }

    /// Whether nobody waits for what follows from it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// When something is due.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.stage {
            Stage::Over(_) => None,
            Stage::Resting(until) => Some(until.min(self.deadline)),
            Stage::Claiming | Stage::Confirming => {
                Some(self.act_at.map_or(self.deadline, |at| at.min(self.deadline)))
            }
        }
    }

    /// A node answered the claim.
    pub fn claimed(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Step {
        self.claims[node] = Some(answer);
        self.judge(nodes)
    }

    /// A node answered whether it has made the lease the heir's.
    pub fn confirmed(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Step {
        self.confirmed[node] = match answer {
            Ok(Reply::Adopted) => Confirmed::Yes,
            other => Confirmed::No(other),
        };
        self.judge(nodes)
    }

    /// A node has lost its leases with `error`.
    pub fn lost(&mut self, node: usize, error: StoreError, nodes: &Nodes) -> Step {
        if !matches!(self.claims[node], Some(Ok(Reply::Adopted))) {
            return Step::Wait;
        }
        self.claims[node] = Some(Err(error.clone()));
        if self.confirmed[node] != Confirmed::NotAsked {
            self.confirmed[node] = Confirmed::No(Err(error));
        }
        self.judge(nodes)
    }

    fn judge(&mut self, nodes: &Nodes) -> Step {
        let Tally { mine, rivals, gone, failed, open } = self.tally();
        match self.stage {
            Stage::Resting(_) | Stage::Over(_) => Step::Wait,
            Stage::Claiming if mine >= nodes.majority() => {
                (self.stage, self.act_at) = (Stage::Confirming, None);
                self.confirm(nodes)
            }
            Stage::Claiming if gone >= nodes.veto() => Step::Settle(Ok(self.absence())),
            // Until all are heard, or too many have failed, it is not known whether the lease is somebody else's.
            Stage::Claiming
                if mine + rivals + open < nodes.majority() && (open == 0 || failed >= nodes.veto()) =>
            {
                Step::Settle(Err(votes::error(nodes, &self.claims, nodes.majority())))
            }
            Stage::Claiming => Step::Wait,
            Stage::Confirming => self.confirm(nodes),
        }
    }

    /// Goes on with the second round, in which nodes that answered the claim late take part, too.
    fn confirm(&mut self, nodes: &Nodes) -> Step {
        let mut ask = Vec::new();
        for (node, claim) in self.claims.iter().enumerate() {
            if matches!(claim, Some(Ok(Reply::Adopted))) && self.confirmed[node] == Confirmed::NotAsked {
                self.confirmed[node] = Confirmed::Asked;
                ask.push(node);
            }
        }
        let count = |what: Confirmed| self.confirmed.iter().filter(|said| **said == what).count();
        let (yes, asked) = (count(Confirmed::Yes), count(Confirmed::Asked));
        let open = self.claims.iter().filter(|claim| claim.is_none()).count();
        if yes >= nodes.majority() || mutants::is(Mutant::ClaimsNotConfirmed) {
            return Step::Settle(Ok(Reply::Adopted));
        }
        if yes + asked + open >= nodes.majority() {
            return if ask.is_empty() { Step::Wait } else { Step::Confirm(ask) };
        }
        for (claim, said) in self.claims.iter_mut().zip(&self.confirmed) {
            if let Confirmed::No(answer) = said {
                *claim = Some(answer.clone());
            }
        }
        match self.tally().gone {
            gone if gone >= nodes.veto() => Step::Settle(Ok(self.absence())),
            _ => Step::Settle(Err(votes::error(nodes, &self.claims, nodes.majority()))),
        }
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for claim in &self.claims {
            match claim {
                None => tally.open += 1,
                Some(Ok(Reply::Adopted)) => tally.mine += 1,
                Some(Ok(Reply::Claimed { .. })) => tally.rivals += 1,
                Some(Ok(_)) => tally.gone += 1,
                Some(Err(_)) => tally.failed += 1,
            }
        }
        tally
    }

    fn absence(&self) -> Reply {
        let taken = |claim: &Option<Answer>| matches!(claim, Some(Ok(Reply::NotHeld(Absence::Taken))));
        Reply::NotHeld(if self.claims.iter().any(taken) { Absence::Taken } else { Absence::Missing })
    }

    /// Whether other heirs are in the way, and whether all nodes have answered.
    pub fn contends(&self) -> Option<bool> {
        let Tally { rivals, open, .. } = self.tally();
        (self.stage == Stage::Claiming && rivals > 0).then_some(open == 0)
    }

    /// How many nodes have answered.
    pub fn heard(&self) -> usize {
        self.claims.iter().flatten().count()
    }

    /// Whether one of those in the way comes before this heir.
    pub fn gives_way(&self) -> bool {
        let mark = self.who.heir.mark();
        let is_first = |by: u32| by < mark && !mutants::is(Mutant::NoHeirGivesWay);
        self.claims.iter().any(|claim| matches!(claim, Some(Ok(Reply::Claimed { by })) if is_first(*by)))
    }

    /// The nodes that others claim. They count as not having answered from now on.
    pub fn ask_again(&mut self) -> Vec<usize> {
        let mut again = Vec::new();
        for (node, claim) in self.claims.iter_mut().enumerate() {
            if matches!(claim, Some(Ok(Reply::Claimed { .. }))) {
                *claim = None;
                again.push(node);
            }
        }
        self.asked_again += 1;
        self.awaited += again.len();
        again
    }

    /// Which nodes have made the lease the heir's, as bits.
    pub fn agreeing(&self) -> u64 {
        let yes = self.confirmed.iter().enumerate().filter(|(_, said)| **said == Confirmed::Yes);
        yes.fold(0, |bits, (node, _)| bits | 1 << node)
    }

    /// Ends it. Returns what is owed to which nodes, and whether the node may yet get what is to go.
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
                    owed.extend(
                        self.after_confirm(fate, &Ok(Reply::Adopted)).map(|(o, late)| (node, o, late)),
                    );
                }
                Confirmed::No(answer) => {
                    owed.extend(self.after_confirm(fate, &answer).map(|(o, late)| (node, o, late)));
                }
                // Its answer is still to come.
                Confirmed::Asked => {}
            }
        }
        owed
    }

    /// What a node is owed that answered the claim with that, after the end with that fate.
    pub fn after_claim(&self, fate: Fate, answer: &Answer) -> impl Iterator<Item = (Owed, bool)> {
        let (claims, late) = match answer {
            Ok(Reply::Adopted) => (true, false),
            Ok(_) => (false, false),
            Err(error) => (error.maybe_done, error.maybe_done),
        };
        // An attempt before may have made it the heir's, and nobody will try again.
        let heirs = fate == Fate::Lost && (claims || answer.is_err());
        let claims = claims.then(|| (self.owed(self.claim, fate), late));
        claims.into_iter().chain(heirs.then(|| (self.owed(self.who.heir, fate), late)))
    }

    /// What a node is owed that answered with that whether it has made the lease the heir's, after the end with that fate.
    pub fn after_confirm(&self, fate: Fate, answer: &Answer) -> impl Iterator<Item = (Owed, bool)> {
        let (heirs, claims, late) = match answer {
            Ok(Reply::Adopted) => (true, false, false),
            Ok(_) => (false, false, false),
            Err(error) => (error.maybe_done, true, error.maybe_done),
        };
        let heirs = heirs && matches!(fate, Fate::Lost | Fate::GaveUp);
        let heirs = heirs.then(|| (self.owed(self.who.heir, fate), late));
        let claims = claims.then(|| (self.owed(self.claim, fate), late));
        heirs.into_iter().chain(claims)
    }

    fn owed(&self, token: Token, fate: Fate) -> Owed {
        let to = match fate {
            Fate::Won => Some(self.who.heir),
            Fate::Lost => None,
            Fate::GaveWay | Fate::GaveUp if mutants::is(Mutant::ClaimsFreed) => None,
            Fate::GaveWay | Fate::GaveUp => Some(self.who.ticket),
        };
        Owed { key: self.who.key.clone(), token, to }
    }

    /// The next attempt after this one has given way, which begins at `at`.
    pub fn next(&self, nodes: &Nodes, at: Instant) -> Self {
        let next = Self::new(self.who.clone(), nodes, self.batch, self.index, self.deadline, at);
        Self { before: self.before + 1, ..next }
    }

    /// Why it has not got most nodes in time.
    pub fn overdue(&self, nodes: &Nodes) -> StoreError {
        if self.before == 0 && self.tally().rivals == 0 {
            return votes::error(nodes, &self.claims, nodes.majority());
        }
        let message = "no quorum: several clients adopt the lease at the same time, and none of them had most of the servers \
                       in time";
        StoreError::maybe_done(StoreErrorKind::Quorum, message)
    }

    /// How long the nodes may take that are asked at `now`. What needs a second round leaves it time.
    pub fn timeout(&self, now: Instant) -> Duration {
        let left = self.deadline.since(now);
        if self.stage == Stage::Confirming { left } else { left / 2 }
    }
}

/// Its caller does not want it any more.
pub fn given_up() -> StoreError {
    StoreError::not_done(StoreErrorKind::Quorum, "the adoption was given up")
}
