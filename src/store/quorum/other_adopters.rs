//! Remembers the claims that other adopters have at the nodes, to find the claims of dead adopters.
//! Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::lease::{Instant, Token};

/// How long a claim is remembered after a node last reported it. If this is larger, more memory is
/// used. If it is smaller, an adopter that seldom asks never finds out that a claim is too old.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The fewest claims at which old ones are removed. If this is smaller, a few claims are searched
/// again and again. If it is larger, old claims take more memory.
const PRUNE_FROM: usize = 64;

/// See the module.
#[derive(Default)]
pub struct OtherAdopters {
    /// When each claim was first and last reported.
    claims: HashMap<Token, (Instant, Instant)>,
    /// The number of claims at which old ones are removed next.
    prune_at: usize,
}

impl OtherAdopters {
    /// Notes that a node reported `claim`. Returns the time since the first report: the claim has
    /// stood for at least that long.
    pub fn heard_of(&mut self, now: Instant, claim: Token) -> Duration {
        if self.claims.len() >= self.prune_at {
            self.claims.retain(|_, (_, last)| now.since(*last) < REMEMBERED);
            self.prune_at = PRUNE_FROM.max(2 * self.claims.len());
        }
        let (first, last) = self.claims.entry(claim).or_insert((now, now));
        *last = now;
        now.since(*first)
    }
}
