//! Ending: clients and environments that are closed or drained. Routes from clients and
//! environments to their waiters, adoptions and held leases.

use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::Core;
use super::state::barriers::Waits;
use crate::engine::command::Outcome;
use crate::engine::ids::{ClientId, EnvId, OpId};

impl Core {
    pub(super) fn close_client(&mut self, client: ClientId, op: OpId, patience: Duration) {
        self.close(vec![client], patience, Waits::Operation(op));
    }

    pub(super) fn close_env(&mut self, env: EnvId, done: SyncSender<()>, patience: Duration) {
        // No caller can get the tickets of these leases any more.
        for id in self.unseen_tickets.take(env) {
            self.wake_clean_up(id);
        }
        self.close(self.clients.of_env(env), patience, Waits::Thread(done));
        self.envs.close(env);
    }

    /// Ends all operations and leases of `clients`. Tells `waits` when the leases are released, or
    /// when `patience` is over.
    fn close(&mut self, clients: Vec<ClientId>, patience: Duration, waits: Waits) {
        self.end_all(&clients, true);
        let until = self.cx.now + patience;
        for store in self.clients.close(clients, until, waits, &mut self.cx) {
            self.stores.leave(store, &mut self.cx);
        }
    }

    /// Refuses the waiting acquires of an environment whose JavaScript has ended. Its leases stay.
    pub(super) fn excuse_env(&mut self, env: EnvId) {
        self.envs.excuse(env);
        let clients = self.clients.of_env(env);
        for client in &clients {
            self.clients.drain(*client);
        }
        self.end_waiting(&clients);
    }

    /// Refuses the client's waiting acquires and releases its leases, except those of sections:
    /// sections release their own leases.
    pub(super) fn drain_client(&mut self, client: ClientId) {
        if self.clients.drain(client) {
            self.end_all(&[client], false);
        }
    }

    /// Ends all waiting acquires of `clients`, and their leases. Leases of sections end only if
    /// `sections` is true.
    fn end_all(&mut self, clients: &[ClientId], sections: bool) {
        let held = self.held_leases.of_clients(clients, sections);
        // End the waiters first, so that no lease is handed to them.
        self.end_waiting(clients);
        for op in held {
            let Some(held) = self.held_leases.close(op, &mut self.cx) else { continue };
            self.end_cohort_lease(op, &held);
            if !held.outlives() {
                self.clean_up(held.left_at_store(self.cx.now));
            }
        }
        for lease in self.held_leases.lost_prolongations.take_of_clients(clients, sections) {
            self.clean_up(lease);
        }
    }

    /// Ends all acquires and adoptions of `clients` that have no lease yet.
    fn end_waiting(&mut self, clients: &[ClientId]) {
        let adopting = self.adoptions.of_clients(clients);
        for op in self.waiters.of_clients(clients) {
            self.end_waiter(op, Outcome::Closed);
        }
        for op in adopting {
            self.end_adoption(op, Outcome::Closed);
        }
    }
}
