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
//! An heir that dies leaves its claims behind. When a claim has stood at a node for too long, other
//! heirs *take it over*: they move the lease from that claim to their own. That can't let two heirs
//! adopt, even if the first one still lives: a node whose claim was taken over refuses the second
//! round of the first heir, and a node that has carried the second round out has no claim any more.

use std::sync::Arc;
use std::time::Duration;

use super::ballot::Nodes;
use super::debts::Owed;
use super::votes;
use crate::lease::{Instant, Key, Token, Ttl};
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply, Request, StoreError, StoreErrorKind};

/// The longest pause before an heir that gave way begins again, and before an heir asks the nodes
/// of other heirs again. If this is larger, a ticket whose other heirs are gone stays unused for
/// longer. If it is smaller, heirs disturb each other over a slow network.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a claim of another heir stands before it is taken over, at least. If this is larger, an
/// heir that died during its adoption blocks the ticket for longer. If it is smaller, heirs disturb
/// each other on a busy machine.
const SHORTEST_STALE: Duration = Duration::from_millis(100);
/// The same in round trips to the nodes. If this is smaller, heirs disturb each other over a slow
/// network.
const STALE_TRIPS: u32 = 12;

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
}

/// Tracks one attempt. See the module.
pub struct Adoption {
    pub who: Claimant,
    /// The token that holds the lease at the claimed nodes between the two rounds.
    pub claim: Token,
    /// The batch whose request this attempt answers, the index of that request, and its deadline.
    pub batch: u64,
    pub index: usize,
    pub deadline: Instant,
    /// When the request came.
    began: Instant,
    /// The number of earlier attempts for this request; all of them gave way.
    pub before: u32,
    /// When this attempt first asked the nodes.
    pub asked: Instant,
    /// The node that is claimed before the others: an heir with a smaller [mark](Token::mark) had it
    /// when this heir gave way. As long as that one has it, this heir leaves the other nodes to it.
    pub first: Option<usize>,
    /// How often this attempt has asked the nodes of other heirs again.
    pub asked_again: u32,
    /// When this attempt gives way, or asks the nodes of other heirs again. `None` while no other
    /// heir is in the way.
    pub act_at: Option<Instant>,
    /// How long a claim of another heir stands at a node before this heir takes it over.
    stale_after: Duration,
    /// Random, from 1 to 1.5. It makes one of several heirs the first to take the claims over, and
    /// leaves it the time to adopt.
    share: f64,
    /// The longest time that a node took for its answer.
    slowest: Duration,
    /// The claim of another heir at each node, and when this heir first heard of it.
    rivals: Vec<Option<Rival>>,
    /// The number of answers that the nodes still have to give.
    pub awaited: usize,
    /// The answer of each node to the claim; `None` until the node answers.
    claims: Vec<Option<Answer>>,
    /// The state of the second round at each node.
    confirmed: Vec<Confirmed>,
    pub stage: Stage,
}

