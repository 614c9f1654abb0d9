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
//! - [`mutants`]: deliberate mistakes, which the simulation has to find. No published build has
//!   them.
//! - `fuzzing`: runs unit tests on arbitrary input. It exists only in tests.
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
