//! The bridge to Node: the only module that uses `napi`. It translates, and decides nothing.
//!
//! - [`protocol`]: the numbers that JavaScript and this module have agreed on;
//! - [`bridge`]: the class that the TypeScript layer calls;
//! - [`registration`]: a JavaScript environment that the engine knows, while it has clients;
//! - [`client_options`]: the options of a client;
//! - [`env_state`]: the open slots and clients of one environment;
//! - [`ending`]: the end of an environment, and the release of its leases;
//! - [`holder`]: what a store keeps of a holder: its name, and the trace that it is in;
//! - [`operations`]: the operations that JavaScript asks for, as commands to the engine;
//! - [`parent`]: what the guard of the command line asks of the system;
//! - [`outbox`]: settlements on their way to JavaScript, and the wake that announces them;
//! - [`slots`]: the small numbers by which both sides name an operation or a lease;
//! - [`records`]: settlements as numbers;
//! - [`worker`]: the lock worker's state machine, for JavaScript to drive.

mod bridge;
mod client_options;
mod ending;
mod env_state;
mod holder;
mod operations;
mod outbox;
mod parent;
mod protocol;
mod records;
mod registration;
mod slots;
mod worker;

/// True if the addon was built as it is published. An addon of the developer profile is less than
/// half as fast, so benchmarks refuse it.
#[napi_derive::napi]
pub const IS_OPTIMIZED: bool = !cfg!(debug_assertions);
