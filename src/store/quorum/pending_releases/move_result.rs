//! Says what a node of a quorum answered to a pending release.

use crate::lease::Token;

/// See the module.
pub enum MoveResult {
    Moved,
    /// The claim of another adopter has the lease.
    Claimed(Token),
    Other,
}
