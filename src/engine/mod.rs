//! The engine: the one background thread that talks to stores, renews leases and wakes waiters.
//!
//! - [`command`]: what goes in and what comes out;
//! - [`core`]: its rules, pure;
//! - [`known`]: what both threads know of a lease;
//! - [`timers`] and [`stats`]: what the rules count with;
//! - [`clock`]: the time that they are told;
//! - [`driver`]: the thread around them;
//! - [`relay`]: what it leaves to JavaScript threads.

pub mod clock;
pub mod command;
pub mod core;
pub mod driver;
pub mod known;
pub mod relay;
pub mod stats;
pub mod timers;
