//! Tracks the nodes that are asked to grant a lease that they do not know, although most nodes do. Pure.

use rustc_hash::FxHashMap;

use crate::lease::{Fence, Key, Token};

/// One node's repair of one lease.
pub struct Repair {
    pub node: usize,
    pub key: Key,
    pub token: Token,
    /// The fence that the node is asked to accept.
    pub fence: Fence,
}

/// What is under way of one lease.
#[derive(Default)]
struct Open {
    /// The nodes that are asked, as bits.
    nodes: u64,
    refused: bool,
}

/// See the module.
#[derive(Default)]
pub struct Repairs {
    repairs: FxHashMap<u64, Repair>,
    open: FxHashMap<Token, Open>,
}

impl Repairs {
    /// Notes that a node is asked.
    pub fn begin(&mut self, id: u64, repair: Repair) {
        self.open.entry(repair.token).or_default().nodes |= 1 << repair.node;
        self.repairs.insert(id, repair);
    }

    pub fn get(&self, id: u64) -> Option<&Repair> {
        self.repairs.get(&id)
    }

    /// Forgets a repair that its node has answered.
    pub fn end(&mut self, id: u64) {
        let Some(Repair { token, node, .. }) = self.repairs.remove(&id) else { return };
        if let Some(open) = self.open.get_mut(&token) {
            open.nodes &= !(1 << node);
            if open.nodes == 0 {
                self.open.remove(&token);
            }
        }
    }

    /// Returns whether `node` is asked for the lease of `token`.
    pub fn is_under_way(&self, token: Token, node: usize) -> bool {
        self.open.get(&token).is_some_and(|open| open.nodes & 1 << node != 0)
    }

    /// Notes that the lease of `token` has ended: what a node still grants it is to be released.
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
