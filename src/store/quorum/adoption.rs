//! Decides one attempt of an heir to adopt a detached lease over a quorum, from the answers of the
//! nodes. Pure.
//!
//! An attempt has two rounds. In the first round it *claims* the nodes: each node moves the lease
//! from the ticket to a fresh token, the claim. When most nodes have done so, the second round
//! starts: the claimed nodes move the lease from the claim to the heir. The adoption succeeds when
//! most nodes have confirmed the second round.
//!
//! An attempt that fails gives its nodes back to the ticket. The next attempt claims with another
//! token. A delayed request of the second round names the old claim. The node does not know that
//! claim any more, so the request can't take the node from an heir that has the lease by now. A
//! delayed request of the first round can take a node only from the ticket. The node is then owed a
//! move back to the ticket (see [`Adoption::after_claim`]).
//!
//! In the first round, the nodes say what they know of the lease. From that and from the ticket, the
//! heir decides on the lease's fence. In the second round, the nodes accept this fence. So most nodes
//! have this fence when the adoption succeeds, and every later lease gets a larger fence. A changed
//! ticket can't bring in a fence that no node has reserved for the lease.
//!
//! An heir that dies leaves its claims behind. When a claim has stood at a node for too long, other
//! heirs *take it over*: they move the lease from that claim to their own. That can't let two heirs
//! adopt, even if the first one still lives: a node whose claim was taken over refuses the second
//! round of the first heir, and a node that has carried the second round out has no claim any more.
//!
//! After an heir has adopted the lease, the other nodes may still have the ticket, or the claims of
//! other heirs. `council/used_tickets.rs` describes how the heir gets these nodes, too.
//!
//! [`deciding`] says what the heir gets, and [`owing`] what the nodes are owed after the attempt.

mod deciding;
mod owing;

use std::sync::Arc;
use std::time::Duration;

use super::ballot::Nodes;
use super::votes;
use crate::lease::{Instant, Key, Token, Ttl};
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Inherited, Reply, Request, Source, StoreError, StoreErrorKind};

/// Describes the adoption: the lease, its ticket, and its heir.
#[derive(Clone)]
pub struct Claimant {
    pub key: Key,
    /// The token of the ticket.
    pub ticket: Token,
    pub heir: Token,
    pub ttl: Ttl,
    pub holder: Arc<str>,
    pub outlives_process: bool,
    /// Where the ticket comes in.
    pub source: Source,
}

/// Tracks one attempt. See the module.
pub struct Adoption {
    pub who: Claimant,
    /// The lease that the heir gets, as decided after the first round.
    pub decided: Option<Inherited>,
    /// The token that holds the lease at the claimed nodes between the two rounds.
    pub claim: Token,
    /// The batch whose request this attempt answers, the index of that request, and its deadline.
    pub batch: u64,
    pub index: usize,
    pub deadline: Instant,
    /// The number of earlier attempts for this request; all of them gave way.
    pub before: u32,
    /// When this attempt first asked the nodes.
    pub asked: Instant,
    /// How often this attempt has asked the nodes of other heirs again.
    pub asked_again: u32,
    /// When this attempt gives way, or asks the nodes of other heirs again. `None` while no other
    /// heir is in the way.
    pub act_at: Option<Instant>,
    /// How long a claim of another heir may stand at a node.
    pub stale_after: Duration,
    /// The claim of another heir at each node that this heir takes over when it asks the node next.
    stale: Vec<Option<Token>>,
    /// The number of answers that the nodes still have to give.
    pub awaited: usize,
    /// The answer of each node to the claim; `None` until the node answers.
    claims: Vec<Option<Answer>>,
    /// The state of the second round at each node.
    confirmed: Vec<Confirmed>,
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// The attempt begins at that instant.
    Resting(Instant),
    /// The first round.
    Claiming,
    /// The second round.
    Confirming,
    Over(Fate),
}

/// Says how an attempt ended. This decides what happens to the nodes that the attempt still has, or
/// gets by a late answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// The heir has the lease: it gets the claimed nodes, and the nodes that have the ticket or the
    /// claim of another heir.
    Won,
    /// Enough nodes say that the ticket is used up or has ended. Claimed nodes and the heir's nodes
    /// still go back to the ticket: another heir may have given up, and may be giving its nodes
    /// back to the ticket, too.
    Lost,
    /// The heir's lease was released, and so are the nodes that pass to the heir late.
    Released,
    /// Another attempt may follow, so claimed nodes go back to the ticket. Nodes at which the heir
    /// already has the lease stay with the heir.
    GaveWay,
    /// The caller gave up: claimed nodes and the heir's nodes go back to the ticket.
    GaveUp,
}

