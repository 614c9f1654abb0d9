//! Messages that a store sends without a request.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::availability::Availability;
use super::breaker::Health;
use crate::lease::Fence;

/// A message that a store sends without a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The waiter of a [`Place`](super::Place) was handed a lease, or may have been.
    Granted {
        /// The number of its place.
        number: u64,
        /// The fence of the waiter's exclusive lease. The waiter has this lease for
        /// [`GRANT_TTL`](super::GRANT_TTL) from some instant after its acquire of that number was
        /// carried out, and may take it up by a renewal. `None`: the waiter has to repeat its
        /// acquire now.
        fence: Option<Fence>,
    },
    /// Notices may have been lost, for instance with a connection. All waiters have to repeat their
    /// acquires.
    Missed,
    /// Another server has replaced the store's server, and it may not have received the last
    /// requests. The engine renews all leases at once, and all waiters repeat their acquires.
    Moved,
    /// All leases of the store are lost: the store gives up the files that they are in. As soon as
    /// this notice is dropped, other stores may grant those locks. All waiters have to repeat their
    /// acquires.
    Lost(Acknowledgement),
    /// The circuit breaker before a server has changed its state.
    Breaker(Arc<Health>),
    /// The availability of the store as a whole has changed. Sent before the [`Notice::Breaker`] of
    /// the server that caused the change. Before the first such notice, the store is usable.
    Availability(Availability),
}

/// Acknowledges a [`Notice::Lost`] when every copy of this is dropped.
#[derive(Clone, Debug)]
pub struct Acknowledgement(Arc<SyncSender<()>>);

impl Acknowledgement {
    /// Returns an acknowledgement, and a receiver that disconnects when the acknowledgement is
    /// dropped.
    pub fn pair() -> (Self, Receiver<()>) {
        let (sender, dropped) = sync_channel(0);
        (Self(Arc::new(sender)), dropped)
    }
}

impl PartialEq for Acknowledgement {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Acknowledgement {}

/// Takes notices. Called on the engine's thread.
pub type Listener = Rc<dyn Fn(Notice)>;
