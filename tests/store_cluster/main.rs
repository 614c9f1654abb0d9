//! Tests what the cluster store promises beyond the contract, with real clusters that each test
//! starts for itself.

#![cfg(unix)]

#[allow(dead_code)]
#[path = "../store_contract/asking.rs"]
mod asking;
#[allow(dead_code)]
#[path = "../store_contract/client.rs"]
mod client;
mod failover;
mod load;
#[path = "../support/redis_cluster.rs"]
mod redis_cluster;
#[path = "../support/redis_server.rs"]
mod redis_server;
mod reshard;
mod routing;
mod setup;
#[allow(dead_code)]
#[path = "../store_contract/waiter.rs"]
mod waiter;
