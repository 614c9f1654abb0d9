//! The store contract, asked of every store: `contract/` is the suite, each other file is a place to
//! run it in. A new store needs a [`fixture::Fixture`] and one line of `contract!`.

mod contract;
mod fixture;
mod memory;
#[cfg(unix)]
mod redis;
#[cfg(unix)]
#[path = "../store_redis/server.rs"]
#[allow(dead_code, reason = "the suite needs less of it than the Redis store's own tests")]
mod server;
mod sqlite;
