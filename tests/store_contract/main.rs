//! The store contract, asked of every store: `contract/` is the suite, each other file is a place to
//! run it in. A new store needs a [`fixture::Fixture`] and one line of `contract!`.

mod contract;
mod fixture;
mod memory;
mod redis;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod sqlite;
