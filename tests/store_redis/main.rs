//! Tests what the Redis store promises beyond the contract, with real servers that each test starts
//! for itself, and with servers that are no Redis.

#![cfg(unix)]

mod ask;
mod bulk;
#[path = "../support/certificates.rs"]
mod certificates;
mod connection;
mod faults;
mod group;
mod hand_over;
mod impostors;
mod layout;
mod measure;
mod model;
mod notices;
mod out_of_step;
mod planned_failover;
mod queue;
mod replicas;
mod sentinel;
mod server;
mod shared;
mod side_keys;
mod tls;
