//! What is still to be released at which node of a quorum. Pure.
//!
//! A release is done when most nodes have done it; those that could not be asked are asked again, or the lease that they
//! know of would be in everybody's way until its ttl ends. Whose acquire may have been held up on its way to a node is
//! released there twice.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::lease::{Instant, Key, Token};

/// The first pause; it doubles up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// After that the ttl has to do it; few leases have a longer one.
const LIFE: Duration = Duration::from_secs(600);
/// How long an acquire of which nothing was heard may take to arrive.
const LONGEST_DOUBT: Duration = Duration::from_secs(60);
/// The most releases that are owed to one node. More than that were under way when it failed only under a load of which
/// it is no great part.
const MOST: usize = 4096;
/// The most that are sent to a node together.
const MOST_AT_ONCE: usize = 64;

/// A release that a node is owed.
struct Debt {
    key: Key,
    token: Token,
    until: Instant,
    /// Whether to pay twice.
    twice: bool,
}

/// What one node is owed.
#[derive(Default)]
struct Account {
    debts: Vec<Debt>,
    /// Those that are being paid.
    paying: Vec<Debt>,
    failures: u32,
    pay_at: Option<Instant>,
    /// Tokens of which nobody knows whether the node has granted them something, or still will.
    doubts: FxHashMap<Token, Instant>,
}

/// What all nodes are owed. See the module.
pub struct Debts {
    accounts: Vec<Account>,
}

impl Debts {
    pub fn new(nodes: usize) -> Self {
        Self { accounts: (0..nodes).map(|_| Account::default()).collect() }
    }

    /// `node` may yet grant something to `token`.
    pub fn doubt(&mut self, now: Instant, node: usize, token: Token) {
        let doubts = &mut self.accounts[node].doubts;
        if doubts.len() >= MOST {
            doubts.retain(|_, until| now < *until);
        }
        if doubts.len() < MOST {
            doubts.insert(token, now + LONGEST_DOUBT);
        }
    }

    /// `node` has answered a release; `failed` says whether it may not have done it.
    pub fn released(&mut self, now: Instant, node: usize, key: &Key, token: Token, failed: bool) {
        let account = &mut self.accounts[node];
        let doubted = account.doubts.remove(&token).is_some();
        if failed || doubted {
            account.owe(now, Debt { key: key.clone(), token, until: now + LIFE, twice: failed && doubted });
        }
    }

    /// `node` may have something of `token` of which nobody else knows.
    pub fn owe(&mut self, now: Instant, node: usize, key: &Key, token: Token, twice: bool) {
        let account = &mut self.accounts[node];
        account.owe(now, Debt { key: key.clone(), token, until: now + LIFE, twice });
        // What is known to be there is in somebody's way.
        if !twice && account.failures == 0 {
            account.pay_at = Some(now);
        }
    }

    /// What is to be released at which node now.
    pub fn due(&mut self, now: Instant) -> Vec<(usize, Vec<(Key, Token)>)> {
        let mut due = Vec::new();
        for (node, account) in self.accounts.iter_mut().enumerate() {
            if account.pay_at.is_none_or(|at| now < at) || !account.paying.is_empty() {
                continue;
            }
            account.pay_at = None;
            account.debts.retain(|debt| now < debt.until);
            let count = account.debts.len().min(MOST_AT_ONCE);
            account.paying = account.debts.drain(..count).collect();
            if !account.paying.is_empty() {
                let paid = account.paying.iter().map(|debt| (debt.key.clone(), debt.token)).collect();
                due.push((node, paid));
            }
        }
        due
    }

    /// `node` answered what was due; `failed` says for each release whether it is still owed. `jitter` is from 0 to 1.
    pub fn paid(&mut self, now: Instant, node: usize, failed: &[bool], jitter: f64) {
        let account = &mut self.accounts[node];
        let paying = std::mem::take(&mut account.paying);
        let any_failed = failed.iter().any(|failed| *failed);
        account.failures = if any_failed { account.failures + 1 } else { 0 };
        for (mut debt, failed) in paying.into_iter().zip(failed) {
            if *failed || debt.twice {
                debt.twice &= *failed;
                account.debts.push(debt);
            }
        }
        if !account.debts.is_empty() {
            let pause = SHORTEST_PAUSE.saturating_mul(1 << account.failures.min(8)).min(LONGEST_PAUSE);
            account.pay_at = Some(now + pause.mul_f64(0.5 + 0.5 * jitter));
        }
    }

    /// When something is due next.
    pub fn next_wake(&self) -> Option<Instant> {
        let free = self.accounts.iter().filter(|account| account.paying.is_empty());
        free.filter_map(|account| account.pay_at).min()
    }

    /// How much is owed in all.
    pub fn len(&self) -> usize {
        self.accounts.iter().map(|account| account.debts.len() + account.paying.len()).sum()
    }
}

impl Account {
    fn owe(&mut self, now: Instant, debt: Debt) {
        if self.debts.len() >= MOST {
            self.debts.remove(0);
        }
        self.debts.push(debt);
        if self.paying.is_empty() {
            self.pay_at.get_or_insert(now + SHORTEST_PAUSE);
        }
    }
}

#[cfg(test)]
#[path = "debts_tests.rs"]
mod tests;
