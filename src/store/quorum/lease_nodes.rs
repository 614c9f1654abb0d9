//! Tracks which nodes back each granted lease. If a node loses all its leases, the quorum knows
//! which of its own leases have no majority any more. Keeps the terms of each lease: the quorum
//! sends them to a node that does not know the lease. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::adopted_ends::AdoptedEnds;
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
    /// The nodes that granted or last renewed the lease, as bits.
    pub nodes: u64,
    /// The time until which its holder may have used the lease.
    pub valid_until: Instant,
    /// The nodes that may have the lease, as bits: all but those that certainly never granted it.
    pub may_have: u64,
    /// The latest time at which the lease ends at these nodes by its ttl. Requests without an
    /// answer count.
    pub may_live_until: Instant,
}

/// Describes how a majority granted or renewed a lease.
#[derive(Clone, Copy)]
pub struct Agreement {
    /// The vote round in which the nodes voted.
    pub vote_round: u64,
    /// The nodes that agreed, as bits.
    pub nodes: u64,
    /// The nodes that had answered when the quorum decided, as bits.
    pub answered: u64,
    /// The nodes that certainly did not carry the request out, as bits.
    pub undone: u64,
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
    /// The nodes whose last answer did not confirm the lease, as bits.
    lacking: u64,
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
    /// The latest time at which the lease ends at these nodes, as far as they have answered in
    /// time. Decides when an adopted lease ends.
    until: Instant,
    /// The nodes that may have the lease, as bits.
    may_have: u64,
    /// The latest time at which a node ends the lease. Requests without an answer count, so the
    /// holder can't rely on that time. Decides how long a refused release is repeated.
    may_live_until: Instant,
    terms: LeaseTerms,
}

impl TrackedLease {
    /// Returns when the lease has ended for its holder, and would have ended at the nodes if it had
    /// not been adopted.
    fn ends(&self) -> Instant {
        self.until.max(self.valid_until)
    }

    /// Returns true if the lease stays tracked after its end: nodes may have the ticket from which
    /// it was adopted. The quorum releases such a lease at its end. If a detachment was sent, the
    /// engine releases it.
    fn outlasts_its_end(&self) -> bool {
        self.terms.ticket.is_some()
    }
}

/// See the module.
#[derive(Default)]
pub struct LeaseNodes {
    leases: HashMap<Token, TrackedLease>,
    /// The ends of adopted leases, except for those that may be detached. [`LeaseNodes::ended`]
    /// returns these leases after their end.
    adopted: AdoptedEnds,
    /// The number of leases at which expired ones are removed next.
    prune_at: usize,
}

impl LeaseNodes {
    /// Notes that the lease of `token` was granted at `now`.
    pub fn granted(&mut self, now: Instant, token: Token, agreement: Agreement, terms: LeaseTerms) {
        if self.leases.len() >= self.prune_at {
            self.leases.retain(|_, tracked| now < tracked.may_live_until || tracked.outlasts_its_end());
            self.prune_at = PRUNE_FROM.max(2 * self.leases.len());
        }
        let Agreement { vote_round, nodes, answered, undone, fenced, asked, ttl } = agreement;
        let lacking = self.leases.get(&token).map_or(0, |before| before.lacking);
        let lacking = (lacking | answered) & !nodes;
        let (unfenced, repaired) = (fenced.map_or(0, |fenced| !fenced), 0);
        let ticketed = terms.ticket.map_or(0, |_| !nodes);
        let (mut valid_until, mut until) = (asked + ttl, now + ttl);
        // A repeated adoption does not shorten the lease.
        if let Some(before) = self.leases.get(&token).filter(|_| self.adopted.contains(token)) {
            (valid_until, until) = (valid_until.max(before.valid_until), until.max(before.until));
        }
        let before = self.leases.get(&token).map_or(until, |before| before.may_live_until);
        let tracked = TrackedLease {
            nodes,
            lacking,
            unfenced,
            repaired,
            ticketed,
            vote_round,
            valid_until,
            until,
            may_have: !undone,
            may_live_until: until.max(before),
            terms,
        };
        match tracked.terms.ticket {
            Some(_) => self.adopted.set(token, tracked.ends()),
            None => self.adopted.remove(token),
        };
        self.leases.insert(token, tracked);
    }

