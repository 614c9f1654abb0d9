//! Keeps a detachment that waits for the answers to earlier requests: see `detaching`.

use crate::lease::{Instant, Token};
use crate::store::Request;

/// See the module.
pub struct WaitingDetachment {
    pub batch: u64,
    pub index: usize,
    pub token: Token,
    pub request: Request,
    /// The nodes are asked at that instant, even if some have not answered the earlier requests.
    pub until: Instant,
    /// When the detachment has to be answered.
    pub deadline: Instant,
}
