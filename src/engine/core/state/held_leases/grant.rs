//! Grants: leases on their way to a holder. Plain data; touches nothing.

use crate::lease::hand_off::HandOffBudget;
use crate::lease::{Fence, Instant, Token, Ttl, renewal, validity};
use crate::store::GRANT_TTL;

/// A lease on its way to its holder, from the store or from the holder before.
pub struct Grant {
    pub(super) token: Token,
    pub(super) fence: Fence,
    pub(super) deadline: Instant,
    pub(super) store_expiry: Instant,
    pub(super) renew_at: Instant,
    pub(super) taken_up: bool,
    /// The token of the ticket, if the lease was adopted.
    pub(super) from_ticket: Option<Token>,
    pub(super) renewing: bool,
    pub(super) reserving: bool,
    pub(super) hand_off: Option<HandOffBudget>,
}

impl Grant {
    /// Returns a lease that the store granted by a request that was sent at `sent`.
    pub fn new(token: Token, fence: Fence, ttl: Ttl, sent: Instant, jitter: f64, now: Instant) -> Self {
        Self {
            token,
            fence,
            deadline: validity::deadline(sent, ttl),
            store_expiry: now + validity::longest_life(ttl),
            renew_at: renewal::next(sent, ttl, jitter),
            taken_up: false,
            from_ticket: None,
            renewing: false,
            reserving: false,
            hand_off: None,
        }
    }

    /// Returns a lease that a notice reported. It lives until `deadline` at least, and for `ttl` at
    /// most.
    pub fn on_notice(token: Token, fence: Fence, ttl: Ttl, deadline: Instant, now: Instant) -> Self {
        Self {
            token,
            fence,
            deadline,
            store_expiry: now + validity::longest_life(ttl),
            renew_at: now + deadline.since(now) / 2,
            taken_up: true,
            from_ticket: None,
            renewing: false,
            reserving: false,
            hand_off: None,
        }
    }

    /// Returns the same lease, adopted from the ticket with the token `ticket`.
    pub fn by_adoption(self, ticket: Token) -> Self {
        Self { from_ticket: Some(ticket), ..self }
    }

    /// Returns the same lease, which may be handed on within `budget`.
    pub fn with_budget(self, budget: Option<HandOffBudget>) -> Self {
        Self { hand_off: budget, ..self }
    }
}

/// Returns [`GRANT_TTL`] as a ttl.
pub fn grant_ttl() -> Ttl {
    u32::try_from(GRANT_TTL.as_millis()).ok().and_then(Ttl::from_millis).expect("in range")
}
