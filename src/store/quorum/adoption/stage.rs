//! Says how far an attempt to adopt is, and how it ended.

use crate::lease::Instant;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AdoptionStage {
    /// The attempt has not begun: it waits for its turn, until that instant at the latest.
    Waiting(Instant),
    /// The attempt begins at that instant.
    Resting(Instant),
    /// The first round.
    Claiming,
    /// The second round.
    Confirming,
    Over(AdoptionEnd),
}

/// Says how an attempt ended. This decides what happens to the nodes that the attempt still has, or
/// gets by a late answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AdoptionEnd {
    /// The adopter has the lease: it gets the claimed nodes, and the nodes that have the ticket or
    /// the claim of another adopter.
    Won,
    /// Enough nodes say that the ticket is used up or has ended. Claimed nodes and the adopter's
    /// nodes still go back to the ticket: another adopter may have given up, and may be giving its
    /// nodes back to the ticket, too.
    Lost,
    /// The adopter's lease was released, and so are the nodes that pass to the adopter late.
    Released,
    /// The adopter's lease was detached, so its token is the next ticket. That ticket keeps the
    /// adopter's nodes. Claimed nodes are released: by the time they answer, the next ticket
    /// may be used up, too.
    Detached,
    /// Another attempt may follow, so claimed nodes go back to the ticket. Nodes at which the
    /// adopter already has the lease stay with the adopter.
    BackedOff,
    /// The caller gave up: claimed nodes and the adopter's nodes go back to the ticket.
    GaveUp,
}
