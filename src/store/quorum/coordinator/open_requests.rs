//! Tracks tokens with acquires and renewals that not all nodes have answered yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::lease::Token;

#[derive(Default)]
struct OpenToken {
    requests: u32,
    refused: bool,
}

/// See the module.
#[derive(Default)]
pub struct OpenRequests(HashMap<Token, OpenToken>);

impl OpenRequests {
    /// Notes that another request for the lease of `token` goes to the nodes.
    pub fn begin(&mut self, token: Token) {
        self.0.entry(token).or_default().requests += 1;
    }

    /// Notes that all nodes have answered one of the requests.
    pub fn end(&mut self, token: Token) {
        if let Entry::Occupied(mut open) = self.0.entry(token) {
            open.get_mut().requests -= 1;
            if open.get().requests == 0 {
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

    /// Returns true if a node still has to answer a request for the lease of `token`.
    pub fn contains(&self, token: Token) -> bool {
        self.0.contains_key(&token)
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
