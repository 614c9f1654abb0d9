//! **leasehold**: distributed locks for Node.js. This crate is their core.
//!
//! Read the modules in this order:
//!
//! - [`lease`]: the domain. Says what a lease is, when it ends, when it is renewed and which waiter
//!   is next. No I/O, no clock.
//! - [`worker`]: the lock worker's state machine, pure.
//! - [`store`]: the contract that every store keeps, and the stores.
//! - [`engine`]: the one background thread. Its rules are a pure state machine ([`engine::core`])
//!   that gets events and the time. The driver around it talks to stores and wakes JavaScript.
//! - [`mutants`]: mistakes that the simulation has to find. No build for use has them.
//! - `fuzzing`: runs tests on arbitrary input; in unit tests only.
//! - [`binding`]: the only module that uses `napi`. It translates, and decides nothing.
//!
//! The TypeScript half starts at `lib/index.ts`. It turns the binding's reports into promises,
//! errors and events.

pub mod binding;
pub mod engine;
#[cfg(test)]
mod fuzzing;
pub mod lease;
pub mod mutants;
pub mod store;
pub mod worker;
