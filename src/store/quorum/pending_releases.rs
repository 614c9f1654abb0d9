//! Keeps the releases and moves that nodes of a quorum still have to carry out. Pure.
//!
//! A quorum answers a release when most nodes have carried it out. The quorum asks the other nodes
//! again: at a node that has not heard of the release, the lease keeps the lock from other clients
//! until its ttl ends. The claims of an adoption that failed go back to its ticket in the same way.
//! If an earlier request for the token may still be on its way to a node, the quorum asks the node
//! several times.

mod move_result;
mod node_releases;
mod release_table;
mod token_change;

use std::time::Duration;

pub use self::move_result::MoveResult;
use self::node_releases::NodeReleases;
use self::token_change::SHORTEST_PAUSE;
#[cfg(test)]
pub use self::token_change::STRAGGLER_PAUSES;
pub use self::token_change::TokenChange;
use super::release_result::ReleaseResult;
use crate::lease::{Instant, Token};
use crate::store::Answer;

/// Keeps what all nodes still have to carry out. See the module.
pub struct PendingReleases {
    nodes: Vec<NodeReleases>,
}

impl PendingReleases {
    pub fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| NodeReleases::default()).collect() }
    }

    /// Notes that `node` may still grant `token` a lease, which then lives for `life`.
    pub fn set_in_doubt(&mut self, now: Instant, node: usize, token: Token, life: Duration) {
        self.nodes[node].in_doubt.add(now, token, life);
    }

    /// Takes the `answer` of `node` to a release. Adds the release if the node may not have carried
    /// it out, or may still grant the lease.
    pub fn released(&mut self, now: Instant, node: usize, mut release: TokenChange, answer: &Answer) {
        let node_releases = &mut self.nodes[node];
        let is_straggler = node_releases.settle_doubt(now, &mut release);
        let ends = release.ends_after(now).max(release.ends);
        let result = ReleaseResult::of(answer, now, ends);
        if result == ReleaseResult::Refused {
            release.ends = ends;
        }
        if result != ReleaseResult::Done || is_straggler {
            node_releases.add(now, release, is_straggler, SHORTEST_PAUSE);
        }
    }

    /// Adds for `node` the release of a token, which may have a lease or a place there.
    /// `is_straggler` says that the request that creates it may still be on its way.
    pub fn add(&mut self, now: Instant, node: usize, mut release: TokenChange, is_straggler: bool) {
        let node_releases = &mut self.nodes[node];
        let is_straggler = node_releases.settle_doubt(now, &mut release) || is_straggler;
        // Release it at once: until then, it may keep the lock from other clients.
        node_releases.add(now, release, is_straggler, Duration::ZERO);
    }

    /// Adds `change` for `node`, which may hold the lease for a claim or an adopter. `is_straggler`
    /// says that the request that gives the lease to `change.token` may still be on its way.
    pub fn add_move(&mut self, now: Instant, node: usize, change: TokenChange, is_straggler: bool) {
        self.nodes[node].add(now, change, is_straggler, Duration::ZERO);
    }

    /// Changes the pending releases that would move a lease to `token`: they move it to `to`, or
    /// release it after the move if `to` is `None`. If a request was sent to move it to `token`,
    /// that request may still be on its way, so the node also has to carry out the move from
    /// `token` to `to`.
    pub fn redirect(&mut self, now: Instant, token: Token, to: Option<Token>) {
        for node_releases in &mut self.nodes {
            node_releases.redirect(now, token, to);
        }
    }

    /// Changes the pending releases that would move a lease to `token`, which is the next ticket by
    /// now: the nodes move these leases to the token `unused` instead, and then release them. A
    /// node that has already moved a lease to `token` keeps that lease.
    pub fn release_moved(&mut self, token: Token, unused: Token) {
        for node_releases in &mut self.nodes {
            node_releases.release_moved(token, unused);
        }
    }

    /// Takes what `node` answered to the pending releases that were due. Call it before
    /// [`PendingReleases::answered`]. If another adopter has claimed a lease, the node still has to
    /// carry out the same move from that claim.
    pub fn said(&mut self, now: Instant, node: usize, said: &[MoveResult]) {
        self.nodes[node].said(now, said);
    }

    /// Returns what each node has to carry out now.
    pub fn due(&mut self, now: Instant) -> Vec<(usize, Vec<TokenChange>)> {
        let nodes = self.nodes.iter_mut().enumerate();
        nodes
            .map(|(node, node_releases)| (node, node_releases.take_due(now)))
            .filter(|(_, changes)| !changes.is_empty())
            .collect()
    }

    /// Takes the `answers` of `node` to what was due. A refusal says nothing about other changes,
    /// so only a failure delays them. `jitter` is from 0 to 1.
    pub fn answered(&mut self, now: Instant, node: usize, answers: &[Answer], jitter: f64) {
        self.nodes[node].answered(now, answers, jitter);
    }

    /// Returns when something is due next.
    pub fn next_wake(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(NodeReleases::next_wake).min()
    }

    /// Returns the number of pending releases of all nodes.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(NodeReleases::len).sum()
    }
}

#[cfg(test)]
#[path = "pending_releases_tests.rs"]
mod tests;
