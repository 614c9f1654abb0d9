//! Holds the open slots and clients of one JavaScript environment.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::slots::Slots;
use crate::engine::ids::{ClientId, EnvId};
use crate::engine::stats::Stats;
use crate::lease::Key;

/// A client that is open.
pub struct OpenClient {
    /// The prefix of each key at the store.
    pub prefix: String,
    /// The name that the store shows of its holders and waiters.
    pub name: Arc<str>,
    /// Its counters.
    pub stats: Arc<Stats>,
}

/// The open slots and clients of an environment.
#[derive(Default)]
pub struct EnvState {
    /// The environment; 0, which is no environment, while none is registered.
    pub env: EnvId,
    /// Its slots.
    pub slots: Slots,
    /// Its clients.
    pub clients: FxHashMap<ClientId, OpenClient>,
    /// A buffer for [`EnvState::key`], which puts keys together.
    key: String,
}

impl EnvState {
    /// Returns the prefix of a client; an empty one if it is not open.
    pub fn prefix(&self, client: ClientId) -> &str {
        self.clients.get(&client).map_or("", |client| &client.prefix)
    }

    /// Returns the whole key of a lock: the client's prefix and `key`.
    pub fn key(&mut self, client: ClientId, key: &str) -> Key {
        let prefix = self.clients.get(&client).map_or("", |client| client.prefix.as_str());
        self.key.clear();
        self.key.push_str(prefix);
        self.key.push_str(key);
        Key::from(self.key.as_str())
    }
}
