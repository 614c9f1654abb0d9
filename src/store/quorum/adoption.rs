//! Decides from the answers of the nodes how one attempt to adopt a detached lease over a quorum
//! goes on. Pure.
//!
//! An attempt has two rounds. In the first round it *claims* the nodes: each node moves the lease
//! from the ticket to a fresh token, the claim. When most nodes have done so, the second round
//! starts: the claimed nodes move the lease from the claim to the adopter. The adoption succeeds
//! when most nodes have confirmed the second round.
//!
//! An attempt that fails gives its nodes back to the ticket. The next attempt claims with another
//! token. A delayed request of the second round names the old claim. The node does not know that
//! claim any more, so the request can't take the node from an adopter that has the lease by now. A
//! delayed request of the first round can take a node only from the ticket. The node then still has
//! to carry out a move back to the ticket (see [`AdoptionAttempt::after_claim`]).
//!
//! In the first round, the nodes say what they know of the lease. From that and from the ticket,
//! the adopter decides on the lease's fence. In the second round, the nodes accept this fence. So
//! most nodes have this fence when the adoption succeeds, and every later lease gets a larger
//! fence. A changed ticket can't bring in a fence that no node has reserved for the lease.
//!
//! An adopter that dies leaves its claims behind. When a claim has stood at a node for too long,
//! other adopters *take it over*: they move the lease from that claim to their own. That can't let
//! two adopters adopt, even if the first one still lives: a node whose claim was taken over refuses
//! the second round of the first adopter, and a node that has carried the second round out has no
//! claim any more.
//!
//! An adopter whose caller gives up gives the lease back to the ticket, even if most nodes have
//! confirmed its second round. So an adopter that finds the lock taken looks again before it says
//! that the ticket is used up.
//!
//! After an adopter has adopted the lease, the other nodes may still have the ticket, or the claims
//! of other adopters. `coordinator/used_tickets.rs` describes how the adopter also gets these
//! nodes.
//!
//! [`newer_leases`] decides which answers do not count, [`judging`] decides the next step,
//! [`deciding`] decides what the adopter gets, [`deadline_error`] says why an attempt took too
//! long, and [`releasing`] decides which releases the nodes carry out after the attempt.

mod claim_tally;
mod deadline_error;
mod deciding;
mod judging;
mod newer_leases;
mod releasing;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use self::claim_tally::Tally;
pub use self::stage::{AdoptionEnd, AdoptionStage};
use super::nodes::Nodes;
use crate::lease::{Instant, Key, Token, Ttl};
use crate::store::{Absence, AdoptedLease, Answer, Reply, Request, Source, StoreError, StoreErrorKind};

/// Describes the adoption: the lease, its ticket, and its adopter.
#[derive(Clone)]
pub struct AdoptionRequest {
    pub key: Key,
    /// The token of the ticket.
    pub ticket: Token,
    pub adopter: Token,
    pub ttl: Ttl,
    pub holder: Arc<str>,
    pub outlives_process: bool,
    /// Where the lease's fence and the ttl come from.
    pub source: Source,
}

/// Tracks one attempt. See the module.
pub struct AdoptionAttempt {
    pub request: AdoptionRequest,
    /// The lease that the adopter gets, as decided after the first round.
    pub decided: Option<AdoptedLease>,
    /// The token that holds the lease at the claimed nodes between the two rounds.
    pub claim: Token,
    /// The batch whose request this attempt answers, the index of that request, and its deadline.
    pub batch: u64,
    pub index: usize,
    pub deadline: Instant,
    /// The number of earlier attempts for this request; all of them backed off.
    pub before: u32,
    /// Whether an earlier attempt found the lock taken, and this one is a retry.
    pub found_taken: bool,
    /// True if a node has reported another client's claim to this attempt or an earlier one.
    has_met_others: bool,
    /// When this attempt first asked the nodes.
    pub asked: Instant,
    /// How often this attempt has asked the nodes of other adopters again.
    pub asked_again: u32,
    /// When this attempt backs off, or asks the nodes of other adopters again. `None` while no
    /// other adopter is in the way.
    pub act_at: Option<Instant>,
    /// How long a claim of another adopter may stand at a node.
    pub stale_after: Duration,
    /// The claim of another adopter at each node that this adopter takes over when it asks the node
    /// next.
    stale: Vec<Option<Token>>,
    /// The number of answers that the nodes still have to give.
    pub awaited: usize,
    /// The answer of each node to the claim; `None` until the node answers.
    claims: Vec<Option<Answer>>,
    /// The state of the second round at each node.
    confirmed: Vec<Confirmed>,
    pub stage: AdoptionStage,
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
    /// Ask these nodes to move the lease from the claim to the adopter.
    Confirm(Vec<usize>),
    /// Back off, and begin again: other adopters have taken over claims.
    BackOff,
    /// Back off, and begin again, if there is time: the lock is taken. Otherwise, tell the adopter.
    Retry,
    /// Answer the request.
    Settle(Answer),
}

