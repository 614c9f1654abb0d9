//! Tracks which nodes back each granted lease. If a node loses all its leases, the quorum knows
//! which of its own leases have no majority any more. Pure.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::lease::{Instant, Token};

/// The fewest leases at which expired ones are removed. If this is smaller, a few leases are
/// searched again and again. If it is larger, expired leases take more memory.
const PRUNE_FROM: usize = 256;

/// A granted lease.
struct Backed {
    /// Which nodes granted or renewed it, as bits.
    nodes: u64,
    /// The last ballot that granted or renewed it.
    ballot: u64,
    /// The latest time at which it ends at these nodes.
    until: Instant,
}

/// See the module.
#[derive(Default)]
pub struct Backers {
    leases: FxHashMap<Token, Backed>,
    /// The number of leases at which expired ones are removed next.
    prune_at: usize,
}

impl Backers {
    /// Notes that `nodes` have granted or renewed the lease of `token`, for at most `ttl` from
    /// `now`. Earlier answers of other nodes no longer count: the lease may end sooner there.
    pub fn agreed(&mut self, now: Instant, token: Token, ballot: u64, nodes: u64, ttl: Duration) {
        if self.leases.len() >= self.prune_at {
            self.leases.retain(|_, backed| now < backed.until);
            self.prune_at = PRUNE_FROM.max(2 * self.leases.len());
        }
        self.leases.insert(token, Backed { nodes, ballot, until: now + ttl });
    }

    /// Notes that `node` agreed to the same ballot after it was decided.
    pub fn joined(&mut self, token: Token, ballot: u64, node: usize) {
        if let Some(backed) = self.leases.get_mut(&token).filter(|backed| backed.ballot == ballot) {
            backed.nodes |= 1 << node;
        }
    }

    /// Forgets the lease of `token`: it has ended, or no client of this process holds it.
    pub fn forget(&mut self, token: Token) {
        self.leases.remove(&token);
    }

    /// Notes that `node` has lost its leases, and forgets each lease that fewer than `enough` nodes
    /// still back. Returns whether there was one.
    pub fn lost(&mut self, now: Instant, node: usize, enough: usize) -> bool {
        self.leases.retain(|_, backed| now < backed.until);
        let live = self.leases.len();
        for backed in self.leases.values_mut() {
            backed.nodes &= !(1 << node);
        }
        self.leases.retain(|_, backed| backed.nodes.count_ones() as usize >= enough);
        self.leases.len() < live
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Instant {
        Instant::from_micros(ms * 1000)
    }

    #[test]
    fn a_lease_is_lost_with_the_node_that_its_majority_needs() {
        let (mut backers, token) = (Backers::default(), Token::random());
        backers.agreed(at(0), token, 1, 0b011, TTL);
        backers.joined(token, 2, 2);
        assert!(!backers.lost(at(1), 2, 2), "that node was of another ballot");
        backers.joined(token, 1, 2);
        assert!(!backers.lost(at(1), 0, 2), "two nodes are left");
        assert!(backers.lost(at(1), 1, 2));
        assert!(!backers.lost(at(1), 2, 2), "it is forgotten");
    }

    #[test]
    fn only_the_last_renewal_counts() {
        let (mut backers, token) = (Backers::default(), Token::random());
        backers.agreed(at(0), token, 1, 0b111, TTL);
        backers.agreed(at(1), token, 2, 0b101, TTL);
        backers.joined(token, 1, 1);
        assert!(backers.lost(at(2), 0, 2), "the lease may end sooner at the second node");
    }

    #[test]
    fn a_lease_that_ended_or_ran_out_is_none_to_lose() {
        let (mut backers, [one, other]) = (Backers::default(), [Token::random(), Token::random()]);
        backers.agreed(at(0), one, 1, 0b011, TTL);
        backers.agreed(at(0), other, 2, 0b011, TTL);
        backers.forget(one);
        assert!(!backers.lost(at(10_000), 0, 2));
    }

    #[test]
    fn leases_that_nobody_released_do_not_pile_up() {
        let mut backers = Backers::default();
        for i in 0..100_000 {
            backers.agreed(at(i), Token::random(), i, 0b011, Duration::from_millis(100));
            assert!(backers.leases.len() <= PRUNE_FROM, "{}", backers.leases.len());
        }
    }
}
