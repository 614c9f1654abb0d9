//! Notices: what a store says by itself, and whom it concerns.

use std::time::Duration;

use super::Core;
use crate::engine::command::{OpId, StoreId};
use crate::lease::{Instant, LossReason, Phase};
use crate::store::Notice;

/// The time between two renewals when the engine renews all leases of a store. If this is smaller,
/// the renewals of 100 000 leases delay everything else for longer. If it is larger, more leases
/// end before their turn.
const RENEWAL_PACE: Duration = Duration::from_micros(10);

impl Core {
    /// A store says something by itself.
    pub fn noticed(&mut self, now: Instant, store: StoreId, notice: Notice) {
        self.begin(now);
        match notice {
            Notice::Granted { number, fence } => self.guarded(None, |core| {
                let Some(ticket) = core.ticket_called(number) else { return };
                if !fence.is_some_and(|fence| core.take_up(ticket, number, fence)) {
                    core.look(ticket);
                }
            }),
            Notice::Breaker(health) => self.health_changed(store, health),
            Notice::Availability(told) => self.availability_changed(store, told),
            Notice::Missed => self.look_for_all(store),
            Notice::Moved => self.moved(store),
            // The acknowledgement is dropped when this returns. By then, every holder's lease
            // counts as lost.
            Notice::Lost(_acknowledgement) => self.lose_all(store),
        }
    }

    fn look_for_all(&mut self, store: StoreId) {
        let mut waiting: Vec<(u64, u64)> = self
            .tickets
            .iter()
            // A ticket whose look is on its way may have been queued before.
            .filter(|(_, ticket)| ticket.wanted.store == store && (ticket.queued || ticket.looking))
            .map(|(number, ticket)| (ticket.arrival, *number))
            .collect();
        // In arrival order: if the store has lost the queue, these requests rebuild it in that
        // order.
        waiting.sort_unstable();
        for (_, number) in waiting {
            self.guarded(None, |core| core.look(number));
        }
    }

    /// Renews all leases of the store after another server has replaced its server. Then repeats
    /// the releases that failed, and lets waiters and failed acquires ask again.
    fn moved(&mut self, store: StoreId) {
        let held = self.tenures.iter().filter(|(_, tenure)| tenure.store == store);
        let mut held: Vec<(Instant, OpId)> = held.map(|(op, tenure)| (tenure.deadline, *op)).collect();
        // Renew first the lease that would end first.
        held.sort_unstable();
        for (place, (_, op)) in held.into_iter().enumerate() {
            self.renew_soon(op, RENEWAL_PACE * u32::try_from(place).unwrap_or(u32::MAX));
        }
        self.clean_up_after_an_outage(store);
        self.look_for_all(store);
        self.look_after_an_outage(store);
    }

    /// Marks all leases of the store as lost, and lets its waiters ask again.
    fn lose_all(&mut self, store: StoreId) {
        let now = self.now;
        if let Some(link) = self.stores.get_mut(&store) {
            link.lost_at = Some(now);
        }
        let lost = self.tenures.iter().filter(|(_, tenure)| tenure.store == store);
        let mut lost: Vec<OpId> = lost.map(|(op, _)| *op).collect();
        lost.sort_unstable();
        // Change all states first: the users' threads read them, but are notified one after the
        // other.
        for op in &lost {
            if let Some(tenure) = self.tenures.get_mut(op) {
                // A lost lease must not be handed on within the process.
                tenure.hand_off = None;
                tenure.state.lose(now, LossReason::Missing);
            }
        }
        for op in lost {
            self.guarded(Some(op), |core| core.lost_with_its_store(op));
        }
        self.look_for_all(store);
    }

    fn lost_with_its_store(&mut self, op: OpId) {
        let Some(tenure) = self.tenures.get(&op) else { return };
        // If the holder has released the lease, that command is on its way here.
        if let Phase::Lost(reason) = tenure.state.phase(self.now) {
            self.lose(op, reason);
        }
    }

    /// Returns whether the answer of `store` to a request sent at `sent` may concern leases that
    /// the store has lost since.
    pub(super) fn is_outdated(&self, store: StoreId, sent: Instant) -> bool {
        self.stores.get(&store).is_some_and(|link| link.lost_at.is_some_and(|lost_at| sent <= lost_at))
    }
}