#[derive(Clone, Copy)]
struct Rival {
    claim: Token,
    since: Instant,
    /// Whether the last request to the node takes the claim over.
    taken_over: bool,
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

/// Says how an attempt ended. The end decides what becomes of the nodes that the attempt still has,
/// or gets by a late answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// The heir has the lease: claimed nodes pass to the heir.
    Won,
    /// Enough nodes say that the ticket is used up or has ended. Claimed nodes and the heir's nodes
    /// go back to the ticket all the same: an heir that has given up may be about to give the other
    /// nodes back to it, too.
    Lost,
    /// The heir's lease was released, and so are the nodes that pass to the heir late.
    Released,
    /// Another attempt may follow: claimed nodes go back to the ticket. Nodes that the heir has
    /// already stay with the heir.
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
        share: f64,
    ) -> Self {
        Self {
            claim: Token::claim(who.ticket, who.heir),
            who,
            batch,
            index,
            deadline,
            began: at,
            before: 0,
            asked: at,
            first: None,
            asked_again: 0,
            act_at: None,
            stale_after: Duration::MAX,
            share,
            slowest: Duration::ZERO,
            rivals: vec![None; nodes.count()],
            awaited: 0,
            claims: vec![None; nodes.count()],
            confirmed: vec![Confirmed::NotAsked; nodes.count()],
            stage: Stage::Resting(at),
        }
    }

    /// Returns the request of the first round for a node: it claims the node, or takes over a claim
    /// that is too old.
    pub fn claiming(&mut self, node: usize, now: Instant) -> Request {
        let is_stale = self.is_stale(node, now);
        let from = match &mut self.rivals[node] {
            Some(rival) => {
                rival.taken_over = is_stale;
                if is_stale { rival.claim } else { self.who.ticket }
            }
            None => self.who.ticket,
        };
        let Claimant { key, heir, .. } = &self.who;
        Request::Move { key: key.clone(), token: from, to: self.claim, heir: *heir }
    }

    /// Decides how long claims of other heirs may stand. A round trip takes about `trip`.
    pub fn wait_for_rivals(&mut self, trip: Duration) {
        let stale_after = (self.slowest.max(trip) * STALE_TRIPS).max(SHORTEST_STALE);
        // The rest of the time is enough to take claims over, and to adopt.
        let most = self.deadline.since(self.began) / 2;
        self.stale_after = stale_after.min(most).mul_f64(self.share);
    }

    /// Returns true if the claim of another heir has stood at the node for too long.
    fn is_stale(&self, node: usize, now: Instant) -> bool {
        self.rivals[node].is_some_and(|rival| now >= rival.since + self.stale_after)
    }

    /// Returns when the first claim of another heir will have stood for too long; `None` if there is
    /// none, or it has already.
    pub fn stale_at(&self, now: Instant) -> Option<Instant> {
        self.rivals.iter().flatten().map(|rival| rival.since + self.stale_after).filter(|at| now < *at).min()
    }

    /// Returns the request of the second round.
    pub fn confirming(&self) -> Request {
        let Claimant { key, heir, ttl, holder, outlives_process, .. } = self.who.clone();
        Request::Adopt { key, token: self.claim, heir, ttl, holder, outlives_process }
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

    /// Takes the answer of a node to the claim.
    pub fn claimed(&mut self, now: Instant, node: usize, answer: Answer, nodes: &Nodes) -> Step {
        if answer.is_ok() && self.asked_again == 0 {
            self.slowest = self.slowest.max(now.since(self.asked));
        }
        self.claims[node] = Some(self.heard_of_rival(now, node, answer));
        self.judge(nodes)
    }

    /// Remembers which other heir claims the node.
    fn heard_of_rival(&mut self, now: Instant, node: usize, answer: Answer) -> Answer {
        let known = self.rivals[node].take();
        match (&answer, known) {
            (Ok(Reply::Claimed { by }), Some(rival)) if rival.claim == *by => {
                self.rivals[node] = Some(Rival { taken_over: false, ..rival });
            }
            (Ok(Reply::Claimed { by }), _) => {
                self.rivals[node] = Some(Rival { claim: *by, since: now, taken_over: false });
            }
            // That claim is gone. Only the next answer tells what has become of the ticket.
            (Ok(Reply::NotHeld(_)), Some(Rival { claim, taken_over: true, .. })) => {
                return Ok(Reply::Claimed { by: claim });
            }
            (Err(_), Some(rival)) => self.rivals[node] = Some(rival),
            _ => {}
        }
        answer
    }

    /// Takes the answer of a node to the second round.
    pub fn confirmed(&mut self, node: usize, answer: Answer, nodes: &Nodes) -> Step {
        self.confirmed[node] = match answer {
            Ok(Reply::Adopted) => Confirmed::Yes,
            other => Confirmed::No(other),
        };
        self.judge(nodes)
    }

    /// Counts a node that has lost its leases as failed with `error`, if the heir has claimed the
    /// node.
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

    /// Decides the next step of the first round, or of the second one.
    fn judge(&mut self, nodes: &Nodes) -> Step {
        let Tally { mine, rivals, gone, failed, open } = self.tally();
        match self.stage {
            Stage::Resting(_) | Stage::Over(_) => Step::Wait,
            Stage::Claiming if mine >= nodes.majority() => {
                (self.stage, self.act_at) = (Stage::Confirming, None);
                self.confirm(nodes)
            }
            Stage::Claiming if gone >= nodes.veto() => Step::Settle(Ok(Reply::NotHeld(self.absence()))),
            // Fail only if all nodes have answered, or too many have failed: until then, the nodes
            // may still show that the ticket is gone.
            Stage::Claiming
                if mine + rivals + open < nodes.majority() && (open == 0 || failed >= nodes.veto()) =>
            {
                self.fail(nodes)
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
        self.fail(nodes)
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

    /// Decides what follows when the heir can't get most nodes.
    fn fail(&self, nodes: &Nodes) -> Step {
        let Tally { mine, rivals, gone, failed, .. } = self.tally();
        let is_claimed = mine + rivals > 0 || self.stage == Stage::Confirming;
        match self.absence() {
            // Another heir has adopted, or takes claims over: the next attempt finds out.
            Absence::Taken if is_claimed && failed < nodes.veto() => Step::GiveWay,
            absence if gone >= nodes.veto() => Step::Settle(Ok(Reply::NotHeld(absence))),
            _ => Step::Settle(Err(votes::error(nodes, &self.claims, nodes.majority()))),
        }
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
    pub fn gives_way(&self, now: Instant) -> bool {
        let mark = self.who.heir.mark();
        let is_smaller =
            |claim: &Option<Answer>| matches!(claim, Some(Ok(Reply::Claimed { by })) if by.mark() < mark);
        let mut claims = self.claims.iter().enumerate();
        claims.any(|(node, claim)| is_smaller(claim) && !self.is_stale(node, now))
    }

    /// Returns the node that is claimed by the heir with the smallest mark, if that is not this heir.
    fn smallest_rival(&self) -> Option<usize> {
        let claims = self.claims.iter().enumerate().filter_map(|(node, claim)| match claim {
            Some(Ok(Reply::Claimed { by })) if by.mark() < self.who.heir.mark() => Some((by.mark(), node)),
            _ => None,
        });
        claims.min().map(|(_, node)| node)
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
                    owed.extend(
                        self.after_confirm(fate, &Ok(Reply::Adopted)).map(|(o, late)| (node, o, late)),
                    );
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
            Ok(Reply::Adopted) => (true, false),
            Ok(_) => (false, false),
            Err(error) => (error.maybe_done, error.maybe_done),
        };
        // An earlier attempt may have given the node to the heir, and no later one will follow.
        let heirs = matches!(fate, Fate::Lost | Fate::Released) && (claims || answer.is_err());
        let claims = claims.then(|| (self.owed(self.claim, fate), late));
        claims.into_iter().chain(heirs.then(|| (self.owed(self.who.heir, fate), late)))
    }

    /// Returns what a node is owed after it answered the second round with `answer` and the attempt
    /// ended with `fate`. The flag is the same as in [`end`](Self::end).
    pub fn after_confirm(&self, fate: Fate, answer: &Answer) -> impl Iterator<Item = (Owed, bool)> {
        let (heirs, claims, late) = match answer {
            Ok(Reply::Adopted) => (true, false, false),
            Ok(_) => (false, false, false),
            Err(error) => (error.maybe_done, true, error.maybe_done),
        };
        let heirs = heirs && matches!(fate, Fate::Lost | Fate::GaveUp | Fate::Released);
        let heirs = heirs.then(|| (self.owed(self.who.heir, fate), late));
        let claims = claims.then(|| (self.owed(self.claim, fate), late));
        heirs.into_iter().chain(claims)
    }

    /// Returns what becomes of a lease of `token` after the end with `fate`.
    fn owed(&self, token: Token, fate: Fate) -> Owed {
        let to = match fate {
            Fate::Won => Some(self.who.heir),
            Fate::Released => None,
            Fate::GaveWay | Fate::GaveUp if mutants::is(Mutant::ClaimsFreed) => None,
            Fate::Lost | Fate::GaveWay | Fate::GaveUp => Some(self.who.ticket),
        };
        Owed { key: self.who.key.clone(), token, to }
    }

    /// Creates the attempt that follows after this one gave way, and begins at `at`.
    pub fn next(&self, nodes: &Nodes, at: Instant) -> Self {
        let (who, rivals) = (self.who.clone(), self.rivals.clone());
        let next = Self::new(who, nodes, self.batch, self.index, self.deadline, at, self.share);
        let Self { began, before, slowest, stale_after, .. } = *self;
        let first = self.smallest_rival();
        Self { began, before: before + 1, first, rivals, slowest, stale_after, ..next }
    }

    /// Returns the error of an attempt that did not get most nodes by its deadline.
    pub fn overdue(&self, nodes: &Nodes) -> StoreError {
        if self.before == 0 && self.tally().rivals == 0 {
            return votes::error(nodes, &self.claims, nodes.majority());
        }
        let message = "no quorum: several clients tried to adopt the lease at the same time, and this \
                       one did not get most of the servers in time; adopt the ticket again";
        StoreError::maybe_done(StoreErrorKind::Quorum, message)
    }

    /// Returns how long the heir may pause at `now`. It leaves time for several more attempts.
    pub fn longest_pause(&self, now: Instant) -> Duration {
        LONGEST_PAUSE.min(self.deadline.since(now) / 4)
    }

    /// Returns how long nodes that are asked at `now` may take. The first round may use half of the
    /// time that is left, so that the second round has the other half.
    pub fn timeout(&self, now: Instant) -> Duration {
        let left = self.deadline.since(now);
        if self.stage == Stage::Confirming { left } else { left / 2 }
    }
}

/// Returns the error of an adoption that its caller gave up.
pub fn given_up() -> StoreError {
    StoreError::not_done(StoreErrorKind::Quorum, "no quorum: the client gave up the adoption")
}
