//! The kind of a world.

/// The kind of store in a world, and what may befall it.
#[derive(Clone, Copy)]
pub struct Shape {
    /// The number of nodes: one store, or a quorum.
    pub nodes: usize,
    /// True if nodes lose their data now and then. Such a node stays away until every lease that it
    /// knew has ended. The wall clocks of all nodes agree.
    pub lossy: bool,
    /// True if leases are held for long, and the only trouble is that the nodes restart, one after
    /// the other. Each node comes back after the leases that it knew have ended. In a `lossy`
    /// world, it may come back without its data.
    pub rolling: bool,
    /// True if a node that lost its data comes back at once. That breaks an assumption of a quorum.
    pub returns_early: bool,
    /// True if circuit breakers open and close at random, and some acquires fail fast.
    pub breakers: bool,
}
