//! Tests every store against the store contract. `contract/` is the suite; `memory.rs`,
//! `sqlite.rs`, `redis.rs`, `tls.rs`, `redis_cluster.rs` and `quorum.rs` have the stores. A new
//! store needs a [`fixture::Fixture`] and one line of `contract!`.

mod asking;
#[path = "../support/certificates.rs"]
mod certificates;
mod client;
#[path = "../support/redis_cluster.rs"]
mod cluster_server;
mod contract;
mod fixture;
mod memory;
mod quorum;
mod redis;
mod redis_cluster;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod sqlite;
mod tls;
mod waiter;
