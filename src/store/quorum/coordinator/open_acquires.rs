//! Tracks tokens with acquires that not all nodes have answered yet.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

use crate::lease::Token;

#[derive(Default)]
struct OpenAcquire {
    acquires: u32,
    refused: bool,
}

/// See the module.
#[derive(Default)]
pub struct OpenAcquires(FxHashMap<Token, OpenAcquire>);

impl OpenAcquires {
    /// Notes that another acquire of `token` goes to the nodes.
    pub fn begin(&mut self, token: Token) {
        self.0.entry(token).or_default().acquires += 1;
    }

    /// Notes that all nodes have answered one of the acquires.
    pub fn end(&mut self, token: Token) {
        if let Entry::Occupied(mut open) = self.0.entry(token) {
            open.get_mut().acquires -= 1;
            if open.get().acquires == 0 {
                open.remove();
            }
        }
    }

    /// Notes that `token` was released or is no longer used.
    pub fn refuse(&mut self, token: Token) {
        if let Some(open) = self.0.get_mut(&token) {
            open.refused = true;
        }
    }

    /// Returns the number of tokens.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if `token` is no longer used: a node that still grants it a lease has to
    /// release that lease.
    pub fn is_refused(&self, token: Token) -> bool {
        self.0.get(&token).is_some_and(|open| open.refused)
    }
}
