//! What is still to be released, or to be given back to a ticket, at which node of a quorum. Pure.
//!
//! A release is done when most nodes have done it; those that could not be asked are asked again, or the lease that they
//! know of would be in everybody's way until its ttl ends. Whose acquire may have been held up on its way to a node is
//! released there several times.

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
/// The pauses before each release of what may still be on its way.
pub const STRAGGLER_PAUSES: &[Duration] = &[SHORTEST_PAUSE, Duration::from_secs(1), Duration::from_secs(3)];
/// After that the ttl has to do it; few leases have a longer one.
const LIFE: Duration = Duration::from_secs(600);
/// The most releases that are owed to one node. More than that were under way when it failed only under a load of which
/// it is no great part.
const MOST: usize = 4096;
/// The most that are sent to a node together.
const MOST_AT_ONCE: usize = 64;

/// What a node is owed: the end of a lease, or that it passes to another token.
#[derive(Clone, Debug, PartialEq)]
pub struct Owed {
    pub key: Key,
    pub token: Token,
    /// Whose it is then; `None` for a release.
    pub to: Option<Token>,
}

struct Debt {
    owed: Owed,
    due: Instant,
    until: Instant,
    /// The pauses before it is paid again.
    again: &'static [Duration],
}

/// What one node is owed.
#[derive(Default)]
struct Account {
    debts: VecDeque<Debt>,
    /// Those that are being paid.
    paying: Vec<Debt>,
    /// The tokens of both.
    owed: FxHashSet<Token>,
    /// When the first of the debts is due.
    due: Option<Instant>,
    failures: u32,
    /// Not to be asked before, because it has failed.
    rests_until: Option<Instant>,
    /// Those to which the node may yet grant something.
    doubts: Doubts,
}

/// What all nodes are owed. See the module.
pub struct Debts {
    accounts: Vec<Account>,
    /// Whether any of them may be more than a release.
    moves: bool,
}

fn released(key: &Key, token: Token) -> Owed {
    Owed { key: key.clone(), token, to: None }
}

impl Debts {
    pub fn new(nodes: usize) -> Self {
        Self { accounts: (0..nodes).map(|_| Account::default()).collect(), moves: false }
    }

    /// `node` may yet grant something to `token`.
    pub fn doubt(&mut self, now: Instant, node: usize, token: Token) {
        self.accounts[node].doubts.add(now, token);
    }

    /// `node` has answered a release; `failed` says whether it may not have done it.
    pub fn released(&mut self, now: Instant, node: usize, key: &Key, token: Token, failed: bool) {
        let account = &mut self.accounts[node];
        let is_straggler = account.doubts.settle(now, token);
        if failed || is_straggler {
            account.owe(now, released(key, token), is_straggler, SHORTEST_PAUSE);
        }
    }

    /// `node` may have something of `token` of which nobody else knows; `is_straggler` if it may yet get it.
    pub fn owe(&mut self, now: Instant, node: usize, key: &Key, token: Token, is_straggler: bool) {
        let account = &mut self.accounts[node];
        let is_straggler = account.doubts.settle(now, token) || is_straggler;
        // What is known to be there is in somebody's way.
        account.owe(now, released(key, token), is_straggler, Duration::ZERO);
    }

    /// `node` may have a claim, or an heir's lease, that is to pass to another token or to end; `is_straggler` if it may yet
    /// get it.
    pub fn owe_move(&mut self, now: Instant, node: usize, owed: Owed, is_straggler: bool) {
        self.moves |= owed.to.is_some();
        self.accounts[node].owe(now, owed, is_straggler, Duration::ZERO);
    }

    /// What was to pass to `token` is to pass to that other one, or to end.
    pub fn redirect(&mut self, token: Token, to: Option<Token>) {
        if !self.moves {
            return;
        }
        self.moves = self.len() > 0;
        for account in &mut self.accounts {
            for debt in account.debts.iter_mut().chain(&mut account.paying) {
                if debt.owed.to == Some(token) {
                    debt.owed.to = to;
                }
            }
        }
    }

    /// What is to be done at which node now.
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

    /// `node` answered what was due; `failed` says for each release whether it is still owed. `jitter` is from 0 to 1.
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

    /// When something is due next.
    pub fn next_wake(&self) -> Option<Instant> {
        self.accounts.iter().filter_map(Account::next_wake).min()
    }

    /// How much is owed in all.
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
        let (pause, again) = match STRAGGLER_PAUSES {
            [first, again @ ..] if is_straggler => (*first, again),
            _ => (pause, [].as_slice()),
        };
        if !self.owed.insert(token) {
            // It will be paid anyway; the more often of the two.
            let both = self.debts.iter_mut().chain(&mut self.paying);
            if let Some(debt) = both.into_iter().find(|debt| is_straggler && debt.owed.token == token) {
                debt.again = again;
            }
            return;
        }
        if self.debts.len() >= MOST
            && let Some(oldest) = self.debts.pop_front()
        {
            self.owed.remove(&oldest.owed.token);
        }
        self.push(Debt { owed, due: now + pause, until: now + LIFE, again });
    }

    fn push(&mut self, debt: Debt) {
        self.due = Some(self.due.map_or(debt.due, |due| due.min(debt.due)));
        self.debts.push_back(debt);
    }

    /// Makes those that are due the ones that are being paid.
    fn collect(&mut self, now: Instant) {
        let mut rest = VecDeque::with_capacity(self.debts.len());
        self.due = None;
        for debt in std::mem::take(&mut self.debts) {
            if now >= debt.until {
                self.owed.remove(&debt.owed.token);
            } else if debt.due <= now && self.paying.len() < MOST_AT_ONCE {
                self.paying.push(debt);
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
