//! Remembers the leases that the store has detached, until their callers have the tickets. If an
//! environment ends before, no caller gets the ticket, so the lease has to be released. The
//! clean-up that does this exists from the detachment on, but sends nothing before the environment
//! ends. It counts as an outstanding request: neither the client nor its store is forgotten before
//! the caller has the ticket. Touches only its own map.

use std::collections::HashMap;

use crate::engine::ids::EnvId;
use crate::lease::Token;

/// See the module.
#[derive(Default)]
pub struct UnseenTickets {
    /// The clean-up of each lease, which has sent nothing yet.
    clean_ups: HashMap<(EnvId, Token), u64>,
}

impl UnseenTickets {
    /// Adds the lease of `token`, which was detached for a caller of `env`.
    pub fn add(&mut self, env: EnvId, token: Token, clean_up: u64) {
        self.clean_ups.insert((env, token), clean_up);
    }

    /// Removes the lease of `token`, because its caller has the ticket. Returns its clean-up.
    pub fn see(&mut self, env: EnvId, token: Token) -> Option<u64> {
        self.clean_ups.remove(&(env, token))
    }

    /// Removes the leases of `env`, which has ended. Returns their clean-ups, in the order of the
    /// detachments.
    pub fn take(&mut self, env: EnvId) -> Vec<u64> {
        let mut taken: Vec<u64> =
            self.clean_ups.extract_if(|(of, _), _| *of == env).map(|(_, clean_up)| clean_up).collect();
        taken.sort_unstable();
        taken
    }
}
