//! Health: whether a store's servers are there, as their circuit breakers tell, and who is to know.

use std::sync::Arc;

use super::Core;
use super::tickets::LastLook;
use crate::engine::command::{ClientId, OpId, Outcome, StoreId};
use crate::store::breaker::{BreakerState, Health};

/// Away is one thing to who is told of it, whether or not it is being looked for just now.
fn as_told(state: BreakerState) -> BreakerState {
    if state == BreakerState::HalfOpen { BreakerState::Open } else { state }
}

impl Core {
    /// A client wants to know from now on.
    pub(super) fn watch(&mut self, op: OpId, client: ClientId) {
        let Some(known) = self.clients.get_mut(&client).filter(|client| !client.closed) else {
            return self.settle(op, Outcome::Closed);
        };
        known.watch = Some(op);
        let store = known.store;
        if self.is_unusable(store)
            && let Some(link) = self.stores.get(&store)
        {
            self.settle(op, Outcome::Availability(link.availability.clone()));
        }
        let health = self.stores.get(&store).map(|link| link.health.clone()).unwrap_or_default();
        for mut health in health.into_iter().filter(|health| health.state != BreakerState::Closed) {
            let state = as_told(health.state);
            Arc::make_mut(&mut health).state = state;
            self.settle(op, Outcome::Breaker(health));
        }
    }

    /// The breaker before a server has changed its state. Those who watch are told that the server is gone, refuses, or is
    /// back; of the probes between, of which there are several a second, only those know who look.
    pub(super) fn health_changed(&mut self, store: StoreId, health: Arc<Health>) {
        // Said while it was being closed.
        let Some(link) = self.stores.get_mut(&store) else { return };
        let before = match link.health.iter_mut().find(|known| known.store == health.store) {
            Some(known) => std::mem::replace(known, health.clone()).state,
            None => {
                link.health.push(health.clone());
                BreakerState::Closed
            }
        };
        let mut watches = Vec::new();
        for client in self.clients.values().filter(|client| client.store == store && !client.closed) {
            client.settings.stats.servers.tell(health.clone());
            watches.extend(client.watch);
        }
        for op in watches.into_iter().filter(|_| as_told(before) != as_told(health.state)) {
            self.settle(op, Outcome::Breaker(health.clone()));
        }
        if health.state == BreakerState::Closed {
            self.clean_up_after_an_outage(store);
            self.look_after_an_outage(store);
        }
    }

    /// Lets acquires that failed at the store ask again at once, without waiting for the end of
    /// their pauses.
    pub(super) fn look_after_an_outage(&mut self, store: StoreId) {
        let failed = self.tickets.iter().filter(|(_, ticket)| {
            ticket.wanted.store == store && !ticket.looking && matches!(ticket.last, LastLook::Failed(_))
        });
        let mut failed: Vec<(u64, u64)> = failed.map(|(number, ticket)| (ticket.arrival, *number)).collect();
        // In the order in which they came.
        failed.sort_unstable();
        for (_, number) in failed {
            self.guarded(None, |core| core.look(number));
        }
    }
}
