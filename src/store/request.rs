//! The requests to a store.

use std::sync::Arc;
use std::time::Duration;

use super::adopted_lease::Source;
use super::list_filter::ListFilter;
use crate::lease::{Fence, Key, Mode, Token, Ttl};

/// Asks for a lease.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The lock.
    pub key: Key,
    /// The token that will have the lease.
    pub token: Token,
    /// How long the lease lives without renewal.
    pub ttl: Ttl,
    /// The holder's name, shown to everyone who inspects the lock.
    pub holder: Arc<str>,
    /// Exclusive, or shared with a limit.
    pub mode: Mode,
    /// The number of consecutive fences to reserve; at least 1.
    /// [`Reply::Acquired`](super::Reply::Acquired) has the first of them.
    pub fences: u32,
    /// The place in the queue if the lease can't be granted now. `None` if the request does not
    /// wait.
    pub place: Option<Place>,
    /// True if the lease lives until its ttl ends, even if its process is gone. If false, a store
    /// that sees the end of the process may free the lease at once. A place in the queue always
    /// ends with its process.
    pub outlives_process: bool,
    /// True if a [quorum](super::quorum) repairs a lease that other nodes have renewed. A repair
    /// has no `place` and goes before all waiters. If another lease excludes it, it takes the first
    /// place in the queue for one ttl and answers [`Reply::Queued`](super::Reply::Queued). When the
    /// lock is free, the node hands it the lease until that ttl ends, and sends no notice. The
    /// place ends when the lease ends, is broken or moves. Lists of waiters do not show the repair.
    /// The node refuses the repair with [`Reply::Busy`](super::Reply::Busy) if the lock was broken
    /// there in the last [`BROKEN_LIFE`](super::BROKEN_LIFE).
    pub repairs: bool,
}

impl AcquireRequest {
    /// Returns a request for an exclusive lease with one fence, without a place in the queue.
    pub fn new(key: Key, token: Token, ttl: Ttl, holder: Arc<str>) -> Self {
        let (mode, fences, place) = (Mode::Exclusive, 1, None);
        Self { key, token, ttl, holder, mode, fences, place, outlives_process: false, repairs: false }
    }
}

/// A place in the queue of a lock. It belongs to the token of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number by which a [`Notice`](super::Notice) names the waiter. No other waiter of the
    /// process ever has the same number. The store keeps the number of the last acquire that it
    /// carried out. If a waiter takes a new number for each acquire, its notice tells after which
    /// of them its lease began.
    pub number: u64,
}

