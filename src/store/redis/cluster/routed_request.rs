//! Requests with the nodes that they go to.

use super::slots::NodeAddress;
use crate::store::{Request, StoreError, StoreErrorKind};

/// A request that no node has carried out yet.
pub struct RoutedRequest {
    /// Its place in the batch.
    pub index: usize,
    pub slot: u16,
    /// The node that is importing the slot and has its keys already. `None` if the request goes to
    /// the owner of the slot.
    pub ask: Option<NodeAddress>,
    pub hops: u32,
}

/// Says how a request goes on that a node did not carry out.
pub enum Next {
    /// The request goes to another node at once.
    Again(RoutedRequest),
    /// The request is sent again a little later. The error is for the case that no time is left.
    Later(RoutedRequest, StoreError),
    /// The node does not serve the slot now; the error counts if no other node does.
    Nowhere(RoutedRequest, Option<NodeAddress>, StoreError),
}

/// The routed requests for one node.
pub struct NodeCall {
    pub place: NodeAddress,
    pub asking: bool,
    pub routed: Vec<RoutedRequest>,
}

/// Returns true if a node that is still importing the slot may carry out the request. An acquire is
/// not allowed there: it may create a key that still has to come from the other node.
pub fn can_be_asked(request: &Request) -> bool {
    !matches!(request, Request::Acquire(_))
}

/// Returns true if another node may have the slots of a node that fails with `error`.
pub fn may_be_anothers(error: &StoreError) -> bool {
    use StoreErrorKind::{ReadOnly, TimedOut, Unreachable, Unreplicated};
    matches!(error.kind, Unreachable | TimedOut | Unreplicated | ReadOnly)
}
