//! The store contract: what every place where leases live has to promise.
//!
//! A store grants, renews and ends leases, in batches. The engine is its only caller, on one thread,
//! so a store needs no locks of its own; it must only never block that thread.
//!
//! **What every store promises** (and `tests/store_contract/` asks of each):
//!
//! 1. *Exclusion.* While a lease of a key lives (its ttl has not run out since it was granted or last
//!    renewed, and it was not released) no other token is granted that key.
//! 2. *Fences grow.* Each grant of a key carries a larger [`Fence`] than every earlier grant of it,
//!    whatever was restarted in between.
//! 3. *Idempotence.* Every request is bound to its token, and repeating it is harmless: an acquire by
//!    the token that already holds the key is granted again with the same fence and the full ttl; a
//!    release of a lease that is gone answers [`Reply::NotHeld`].
//! 4. *No resurrection.* A renewal never creates a lease: a missing key is [`Absence::Missing`],
//!    because somebody may have been in between.
//! 5. *One answer each.* `execute` answers every request of the batch, in the batch's order. Requests on
//!    the same key take effect in the batch's order.
//! 6. *Nothing piles up.* After the last lease of a key ends, whatever the store keeps of that key
//!    is gone within a bounded time.
//! 7. *It ends.* Every request is answered within the time-out given with its batch, with
//!    [`StoreError`] if need be, and an error says whether the request may have been carried out.

pub mod error;
pub mod memory;
pub mod redis;
pub mod spec;
pub mod sqlite;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

pub use error::{StoreError, StoreErrorKind};

use crate::lease::{Fence, Key, Token, Ttl};

/// One thing that a store is asked to do.
#[derive(Clone, Debug)]
pub enum Request {
    /// Reach the store and make sure that it is one that can be used: right kind, version, rights.
    Ping,
    /// Grant the lease of `key` to `token`, if nobody holds it.
    Acquire {
        /// Which lock.
        key: Key,
        /// Who will own the lease.
        token: Token,
        /// How long the lease lives without renewal.
        ttl: Ttl,
        /// The holder's name, shown to whoever inspects the lock.
        holder: Arc<str>,
    },
    /// Let the lease live for at least `ttl` from now, if `token` still holds it. A renewal never makes it live
    /// shorter: one that was held up on its way would else undo one that overtook it.
    Renew {
        /// Which lock.
        key: Key,
        /// Who must own it.
        token: Token,
        /// How long the lease lives from now, at least.
        ttl: Ttl,
    },
    /// End the lease, if `token` still holds it.
    Release {
        /// Which lock.
        key: Key,
        /// Who must own it.
        token: Token,
    },
    /// Tell who holds the lock.
    Inspect {
        /// Which lock.
        key: Key,
    },
}

/// What a store says when it did what it was asked, or found that it could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Request::Ping`]: the store is there and fit.
    Ready,
    /// To [`Request::Acquire`]: the lease is the token's, from now on for the ttl.
    Acquired {
        /// The lease's fence.
        fence: Fence,
    },
    /// To [`Request::Acquire`]: somebody else holds the key.
    Busy {
        /// When that lease ends unless it is renewed; `None` if it never does (a foreign key
        /// without expiry).
        remaining: Option<Duration>,
    },
    /// To [`Request::Renew`].
    Renewed,
    /// To [`Request::Release`].
    Released,
    /// To [`Request::Renew`] or [`Request::Release`]: the token does not hold the key.
    NotHeld(Absence),
    /// To [`Request::Inspect`]: the lease, or `None` if nobody holds the lock.
    Inspected(Option<LeaseInfo>),
}

/// Why a token does not hold a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Nobody holds the key.
    Missing,
    /// Another token holds the key.
    Taken,
}

/// What a store tells of a held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The holder's name; `None` if another library holds the key.
    pub holder: Option<Arc<str>>,
    /// The lease's fence; `None` if another library holds the key.
    pub fence: Option<Fence>,
    /// When the lease ends unless it is renewed; `None` if it never does.
    pub remaining: Option<Duration>,
}

/// What a store answers to one request.
pub type Answer = Result<Reply, StoreError>;

/// A place where leases live. See the module for what it promises.
pub trait Store {
    /// Carries out `batch` and answers each request, in order, within `timeout`.
    ///
    /// Nothing is sent before the future is first polled. The engine polls it to its end even when
    /// nobody waits for the answers any more.
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>>;

    /// Gives back what the store holds open (connections, files, threads). Called once, after the last
    /// batch was answered.
    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()>;
}

/// The same answer to each of `count` requests: for stores that fail as a whole.
pub fn all_failed(count: usize, error: &StoreError) -> Vec<Answer> {
    (0..count).map(|_| Err(error.clone())).collect()
}
