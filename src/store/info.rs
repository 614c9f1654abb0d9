//! Describes locks as stores report them: leases and queues.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::Fence;

/// Describes a held lock.
#[derive(Clone, Debug, PartialEq)]
pub struct LockInfo {
    /// True if all leases are shared.
    pub shared: bool,
    /// The leases, in the order of their fences; at least one.
    pub leases: Vec<LeaseInfo>,
    /// The waiters at the store, in their order. A process that passes the lock between its own
    /// waiters counts as one waiter.
    pub waiters: Vec<WaiterInfo>,
}

/// Describes one lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseInfo {
    /// The [mark](crate::lease::Token::mark) of the lease's token; `None` if another library holds
    /// the key. A quorum recognizes the lease at each of its nodes by this mark.
    pub mark: Option<u32>,
    /// The holder's name; `None` if another library holds the key.
    pub holder: Option<Arc<str>>,
    /// The lease's fence; `None` if another library holds the key. Also `None` if a waiter was
    /// handed the lease and has not taken it up yet, and the lease is shared or the notice could
    /// not be sent.
    pub fence: Option<Fence>,
    /// The time until the lease ends if it is not renewed; `None` if it never ends.
    pub remaining: Option<Duration>,
    /// The number of servers of a quorum that have the lease; `None` if the store is no quorum.
    pub servers: Option<Servers>,
}

/// Counts the servers of a quorum that have a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// The number of servers that have the lease, of those that answered in time.
    pub held: u32,
    /// The number of servers of the quorum.
    pub total: u32,
    /// The number of servers that did not answer in time.
    pub unheard: u32,
}

/// Describes one waiter.
#[derive(Clone, Debug, PartialEq)]
pub struct WaiterInfo {
    /// The waiter's name.
    pub holder: Arc<str>,
    /// True if it waits for a shared lease.
    pub shared: bool,
    /// How long it has been waiting.
    pub age: Duration,
}
