//! Tracks which nodes back each granted lease. If a node loses all its leases, the quorum knows
//! which of its own leases have no majority any more. Keeps the terms of each lease: the quorum
//! sends them to a node that does not know the lease. Pure.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::lease::{Fence, Instant, Key, Mode, Token};

/// The fewest leases at which expired ones are removed. If this is smaller, a few leases are
/// searched again and again. If it is larger, expired leases take more memory.
const PRUNE_FROM: usize = 256;

/// Holds what a request must contain so that a node grants the lease again.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseTerms {
    pub key: Key,
    pub mode: Mode,
    pub holder: Arc<str>,
    pub outlives_process: bool,
    /// The first fence of the block that the token reserved last, and the number of fences in that
    /// block.
    pub fences: (Fence, u32),
    /// The ticket from which this process adopted the lease; `None` if it acquired the lease.
    pub ticket: Option<Token>,
}

/// Describes a lease that has ended, or that no client of this process holds any more.
#[derive(Debug, PartialEq)]
pub struct EndedLease {
    pub key: Key,
    pub token: Token,
    /// The nodes that were asked to grant the lease again, as bits.
    pub repaired: u64,
    /// The ticket from which the lease was adopted, and the nodes that may still have it, as bits.
    pub ticket: Option<(Token, u64)>,
}

/// Describes how a majority granted or renewed a lease.
#[derive(Clone, Copy)]
pub struct Agreement {
    /// The vote round in which the nodes voted.
    pub vote_round: u64,
    /// The nodes that agreed, as bits.
    pub nodes: u64,
    /// The nodes that are known to have accepted the lease's new fence, as bits. `None` if the
    /// lease got no new fence.
    pub fenced: Option<u64>,
    /// The time at which the quorum asked the nodes.
    pub asked: Instant,
    pub ttl: Duration,
}

/// A granted lease.
struct TrackedLease {
    /// The nodes that granted or renewed the lease, as bits.
    nodes: u64,
    /// The nodes that are not known to have accepted the lease's last fence, as bits.
    unfenced: u64,
    /// The nodes that were asked to grant the lease again, as bits.
    repaired: u64,
    /// The nodes that may still have the ticket from which the lease was adopted, as bits.
    ticketed: u64,
    /// The last vote round that granted or renewed the lease.
    vote_round: u64,
    /// The time until which the holder may use the lease.
    valid_until: Instant,
    /// The latest time at which the lease ends at these nodes.
    until: Instant,
    terms: LeaseTerms,
}

/// See the module.
#[derive(Default)]
pub struct LeaseNodes {
    leases: FxHashMap<Token, TrackedLease>,
    /// The number of leases at which expired ones are removed next.
    prune_at: usize,
}

impl LeaseNodes {
    /// Notes that the lease of `token` was granted at `now`.
    pub fn granted(&mut self, now: Instant, token: Token, agreement: Agreement, terms: LeaseTerms) {
        if self.leases.len() >= self.prune_at {
            self.leases.retain(|_, tracked| now < tracked.until);
            self.prune_at = PRUNE_FROM.max(2 * self.leases.len());
        }
        let Agreement { vote_round, nodes, fenced, asked, ttl } = agreement;
        let (unfenced, repaired) = (fenced.map_or(0, |fenced| !fenced), 0);
        let ticketed = terms.ticket.map_or(0, |_| !nodes);
        let (valid_until, until) = (asked + ttl, now + ttl);
        let tracked =
            TrackedLease { nodes, unfenced, repaired, ticketed, vote_round, valid_until, until, terms };
        self.leases.insert(token, tracked);
    }

    /// Notes that the lease of `token` was renewed at `now`, and which `fences` it got, if any.
    /// Earlier answers of other nodes no longer count: the lease may end sooner there. Returns
    /// false if this process does not hold the lease any more, or if it has ended for its holder.
    pub fn renewed(
        &mut self,
        now: Instant,
        token: Token,
        agreement: Agreement,
        fences: Option<(Fence, u32)>,
    ) -> bool {
        let Some(tracked) = self.leases.get_mut(&token) else { return false };
        if now >= tracked.valid_until {
            self.leases.remove(&token);
            return false;
        }
        let Agreement { vote_round, nodes, fenced, asked, ttl } = agreement;
        (tracked.nodes, tracked.vote_round, tracked.until) = (nodes, vote_round, now + ttl);
        tracked.valid_until = tracked.valid_until.max(asked + ttl);
        // A node can have a reader's lease and the ticket at the same time.
        if !tracked.terms.mode.is_shared() {
            tracked.ticketed &= !nodes;
        }
        if let (Some(fences), Some(fenced)) = (fences, fenced)
            && tracked.terms.fences.0 < fences.0
        {
            (tracked.terms.fences, tracked.unfenced) = (fences, !fenced);
        }
        true
    }