/// A request to a store.
#[derive(Clone, Debug)]
pub enum Request {
    /// Checks that the store can be reached, and has the right kind, version and rights.
    Ping,
    /// Grants a lease if that is possible and there is no earlier waiter. A client sends it to get
    /// a lease, to wait, to keep its place, and to take up a lease that was handed over.
    Acquire(AcquireRequest),
    /// Lets the lease live for at least `ttl` from now, if `token` still holds it. A renewal never
    /// shortens a lease: otherwise, a renewal that was held up on its way would undo a later one.
    Renew {
        /// The lock.
        key: Key,
        /// The token that must have the lease.
        token: Token,
        /// How long the lease lives from now, at least.
        ttl: Ttl,
        /// The number of further fences to reserve; 0 for none.
        fences: u32,
    },
    /// Ends the lease of `token`, or its place in the queue.
    Release {
        /// The lock.
        key: Key,
        /// The token that has the lease, or waits for one.
        token: Token,
        /// The last fence that a holder got under this token. An exclusive lease gives back the
        /// larger fences of its reservation: a store may reserve those again. `None`: the last
        /// fence is not known, so the lease gives back none.
        used: Option<Fence>,
    },
    /// Passes the lease of `token` to `adopter`. From then on, only `adopter` can renew and release
    /// it. If `adopter` has the lease already, the request can't shorten it.
    /// [`Source::ends_ticket`] says when the lease ends.
    Adopt {
        /// The lock.
        key: Key,
        /// The token that must have the lease.
        token: Token,
        /// The token that has the lease afterwards.
        adopter: Token,
        /// The ttl that the adopter asks for. The note of the lease may limit it.
        ttl: Ttl,
        /// The new holder's name.
        holder: Arc<str>,
        /// See [`AcquireRequest::outlives_process`].
        outlives_process: bool,
        /// Where the fence and the ttl come from.
        source: Source,
    },
    /// Moves the lease of `token` to `to`. The lease keeps its fence and its holder's name, and
    /// outlives its process as after [`Request::Detach`]. It keeps its end unless `most` limits it.
    /// If `to` or `adopter` owns the lease already, the request moves nothing. A
    /// [quorum](super::quorum) sends it to single nodes: it claims them for an adopter, and gives
    /// them back to the ticket.
    Move {
        /// The lock.
        key: Key,
        /// The token that must have the lease.
        token: Token,
        /// The token that has the lease afterwards.
        to: Token,
        /// The token that keeps the lease if it has the lease already.
        adopter: Token,
        /// If `to` has the lease afterwards, the lease ends after this time at the latest. At
        /// least 1 ms.
        most: Option<Duration>,
    },
    /// Undoes an adoption whose caller does not have the lease: the call failed, or the caller
    /// ended it. A single store ends the lease of `token`. A [quorum](super::quorum) gives the
    /// lease back to the ticket, because other adopters may still be adopting it.
    GiveBack {
        /// The lock.
        key: Key,
        /// The adopter's token, which may have the lease.
        token: Token,
        /// The token of the ticket.
        ticket: Token,
    },
    /// Renews the lease as [`Request::Renew`] does, without fences. From then on, only its ttl and
    /// clients that know its token end the lease. A store that frees the leases of a process when
    /// the process ends does not free this one. The store also notes the lease's fence and ttl for
    /// the [adopter](AdoptedLease).
    Detach {
        /// The lock.
        key: Key,
        /// The token that must have the lease.
        token: Token,
        /// How long the lease lives from now, at least.
        ttl: Ttl,
        /// The fence of the lease's last holder.
        fence: Fence,
        /// The lease's own ttl, which its adopter may have, too.
        own_ttl: Ttl,
    },
    /// Makes `fence` the first of the `count` fences of `token`'s lease. Every later lease gets
    /// larger fences. A [quorum](super::quorum) sends it after a grant, so that the lease has the
    /// same fence at all nodes. A lease that was detached keeps its own fence.
    Accept {
        /// The lock.
        key: Key,
        /// The token that must have the lease.
        token: Token,
        /// The first of the fences.
        fence: Fence,
        /// The number of consecutive fences; at least 1.
        count: u32,
    },
    /// Tells who holds the lock, and who waits for it.
    Inspect {
        /// The lock.
        key: Key,
    },
    /// Ends every lease of the lock, and hands it to the first waiter, as the release of a lease
    /// does.
    Break {
        /// The lock.
        key: Key,
        /// True if the store is a node of a quorum. For [`BROKEN_LIFE`](super::BROKEN_LIFE), the
        /// node then refuses to grant a lease of the lock as a repair, even if it knew no lease.
        bars_repairs: bool,
    },
    /// Tells which locks are held, who holds them, and who waits for them.
    List(ListFilter),
    /// Examines the store, and tells what may go wrong with leases of that ttl.
    Diagnose {
        /// The ttl that leases usually have.
        ttl: Ttl,
        /// The lock that a Redis store acquires and releases to find out whether this user may
        /// lock. `None` for a node of a cluster: the cluster's store does that.
        key: Option<Key>,
    },
}

impl Request {
    /// Returns the lock that the request is about, if it is about one.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Request::Ping | Request::List(_) | Request::Diagnose { .. } => None,
            Request::Acquire(AcquireRequest { key, .. })
            | Request::Renew { key, .. }
            | Request::Release { key, .. }
            | Request::Adopt { key, .. }
            | Request::Move { key, .. }
            | Request::GiveBack { key, .. }
            | Request::Accept { key, .. }
            | Request::Detach { key, .. }
            | Request::Break { key, .. }
            | Request::Inspect { key } => Some(key),
        }
    }

    /// Returns the token and the ttl of the lease that the request begins or renews.
    pub fn lease(&self) -> Option<(Token, Ttl)> {
        match self {
            Request::Acquire(AcquireRequest { token, ttl, .. })
            | Request::Renew { token, ttl, .. }
            | Request::Detach { token, ttl, .. }
            | Request::Adopt { adopter: token, ttl, .. } => Some((*token, *ttl)),
            _ => None,
        }
    }
}