impl AdoptionAttempt {
    /// Creates the first attempt of `request`, which begins at `at`.
    pub fn new(
        request: AdoptionRequest,
        nodes: &Nodes,
        batch: u64,
        index: usize,
        deadline: Instant,
        at: Instant,
    ) -> Self {
        Self {
            claim: Token::claim(request.ticket, request.adopter),
            request,
            decided: None,
            batch,
            index,
            deadline,
            before: 0,
            found_taken: false,
            has_met_others: false,
            asked: at,
            asked_again: 0,
            act_at: None,
            stale_after: Duration::MAX,
            stale: vec![None; nodes.count()],
            awaited: 0,
            claims: vec![None; nodes.count()],
            confirmed: vec![Confirmed::NotAsked; nodes.count()],
            stage: AdoptionStage::Resting(at),
        }
    }

    /// Returns the request of the first round for a node: it claims the node, or takes over a claim
    /// that is too old.
    pub fn claiming(&self, node: usize) -> Request {
        let AdoptionRequest { key, ticket, adopter, .. } = &self.request;
        let token = self.stale[node].unwrap_or(*ticket);
        Request::Move { key: key.clone(), token, to: self.claim, adopter: *adopter, most: None }
    }

    /// Returns the request of the second round.
    pub fn confirming(&self) -> Request {
        let AdoptionRequest { key, adopter, holder, outlives_process, source, .. } = self.request.clone();
        let (ttl, source) = match self.decided {
            Some(lease) => (self.ttl(), Source::Quorum(lease.first)),
            None => (self.request.ttl, source),
        };
        Request::Adopt { key, token: self.claim, adopter, ttl, holder, outlives_process, source }
    }