    /// Notes that `node` agreed to the same vote round after it was decided.
    pub fn joined(&mut self, token: Token, vote_round: u64, node: usize) {
        if let Some(tracked) = self.leases.get_mut(&token).filter(|tracked| tracked.vote_round == vote_round)
        {
            tracked.nodes |= 1 << node;
            if !tracked.terms.mode.is_shared() {
                tracked.ticketed &= !(1 << node);
            }
        }
    }

    /// Returns the terms of the lease of `token` if its holder may still use the lease at `now`.
    pub fn terms(&self, now: Instant, token: Token) -> Option<&LeaseTerms> {
        self.leases.get(&token).filter(|tracked| now < tracked.valid_until).map(|tracked| &tracked.terms)
    }

    /// Notes that `node` is asked to grant the lease of `token` again.
    pub fn repairing(&mut self, token: Token, node: usize) {
        if let Some(tracked) = self.leases.get_mut(&token) {
            tracked.unfenced |= 1 << node;
            tracked.repaired |= 1 << node;
        }
    }

    /// Notes that `node` has accepted a block of fences of `token` that begins with `fence`.
    pub fn fenced(&mut self, token: Token, node: usize, fence: Fence) {
        if let Some(tracked) = self.leases.get_mut(&token).filter(|tracked| tracked.terms.fences.0 == fence) {
            tracked.unfenced &= !(1 << node);
        }
    }

    /// Returns the nodes that back the lease of `token` and are not known to have accepted its last
    /// fence, as bits.
    pub fn unfenced(&self, token: Token) -> u64 {
        self.leases.get(&token).map_or(0, |tracked| tracked.nodes & tracked.unfenced)
    }

    /// Forgets the lease of `token`: it has ended, or no client of this process holds it.
    pub fn forget(&mut self, token: Token) -> Option<EndedLease> {
        let TrackedLease { terms, repaired, ticketed, .. } = self.leases.remove(&token)?;
        let ticket = terms.ticket.map(|ticket| (ticket, ticketed));
        Some(EndedLease { key: terms.key, token, repaired, ticket })
    }

    /// Returns for each of the `nodes` how many leases it does not back, and the number of all
    /// leases. Leaves out a lease while `is_open` returns true for its last vote round: further
    /// nodes may still answer.
    pub fn missing(&self, now: Instant, nodes: usize, is_open: impl Fn(u64) -> bool) -> (Vec<usize>, usize) {
        let (mut missing, mut all) = (vec![0; nodes], 0);
        for tracked in self.leases.values() {
            if now >= tracked.valid_until || is_open(tracked.vote_round) {
                continue;
            }
            all += 1;
            for (node, count) in missing.iter_mut().enumerate() {
                *count += usize::from(tracked.nodes & 1 << node == 0);
            }
        }
        (missing, all)
    }

