//! Remembers the claims of other heirs that stand at the nodes, to find those of dead heirs. Pure.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::lease::{Instant, Token};

/// How long a claim is remembered that no node has told of again. If this is larger, more memory is
/// used. If it is smaller, an heir that seldom asks never finds out that a claim is too old.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The number of claims from which on old ones are looked for.
const MANY: usize = 64;

/// Remembers when each claim was first and last heard of.
#[derive(Default)]
pub struct Rivals(FxHashMap<Token, (Instant, Instant)>);

impl Rivals {
    /// Takes notice that a node told of `claim`. Returns how long the claim has stood, at least.
    pub fn heard_of(&mut self, now: Instant, claim: Token) -> Duration {
        if self.0.len() >= MANY {
            self.0.retain(|_, (_, last)| now.since(*last) < REMEMBERED);
        }
        let (first, last) = self.0.entry(claim).or_insert((now, now));
        *last = now;
        now.since(*first)
    }
}
