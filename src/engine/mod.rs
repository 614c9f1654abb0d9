//! The engine: the one background thread that talks to stores, renews leases and wakes waiters.
//!
//! - [`ids`]: the numbers of environments, clients, stores and operations;
//! - [`command`]: the commands that the engine takes, and the outcomes that it returns;
//! - [`core`]: its rules, pure;
//! - [`known_lease`]: what the engine and a JavaScript thread know of a lease;
//! - [`pulse`]: whether a JavaScript thread still answers;
//! - [`timers`]: when the rules have to act;
//! - [`stats`]: the counters of a client;
//! - [`clock`]: the time;
//! - [`driver`]: the thread that runs the rules;
//! - [`runtime`]: how often this thread looks at its sockets and timers;
//! - [`thread_hand_offs`]: the hand-offs that the engine leaves to JavaScript threads.

pub mod clock;
pub mod command;
pub mod core;
pub mod driver;
pub mod ids;
pub mod known_lease;
pub mod pulse;
mod runtime;
pub mod stats;
pub mod thread_hand_offs;
pub mod timers;
