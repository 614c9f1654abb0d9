//! Keeps what the callers of a process have requested, and what they have got.

use std::sync::Arc;

use leasehold::engine::known_lease::KnownLease;
use leasehold::lease::{Fence, Key, Mode, Token, Ttl};

/// An acquire or an adoption, from the request to its last outcome.
pub struct Operation {
    pub key: Key,
    pub mode: Mode,
    /// The token of the lease, once it is granted.
    pub token: Option<Token>,
    pub state: Arc<KnownLease>,
    pub granted: bool,
    pub(super) fence: Fence,
    /// The ticket and its fence, if the lease is adopted and not acquired.
    pub(super) adopted: Option<(Token, Fence)>,
    /// True if it has had its last outcome.
    pub ended: bool,
    pub(in super::super) cancelled: bool,
    pub(in super::super) released: bool,
    pub(super) detaching: bool,
}

/// A lease that a process has detached.
pub struct DetachedLease {
    pub key: Key,
    pub token: Token,
    pub fence: Fence,
    pub ttl: Ttl,
}

/// A grant that a caller has received.
pub struct Granted {
    pub slot: u32,
    pub fence: Fence,
    /// The ticket and its fence, if the lease was adopted.
    pub adopted: Option<(Token, Fence)>,
}
