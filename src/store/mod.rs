//! The store contract: what every place where leases live has to promise.
//!
//! A store grants, renews and ends leases, in batches. The engine is its only caller, on one
//! thread, so a store needs no locks of its own. It must never block that thread. *Adding a store*
//! in `CONTRIBUTING.md` lists what else a new kind of store needs.
//!
//! A key is not empty, and it is not a side key: a name under which a Redis store keeps data of
//! another lock (see [`names`]). The TypeScript layer refuses such keys for every store, so that a
//! key that works with one store works with every other.
//!
//! **What every store promises** (`tests/store_contract/` tests each promise):
//!
//! 1. *Exclusion.* A lease lives until its ttl has passed since the grant or the last renewal, or
//!    until it is released, broken, or freed because its process is gone. While a lease of a key
//!    lives, no other token is granted that key, unless both leases are
//!    [`Mode::Shared`](crate::lease::Mode::Shared) and there is room for one more.
//! 2. *Fences grow.* Each grant of a key carries a larger [`Fence`](crate::lease::Fence) than every
//!    earlier grant of it. The fence is also larger than every fence that was reserved with an
//!    earlier grant and not given back by its release. Both hold after restarts, too. Fences of
//!    different keys are not related.
//! 3. *Idempotence.* Every request that changes a lease, except a break, is bound to a token, and
//!    repeating it is harmless. An acquire by the token that already holds the key is granted again
//!    with the same fence (if it asks for one fence) and the full ttl. An acquire by a token that
//!    already waits keeps its place. A release of a lease that is gone answers [`Reply::NotHeld`].
//! 4. *No resurrection.* A renewal never creates a lease: a missing key is [`Absence::Missing`],
//!    because another client may have had the lock in between.
//! 5. *One answer each.* `execute` answers every request of the batch, in the batch's order.
//!    Requests on the same key take effect in the batch's order.
//! 6. *Nothing piles up.* After the last lease of a key ends, the store forgets the key within a
//!    bounded time.
//! 7. *First come, first served.* When [`Request::Release`] ends a lease, the store hands the lease
//!    to the living waiter that came first, at once and for [`GRANT_TTL`] (for its own ttl if that
//!    is shorter and the lease is exclusive). Within that time, the waiter has to repeat its
//!    acquire. An exclusive lease has its fence from then on, so a waiter that learns of it may
//!    renew it at once. The store hands on further leases as long as the next waiter's lease fits
//!    among those that are held. No later waiter gets the key before an earlier one. A lease that
//!    ended by itself is handed on in the same way at the next request that finds it ended; the
//!    store tells the first waiter when to poll. A waiter that is handed a lease gets one
//!    [`Notice`]. The notice may get lost, so waiters poll from time to time. A waiter that has not
//!    polled for [`WAITER_LIFE`] loses its place. If a store can see that a waiter's process or
//!    connection is gone, it passes that waiter over as long as there are others, and keeps its
//!    place.
//! 8. *A lock can be broken.* [`Request::Break`] ends every lease of a key and hands the lock on as
//!    a release does. The next fence is still larger. The request is bound to no token, so a
//!    repeated request may end the next lease: no part of leasehold repeats it by itself. A holder
//!    whose lease was broken finds out at its next renewal.
//! 9. *Held locks can be listed.* [`Request::List`] returns every lock that is held during the
//!    whole listing, if there are no more than its limit and the store could look at all its keys
//!    in time. The listing says whether it is complete.
//! 10. *It ends.* Every request is answered within the time-out given with its batch, if need be
//!     with a [`StoreError`]. The error says whether the request may have been carried out.
//!
//! **Where a [quorum] promises less**, because a majority of its nodes decides its answers:
//!
//! - 1: it has no counted permits. [`Mode::Shared`](crate::lease::Mode::Shared) with a `most` other
//!   than `u32::MAX` is [`StoreErrorKind::Unsupported`].
//! - 3: if a node has not accepted the first fence yet, a repeated acquire may get a larger one. So
//!   may the acquire of a lease that was renewed for more fences. After [`Reply::Busy`],
//!   [`Reply::Split`] and an error of the kind [`StoreErrorKind::Quorum`], the token must not be
//!   used again. After such an error of an acquire, the quorum itself releases what the token may
//!   have at each node. It repeats the release until the node has answered.
//! - 4: a token that has lost a lease may get it back. An adoption first moves the lease from the
//!   ticket to a token of its own, the [claim](Token::claim). An adopter that gives way moves the
//!   lease back to the ticket, and so does [`Request::GiveBack`].
//! - 5: requests of different batches may take effect in a different order at each node. Then it is
//!   possible that none of them takes effect at most nodes ([`Reply::Split`]).
//! - 7: waiters are served in arrival order as far as the nodes agree on that order. A waiter that
//!   gives way loses its place. A [repair](AcquireRequest::repairs) goes before all waiters of a
//!   node. A notice contains no fence: until the lease is taken up, each node has a fence of its
//!   own.

mod access;
pub mod adopted_lease;
mod availability;
pub mod breaker;
pub mod breaker_store;
pub mod diagnosis;
pub mod error;
mod info;
pub mod list_filter;
pub mod listing;
pub mod listing_batch;
pub mod memory;
pub mod names;
pub mod node_views;
mod notice;
mod own_thread;
pub mod printable;
pub mod quorum;
pub mod redis;
mod reply;
mod request;
pub mod rules;
mod spans;
pub mod spec;
pub mod sqlite;
mod tls;

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

pub use access::Access;
pub use adopted_lease::{AdoptedLease, Source};
pub use availability::Availability;
pub use error::{NodeAnswer, StoreError, StoreErrorKind, Vote};
pub use info::{LeaseInfo, LockInfo, Servers, WaiterInfo};
pub use notice::{Acknowledgement, Listener, Notice};
pub use reply::{Absence, Answer, Reply, all_failed};
pub use request::{AcquireRequest, Place, Request};
pub use spans::{BROKEN_LIFE, GRANT_FENCES, GRANT_TTL, WAITER_LIFE};
pub use tls::{ChainExcess, Tls, TlsTexts};

/// A place where leases live. The module says what it promises.
pub trait Store {
    /// Carries out `batch` and answers each request, in order, within `timeout`.
    ///
    /// Nothing is sent before the future is first polled. The engine polls it to its end, even if
    /// no caller waits for the answers any more.
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>>;

    /// Divides a batch into parts. Returns a number for each request: requests with the same number
    /// may share a batch. The engine makes a batch of each part, so that a slow part does not hold
    /// up the answers of the others. Requests that change the same key have the same number.
    /// Returns `None` if all requests may share a batch, or while the store does not know which
    /// may.
    fn parts(&self, _batch: &[Request]) -> Option<Vec<u32>> {
        None
    }

    /// Sets the listener that gets all notices from now on. Called once, before the first batch.
    fn listen(&self, listener: Listener);

    /// Returns a future that resolves when the store has carried out what it still has to do
    /// although all batches are answered. Returns `None` if there is nothing to do. The engine
    /// closes an unused store after that, unless a client uses it again.
    fn finish(self: Rc<Self>) -> Option<LocalBoxFuture<'static, ()>> {
        None
    }

    /// Closes what the store holds open (connections, files, threads). Called once, after the last
    /// batch was answered.
    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()>;
}
