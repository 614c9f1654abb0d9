//! Keeps the pending releases of one node. Finds them by their token, by their target, by the time
//! at which they are due, and by the time at which they end. Pure.
//!
//! A node that is away may have thousands of pending releases, and each end of an adoption changes
//! some of them. So no step searches all of them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::token_change::TokenChange;
use crate::lease::{Instant, Token};

/// A release or a move that the node still has to carry out.
pub(super) struct PendingRelease {
    pub(super) change: TokenChange,
    pub(super) due: Instant,
    pub(super) until: Instant,
    /// The pauses before the further requests for it.
    pub(super) again: &'static [Duration],
    /// True if a request for this pending release was sent.
    pub(super) sent: bool,
}

impl PendingRelease {
    /// Returns when the node frees the lock without the release, as far as that is known.
    fn end(&self) -> Instant {
        self.change.ends.map_or(self.until, |ends| ends.min(self.until))
    }
}

struct Entry {
    pending: PendingRelease,
    /// Distinguishes releases that are due or end at the same time, in the order in which they were
    /// added.
    number: u64,
    /// True if its request is on its way to the node.
    in_flight: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct ReleaseTable {
    entries: HashMap<Token, Entry>,
    /// The tokens of the releases that are not in flight, by the times at which they are due.
    by_due: BTreeMap<(Instant, u64), Token>,
    /// The same tokens by their ends.
    by_end: BTreeMap<(Instant, u64), Token>,
    /// The tokens of all moves by the tokens that get the leases.
    by_target: HashMap<Token, Vec<Token>>,
    /// The last number that an entry got.
    last: u64,
}

impl ReleaseTable {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn get(&self, token: Token) -> Option<&PendingRelease> {
        self.entries.get(&token).map(|entry| &entry.pending)
    }

    pub(super) fn is_in_flight(&self, token: Token) -> bool {
        self.entries.get(&token).is_some_and(|entry| entry.in_flight)
    }

    /// Adds a pending release behind those that are due at the same time. Its token must not have
    /// one.
    pub(super) fn add(&mut self, pending: PendingRelease) {
        self.last += 1;
        self.put(Entry { pending, number: self.last, in_flight: false });
    }

    /// Changes the pending release of `token`.
    pub(super) fn update(&mut self, token: Token, change: impl FnOnce(&mut PendingRelease)) {
        if let Some(mut entry) = self.take(token) {
            change(&mut entry.pending);
            self.put(entry);
        }
    }

    pub(super) fn set_in_flight(&mut self, token: Token) {
        if let Some(mut entry) = self.take(token) {
            (entry.in_flight, entry.pending.sent) = (true, true);
            self.put(entry);
        }
    }

    pub(super) fn remove(&mut self, token: Token) -> Option<PendingRelease> {
        self.take(token).map(|entry| entry.pending)
    }

    /// Removes the pending release that ends first, of those that are not in flight.
    pub(super) fn remove_first_end(&mut self) {
        if let Some(token) = self.by_end.first_key_value().map(|(_, token)| *token) {
            self.take(token);
        }
    }

    /// Returns the token whose release is due first, and when. Leaves out those in flight.
    pub(super) fn first_due(&self) -> Option<(Instant, Token)> {
        self.by_due.first_key_value().map(|((due, _), token)| (*due, *token))
    }

    /// Returns the tokens whose leases move to `target`.
    pub(super) fn moving_to(&self, target: Token) -> Vec<Token> {
        self.by_target.get(&target).cloned().unwrap_or_default()
    }

    fn put(&mut self, entry: Entry) {
        let Entry { pending, number, in_flight } = &entry;
        let token = pending.change.token;
        if !in_flight {
            self.by_due.insert((pending.due, *number), token);
            self.by_end.insert((pending.end(), *number), token);
        }
        if let Some(target) = pending.change.to {
            self.by_target.entry(target).or_default().push(token);
        }
        self.entries.insert(token, entry);
    }

    fn take(&mut self, token: Token) -> Option<Entry> {
        let entry = self.entries.remove(&token)?;
        let Entry { pending, number, in_flight } = &entry;
        if !in_flight {
            self.by_due.remove(&(pending.due, *number));
            self.by_end.remove(&(pending.end(), *number));
        }
        if let Some(target) = pending.change.to
            && let Some(tokens) = self.by_target.get_mut(&target)
        {
            tokens.retain(|of| *of != token);
            if tokens.is_empty() {
                self.by_target.remove(&target);
            }
        }
        Some(entry)
    }
}
