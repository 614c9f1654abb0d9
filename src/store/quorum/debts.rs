//! Keeps the releases and moves that nodes of a quorum still have to carry out. Pure.
//!
//! A quorum answers a release when most nodes have carried it out. The other nodes are asked again:
//! at a node that has not heard of the release, the lease keeps the lock from other clients until
//! its ttl ends. The claims of an adoption that failed go back to its ticket in the same way. If an
//! earlier request for the token may still be on its way to a node, the node is asked several
//! times.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashSet;

use crate::lease::doubts::Doubts;
use crate::lease::{Instant, Key, Token};
use crate::mutants::{self, Mutant};

/// The first pause after a failure; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// The pauses before each request for a token for which an earlier request may still be on its way.
pub const STRAGGLER_PAUSES: &[Duration] = &[SHORTEST_PAUSE, Duration::from_secs(1), Duration::from_secs(3)];
/// The pauses before each move from a used ticket to its heir. Other heirs give a node back to the
/// ticket when they hear that they have lost, which takes some round trips. If the pauses are
/// shorter, they end too soon for a slow network, and the node waits for the next renewal. If they
/// are longer, the heir gets the node later.
const TICKET_PAUSES: &[Duration] = &[
    SHORTEST_PAUSE,
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// How long a debt is kept. After that the lease ends with its ttl; few leases have a longer ttl.
const LIFE: Duration = Duration::from_secs(600);
/// The most requests that are owed to one node. If there are more, the oldest one is dropped, and
/// its lease ends with its ttl. If this is smaller, more leases are left to their ttl when a node
/// fails under load. If it is larger, a long outage takes more memory.
const MOST: usize = 4096;
/// The most requests that are sent to a node together.
const MOST_AT_ONCE: usize = 64;

/// Describes what a node is owed: the release of a lease, or its move to another token.
#[derive(Clone, Debug, PartialEq)]
pub struct Owed {
    pub key: Key,
    pub token: Token,
    /// The token that gets the lease; `None` for a release.
    pub to: Option<Token>,
    /// True if the token `to` does not hold the lease any more. The node has to release it after the
    /// move. This also finds a lease that another heir has claimed, which a release of `token` would
    /// not find.
    pub release: bool,
    /// True if `token` is a used ticket. Other heirs may give the node back to the ticket a little
    /// later.
    pub ticket: bool,
}

/// Says what a node answered to a debt.
pub enum Said {
    Moved,
    /// The claim of another heir has the lease.
    Claimed(Token),
    Other,
}

impl Owed {
    /// Returns the move of a lease from `token` to `to`.
    pub fn moved(key: Key, token: Token, to: Token) -> Self {
        Self { key, token, to: Some(to), release: false, ticket: false }
    }

    /// Returns the move of a lease from a used ticket to its heir.
    pub fn ticket(key: Key, ticket: Token, heir: Token) -> Self {
        Self { ticket: true, ..Self::moved(key, ticket, heir) }
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

struct Debt {
    owed: Owed,
    due: Instant,
    until: Instant,
    /// The pauses before it is paid again.
    again: &'static [Duration],
    /// True if a request for it was sent.
    sent: bool,
}

/// Keeps what one node is owed.
#[derive(Default)]
struct Account {
    debts: VecDeque<Debt>,
    /// The debts whose requests are on their way to the node.
    paying: Vec<Debt>,
    /// The tokens of both.
    owed: FxHashSet<Token>,
    /// When the first of the debts is due.
    due: Option<Instant>,
    failures: u32,
    /// When the node may be asked again after a failure.
    rests_until: Option<Instant>,
    /// The tokens to which the node may still grant something.
    doubts: Doubts,
}

/// Keeps what all nodes are owed. See the module.
pub struct Debts {
    accounts: Vec<Account>,
    /// True if any of the debts may be a move.
    moves: bool,
}

fn released(key: &Key, token: Token) -> Owed {
    Owed { key: key.clone(), token, to: None, release: false, ticket: false }
}

impl Debts {
    pub fn new(nodes: usize) -> Self {
        Self { accounts: (0..nodes).map(|_| Account::default()).collect(), moves: false }
    }

    /// Notes that `node` may still grant something to `token`.
    pub fn doubt(&mut self, now: Instant, node: usize, token: Token) {
        self.accounts[node].doubts.add(now, token);
    }

    /// Takes the answer of `node` to a release. `failed` says that the node may not have carried it
    /// out.
    pub fn released(&mut self, now: Instant, node: usize, key: &Key, token: Token, failed: bool) {
        let account = &mut self.accounts[node];
        let is_straggler = account.doubts.settle(now, token);
        if failed || is_straggler {
            account.owe(now, released(key, token), is_straggler, SHORTEST_PAUSE);
        }
    }

    /// Owes `node` the release of `token`, which may have a lease or a place there. `is_straggler`
    /// says that the request that creates it may still be on its way.
    pub fn owe(&mut self, now: Instant, node: usize, key: &Key, token: Token, is_straggler: bool) {
        let account = &mut self.accounts[node];
        let is_straggler = account.doubts.settle(now, token) || is_straggler;
        // Release it at once: until then, it may keep the lock from other clients.
        account.owe(now, released(key, token), is_straggler, Duration::ZERO);
    }

    /// Owes `owed` to `node`, which may hold the lease for a claim or an heir. `is_straggler` says
    /// that the request that gives the lease to `owed.token` may still be on its way.
    pub fn owe_move(&mut self, now: Instant, node: usize, owed: Owed, is_straggler: bool) {
        self.moves |= owed.to.is_some();
        self.accounts[node].owe(now, owed, is_straggler, Duration::ZERO);
    }

    /// Changes the debts that would move a lease to `token`: they move it to `to`, or release it
    /// after the move if `to` is `None`. If a request was sent to move it to `token`, that request
    /// may still be on its way, so the node is also owed the move from `token` to `to`.
    pub fn redirect(&mut self, now: Instant, token: Token, to: Option<Token>) {
        if !self.moves {
            return;
        }
        self.moves = self.len() > 0;
        for account in &mut self.accounts {
            let mut sent = None;
            for debt in account.debts.iter_mut().chain(&mut account.paying) {
                if debt.owed.to == Some(token) {
                    (debt.owed.to, debt.owed.release) = (to.or(debt.owed.to), to.is_none());
                    sent = sent.or(debt.sent.then(|| debt.owed.key.clone()));
                }
            }
            if let Some(key) = sent {
                let owed = to.map_or_else(|| released(&key, token), |to| Owed::moved(key.clone(), token, to));
                account.owe(now, owed, true, Duration::ZERO);
            }
        }
    }

    /// Takes what `node` answered to the debts that were due, before [`Debts::paid`]. If another heir
    /// has claimed a lease, the node is owed the same move from that claim.
    pub fn said(&mut self, now: Instant, node: usize, said: &[Said]) {
        let account = &mut self.accounts[node];
        let mut follow = Vec::new();
        for (Debt { owed, .. }, said) in account.paying.iter().zip(said) {
            match (said, owed.to) {
                (Said::Claimed(token), _) if !owed.is_void() => {
                    follow.push(Owed { token: *token, ticket: false, ..owed.clone() });
                }
                (Said::Moved, Some(to)) if owed.release => follow.push(released(&owed.key, to)),
                _ => {}
            }
        }
        for owed in follow {
            account.owe(now, owed, false, Duration::ZERO);
        }
    }

    /// Returns what each node has to carry out now.
    pub fn due(&mut self, now: Instant) -> Vec<(usize, Vec<Owed>)> {
        let mut due = Vec::new();
        for (node, account) in self.accounts.iter_mut().enumerate() {
            if account.next_wake().is_none_or(|at| now < at) {
                continue;
            }
            account.collect(now);
            if !account.paying.is_empty() {
                let paid = account.paying.iter().map(|debt| debt.owed.clone()).collect();
                due.push((node, paid));
            }
        }
        due
    }

    /// Takes the answer of `node` to what was due. `failed` says for each request whether it is
    /// still owed. `jitter` is from 0 to 1.
    pub fn paid(&mut self, now: Instant, node: usize, failed: &[bool], jitter: f64) {
        let account = &mut self.accounts[node];
        let any_failed = failed.iter().any(|failed| *failed);
        account.failures = if any_failed { account.failures + 1 } else { 0 };
        let pause = SHORTEST_PAUSE.saturating_mul(1 << account.failures.min(8)).min(LONGEST_PAUSE);
        account.rests_until = any_failed.then(|| now + pause.mul_f64(0.5 + 0.5 * jitter));
        for (mut debt, failed) in std::mem::take(&mut account.paying).into_iter().zip(failed) {
            if *failed {
                account.push(debt);
            } else if let [pause, again @ ..] = debt.again {
                (debt.due, debt.again) = (now + *pause, again);
                account.push(debt);
            } else {
                account.owed.remove(&debt.owed.token);
            }
        }
    }

    /// Returns when something is due next.
    pub fn next_wake(&self) -> Option<Instant> {
        self.accounts.iter().filter_map(Account::next_wake).min()
    }

    /// Returns the number of debts of all nodes.
    pub fn len(&self) -> usize {
        self.accounts.iter().map(|account| account.owed.len()).sum()
    }
}

impl Account {
    fn next_wake(&self) -> Option<Instant> {
        let due = self.due.filter(|_| self.paying.is_empty())?;
        Some(self.rests_until.map_or(due, |until| until.max(due)))
    }

    fn owe(&mut self, now: Instant, owed: Owed, is_straggler: bool, pause: Duration) {
        let token = owed.token;
        if mutants::is(Mutant::NoDebts) {
            return;
        }
        let pauses = owed.pauses();
        let (pause, again) = match pauses {
            [first, again @ ..] if is_straggler => (*first, again),
            _ => (pause, [].as_slice()),
        };
        if !self.owed.insert(token) {
            // A token has one debt, and the last word counts. A request that is on its way may come
            // too early, so it is repeated.
            if let Some(debt) = self.debts.iter_mut().find(|debt| debt.owed.token == token) {
                let is_new = debt.owed != owed;
                if is_straggler {
                    debt.again = again;
                } else if is_new && debt.sent {
                    debt.again = pauses;
                }
                if is_straggler || is_new {
                    debt.due = debt.due.min(now + pause);
                    self.due = self.due.map(|due| due.min(debt.due));
                }
                debt.owed = owed;
            } else if let Some(debt) = self.paying.iter_mut().find(|debt| debt.owed.token == token) {
                debt.again = match debt.again {
                    _ if is_straggler => again,
                    _ if debt.owed != owed => pauses,
                    [] => &STRAGGLER_PAUSES[..1],
                    again => again,
                };
                debt.owed = owed;
            }
            return;
        }
        if self.debts.len() >= MOST
            && let Some(oldest) = self.debts.pop_front()
        {
            self.owed.remove(&oldest.owed.token);
        }
        self.push(Debt { owed, due: now + pause, until: now + LIFE, again, sent: false });
    }

    fn push(&mut self, debt: Debt) {
        self.due = Some(self.due.map_or(debt.due, |due| due.min(debt.due)));
        self.debts.push_back(debt);
    }

    /// Moves the debts that are due to `paying`.
    fn collect(&mut self, now: Instant) {
        let mut rest = VecDeque::with_capacity(self.debts.len());
        self.due = None;
        for debt in std::mem::take(&mut self.debts) {
            if now >= debt.until || debt.owed.is_void() {
                self.owed.remove(&debt.owed.token);
            } else if debt.due <= now && self.paying.len() < MOST_AT_ONCE {
                self.paying.push(Debt { sent: true, ..debt });
            } else {
                self.due = Some(self.due.map_or(debt.due, |due| due.min(debt.due)));
                rest.push_back(debt);
            }
        }
        self.debts = rest;
    }
}

#[cfg(test)]
#[path = "debts_tests.rs"]
mod tests;
