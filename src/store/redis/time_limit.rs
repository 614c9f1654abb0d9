//! The time that a batch has.

use std::time::Duration;

use tokio::time::Instant;

/// The time that a batch has.
#[derive(Clone, Copy)]
pub struct TimeLimit {
    /// When the batch has to be answered.
    pub deadline: Instant,
    /// The whole time that the batch had when it came.
    pub timeout: Duration,
}
