//! Requests on their way to the nodes that carry them out.

use super::slots::Place;
use crate::store::{Request, StoreError, StoreErrorKind};

/// A request on its way to the node that carries it out.
pub struct Errand {
    /// Its place in the batch.
    pub index: usize,
    pub slot: u16,
    /// The node that is being given the slot and has its keys already.
    pub ask: Option<Place>,
    pub hops: u32,
}

/// What has become of an errand that is not done.
pub enum Next {
    /// It is known where to go on.
    Again(Errand),
    /// It is tried again a little later; the error, if it is too late for that.
    Later(Errand, StoreError),
    /// Whoever it was sent to does not serve the slot now; the error, if nobody else does.
    Nowhere(Errand, Option<Place>, StoreError),
}

/// The errands for one node.
pub struct Call {
    pub place: Place,
    pub asking: bool,
    pub errands: Vec<Errand>,
}

/// Whether a node may do it that is still being given the slot: not if it may make a key there that is yet to come.
pub fn can_be_asked(request: &Request) -> bool {
    !matches!(request, Request::Acquire(_))
}

/// Whether the slots of a node that fails so may be those of another one by now.
pub fn may_be_anothers(error: &StoreError) -> bool {
    use StoreErrorKind::{ReadOnly, TimedOut, Unreachable, Unreplicated};
    matches!(error.kind, Unreachable | TimedOut | Unreplicated | ReadOnly)
}
