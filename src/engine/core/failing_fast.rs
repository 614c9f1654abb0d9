//! Acquires that fail fast: they do not wait while the store can't grant leases.
//!
//! - When the store goes away, waiting ones end at once, whether they wait in a queue, for the
//!   pause before the next poll, or for an answer that may take the whole time-out.
//! - Later ones still ask the store once, by a ticket of their own. The store answers at once. If
//!   no client has asked for long, it first probes its server, and so finds out that the server is
//!   back.
//! - A poll that fails is repeated only while the store is usable.
//!
//! An acquire that ended this way is cleaned up like any other: see [`Core::end_waiter`].

use super::Core;
use super::tickets::Serves;
use crate::engine::command::{OpId, Outcome, StoreId};
use crate::lease::queue::Arrival;
use crate::store::{Availability, StoreError};

impl Core {
    /// Notes whether the store can grant leases. Tells the clients that watch, and ends the
    /// acquires that fail fast if the store is away.
    pub(super) fn availability_changed(&mut self, store: StoreId, told: Availability) {
        // The store is being closed.
        let Some(link) = self.stores.get_mut(&store) else { return };
        link.availability = told.clone();
        let clients = self.clients.values().filter(|client| client.store == store && !client.closed);
        let mut watches: Vec<OpId> = clients.filter_map(|client| client.watch).collect();
        watches.sort_unstable();
        for op in watches {
            self.settle(op, Outcome::Availability(told.clone()));
        }
        if let Availability::Away(error) = told {
            let waiting = self.waiters.iter().filter(|(_, w)| w.store == store && w.asked.fail_fast);
            let mut waiting: Vec<(Arrival, OpId)> = waiting.map(|(op, w)| (w.arrival, *op)).collect();
            waiting.sort_unstable();
            for (_, op) in waiting {
                self.fail(op, &error);
            }
        }
    }

    /// Returns true if the store is away or refuses acquires.
    pub(super) fn is_unusable(&self, store: StoreId) -> bool {
        self.stores.get(&store).is_some_and(|link| !link.availability.is_usable())
    }

    /// Ends the waiters of the ticket that fail fast, because a poll failed while the store is not
    /// usable. If the ticket has no other waiters, it is then gone.
    pub(super) fn fail_fast(&mut self, number: u64, error: &StoreError) {
        let Some(ticket) = self.tickets.get(&number) else { return };
        if !self.is_unusable(ticket.wanted.store) {
            return;
        }
        let waiting: Vec<OpId> = match ticket.serves {
            Serves::One(op) => vec![op],
            Serves::Line => {
                let line = self.lines.get(&ticket.line());
                line.map(|line| line.queue.ids().collect()).unwrap_or_default()
            }
        };
        for op in waiting {
            if self.waiters.get(&op).is_some_and(|waiter| waiter.asked.fail_fast) {
                self.fail(op, error);
            }
        }
    }

    fn fail(&mut self, op: OpId, error: &StoreError) {
        self.guarded(Some(op), |core| core.end_waiter(op, Outcome::Failed(error.clone())));
    }
}