/// The state of the second round at a node.
#[derive(Clone, Debug, PartialEq)]
enum Confirmed {
    NotAsked,
    Asked,
    Yes,
    No(Answer),
}

/// The next step after an answer.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Wait for more answers.
    Wait,
    /// Ask these nodes to move the lease from the claim to the heir.
    Confirm(Vec<usize>),
    /// Give way, and begin again: other heirs have taken over claims.
    GiveWay,
    /// Answer the request.
    Settle(Answer),
}

/// Counts the nodes by their answers to the claim.
#[derive(Default)]
struct Tally {
    /// They hold the lease for this heir.
    mine: usize,
    /// Another heir claims them, and may give them back.
    rivals: usize,
    /// They do not know the ticket any more.
    gone: usize,
    failed: usize,
    /// They have not answered yet.
    open: usize,
}

impl Adoption {
    /// Creates the first attempt of `who`, which begins at `at`.
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
            decided: None,
            batch,
            index,
            deadline,
            before: 0,
            asked: at,
            asked_again: 0,
            act_at: None,
            stale_after: Duration::MAX,
            stale: vec![None; nodes.count()],
            awaited: 0,
            claims: vec![None; nodes.count()],
            confirmed: vec![Confirmed::NotAsked; nodes.count()],
            stage: Stage::Resting(at),
        }
    }

    /// Returns the request of the first round for a node: it claims the node, or takes over a claim
    /// that is too old.
    pub fn claiming(&self, node: usize) -> Request {
        let Claimant { key, ticket, heir, .. } = &self.who;
        let token = self.stale[node].unwrap_or(*ticket);
        Request::Move { key: key.clone(), token, to: self.claim, heir: *heir }
    }

    /// Returns the request of the second round.
    pub fn confirming(&self) -> Request {
        let Claimant { key, heir, holder, outlives_process, source, .. } = self.who.clone();
        let (ttl, source) = match self.decided {
            Some(lease) => (self.ttl(), Source::Quorum(lease.first)),
            None => (self.who.ttl, source),
        };
        Request::Adopt { key, token: self.claim, heir, ttl, holder, outlives_process, source }
    }

    /// Returns true if the attempt has ended. Its nodes may still have to answer.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// Returns when the attempt next has something to do without an answer.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.stage {
            Stage::Over(_) => None,
            Stage::Resting(until) => Some(until.min(self.deadline)),
            Stage::Claiming | Stage::Confirming => {
                Some(self.act_at.map_or(self.deadline, |at| at.min(self.deadline)))
            }
        }
    }

    /// Takes the answer of a node to the claim. `is_stale` says whether the answer is another
    /// heir's claim that is too old.
    pub fn claimed(&mut self, node: usize, answer: Answer, is_stale: bool, nodes: &Nodes) -> Step {
        let answer = match (self.stale[node].take(), answer) {
            // The claim to take over is gone. Only the answer to an ordinary claim shows the state
            // of the ticket.
            (Some(by), Ok(Reply::NotHeld(_))) => Ok(Reply::Claimed { by }),
            (_, Ok(Reply::Claimed { by })) => {
                self.stale[node] = is_stale.then_some(by);
                Ok(Reply::Claimed { by })
            }
            (stale, answer) => {
                self.stale[node] = stale.filter(|_| answer.is_err());
                answer
            }
        };
        self.claims[node] = Some(answer);
        self.judge(nodes)
    }

    /// Takes the answer of a node to the second round.
    pub fn confirmed(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Step {
        self.confirmed[node] = match answer {
            Ok(Reply::Adopted(_)) => Confirmed::Yes,
            other => Confirmed::No(other),
        };
        self.judge(nodes)
    }

    /// Counts a node that has lost its leases as failed with `error`, if the heir has claimed the
    /// node.
    pub fn lost(&mut self, node: usize, error: StoreError, nodes: &Nodes) -> Step {
        if !matches!(self.claims[node], Some(Ok(Reply::Adopted(_)))) {
            return Step::Wait;
        }
        self.claims[node] = Some(Err(error.clone()));
        if self.confirmed[node] != Confirmed::NotAsked {
            self.confirmed[node] = Confirmed::No(Err(error));
        }
        self.judge(nodes)
    }

    /// Decides the next step of the first round, or of the second one.
    fn judge(&mut self, nodes: &Nodes) -> Step {
        let Tally { mine, rivals, gone, failed, open } = self.tally();
        match self.stage {
            Stage::Resting(_) | Stage::Over(_) => Step::Wait,
            Stage::Claiming if mine >= nodes.majority() => {
                (self.stage, self.act_at) = (Stage::Confirming, None);
                self.decided = self.decide();
                self.confirm(nodes)
            }
            Stage::Claiming if gone >= nodes.veto() => Step::Settle(Ok(Reply::NotHeld(self.absence()))),
            // Fail only if all nodes have answered, or too many have failed: until then, the nodes
            // may still show that the ticket is gone.
            Stage::Claiming
                if mine + rivals + open < nodes.majority() && (open == 0 || failed >= nodes.veto()) =>
            {
                Step::Settle(Err(votes::error(nodes, &self.claims, nodes.majority())))
            }
            Stage::Claiming => Step::Wait,
            Stage::Confirming => self.confirm(nodes),
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
            // Other heirs have taken claims over, or one has adopted: the next attempt finds out.
            Absence::Taken => Step::GiveWay,
            absence if self.tally().gone >= nodes.veto() => Step::Settle(Ok(Reply::NotHeld(absence))),
            Absence::Missing => Step::Settle(Err(votes::error(nodes, &self.claims, nodes.majority()))),
        }
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for claim in &self.claims {
            match claim {
                None => tally.open += 1,
                Some(Ok(Reply::Adopted(_))) => tally.mine += 1,
                Some(Ok(Reply::Claimed { .. })) => tally.rivals += 1,
                Some(Ok(_)) => tally.gone += 1,
                Some(Err(_)) => tally.failed += 1,
            }
        }
        tally
    }

    fn absence(&self) -> Absence {
        let taken = |claim: &Option<Answer>| matches!(claim, Some(Ok(Reply::NotHeld(Absence::Taken))));
        if self.claims.iter().any(taken) { Absence::Taken } else { Absence::Missing }
    }

    /// Returns `None` if no other heir is in the way. Otherwise returns whether all nodes have
    /// answered.
    pub fn contends(&self) -> Option<bool> {
        let Tally { rivals, open, .. } = self.tally();
        (self.stage == Stage::Claiming && rivals > 0).then_some(open == 0)
    }

    /// Returns the number of nodes that have answered the claim.
    pub fn heard(&self) -> usize {
        self.claims.iter().flatten().count()
    }

    /// Returns true if an heir in the way has a smaller [mark](Token::mark) than this heir, and its
    /// claim is not too old.
    pub fn gives_way(&self) -> bool {
        let mark = self.who.heir.mark();
        self.claims.iter().zip(&self.stale).any(|(claim, stale)| {
            stale.is_none() && matches!(claim, Some(Ok(Reply::Claimed { by })) if by.mark() < mark)
        })
    }

    /// Returns the nodes that other heirs claim. From now on these nodes count as not having
    /// answered.
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

    /// Returns the nodes that have confirmed the second round: bit n is node n.
    pub fn agreeing(&self) -> u64 {
        let yes = self.confirmed.iter().enumerate().filter(|(_, said)| **said == Confirmed::Yes);
        yes.fold(0, |bits, (node, _)| bits | 1 << node)
    }

    /// Creates the attempt that follows after this one gave way, and begins at `at`.
    pub fn next(&self, nodes: &Nodes, at: Instant) -> Self {
        let next = Self::new(self.who.clone(), nodes, self.batch, self.index, self.deadline, at);
        let (stale_after, stale) = (self.stale_after, self.stale.clone());
        Self { before: self.before + 1, stale_after, stale, ..next }
    }

    /// Returns the error of an attempt that did not get most nodes by its deadline.
    pub fn overdue(&self, nodes: &Nodes) -> StoreError {
        if self.before == 0 && self.tally().rivals == 0 {
            return votes::error(nodes, &self.claims, nodes.majority());
        }
        let message = "no quorum: several clients tried to adopt the lease at the same time, and this \
                       one did not get most of the servers in time; adopt the ticket again";
        StoreError::maybe_done(StoreErrorKind::TimedOut, message)
    }

    /// Returns how long the nodes may take to answer if they are asked at `now`. The first round
    /// may use half of the time that is left, so that the second round has the other half.
    pub fn timeout(&self, now: Instant) -> Duration {
        let left = self.deadline.since(now);
        if self.stage == Stage::Confirming { left } else { left / 2 }
    }
}

/// Returns the error of an adoption that its caller gave up.
pub fn given_up() -> StoreError {
    StoreError::not_done(StoreErrorKind::Quorum, "no quorum: the client gave up the adoption")
}
