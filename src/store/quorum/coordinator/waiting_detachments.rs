//! Keeps the detachments that wait for the answers to earlier requests: see `detaching`. Finds them
//! by the tokens of their leases, and by the times until which they wait.

use std::collections::{BTreeMap, HashMap};

use crate::lease::{Instant, Token};
use crate::store::Request;

/// A detachment that waits.
pub struct WaitingDetachment {
    pub batch: u64,
    pub index: usize,
    pub token: Token,
    pub request: Request,
    /// The nodes are asked at that instant, even if some have not answered the earlier requests.
    pub until: Instant,
    /// When the detachment has to be answered.
    pub deadline: Instant,
}

/// See the module.
#[derive(Default)]
pub struct WaitingDetachments {
    /// By the time until which each waits, and by its number in the order of arrival.
    waiting: BTreeMap<(Instant, u64), WaitingDetachment>,
    of_token: HashMap<Token, Vec<(Instant, u64)>>,
    /// The tokens with waiting detachments for which nodes have answered a request since the last
    /// [`WaitingDetachments::take_ready`].
    answered: Vec<Token>,
    /// The last number that a detachment got.
    last: u64,
}

impl WaitingDetachments {
    pub fn add(&mut self, detachment: WaitingDetachment) {
        self.last += 1;
        let place = (detachment.until, self.last);
        self.of_token.entry(detachment.token).or_default().push(place);
        self.waiting.insert(place, detachment);
    }

    /// Notes that the nodes have answered an earlier request for the lease of `token`.
    pub fn answered(&mut self, token: Token) {
        if self.of_token.contains_key(&token) {
            self.answered.push(token);
        }
    }

    /// Takes the detachments that have waited for long enough, in the order of arrival.
    /// `is_asked_for` says whether a node still has to answer an earlier request for the lease of a
    /// token.
    pub fn take_ready(
        &mut self,
        now: Instant,
        is_asked_for: impl Fn(Token) -> bool,
    ) -> Vec<WaitingDetachment> {
        let mut ready = Vec::new();
        for token in std::mem::take(&mut self.answered) {
            if !is_asked_for(token) {
                ready.extend(self.of_token.remove(&token).into_iter().flatten());
            }
        }
        let due = self.waiting.iter().take_while(|((until, _), _)| *until <= now);
        for (place, WaitingDetachment { token, .. }) in due {
            // Otherwise it is ready already.
            if let Some(places) = self.of_token.get_mut(token) {
                places.retain(|of_token| of_token != place);
                if places.is_empty() {
                    self.of_token.remove(token);
                }
                ready.push(*place);
            }
        }
        ready.sort_unstable_by_key(|(_, number)| *number);
        ready.iter().filter_map(|place| self.waiting.remove(place)).collect()
    }

    /// Returns when the next detachment stops waiting.
    pub fn next_wake(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}
