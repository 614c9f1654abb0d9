//! Remembers the claims that other adopters have at the nodes, to find the claims of dead adopters.
//! Pure.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::lease::{Instant, Token};

/// How long a claim is remembered after a node last reported it. If this is larger, more memory is
/// used. If it is smaller, an adopter that seldom asks never finds out that a claim is too old.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The number of claims at which old ones are removed. If this is smaller, all claims are searched
/// more often. If it is larger, old claims take more memory.
const MANY: usize = 64;

/// Remembers when each claim was first and last reported.
#[derive(Default)]
pub struct OtherAdopters(FxHashMap<Token, (Instant, Instant)>);

impl OtherAdopters {
    /// Notes that a node reported `claim`. Returns the time since the first report: the claim has
    /// stood for at least that long.
    pub fn heard_of(&mut self, now: Instant, claim: Token) -> Duration {
        if self.0.len() >= MANY {
            self.0.retain(|_, (_, last)| now.since(*last) < REMEMBERED);
        }
        let (first, last) = self.0.entry(claim).or_insert((now, now));
        *last = now;
        now.since(*first)
    }
}
