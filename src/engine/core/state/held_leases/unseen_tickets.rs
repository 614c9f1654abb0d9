//! Remembers the leases that the store has detached, until the JavaScript thread has seen that. If
//! the environment ends before, no caller gets a ticket, so the leases have to be released. Plain
//! data; touches only its own list.

use std::sync::Arc;

use crate::engine::core::state::clean_ups::PossibleLease;
use crate::engine::ids::EnvId;
use crate::engine::known_lease::KnownLease;
use crate::lease::Instant;

/// The fewest leases at which those that were seen or have ended are removed. If this is smaller,
/// a few leases are searched again and again. If it is larger, the others take more memory.
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
    /// The number of leases at which those that were seen or have ended are removed next.
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

    /// Takes out the leases of `env` that its thread has not seen, and no longer can.
    pub fn take(&mut self, env: EnvId) -> Vec<PossibleLease> {
        let of_env = self.unseen.extract_if(.., |ticket| ticket.env == env);
        of_env.filter(|ticket| !ticket.state.is_ticket_seen()).map(|ticket| ticket.lease).collect()
    }
}
