//! Keeps the releases and moves that nodes of a quorum still have to carry out. Pure.
//!
//! A quorum answers a release when most nodes have carried it out. The quorum asks the other nodes
//! again: at a node that has not heard of the release, the lease keeps the lock from other clients
//! until its ttl ends. The claims of an adoption that failed go back to its ticket in the same way.
//! If an earlier request for the token may still be on its way to a node, the quorum asks the node
//! several times.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashSet;

use super::release_result::ReleaseResult;
use crate::lease::in_doubt::InDoubt;
use crate::lease::{Instant, Key, Token};
use crate::mutants::{self, Mutant};
use crate::store::Answer;

/// The first pause after a failure; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts. If this is smaller, a node that stays away is asked more
/// often. If it is larger, a node that is back keeps released leases for longer.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pauses before each release or move of a token, if an earlier request for the token may still
/// be on its way.
pub const STRAGGLER_PAUSES: &[Duration] = &[SHORTEST_PAUSE, Duration::from_secs(1), Duration::from_secs(3)];
/// The pauses before each move from a used ticket to its adopter. Other adopters give a node back
/// to the ticket when they hear that they have lost, which takes some round trips. If the pauses
/// are shorter, they end too soon for a slow network, and the node waits for the next renewal. If
/// they are longer, the adopter gets the node later.
const TICKET_PAUSES: &[Duration] = &[
    SHORTEST_PAUSE,
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// How long a pending release is kept. After that, the lease ends with its ttl. Few leases have a
/// longer ttl.
const LIFE: Duration = Duration::from_secs(600);
/// The most requests that are pending at one node. If there are more, the oldest one is dropped,
/// and its lease ends with its ttl. If this is smaller, more leases are left to their ttl when a
/// node fails under load. If it is larger, a long outage takes more memory.
const MOST: usize = 4096;
/// The most requests that are sent to a node together. If this is smaller, many pending releases
/// take more calls. If it is larger, a call takes longer and may time out.
const MOST_AT_ONCE: usize = 64;

/// Describes what a node still has to carry out: the release of a lease, or its move to another
/// token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenChange {
    pub key: Key,
    pub token: Token,
    /// The token that gets the lease; `None` for a release.
    pub to: Option<Token>,
    /// True if the token `to` does not hold the lease any more. The node has to release `to` after
    /// the move. This also finds a lease that another adopter has claimed, which a release of
    /// `token` would not find.
    pub release: bool,
    /// True if `token` is a used ticket. Other adopters may give the node back to the ticket a
    /// little later.
    pub ticket: bool,
    /// When the released lease, or the ticket `to`, ends at the node; `None` if that is not known.
    /// If the node refuses the change, the change is repeated until then.
    pub ends: Option<Instant>,
    /// For how long the lease may live after an answer of the node, if `ends` is not known. When
    /// the node answers, it has carried out the request that created the lease.
    pub life: Option<Duration>,
}

/// Says what a node answered to a pending release.
pub enum MoveResult {
    Moved,
    /// The claim of another adopter has the lease.
    Claimed(Token),
    Other,
}

impl TokenChange {
    /// Returns the release of `token`.
    pub fn release(key: Key, token: Token) -> Self {
        Self { key, token, to: None, release: false, ticket: false, ends: None, life: None }
    }

    /// Returns the move of a lease from `token` to `to`.
    pub fn moved(key: Key, token: Token, to: Token) -> Self {
        Self { to: Some(to), ..Self::release(key, token) }
    }

    /// Returns the move of a lease from a used ticket to its adopter.
    pub fn ticket(key: Key, ticket: Token, adopter: Token) -> Self {
        Self { ticket: true, ..Self::moved(key, ticket, adopter) }
    }

    /// Returns the pauses before each request, if a single request may come too early.
    fn pauses(&self) -> &'static [Duration] {
        if self.ticket { TICKET_PAUSES } else { STRAGGLER_PAUSES }
    }

    /// Returns true for a move that changes nothing.
    fn is_void(&self) -> bool {
        self.to == Some(self.token)
    }
}

struct PendingRelease {
    change: TokenChange,
    due: Instant,
    until: Instant,
    /// The pauses before the further requests for it.
    again: &'static [Duration],
    /// True if a request for this pending release was sent.
    sent: bool,
}

/// Keeps what one node still has to carry out.
#[derive(Default)]
struct NodeReleases {
    pending_releases: VecDeque<PendingRelease>,
    /// The pending releases whose requests are on their way to the node.
    in_flight: Vec<PendingRelease>,
    /// The tokens of all these pending releases.
    tokens: FxHashSet<Token>,
    /// When the first of the pending releases is due.
    due: Option<Instant>,
    failures: u32,
    /// When the node may be asked again after a failure.
    rests_until: Option<Instant>,
    /// The tokens to which the node may still grant something.
    in_doubt: InDoubt,
}

/// Keeps what all nodes still have to carry out. See the module.
pub struct PendingReleases {
    nodes: Vec<NodeReleases>,
    /// True if any of the pending releases may be a move.
    moves: bool,
}

