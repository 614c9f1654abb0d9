//! Lists the facts about a server.

use std::sync::Arc;
use std::time::Duration;

/// The facts about a server. A field is `None` if the server does not tell it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
    /// Identifies the process of the server as long as it runs. Also `None` if the address does not
    /// always lead to the same process.
    pub run_id: Option<String>,
    /// The version, as the server reports it.
    pub version: Option<String>,
    /// True if the version belongs to the oldest series that is supported.
    pub is_old: bool,
    /// True if the server is a replica.
    pub is_replica: Option<bool>,
    /// True if the server is still reading its data from disk.
    pub is_loading: Option<bool>,
    /// How much memory the server may use for data, in bytes; 0 means no limit.
    pub max_memory: Option<u64>,
    /// How much of this memory is in use, in bytes.
    pub used_memory: Option<u64>,
    /// What the server does when this memory is used up (`maxmemory-policy`).
    pub eviction: Option<String>,
    /// True if the server writes each change to a log.
    pub has_log: Option<bool>,
    /// When the log reaches the disk: `always`, `everysec` or `no`.
    pub log_sync: Option<String>,
    /// True if the server saves all of its data from time to time.
    pub has_snapshots: Option<bool>,
    /// The number of replicas that are connected and receive the writes.
    pub replicas: Option<u64>,
    /// The number of replicas that must be connected before the server accepts a write.
    pub replicas_needed: Option<u64>,
    /// How long the server waits before it sends a replica a full copy of its data.
    pub copy_delay: Option<Duration>,
    /// The number of replicas that must have a lease before it counts; 0 means none. This is the
    /// user's setting `minReplicas`, and not a setting of the server.
    pub min_replicas: u32,
    /// True if this user may not ask what the replicas have (`WAIT`).
    pub may_not_wait: bool,
    /// The number of clients, and the largest number that the server accepts.
    pub clients: Option<(u64, u64)>,
    /// The median time of a few round trips.
    pub round_trip: Option<Duration>,
    /// How many µs the server's clock is ahead of this host's.
    pub clock_ahead: Option<i64>,
    /// By how much `clock_ahead` may be wrong: half a round trip.
    pub clock_uncertainty: Duration,
    /// The clocks of those replicas that answered, compared with the server's own clock.
    pub replica_clocks: Vec<ReplicaClock>,
    /// True if waiters get notices.
    pub notices: bool,
    /// True if this user may not list locks.
    pub may_not_list: bool,
    /// The right that this user lacks to ask whether a waiter listens to its channel.
    pub may_not_count: Option<&'static str>,
    /// The commands that the server refused to this user.
    pub refused: Vec<&'static str>,
    /// What the server says if this user may not lock.
    pub denied: Option<Arc<str>>,
}

/// Compares the clock of a replica with its master's.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaClock {
    /// The URL of the replica, without a password.
    pub replica: Arc<str>,
    /// How many µs the clock is ahead of its master's.
    pub ahead: i64,
    /// By how much `ahead` may be wrong.
    pub uncertainty: Duration,
}
