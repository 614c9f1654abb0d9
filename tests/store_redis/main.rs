//! What is true of the Redis store alone, asked of real servers and of impostors.

mod acl;
mod batches;
mod fences;
mod foreign;
mod impostor;
mod impostors;
mod keys;
mod login;
mod outages;
mod refusals;
mod replaced;
mod support;

#[path = "../support/redis_server.rs"]
mod redis_server;
