//! Keeps what the nodes of a quorum say about locks, until the quorum merges these views.

use super::info::LockInfo;
use super::list_filter::ListFilter;
use super::listing::Listing;

/// What the nodes of a quorum say about one lock, or about all locks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeViews {
    /// The locks, as the nodes show them.
    pub shown: ShownLocks,
    /// How many nodes were asked, and how many of them did not answer.
    pub counts: NodeCounts,
}

/// Counts the nodes of a quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeCounts {
    /// The nodes that were asked.
    pub total: usize,
    /// The nodes that did not answer.
    pub unheard: usize,
}

impl Default for ShownLocks {
    fn default() -> Self {
        Self::One(Vec::new())
    }
}

/// The locks that nodes show.
#[derive(Clone, Debug, PartialEq)]
pub enum ShownLocks {
    /// One lock, as each node that has it shows it.
    One(Vec<LockInfo>),
    /// All locks that a filter asks for.
    All {
        /// Says which locks are asked for.
        filter: ListFilter,
        /// The listing of each node that answered.
        listings: Vec<Listing>,
        /// How many nodes, at least, have to list a lock.
        enough: usize,
    },
}
