//! State: what the engine knows. Each file owns its map or its lists: other code changes them only
//! through its methods. A file may touch only what its first sentences name.
//!
//! - [`context`]: the time, timers, random numbers and effects, for all others;
//! - [`tags`] and [`outgoing`]: requests on their way to a store;
//! - [`stores`], [`clients`], [`barriers`] and [`envs`]: what the engine serves;
//! - [`waiters`], [`cohorts`] and [`queue_entries`]: the acquires that wait for a lock;
//! - [`held_leases`], [`offers`] and [`adoptions`]: the leases, and how they get to their holders;
//! - [`clean_ups`]: leases that ambiguous requests may have left at a store;
//! - [`unseen_tickets`]: leases that were detached for callers without a ticket yet.

pub mod adoptions;
pub mod barriers;
pub mod clean_ups;
pub mod clients;
pub mod cohorts;
pub mod context;
pub mod envs;
pub mod held_leases;
pub mod offers;
pub mod outgoing;
pub mod queue_entries;
pub mod stores;
pub mod tags;
pub mod unseen_tickets;
pub mod waiters;
