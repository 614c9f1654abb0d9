//! Clients: their settings, the number of their outstanding requests, and the barriers that wait
//! for these requests. Touches its own map and its [`Barriers`], and settles operations through the
//! [`Context`].

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::barriers::{Barriers, Waits};
use super::context::Context;
use crate::engine::command::{ClientSettings, Outcome};
use crate::engine::ids::{ClientId, EnvId, OpId, StoreId};
use crate::lease::Instant;
use crate::store::breaker::Health;

/// How long a store may take to answer a request of a client that is gone.
const TIMEOUT_LEFT_BEHIND: Duration = Duration::from_secs(1);

/// One client.
pub struct Client {
    pub store: StoreId,
    pub settings: ClientSettings,
    /// The number of requests without an answer that may make or end a lease at the store. The end
    /// of the client waits for them. A detached lease counts until its caller has the ticket.
    outstanding: usize,
    /// The operation that gets reports of changes of the store's servers.
    watch: Option<OpId>,
    /// Whether the client refuses acquires, while its sections end.
    draining: bool,
    /// True if the client takes no more commands. The engine forgets it after its last outstanding
    /// request.
    closed: bool,
}

/// See the module.
#[derive(Default)]
pub struct Clients {
    clients: FxHashMap<ClientId, Client>,
    barriers: Barriers,
}

impl Clients {
    pub fn open(&mut self, client: ClientId, store: StoreId, settings: ClientSettings) {
        let known = Client { store, settings, outstanding: 0, watch: None, draining: false, closed: false };
        self.clients.insert(client, known);
    }

    /// Returns the client if it still takes commands.
    pub fn get_open(&self, client: ClientId) -> Option<&Client> {
        self.clients.get(&client).filter(|client| !client.closed)
    }

    /// Returns the client if it may still acquire locks.
    pub fn get_acquiring(&self, client: ClientId) -> Option<&Client> {
        self.get_open(client).filter(|client| !client.draining)
    }

    /// Returns the store of a client.
    pub fn store_of(&self, client: ClientId) -> Option<StoreId> {
        self.clients.get(&client).map(|client| client.store)
    }

    /// Returns the clients of an environment.
    pub fn of_env(&self, env: EnvId) -> Vec<ClientId> {
        self.clients.iter().filter(|(_, client)| client.settings.env == env).map(|(id, _)| *id).collect()
    }

    /// Returns how long the client's thread may leave a question unanswered before renewal stops.
    pub fn max_stall(&self, client: ClientId) -> Duration {
        self.clients.get(&client).map_or(Duration::MAX, |client| client.settings.max_stall)
    }

    /// Returns the most hand-offs in a row of a lease of the client while others wait elsewhere.
    pub fn hand_offs(&self, client: ClientId) -> u32 {
        self.clients.get(&client).map_or(0, |client| client.settings.hand_offs)
    }

    /// Returns how long the store may take to answer a request of the client.
    pub fn store_timeout(&self, client: ClientId) -> Duration {
        self.clients.get(&client).map_or(TIMEOUT_LEFT_BEHIND, |client| client.settings.store_timeout)
    }

    pub fn count_error(&self, client: ClientId) {
        if let Some(client) = self.clients.get(&client) {
            client.settings.stats.errors.up();
        }
    }

    /// Notes a request that is outstanding from now on. Returns its client, if there still is one.
    pub fn begin_request(&mut self, client: ClientId) -> Option<&Client> {
        let known = self.clients.get_mut(&client)?;
        known.outstanding += 1;
        Some(known)
    }

    /// Notes a release that is outstanding from now on, of a client that may be gone. Returns how
    /// long the store may take, and whether the end of the client waits for the release.
    pub fn begin_release(&mut self, client: ClientId) -> (Duration, bool) {
        let known = self.begin_request(client);
        (known.map_or(TIMEOUT_LEFT_BEHIND, |client| client.settings.store_timeout), known.is_some())
    }

    /// Notes that an outstanding request is answered. Forgets a closed client with its last
    /// request, and lifts the barriers that waited for it.
    pub fn end_request(&mut self, client: ClientId, cx: &mut Context) {
        let Some(known) = self.clients.get_mut(&client) else { return };
        known.outstanding -= 1;
        if known.outstanding == 0 && known.closed {
            self.forget(client, cx);
        }
        if !self.barriers.is_empty() {
            self.lift_idle_barriers(cx);
        }
    }

    /// Reports changes of the store's servers to `op` from now on. Returns the store, or `None` if
    /// the client is closed.
    pub fn watch(&mut self, client: ClientId, op: OpId) -> Option<StoreId> {
        let known = self.clients.get_mut(&client).filter(|client| !client.closed)?;
        known.watch = Some(op);
        Some(known.store)
    }

    /// Returns the operations that get reports of changes of the store's servers.
    pub fn watches_of(&self, store: StoreId) -> Vec<OpId> {
        self.open_clients_of(store).filter_map(|client| client.watch).collect()
    }

    /// Notes the state of one of the store's servers in the stats of its clients.
    pub fn note_health(&self, store: StoreId, health: &Arc<Health>) {
        self.open_clients_of(store).for_each(|client| client.settings.stats.servers.tell(health.clone()));
    }

    fn open_clients_of(&self, store: StoreId) -> impl Iterator<Item = &Client> {
        self.clients.values().filter(move |client| client.store == store && !client.closed)
    }

    /// Lets the client refuse acquires from now on. Returns `false` if the client is gone.
    pub fn drain(&mut self, client: ClientId) -> bool {
        self.clients.get_mut(&client).map(|client| client.draining = true).is_some()
    }

    /// Closes clients. Tells `waits` when their outstanding requests are answered, or at `until`.
    /// Returns the stores that they leave.
    pub fn close(
        &mut self,
        clients: Vec<ClientId>,
        until: Instant,
        waits: Waits,
        cx: &mut Context,
    ) -> Vec<StoreId> {
        self.barriers.add(clients.clone(), until, waits, cx);
        let left = clients.into_iter().filter_map(|client| self.close_one(client, cx)).collect();
        self.lift_idle_barriers(cx);
        left
    }

    fn close_one(&mut self, client: ClientId, cx: &mut Context) -> Option<StoreId> {
        let known = self.clients.get_mut(&client).filter(|client| !client.closed)?;
        known.closed = true;
        let (store, is_idle) = (known.store, known.outstanding == 0);
        if is_idle {
            self.forget(client, cx);
        }
        Some(store)
    }

    /// Forgets a closed client that has no outstanding request. Its watch ends: from then on, the
    /// end of the environment waits for nothing of this client.
    fn forget(&mut self, client: ClientId, cx: &mut Context) {
        if let Some(watch) = self.clients.remove(&client).and_then(|client| client.watch) {
            cx.settle(watch, Outcome::Done);
        }
    }

    fn lift_idle_barriers(&mut self, cx: &mut Context) {
        let clients = &self.clients;
        let is_idle = |client: &ClientId| clients.get(client).is_none_or(|client| client.outstanding == 0);
        self.barriers.lift_idle(is_idle, cx);
    }

    /// Lifts a barrier whose time is over.
    pub fn lift_barrier(&mut self, id: u64, cx: &mut Context) {
        self.barriers.lift(id, cx);
    }

    pub fn barriers(&self) -> &Barriers {
        &self.barriers
    }
}
