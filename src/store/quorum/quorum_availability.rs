//! Tells whether a quorum can grant leases, from what the circuit breakers of its nodes tell. Pure.

use super::nodes::Nodes;
use super::votes;
use crate::store::{Answer, Availability};

/// Keeps the availability of the nodes, and of the quorum.
pub struct QuorumAvailability {
    nodes: Vec<Availability>,
    quorum: Availability,
}

impl QuorumAvailability {
    /// Creates the availability of a quorum of `count` usable nodes.
    pub fn new(count: usize) -> Self {
        Self { nodes: vec![Availability::Usable; count], quorum: Availability::Usable }
    }

    /// Notes what the breaker of `node` tells. Returns the availability of the quorum if that has
    /// changed. If more nodes go away while the quorum is away, nothing has changed.
    pub fn changed(&mut self, node: usize, told: Availability, nodes: &Nodes) -> Option<Availability> {
        self.nodes[node] = told;
        let count = |is: fn(&Availability) -> bool| self.nodes.iter().filter(|node| is(node)).count();
        let quorum = if count(Availability::is_away) >= nodes.veto() {
            let answer = |node: &Availability| match node {
                Availability::Away(error) => Some(Answer::Err(error.clone())),
                Availability::Usable | Availability::Refusing => None,
            };
            let answers: Vec<_> = self.nodes.iter().map(answer).collect();
            Availability::Away(votes::error(nodes, &answers, nodes.majority()))
        } else if count(|node| !node.is_usable()) >= nodes.veto() {
            Availability::Refusing
        } else {
            Availability::Usable
        };
        let is_news = std::mem::discriminant(&quorum) != std::mem::discriminant(&self.quorum);
        self.quorum = quorum;
        is_news.then(|| self.quorum.clone())
    }
}

#[cfg(test)]
#[path = "quorum_availability_tests.rs"]
mod tests;
