//! Keeps the names of the nodes, and counts a majority.

use std::sync::Arc;

use crate::mutants::{self, Mutant};

/// See the module.
pub struct Nodes {
    pub names: Vec<Arc<str>>,
}

impl Nodes {
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the size of a majority: any two sets of that many nodes share a node.
    pub fn majority(&self) -> usize {
        self.count() / 2 + usize::from(!mutants::is(Mutant::HalfIsMost))
    }

    /// Returns the smallest number of nodes without which no majority is left.
    pub fn veto(&self) -> usize {
        self.count() - self.majority() + 1
    }
}