    /// Returns true if the attempt has ended. Its nodes may still have to answer.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, AdoptionStage::Over(_))
    }

    /// Returns true while the attempt waits for its turn.
    pub fn is_waiting(&self) -> bool {
        matches!(self.stage, AdoptionStage::Waiting(_))
    }

    /// Returns when the attempt next has something to do without an answer.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.stage {
            AdoptionStage::Over(_) => None,
            AdoptionStage::Waiting(until) | AdoptionStage::Resting(until) => Some(until.min(self.deadline)),
            AdoptionStage::Claiming | AdoptionStage::Confirming => {
                Some(self.act_at.map_or(self.deadline, |at| at.min(self.deadline)))
            }
        }
    }

    /// Takes the answer of a node to the claim. `is_stale` says whether the answer is another
    /// adopter's claim that is too old.
    pub fn claimed(&mut self, node: usize, answer: Answer, is_stale: bool, nodes: &Nodes) -> Step {
        self.note_others(&answer);
        let answer = match (self.stale[node].take(), answer) {
            // The claim to take over is gone. Count the node as claimed, so that it is asked again:
            // only the answer to an ordinary claim shows the state of the ticket.
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

    /// Returns true if the adopter has the lease, and a node that answered the claim late with
    /// `answer` still has to carry out the second round. The node then counts as asked. Without the
    /// second round, it would have the adopter's token, but the former holder's name and the end of
    /// the ticket.
    pub fn confirms_late(&mut self, now: Instant, node: usize, answer: &Answer) -> bool {
        let is_late = self.stage == AdoptionStage::Over(AdoptionEnd::Won)
            && now < self.deadline
            && matches!(answer, Ok(Reply::Adopted(_)));
        if is_late {
            self.confirmed[node] = Confirmed::Asked;
        }
        is_late
    }

    /// Counts a node that has lost its leases as failed with `error`, if the adopter has claimed
    /// the node.
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

    /// Returns `None` if no other adopter is in the way. Otherwise returns whether all nodes have
    /// answered.
    pub fn contends(&self) -> Option<bool> {
        let Tally { other_adopters, open, .. } = Tally::of(&self.claims);
        (self.stage == AdoptionStage::Claiming && other_adopters > 0).then_some(open == 0)
    }

    /// Returns the number of nodes that have answered the claim.
    pub fn heard(&self) -> usize {
        self.claims.iter().flatten().count()
    }

    /// Returns true if an adopter in the way has a smaller [mark](Token::mark) than this adopter,
    /// and its claim is not too old.
    pub fn backs_off(&self) -> bool {
        let mark = self.request.adopter.mark();
        self.claims.iter().zip(&self.stale).any(|(claim, stale)| {
            stale.is_none() && matches!(claim, Some(Ok(Reply::Claimed { by })) if by.mark() < mark)
        })
    }

    /// Returns the nodes that other adopters claim. From now on these nodes count as not having
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

    /// Returns the nodes that have confirmed the second round, as bits.
    pub fn agreeing(&self) -> u64 {
        let yes = self.confirmed.iter().enumerate().filter(|(_, said)| **said == Confirmed::Yes);
        yes.fold(0, |bits, (node, _)| bits | 1 << node)
    }

    /// Returns the nodes that have confirmed or refused the lease, as bits.
    pub fn answered(&self) -> u64 {
        let has_answered = |said: &Confirmed, claim: &Option<Answer>| match said {
            Confirmed::Yes | Confirmed::No(_) => true,
            Confirmed::Asked => false,
            Confirmed::NotAsked => claim.is_some(),
        };
        let answered = self.confirmed.iter().zip(&self.claims).map(|(said, claim)| has_answered(said, claim));
        answered.enumerate().fold(0, |bits, (node, answered)| bits | u64::from(answered) << node)
    }

    /// Creates the attempt that follows after this one backed off, and begins at `at`.
    pub fn next(&self, nodes: &Nodes, at: Instant) -> Self {
        let next = Self::new(self.request.clone(), nodes, self.batch, self.index, self.deadline, at);
        let (found_taken, has_met_others) = (self.found_taken, self.has_met_others);
        let (stale_after, stale) = (self.stale_after, self.stale.clone());
        Self { before: self.before + 1, found_taken, has_met_others, stale_after, stale, ..next }
    }

    /// Returns how the attempt ends with `answer`, and the answer of the request. If a retry finds
    /// nothing out, the adopter is told what the earlier attempt found.
    pub fn ends_with(&self, answer: Answer) -> (AdoptionEnd, Answer) {
        match answer {
            Ok(Reply::Adopted(_)) => (AdoptionEnd::Won, answer),
            Err(_) if self.found_taken => (AdoptionEnd::Lost, Ok(Reply::NotHeld(Absence::Taken))),
            Ok(_) => (AdoptionEnd::Lost, answer),
            Err(_) => (AdoptionEnd::BackedOff, answer),
        }
    }

    /// Returns how long the nodes may take to answer if they are asked at `now`. The first round
    /// may use half of the time that is left, so that the second round has the other half.
    pub fn timeout(&self, now: Instant) -> Duration {
        let left = self.deadline.since(now);
        rounded_down(match self.stage {
            AdoptionStage::Confirming | AdoptionStage::Over(_) => left,
            AdoptionStage::Waiting(_) | AdoptionStage::Resting(_) | AdoptionStage::Claiming => left / 2,
        })
    }
}

/// Makes `timeout` up to a sixteenth shorter. Adoptions have different deadlines, but only requests
/// with the same time-out go to a node in one call.
fn rounded_down(timeout: Duration) -> Duration {
    let micros = timeout.as_micros() as u64;
    let digits = (u64::BITS - micros.leading_zeros()).saturating_sub(5);
    Duration::from_micros(micros >> digits << digits)
}

/// Returns the error of an adoption that got no turn in time.
pub fn no_turn() -> StoreError {
    let message = "no quorum: too many adoptions of this process were under way, and this one did not get its turn \
                   in time; adopt fewer tickets at the same time";
    StoreError::not_done(StoreErrorKind::TimedOut, message)
}

/// Returns the error of an adoption that its caller gave up.
pub fn given_up() -> StoreError {
    StoreError::not_done(StoreErrorKind::Quorum, "no quorum: the client gave up the adoption")
}
