//! Numbers by which the engine and JavaScript name environments, clients, stores and operations.

use crate::lease::Key;

/// One JavaScript environment: the main thread or a worker thread.
pub type EnvId = u32;
/// One `createLockClient()`.
pub type ClientId = u32;
/// One open store, shared by all clients that name the same one.
pub type StoreId = u32;

/// The cohort of one client's waiters for one lock.
pub type CohortId = (ClientId, Key);

/// Names a pending operation of an environment. After the grant of an acquire, it names the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// The environment.
    pub env: EnvId,
    /// A small number that the environment chose. The environment uses it again only after it has
    /// seen the operation's last settlement.
    pub slot: u32,
}