    /// Notes that `node` has lost its leases, and forgets each lease that fewer than `enough` nodes
    /// still back. Returns true if there was one.
    pub fn lost(&mut self, now: Instant, node: usize, enough: usize) -> bool {
        self.leases.retain(|_, tracked| now < tracked.until);
        let live = self.leases.len();
        for tracked in self.leases.values_mut() {
            tracked.nodes &= !(1 << node);
        }
        self.leases.retain(|_, tracked| tracked.nodes.count_ones() as usize >= enough);
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

    fn terms() -> LeaseTerms {
        let (mode, fences) = (Mode::Exclusive, (Fence(5), 1));
        LeaseTerms {
            key: "k".into(),
            mode,
            holder: "h".into(),
            outlives_process: false,
            fences,
            ticket: None,
        }
    }

    /// Returns the agreement of `nodes`, which answer at the instant at which they are asked.
    fn agreement(asked: Instant, vote_round: u64, nodes: u64) -> Agreement {
        Agreement { vote_round, nodes, fenced: Some(nodes), asked, ttl: TTL }
    }

    fn grant(lease_nodes: &mut LeaseNodes, ms: u64, token: Token, nodes: u64) {
        lease_nodes.granted(at(ms), token, agreement(at(ms), 1, nodes), terms());
    }

    #[test]
    fn a_lease_is_lost_with_the_node_that_its_majority_needs() {
        let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
        grant(&mut lease_nodes, 0, token, 0b011);
        lease_nodes.joined(token, 2, 2);
        assert!(!lease_nodes.lost(at(1), 2, 2), "that node was of another vote round");
        lease_nodes.joined(token, 1, 2);
        assert!(!lease_nodes.lost(at(1), 0, 2), "two nodes are left");
        assert!(lease_nodes.lost(at(1), 1, 2));
        assert!(!lease_nodes.lost(at(1), 2, 2), "it is forgotten");
    }

    #[test]
    fn only_the_last_renewal_counts() {
        let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
        grant(&mut lease_nodes, 0, token, 0b111);
        assert!(lease_nodes.renewed(at(1), token, agreement(at(1), 2, 0b101), None));
        lease_nodes.joined(token, 1, 1);
        assert!(lease_nodes.lost(at(2), 0, 2), "the lease may end sooner at the second node");
    }

    #[test]
    fn a_lease_that_ended_or_ran_out_is_none_to_lose() {
        let (mut lease_nodes, [one, other]) = (LeaseNodes::default(), [Token::random(), Token::random()]);
        grant(&mut lease_nodes, 0, one, 0b011);
        grant(&mut lease_nodes, 0, other, 0b011);
        assert_eq!(
            lease_nodes.forget(one),
            Some(EndedLease { key: "k".into(), token: one, repaired: 0, ticket: None })
        );
        assert!(!lease_nodes.lost(at(10_000), 0, 2));
    }

    #[test]
    fn leases_that_nobody_released_do_not_pile_up() {
        let mut lease_nodes = LeaseNodes::default();
        for i in 0..100_000 {
            let brief = Agreement { ttl: Duration::from_millis(100), ..agreement(at(i), i, 0b011) };
            lease_nodes.granted(at(i), Token::random(), brief, terms());
            assert!(lease_nodes.leases.len() <= PRUNE_FROM, "{}", lease_nodes.leases.len());
        }
    }

    #[test]
    fn a_renewal_that_comes_after_the_end_brings_nothing_back() {
        let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
        grant(&mut lease_nodes, 0, token, 0b011);
        assert!(lease_nodes.renewed(at(9_999), token, agreement(at(9_000), 2, 0b011), None));
        assert!(lease_nodes.terms(at(18_999), token).is_some());
        assert!(lease_nodes.terms(at(19_000), token).is_none(), "the ttl counts from the request");
        assert!(!lease_nodes.renewed(at(19_000), token, agreement(at(18_000), 3, 0b111), None));
        assert!(!lease_nodes.renewed(at(19_000), token, agreement(at(18_000), 4, 0b111), None));
        assert_eq!(lease_nodes.forget(token), None);
    }

    #[test]
    fn a_node_has_the_fence_when_it_has_accepted_the_last_one() {
        let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
        grant(&mut lease_nodes, 0, token, 0b011);
        lease_nodes.joined(token, 1, 2);
        assert_eq!(lease_nodes.unfenced(token), 0b100, "the node granted the lease after the decision");
        lease_nodes.fenced(token, 2, Fence(5));
        assert_eq!(lease_nodes.unfenced(token), 0);
        let more = Agreement { fenced: Some(0b101), ..agreement(at(1), 2, 0b111) };
        assert!(lease_nodes.renewed(at(1), token, more, Some((Fence(9), 64))));
        lease_nodes.fenced(token, 1, Fence(5));
        assert_eq!(lease_nodes.unfenced(token), 0b010, "the node accepted an older fence");
        assert_eq!(lease_nodes.terms(at(1), token).map(|terms| terms.fences), Some((Fence(9), 64)));
        lease_nodes.repairing(token, 0);
        assert_eq!(lease_nodes.unfenced(token), 0b011);
    }

    #[test]
    fn a_ticket_may_be_left_at_the_nodes_that_have_not_said_that_the_adopter_has_them() {
        let readers = Mode::Shared { most: u32::MAX };
        for (mode, left) in [(Mode::Exclusive, !0b1111), (readers, !0b0011)] {
            let (mut lease_nodes, [ticket, adopter]) =
                (LeaseNodes::default(), [Token::random(), Token::random()]);
            let adopted = LeaseTerms { mode, ticket: Some(ticket), ..terms() };
            lease_nodes.granted(at(0), adopter, agreement(at(0), 1, 0b0011), adopted);
            lease_nodes.joined(adopter, 1, 2);
            assert!(lease_nodes.renewed(at(1), adopter, agreement(at(1), 2, 0b1011), None));
            assert_eq!(lease_nodes.forget(adopter).and_then(|lease| lease.ticket), Some((ticket, left)));
        }
    }

    #[test]
    fn what_a_node_is_missing_is_counted_once_its_answer_is_in() {
        let (mut lease_nodes, [one, other]) = (LeaseNodes::default(), [Token::random(), Token::random()]);
        grant(&mut lease_nodes, 0, one, 0b011);
        lease_nodes.granted(at(0), other, agreement(at(0), 2, 0b111), terms());
        assert_eq!(lease_nodes.missing(at(1), 3, |_| false), (vec![0, 0, 1], 2));
        assert_eq!(lease_nodes.missing(at(1), 3, |vote_round| vote_round == 1), (vec![0, 0, 0], 1));
        assert_eq!(lease_nodes.missing(at(10_000), 3, |_| false), (vec![0, 0, 0], 0));
    }
}
