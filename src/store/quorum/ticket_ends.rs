//! Remembers when each ticket that this process adopts ends at each node of a quorum. Pure.
//!
//! A node that confirms an adoption lets the lease live for the adopter's ttl. If the adopter then
//! gives the lease back, the ticket must not live longer than before, because no client would get
//! the lock until its end. So the adopter limits the ticket at each node to the end that the node
//! told when it was claimed.
//!
//! An answer arrives after the node sent it, so the end that is computed from it is never too
//! early. A later answer may include time that an earlier attempt added, so the earliest end stays.

use std::collections::HashMap;
use std::time::Duration;

use crate::lease::{Instant, Token};

/// The fewest adopters at which those with ended leases are removed. If this is smaller, a few
/// adopters are searched again and again. If it is larger, ended ones take more memory.
const PRUNE_FROM: usize = 64;

/// Holds what the nodes have told an adopter.
struct Told {
    /// When the ticket ends at each node; `None` until the node tells it.
    ends: Vec<Option<Instant>>,
    /// When the last lease that the adopter may have at a node ends.
    until: Instant,
}

/// See the module.
#[derive(Default)]
pub struct TicketEnds {
    adopters: HashMap<Token, Told>,
    /// The number of adopters at which those with ended leases are removed next.
    prune_at: usize,
}

impl TicketEnds {
    /// Takes what `node` of `count` nodes told at `now`: its lease of the ticket ends after
    /// `remaining`. `ttl` is the adopter's.
    pub fn told(
        &mut self,
        now: Instant,
        adopter: Token,
        (node, count): (usize, usize),
        remaining: Duration,
        ttl: Duration,
    ) {
        if self.adopters.len() >= self.prune_at {
            self.adopters.retain(|_, told| now < told.until);
            self.prune_at = PRUNE_FROM.max(2 * self.adopters.len());
        }
        let told = self.adopters.entry(adopter);
        let told = told.or_insert_with(|| Told { ends: vec![None; count], until: now });
        let ends = now + remaining;
        told.ends[node] = Some(told.ends[node].map_or(ends, |known| known.min(ends)));
        told.until = told.until.max(now + ttl.max(remaining));
    }

    /// Notes that nodes are asked to prolong the lease of `adopter`: at most until `ttl` after
    /// `latest`.
    pub fn prolonged(&mut self, latest: Instant, adopter: Token, ttl: Duration) {
        if let Some(told) = self.adopters.get_mut(&adopter) {
            told.until = told.until.max(latest + ttl);
        }
    }

    /// Returns the latest end of the ticket of `adopter` that a node has reported.
    pub fn latest(&self, adopter: Token) -> Option<Instant> {
        self.adopters.get(&adopter)?.ends.iter().copied().flatten().max()
    }

    /// Returns when the ticket of `adopter` ends at `node`. `None` if the node has not told it.
    pub fn of(&self, adopter: Token, node: usize) -> Option<Instant> {
        self.adopters.get(&adopter).and_then(|told| told.ends[node])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_earliest_end_of_each_node_stays() {
        let (mut ticket_ends, adopter) = (TicketEnds::default(), Token::random());
        ticket_ends.told(at(10), adopter, (1, 3), 2 * SECOND, 20 * SECOND);
        ticket_ends.told(at(11), adopter, (1, 3), 20 * SECOND, 20 * SECOND);
        assert_eq!(ticket_ends.of(adopter, 1), Some(at(12)));
        ticket_ends.told(at(11), adopter, (1, 3), SECOND / 2, 20 * SECOND);
        assert_eq!(ticket_ends.of(adopter, 1), Some(at(11) + SECOND / 2));
        assert_eq!(ticket_ends.of(adopter, 2), None);
        ticket_ends.told(at(11), adopter, (0, 3), SECOND, 20 * SECOND);
        assert_eq!(ticket_ends.latest(adopter), Some(at(12)));
        assert_eq!(ticket_ends.of(Token::random(), 1), None);
    }

    #[test]
    fn an_adopter_is_forgotten_when_its_last_lease_has_ended() {
        let (mut ticket_ends, adopter) = (TicketEnds::default(), Token::random());
        ticket_ends.told(at(0), adopter, (0, 1), SECOND, 20 * SECOND);
        ticket_ends.prolonged(at(10), adopter, 20 * SECOND);
        for second in 0..1_000 {
            ticket_ends.told(at(second), Token::random(), (0, 1), SECOND, SECOND);
            assert!(second >= 30 || ticket_ends.of(adopter, 0) == Some(at(1)));
        }
        assert_eq!(ticket_ends.of(adopter, 0), None);
        assert!(ticket_ends.adopters.len() <= PRUNE_FROM);
    }
}
