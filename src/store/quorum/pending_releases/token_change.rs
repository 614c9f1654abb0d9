//! Describes what a node of a quorum still has to carry out for a token.

use std::time::Duration;

use crate::lease::{Instant, Key, Token};

/// The first pause after a failure; it doubles up to `LONGEST_PAUSE`.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The pauses before each release or move of a token, if an earlier request for the token may still
/// be on its way.
pub const STRAGGLER_PAUSES: &[Duration] = &[SHORTEST_PAUSE, Duration::from_secs(1), Duration::from_secs(3)];
/// The pauses before each move from a used ticket to its adopter. Other adopters give a node back
/// to the ticket when they hear that they have lost, which takes some round trips. If the pauses
/// are shorter, they end too soon for a slow network, and the node waits for the next renewal. If
/// they are longer, the adopter gets the node later.
const TICKET_PAUSES: &[Duration] = &[
    SHORTEST_PAUSE,
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Describes what a node still has to carry out: the release of a lease, or its move to another
/// token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenChange {
    pub key: Key,
    pub token: Token,
    /// The token that gets the lease; `None` for a release.
    pub to: Option<Token>,
    /// True if the token `to` does not hold the lease any more. The node has to release `to` after
    /// the move. This also finds a lease that another adopter has claimed, which a release of
    /// `token` would not find.
    pub release: bool,
    /// True if `token` is a used ticket. Other adopters may give the node back to the ticket a
    /// little later.
    pub ticket: bool,
    /// When the released lease, or the ticket `to`, ends at the node; `None` if that is not known.
    /// If the node refuses the change, the change is repeated until then.
    pub ends: Option<Instant>,
    /// For how long the lease may live after an answer of the node, if `ends` is not known. When
    /// the node answers, it has carried out the request that created the lease.
    pub life: Option<Duration>,
}

impl TokenChange {
    /// Returns the release of `token`.
    pub fn release(key: Key, token: Token) -> Self {
        Self { key, token, to: None, release: false, ticket: false, ends: None, life: None }
    }

    /// Returns the move of a lease from `token` to `to`.
    pub fn moved(key: Key, token: Token, to: Token) -> Self {
        Self { to: Some(to), ..Self::release(key, token) }
    }

    /// Returns the move of a lease from a used ticket to its adopter.
    pub fn ticket(key: Key, ticket: Token, adopter: Token) -> Self {
        Self { ticket: true, ..Self::moved(key, ticket, adopter) }
    }

    /// Returns when a lease that the node had granted by `now` ends, if its life is known.
    pub(super) fn ends_after(&self, now: Instant) -> Option<Instant> {
        self.life.map(|life| now + life)
    }

    /// Returns the pauses before each request, if a single request may come too early.
    pub(super) fn pauses(&self) -> &'static [Duration] {
        if self.ticket { TICKET_PAUSES } else { STRAGGLER_PAUSES }
    }

    /// Returns true for a move that changes nothing.
    pub(super) fn is_void(&self) -> bool {
        self.to == Some(self.token)
    }
}
