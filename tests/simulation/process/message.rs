//! A message from a process to a node.

use std::time::Duration;

use leasehold::engine::core::Sent;
use leasehold::store::Request;

/// Requests that a process sends to a node.
pub struct Message {
    pub node: usize,
    pub reply_to: ReplyTo,
    pub requests: Vec<Request>,
    pub timeout: Duration,
}

/// The sender that gets the answers: the engine, or the coordinator of a quorum.
pub enum ReplyTo {
    Batch(Sent),
    Call(u64),
}
