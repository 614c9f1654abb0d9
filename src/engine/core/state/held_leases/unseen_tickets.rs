//! Remembers the leases that the store has detached, until the JavaScript thread has seen their
//! detachment. If the environment ends first, no caller gets the tickets, so the engine has to
//! release these leases. Plain data; touches only its own list.

use std::sync::Arc;

use crate::engine::core::state::clean_ups::PossibleLease;
use crate::engine::ids::EnvId;
use crate::engine::known_lease::KnownLease;
use crate::lease::Instant;

/// The fewest leases in the list at which those that were seen or have ended are removed. If this
/// is smaller, short lists are searched more often. If it is larger, leases that nobody needs take
/// more memory.
const PRUNE_FROM: usize = 64;

struct UnseenTicket {
    env: EnvId,
    state: Arc<KnownLease>,
    lease: PossibleLease,
}

/// See the module.
#[derive(Default)]
pub struct UnseenTickets {
    unseen: Vec<UnseenTicket>,
    /// The number of leases in the list at which the next removal takes place.
    prune_at: usize,
}

impl UnseenTickets {
    /// Adds a lease that was detached for a caller of `env`.
    pub fn add(&mut self, env: EnvId, state: Arc<KnownLease>, lease: PossibleLease, now: Instant) {
        if self.unseen.len() >= self.prune_at {
            self.unseen.retain(|ticket| !ticket.state.is_ticket_seen() && now < ticket.lease.until);
            self.prune_at = PRUNE_FROM.max(2 * self.unseen.len());
        }
        self.unseen.push(UnseenTicket { env, state, lease });
    }

    /// Removes all leases of `env`. Returns those whose detachment its thread has not seen.
    pub fn take(&mut self, env: EnvId) -> Vec<PossibleLease> {
        let of_env = self.unseen.extract_if(.., |ticket| ticket.env == env);
        of_env.filter(|ticket| !ticket.state.is_ticket_seen()).map(|ticket| ticket.lease).collect()
    }
}
