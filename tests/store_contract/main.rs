//! The store contract, asked of every store: `contract/` is the suite, `memory.rs`, `redis.rs` and `sqlite.rs` are places
//! to run it in. A new store needs a [`fixture::Fixture`] and one line of `contract!`.

mod asking;
mod client;
mod contract;
mod fixture;
mod memory;
mod quorum;
mod redis;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod sqlite;
mod waiter;
