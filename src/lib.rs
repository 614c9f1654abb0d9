//! **leasehold**: distributed locks for Node.js whose core is this crate.
//!
//! A reader finds the way in this order:
//!
//! - [`lease`]: the domain. What a lease is, when it ends, when it is renewed, who is next. No I/O, no clock.
//! - [`worker`]: the lock worker's state machine, pure.
//! - [`store`]: the contract that every place where leases live keeps, and those places.
//! - [`engine`]: the one background thread. Its rules are a pure state machine ([`engine::core`]) that is
//!   handed events and the time; around it a driver that talks to stores and wakes JavaScript.
//! - [`mutants`]: mistakes that the simulation has to find; not in any build for use.
//! - `fuzzing`: runs tests on arbitrary input; in unit tests only.
//! - [`binding`]: the only module that says `napi`. It translates, and decides nothing.
//!
//! The TypeScript half, which makes promises, errors and events of what the binding reports, starts at
//! `lib/index.ts`.

pub mod binding;
pub mod engine;
#[cfg(test)]
mod fuzzing;
pub mod lease;
pub mod mutants;
pub mod store;
pub mod worker;
