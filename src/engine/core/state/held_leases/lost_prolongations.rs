//! Lost prolongations: leases that were lost here, and that the store may keep for much longer
//! because of a detachment or a renewal with a longer ttl. The holder does not count on that time:
//! its request has failed, so it has no ticket, and its lease has ended by the earlier ttl.
//!
//! **When such a lease is released.** Without the prolongation, it would end at the store by its
//! ttl. An earlier release would be wrong: the holder's work may still run, and the next holder
//! would work at the same time. So the engine releases the lease when it would have ended without
//! the prolongation. If the holder or the end of its client releases the lease, the work has ended,
//! and the engine does not wait.
//!
//! Touches its own maps, and uses the timers of the [`Context`].

use std::collections::{BTreeMap, HashMap};

use crate::engine::core::state::clean_ups::PossibleLease;
use crate::engine::core::state::context::{Context, Wake};
use crate::engine::ids::ClientId;
use crate::lease::{Instant, Token};

/// A lease that is to be released later. See the module.
pub struct LostProlongation {
    /// What the store may still have.
    pub lease: PossibleLease,
    /// When to release the lease.
    pub at: Instant,
    /// Whether a section runs under the lease.
    pub section: bool,
}

/// See the module.
#[derive(Default)]
pub struct LostProlongations {
    lost: BTreeMap<u64, LostProlongation>,
    of_token: HashMap<Token, u64>,
}

impl LostProlongations {
    pub fn add(&mut self, lost: LostProlongation, cx: &mut Context) {
        let id = cx.next_serial();
        cx.timers.schedule(lost.at, Wake::LostProlongation(id));
        self.of_token.insert(lost.lease.token, id);
        self.lost.insert(id, lost);
    }

    /// Takes out the lease with this number.
    pub fn take(&mut self, id: u64) -> Option<PossibleLease> {
        let LostProlongation { lease, .. } = self.lost.remove(&id)?;
        self.of_token.remove(&lease.token);
        Some(lease)
    }

    /// Takes out the lease of `token`.
    pub fn take_of(&mut self, token: Token) -> Option<PossibleLease> {
        let id = *self.of_token.get(&token)?;
        self.take(id)
    }

    /// Takes out the leases of the clients. Leaves leases of sections unless `sections` is true.
    pub fn take_of_clients(&mut self, clients: &[ClientId], sections: bool) -> Vec<PossibleLease> {
        let is_meant =
            |lost: &LostProlongation| clients.contains(&lost.lease.client) && (sections || !lost.section);
        let ids: Vec<u64> = self.lost.iter().filter(|(_, lost)| is_meant(lost)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.take(id)).collect()
    }

    /// Returns when the lease with this number is due.
    pub fn due_at(&self, id: u64) -> Option<Instant> {
        self.lost.get(&id).map(|lost| lost.at)
    }

    pub fn len(&self) -> usize {
        self.lost.len()
    }
}
