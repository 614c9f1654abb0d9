//! Stores on Redis 6.2 or later, or Valkey: one server, the master that sentinels name, or a
//! cluster.
//!
//! A lock is a plain string key that holds the lease's token and expires by itself, so leasehold
//! and any library that does `SET key token NX PX ttl` exclude each other (Redis, "Distributed
//! locks with Redis"). Shared leases are a sorted set, which such a library finds taken, too.
//!
//! A lock has further keys in the same slot. The fence key remembers the last fence, and the token
//! that got it. While clients wait, other keys hold the queue. `scripts/parts/rules.lua` describes
//! all keys. The files in `scripts/parts/` have the contract's rules for one lock.
//!
//! Notices come over the same connection: the server pushes them (RESP3) on a channel that is the
//! connection's own.
//!
//! - [`store`]: the store on one server, and [`time_limit`]: the time that a batch has;
//! - [`address`]: the address of a server, with the login, and [`endpoint`]: what to connect to;
//! - [`url`]: takes URLs apart, and [`address_url`]: reads all URLs of servers;
//! - [`same_server`]: tells whether two addresses lead to the same server;
//! - [`name_lookups`]: finds the addresses of a host name;
//! - [`dial`]: opens a socket to a server, also with TLS, and [`connect_error`]: says why
//!   connecting failed;
//! - [`connect`]: makes a connection that is fit for locks, and [`connection_attempt`]: shares one
//!   attempt between batches;
//! - [`handshake`]: exchanges the first commands;
//! - [`metered_stream`]: limits the memory that a server makes the client use; [`reply_scanner`]
//!   measures it, and [`budget`] counts it for all connections of a store;
//! - [`metered_tls`]: limits the time that TLS takes of the engine's thread;
//! - [`read_turn`]: when the connections of a store read, and [`turn_schedule`]: when the stores
//!   with much to read have their turns; [`reader`] takes the turns for one connection, and
//!   [`pace`] takes them while a store reads long replies;
//! - [`link`]: the connection in use, and when to give it up, and [`disconnect`]: the errors of
//!   requests that got no reply;
//! - [`notices`]: reads the messages that a server pushes;
//! - [`scripts`]: the scripts that the server runs, and [`side_keys`]: the names of a lock's other
//!   keys;
//! - [`pipeline`]: turns requests into script calls, and [`batch_attempt`]: reads the replies to
//!   one attempt of a batch;
//! - [`reply`]: turns replies into answers, [`inspection`] reads those about a lock, [`outcomes`]
//!   collects them, and [`replicas`] checks that enough replicas have the writes;
//! - [`listing`]: lists the locks;
//! - [`info`]: reads replies to `INFO`, and [`short_text`] reads short texts in replies;
//! - [`diagnose`]: collects the facts about a server, and [`permission_check`]: tries whether the
//!   user may lock there;
//! - [`fault`]: turns the errors of a server into store errors;
//! - [`sentinel`]: finds the master that sentinels name;
//! - [`following`]: decides what happens to requests during and after a failover;
//! - [`order`]: decides which requests wait for the end of a failover, and [`releases`]: remembers
//!   the last releases, to repeat them at the new master;
//! - [`cluster`]: many such servers as one store.

mod address;
#[cfg(test)]
mod address_fuzz;
mod address_url;
mod batch_attempt;
mod budget;
mod cluster;
mod connect;
mod connect_error;
mod connection_attempt;
mod diagnose;
mod dial;
mod disconnect;
mod endpoint;
mod fault;
mod following;
mod handshake;
mod info;
mod inspection;
mod link;
mod listing;
mod metered_stream;
mod metered_tls;
mod name_lookups;
mod notices;
mod order;
mod outcomes;
mod pace;
mod permission_check;
mod pipeline;
mod read_turn;
mod reader;
mod releases;
mod replicas;
mod reply;
#[cfg(test)]
mod reply_fuzz;
mod reply_scanner;
mod same_server;
mod scripts;
mod sentinel;
mod short_text;
mod side_keys;
#[cfg(test)]
mod side_keys_fuzz;
mod store;
mod time_limit;
mod turn_schedule;
mod url;

pub use address::RedisAddress;
pub use cluster::{ClusterAddress, ClusterStore};
pub use side_keys::lock_beside;
pub use store::RedisStore;
