//! How long a store keeps leases, places and breaks that no client renews.

use std::time::Duration;

use crate::lease::hand_off::BLOCK;

/// How long a lease that was handed to a waiter lives until the waiter takes it up. An exclusive
/// lease with a shorter ttl lives for that ttl. If this is larger, a waiter that has just died
/// holds up the others for longer. If it is smaller, a slow waiter loses its lease before it has
/// taken it up.
pub const GRANT_TTL: Duration = Duration::from_millis(1_500);
/// The number of fences that are reserved with an exclusive lease that is handed to a waiter. If
/// this is smaller, the waiter has to ask for more fences before it hands the lease on within its
/// process.
pub const GRANT_FENCES: u32 = BLOCK;
/// How long a waiter keeps its place after its last poll. If this is larger, dead waiters hold up
/// the queue for longer. If it is smaller, slow waiters lose their places.
pub const WAITER_LIFE: Duration = Duration::from_millis(2500);
/// How long a node of a quorum refuses repairs of a lock that was broken. A request to break a lock
/// reaches the nodes one after the other, but within 60 s, the longest time-out of a request. If
/// this is smaller, a lease may be repaired at the first nodes before the last ones have broken the
/// lock. If it is larger, the next leases of the lock are without repairs for longer.
pub const BROKEN_LIFE: Duration = Duration::from_secs(120);