impl PendingReleases {
    pub fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| NodeReleases::default()).collect(), moves: false }
    }

    /// Notes that `node` may still grant something to `token`.
    pub fn set_in_doubt(&mut self, now: Instant, node: usize, token: Token) {
        self.nodes[node].in_doubt.add(now, token);
    }

    /// Takes the answer of `node` to a release. `failed` says that the node may not have carried it
    /// out. `ends` says when the lease ends there by its ttl, if that is known.
    pub fn released(
        &mut self,
        now: Instant,
        node: usize,
        key: &Key,
        token: Token,
        failed: bool,
        ends: Option<Instant>,
    ) {
        let node_releases = &mut self.nodes[node];
        let is_straggler = node_releases.in_doubt.settle(now, token);
        if failed || is_straggler {
            let change = TokenChange { ends, ..TokenChange::release(key.clone(), token) };
            node_releases.add(now, change, is_straggler, SHORTEST_PAUSE);
        }
    }

    /// Adds for `node` the release of a token, which may have a lease or a place there.
    /// `is_straggler` says that the request that creates it may still be on its way.
    pub fn add(&mut self, now: Instant, node: usize, release: TokenChange, is_straggler: bool) {
        let node_releases = &mut self.nodes[node];
        let is_straggler = node_releases.in_doubt.settle(now, release.token) || is_straggler;
        // Release it at once: until then, it may keep the lock from other clients.
        node_releases.add(now, release, is_straggler, Duration::ZERO);
    }

    /// Adds `change` for `node`, which may hold the lease for a claim or an adopter. `is_straggler`
    /// says that the request that gives the lease to `change.token` may still be on its way.
    pub fn add_move(&mut self, now: Instant, node: usize, change: TokenChange, is_straggler: bool) {
        self.moves |= change.to.is_some();
        self.nodes[node].add(now, change, is_straggler, Duration::ZERO);
    }

    /// Changes the pending releases that would move a lease to `token`: they move it to `to`, or
    /// release it after the move if `to` is `None`. If a request was sent to move it to `token`,
    /// that request may still be on its way, so the node also has to carry out the move from
    /// `token` to `to`.
    pub fn redirect(&mut self, now: Instant, token: Token, to: Option<Token>) {
        if !self.moves {
            return;
        }
        self.moves = self.len() > 0;
        for node_releases in &mut self.nodes {
            let mut sent = None;
            for pending in node_releases.pending_releases.iter_mut().chain(&mut node_releases.in_flight) {
                if pending.change.to == Some(token) {
                    let PendingRelease { change, .. } = pending;
                    (change.to, change.release) = (to.or(change.to), to.is_none());
                    // `to` may be an adopter, whose lease outlives the ticket.
                    change.ends = None;
                    sent = sent.or(pending.sent.then(|| pending.change.key.clone()));
                }
            }
            if let Some(key) = sent {
                let change = to.map_or_else(
                    || TokenChange::release(key.clone(), token),
                    |to| TokenChange::moved(key.clone(), token, to),
                );
                node_releases.add(now, change, true, Duration::ZERO);
            }
        }
    }

    /// Takes what `node` answered to the pending releases that were due. Call it before
    /// [`PendingReleases::answered`]. If another adopter has claimed a lease, the node still has to
    /// carry out the same move from that claim.
    pub fn said(&mut self, now: Instant, node: usize, said: &[MoveResult]) {
        let node_releases = &mut self.nodes[node];
        let mut follow = Vec::new();
        for (PendingRelease { change, .. }, said) in node_releases.in_flight.iter().zip(said) {
            match (said, change.to) {
                (MoveResult::Claimed(token), _) if !change.is_void() => {
                    follow.push(TokenChange { token: *token, ticket: false, ..change.clone() });
                }
                (MoveResult::Moved, Some(to)) if change.release => {
                    let ends = change.ends;
                    follow.push(TokenChange { ends, ..TokenChange::release(change.key.clone(), to) });
                }
                _ => {}
            }
        }
        for change in follow {
            node_releases.add(now, change, false, Duration::ZERO);
        }
    }

    /// Returns what each node has to carry out now.
    pub fn due(&mut self, now: Instant) -> Vec<(usize, Vec<TokenChange>)> {
        let mut due = Vec::new();
        for (node, node_releases) in self.nodes.iter_mut().enumerate() {
            if node_releases.next_wake().is_none_or(|at| now < at) {
                continue;
            }
            node_releases.collect(now);
            if !node_releases.in_flight.is_empty() {
                let changes = node_releases.in_flight.iter().map(|pending| pending.change.clone()).collect();
                due.push((node, changes));
            }
        }
        due
    }

    /// Takes the `answers` of `node` to what was due. A refusal says nothing about other changes,
    /// so only a failure delays them. `jitter` is from 0 to 1.
    pub fn answered(&mut self, now: Instant, node: usize, answers: &[Answer], jitter: f64) {
        let node_releases = &mut self.nodes[node];
        let in_flight = std::mem::take(&mut node_releases.in_flight);
        let ends = in_flight
            .iter()
            .map(|PendingRelease { change, .. }| change.ends.or_else(|| change.life.map(|life| now + life)));
        let results: Vec<_> = answers
            .iter()
            .zip(ends)
            .map(|(answer, ends)| (ReleaseResult::of(answer, now, ends), ends))
            .collect();
        let any_failed = results.iter().any(|(result, _)| *result == ReleaseResult::Failed);
        node_releases.failures = if any_failed { node_releases.failures + 1 } else { 0 };
        let jittered = |pause: Duration| pause.mul_f64(0.5 + 0.5 * jitter);
        let pause = SHORTEST_PAUSE.saturating_mul(1 << node_releases.failures.min(8)).min(LONGEST_PAUSE);
        node_releases.rests_until = any_failed.then(|| now + jittered(pause));
        for (mut pending, (result, ends)) in in_flight.into_iter().zip(results) {
            match (result, pending.again) {
                (ReleaseResult::Failed, _) => node_releases.push(pending),
                (ReleaseResult::Refused, _) => {
                    pending.due = now + jittered(LONGEST_PAUSE);
                    pending.change.ends = ends;
                    node_releases.push(pending);
                }
                (ReleaseResult::Done, [pause, again @ ..]) => {
                    (pending.due, pending.again) = (now + *pause, again);
                    node_releases.push(pending);
                }
                (ReleaseResult::Done, []) => drop(node_releases.tokens.remove(&pending.change.token)),
            }
        }
    }

    /// Returns when something is due next.
    pub fn next_wake(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(NodeReleases::next_wake).min()
    }

    /// Returns the number of pending releases of all nodes.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node_releases| node_releases.tokens.len()).sum()
    }
}

