//! Tracks the repairs that are under way: requests that ask a node to grant a lease again, or to
//! accept the fence of a lease. Pure.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::lease::{Fence, Key, Token, Ttl};

/// Describes the repair of one lease at one node.
pub struct Repair {
    pub node: usize,
    pub key: Key,
    pub token: Token,
    pub ttl: Ttl,
    /// The fence that the node is asked to accept.
    pub fence: Fence,
}

/// Describes the repairs of one lease that are under way.
#[derive(Default)]
struct OpenRepair {
    /// The nodes that are asked, as bits.
    nodes: u64,
    /// True if the lease has ended, so that nodes which still grant it have to release it.
    refused: bool,
}

/// Keeps all repairs that are under way. See the module.
#[derive(Default)]
pub struct Repairs {
    repairs: FxHashMap<u64, Repair>,
    open: HashMap<Token, OpenRepair>,
}

impl Repairs {
    /// Notes that a node was asked.
    pub fn begin(&mut self, id: u64, repair: Repair) {
        self.open.entry(repair.token).or_default().nodes |= 1 << repair.node;
        self.repairs.insert(id, repair);
    }

    pub fn get(&self, id: u64) -> Option<&Repair> {
        self.repairs.get(&id)
    }

    /// Forgets a repair that its node has answered, and returns it.
    pub fn end(&mut self, id: u64) -> Option<Repair> {
        let repair = self.repairs.remove(&id)?;
        if let Some(open) = self.open.get_mut(&repair.token) {
            open.nodes &= !(1 << repair.node);
            if open.nodes == 0 {
                self.open.remove(&repair.token);
            }
        }
        Some(repair)
    }

    /// Returns true if a repair of the lease of `token` is under way at `node`.
    pub fn is_under_way(&self, token: Token, node: usize) -> bool {
        self.open.get(&token).is_some_and(|open| open.nodes & 1 << node != 0)
    }

    /// Returns true if a repair of the lease of `token` is under way at any node.
    pub fn is_open(&self, token: Token) -> bool {
        self.open.contains_key(&token)
    }

    /// Notes that the lease of `token` has ended. If a node still grants the lease, the quorum
    /// releases it there.
    pub fn refuse(&mut self, token: Token) {
        if let Some(open) = self.open.get_mut(&token) {
            open.refused = true;
        }
    }

    pub fn is_refused(&self, token: Token) -> bool {
        self.open.get(&token).is_some_and(|open| open.refused)
    }

    pub fn len(&self) -> usize {
        self.repairs.len()
    }
}
