//! The store contract, asked of every store: `contract/` is the suite, `memory.rs`, `redis.rs`, `sqlite.rs` and `tls.rs` are places
//! to run it in. A new store needs a [`fixture::Fixture`] and one line of `contract!`.

mod asking;
#[path = "../support/certificates.rs"]
mod certificates;
mod client;
mod contract;
mod fixture;
mod memory;
mod quorum;
mod redis;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod sqlite;
mod tls;
mod waiter;