    /// Notes that the lease of `token` was renewed at `now`, and which `fences` it got, if any.
    /// Other nodes no longer back the lease: it may end sooner there. Returns false if this process
    /// does not hold the lease any more, or if it has ended for its holder.
    pub fn renewed(
        &mut self,
        now: Instant,
        token: Token,
        agreement: Agreement,
        fences: Option<(Fence, u32)>,
    ) -> bool {
        let Some(tracked) = self.leases.get_mut(&token) else { return false };
        if now >= tracked.valid_until {
            if tracked.outlasts_its_end() {
                tracked.until = tracked.until.max(now + agreement.ttl);
                self.adopted.change(token, tracked.ends());
            }
            return false;
        }
        let Agreement { vote_round, nodes, answered, undone: _, fenced, asked, ttl } = agreement;
        (tracked.nodes, tracked.vote_round, tracked.until) = (nodes, vote_round, now + ttl);
        tracked.lacking = (tracked.lacking | answered) & !nodes;
        tracked.valid_until = tracked.valid_until.max(asked + ttl);
        self.adopted.change(token, tracked.ends());
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

    /// Notes that `node` agreed to a vote round after it was decided. The node backs the lease if
    /// that was the last vote round.
    pub fn joined(&mut self, token: Token, vote_round: u64, node: usize) {
        let Some(tracked) = self.leases.get_mut(&token) else { return };
        tracked.lacking &= !(1 << node);
        if tracked.vote_round == vote_round {
            tracked.nodes |= 1 << node;
            tracked.may_have |= 1 << node;
            if !tracked.terms.mode.is_shared() {
                tracked.ticketed &= !(1 << node);
            }
        }
    }

    /// Notes that `node` did not agree to a vote round after it was decided.
    pub fn refused(&mut self, token: Token, node: usize) {
        if let Some(tracked) = self.leases.get_mut(&token) {
            tracked.lacking |= 1 << node;
        }
    }

    /// Notes that `node` certainly did not grant the lease of `token` in that vote round.
    pub fn not_granted(&mut self, token: Token, vote_round: u64, node: usize) {
        if let Some(tracked) = self.leases.get_mut(&token).filter(|tracked| tracked.vote_round == vote_round)
        {
            tracked.may_have &= !(1 << node) | tracked.nodes | tracked.repaired;
        }
    }

    /// Notes that a node may keep the lease of `token` until `end`, whether or not the holder hears
    /// of that.
    pub fn may_live(&mut self, token: Token, end: Instant) {
        if let Some(tracked) = self.leases.get_mut(&token) {
            tracked.may_live_until = tracked.may_live_until.max(end);
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
            tracked.may_have |= 1 << node;
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
        self.adopted.remove(token);
        let lease = self.leases.remove(&token)?;
        let may_live_until = lease.may_live_until.max(lease.ends());
        let TrackedLease { terms, repaired, ticketed, nodes, valid_until, may_have, .. } = lease;
        let (key, ticket) = (terms.key, terms.ticket.map(|ticket| (ticket, ticketed)));
        Some(EndedLease { key, token, repaired, ticket, nodes, valid_until, may_have, may_live_until })
    }

    /// Notes that the process has asked the nodes to detach the lease of `token`. The nodes may
    /// detach the lease even if the request fails, so the lease no longer counts as adopted.
    pub fn detaching(&mut self, token: Token) {
        self.adopted.remove(token);
    }

    /// Returns true if the lease of `token` was adopted and no longer counts as adopted.
    pub fn is_detaching(&self, token: Token) -> bool {
        let tracked = self.leases.get(&token);
        tracked.is_some_and(|tracked| tracked.terms.ticket.is_some()) && !self.adopted.contains(token)
    }

    /// Notes that the lease of `token`, which was adopted, was not detached. It counts as adopted
    /// again.
    pub fn not_detached(&mut self, token: Token) {
        if self.is_detaching(token)
            && let Some(tracked) = self.leases.get(&token)
        {
            self.adopted.set(token, tracked.ends());
        }
    }

    /// Returns the adopted leases that have ended without a release. The caller has to
    /// [forget](LeaseNodes::forget) or to [postpone](LeaseNodes::postpone) them: until then, they
    /// stay tracked.
    pub fn ended(&self, now: Instant) -> Vec<Token> {
        self.adopted.ended(now)
    }

    /// Makes the adopted lease of `token` end at `end` for [`LeaseNodes::ended`].
    pub fn postpone(&mut self, token: Token, end: Instant) {
        self.adopted.change(token, end);
    }

    /// Returns when the next adopted lease ends unless it is renewed.
    pub fn next_end(&self) -> Option<Instant> {
        self.adopted.next()
    }

    /// Returns for each of the `nodes` how many leases it lacks, and the number of all leases.
    ///
    /// While `is_open` returns true for the last vote round of a lease, further nodes may still
    /// answer, so the last answer of each node counts. After that, a node lacks the leases that it
    /// does not back.
    pub fn missing(&self, now: Instant, nodes: usize, is_open: impl Fn(u64) -> bool) -> (Vec<usize>, usize) {
        let (mut missing, mut all) = (vec![0; nodes], 0);
        for tracked in self.leases.values() {
            if now >= tracked.valid_until {
                continue;
            }
            all += 1;
            let lacking = if is_open(tracked.vote_round) { tracked.lacking } else { !tracked.nodes };
            for (node, count) in missing.iter_mut().enumerate() {
                *count += usize::from(lacking & 1 << node != 0);
            }
        }
        (missing, all)
    }

    /// Notes that `node` has lost its leases. Each lease that fewer than `enough` nodes still back
    /// ends for its holder. Returns true if a lease was lost that its holder could still use.
    pub fn lost(&mut self, now: Instant, node: usize, enough: usize) -> bool {
        let mut any = false;
        self.leases.retain(|_, tracked| {
            let was_valid = now < tracked.valid_until;
            tracked.nodes &= !(1 << node);
            tracked.lacking |= 1 << node;
            let is_lost = (tracked.nodes.count_ones() as usize) < enough;
            any |= was_valid && is_lost;
            if is_lost {
                tracked.valid_until = tracked.valid_until.min(now);
            }
            now < tracked.may_live_until || tracked.outlasts_its_end()
        });
        any
    }
}

#[cfg(test)]
#[path = "lease_nodes_tests.rs"]
mod tests;
