//! Describes locks as stores report them: leases and queues.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::Fence;

/// Describes a held lock.
#[derive(Clone, Debug, PartialEq)]
pub struct LockInfo {
    /// Whether all leases are shared ones.
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
    /// When the lease ends unless it is renewed; `None` if it never does.
    pub remaining: Option<Duration>,
    /// How many servers of a quorum have the lease; `None` if the store is no quorum.
    pub servers: Option<Servers>,
}

/// Counts the servers of a quorum that have a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Servers {
    /// How many servers have the lease, of those that answered in time.
    pub held: u32,
    /// How many servers the quorum has.
    pub total: u32,
    /// How many servers did not answer in time.
    pub unheard: u32,
}

/// Describes one waiter.
#[derive(Clone, Debug, PartialEq)]
pub struct WaiterInfo {
    /// The waiter's name.
    pub holder: Arc<str>,
    /// Whether it waits for a shared lease.
    pub shared: bool,
    /// How long it has been waiting.
    pub age: Duration,
}