impl NodeReleases {
    fn next_wake(&self) -> Option<Instant> {
        let due = self.due.filter(|_| self.in_flight.is_empty())?;
        Some(self.rests_until.map_or(due, |until| until.max(due)))
    }

    fn add(&mut self, now: Instant, mut change: TokenChange, is_straggler: bool, pause: Duration) {
        let token = change.token;
        if mutants::is(Mutant::NoPendingReleases) {
            return;
        }
        let pauses = change.pauses();
        let (pause, again) = match pauses {
            [first, again @ ..] if is_straggler => (*first, again),
            _ => (pause, [].as_slice()),
        };
        if !self.tokens.insert(token) {
            let before = self.pending_releases.iter().chain(&self.in_flight);
            let before = before.map(|pending| &pending.change).find(|before| before.token == token);
            if let Some(before) = before.filter(|before| before.to == change.to) {
                (change.ends, change.life) = (change.ends.max(before.ends), change.life.max(before.life));
            }
            // A token has only one pending release, and the newest one counts. A request that is on
            // its way may arrive too early, so it is repeated.
            if let Some(pending) =
                self.pending_releases.iter_mut().find(|pending| pending.change.token == token)
            {
                let is_new = pending.change != change;
                if is_straggler {
                    pending.again = again;
                } else if is_new && pending.sent {
                    pending.again = pauses;
                }
                if is_straggler || is_new {
                    pending.due = pending.due.min(now + pause);
                    self.due = self.due.map(|due| due.min(pending.due));
                }
                pending.change = change;
            } else if let Some(pending) =
                self.in_flight.iter_mut().find(|pending| pending.change.token == token)
            {
                pending.again = match pending.again {
                    _ if is_straggler => again,
                    _ if pending.change != change => pauses,
                    [] => &STRAGGLER_PAUSES[..1],
                    again => again,
                };
                pending.change = change;
            }
            return;
        }
        if self.pending_releases.len() >= MOST
            && let Some(oldest) = self.pending_releases.pop_front()
        {
            self.tokens.remove(&oldest.change.token);
        }
        self.push(PendingRelease { change, due: now + pause, until: now + LIFE, again, sent: false });
    }

    fn push(&mut self, pending: PendingRelease) {
        self.due = Some(self.due.map_or(pending.due, |due| due.min(pending.due)));
        self.pending_releases.push_back(pending);
    }

    /// Moves the pending releases that are due to `in_flight`.
    fn collect(&mut self, now: Instant) {
        let mut rest = VecDeque::with_capacity(self.pending_releases.len());
        self.due = None;
        for pending in std::mem::take(&mut self.pending_releases) {
            if now >= pending.until || pending.change.is_void() {
                self.tokens.remove(&pending.change.token);
            } else if pending.due <= now && self.in_flight.len() < MOST_AT_ONCE {
                self.in_flight.push(PendingRelease { sent: true, ..pending });
            } else {
                self.due = Some(self.due.map_or(pending.due, |due| due.min(pending.due)));
                rest.push_back(pending);
            }
        }
        self.pending_releases = rest;
    }
}

#[cfg(test)]
#[path = "pending_releases_tests.rs"]
mod tests;
