//! The bridge to Node: the only module that says `napi`. It translates, and decides nothing.
//!
//! - [`bridge`]: the class that the TypeScript layer calls, one instance per JavaScript environment;
//! - [`ending`]: the end of an environment, and the release of its leases;
//! - [`holder`]: what a store keeps of a holder: its name, and the trace that it is in;
//! - [`operations`]: what it is asked for, as commands to the engine;
//! - [`outbox`]: settlements on their way to JavaScript, and the wake that announces them;
//! - [`slots`]: the small numbers by which both sides name an operation or a lease;
//! - [`records`]: settlements as numbers;
//! - [`worker`]: the lock worker's state machine, for JavaScript to drive.

mod bridge;
mod ending;
mod holder;
mod operations;
mod outbox;
mod records;
mod slots;
mod worker;

/// True if the addon was built as it is published. An addon of the developer profile is less than
/// half as fast, so benchmarks refuse it.
#[napi_derive::napi]
pub const IS_OPTIMIZED: bool = !cfg!(debug_assertions);
