//! The store contract: what every place where leases live has to promise.
//!
//! A store grants, renews and ends leases, in batches. The engine is its only caller, on one thread,
//! so a store needs no locks of its own; it must only never block that thread.
//!
//! A key is not empty, and it is not a side key: a name under which a Redis store keeps data of
//! another lock (see [`names`]). The TypeScript layer refuses such keys for every store, so that a
//! key that works with one store works with every other.
//!
//! **What every store promises** (and `tests/store_contract/` asks of each):
//!
//! 1. *Exclusion.* While a lease of a key lives (its ttl has not run out since it was granted or last
//!    renewed, and it was not released) no other token is granted that key, unless both are
//!    [`Mode::Shared`] and there is room for one more.
//! 2. *Fences grow.* Each grant of a key carries a larger [`Fence`] than every earlier grant of it,
//!    and than every fence that was reserved with an earlier grant and not given back by its
//!    release, whatever was restarted in between. Fences of different keys are not related.
//! 3. *Idempotence.* Every request is bound to its token, and repeating it is harmless: an acquire by
//!    the token that already holds the key is granted again with the same fence (if it asks for one fence) and
//!    the full ttl; one by a token that waits already leaves it at its place; a release of a lease that is
//!    gone answers [`Reply::NotHeld`].
//! 4. *No resurrection.* A renewal never creates a lease: a missing key is [`Absence::Missing`],
//!    because somebody may have been in between.
//! 5. *One answer each.* `execute` answers every request of the batch, in the batch's order. Requests on
//!    the same key take effect in the batch's order.
//! 6. *Nothing piles up.* After the last lease of a key ends, whatever the store keeps of that key
//!    is gone within a bounded time.
//! 7. *First come, first served.* A lease that ends by [`Request::Release`] is handed to whoever came first of
//!    those who wait and live: at once and for [`GRANT_TTL`] (an exclusive one for its own ttl, if that is
//!    shorter), in which that one has to repeat its acquire.
//!    An exclusive lease has its fence from then on; who is told of it may as well renew at once.
//!    So are further leases, as long as whoever is first then fits beside those that are held. Nobody who
//!    comes later is granted the key before them. A lease that ended by itself is handed on the same way at the
//!    next request that finds it ended; the first in the queue is told when to look. Whoever is handed a lease is sent
//!    a [`Notice`], once; it may get lost, so those who wait look again from time to time. One that has not
//!    for [`WAITER_LIFE`] loses its place. A store that can see that a waiter can't be told, because its
//!    process or its connection is gone, passes it over as long as there are others, and keeps its place.
//! 8. *A lock can be broken.* [`Request::Break`] ends every lease of a key, whoever holds it, and hands the lock on as a release
//!    does; the next fence is larger all the same. It is bound to no token, so whoever repeats it may end the next lease:
//!    nobody repeats it by itself. A holder whose lease was broken finds out at its next renewal.
//! 9. *What is held can be listed.* [`Request::List`] tells of every lock that was held all the while, if there are no more than
//!    its limit and the store could look at all of its keys in time; the listing says whether it is whole.
//! 10. *It ends.* Every request is answered within the time-out given with its batch, with
//!     [`StoreError`] if need be, and an error says whether the request may have been carried out.
//!
//! **Where a [quorum] promises less**, since most of its nodes settle what it answers:
//!
//! - 1: it has no counted permits. [`Mode::Shared`] with a `most` other than `u32::MAX` is [`StoreErrorKind::Unsupported`].
//! - 3: a repeated acquire keeps its fence or gets a larger one, should a node not have accepted the first one yet; so does
//!   the acquire of a lease that was renewed for more fences. After [`Reply::Busy`], [`Reply::Split`] and an error of the
//!   kind [`StoreErrorKind::Quorum`] a token has had its day. After such an error of an acquire it releases at each
//!   node by itself what the token may have there, again and again until the node has heard.
//! - 4: a token that has lost a lease may get it back. An adoption first moves the lease from the
//!   ticket to a token of its own, the [claim](Token::claim). An heir that gives way moves the
//!   lease back to the ticket, and so does [`Request::GiveBack`].
//! - 5: requests of different batches may take effect in another order at each node, and then for none of them at most
//!   nodes ([`Reply::Split`]).
//! - 7: waiters are served in arrival order as far as the nodes agree on that order. A waiter that
//!   gives way loses its place. A [repair](Ask::repairs) goes before all waiters of a node. A
//!   notice contains no fence: until the lease is taken up, each node has a fence of its own.

mod access;
mod availability;
pub mod breaker;
pub mod diagnosis;
pub mod error;
pub mod guarded;
mod info;
pub mod inheritance;
pub mod listing;
pub mod memory;
pub mod names;
pub mod printable;
pub mod quorum;
pub mod redis;
pub mod rules;
pub mod spec;
pub mod sqlite;
mod tls;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

pub use access::Access;
pub use availability::Availability;
pub use error::{Said, StoreError, StoreErrorKind, Vote};
pub use info::{LeaseInfo, LockInfo, Servers, WaiterInfo};
pub use inheritance::{Inherited, Source};
pub use tls::{Tls, TlsTexts};

use self::breaker::Health;
use self::diagnosis::Report;
use self::listing::{Listing, Wanted};
use crate::lease::handoff::BLOCK;
use crate::lease::{Fence, Key, Mode, Token, Ttl};

/// How long a lease lives that was handed to a waiter, until the waiter says that it is there; an exclusive one of a shorter
/// ttl lives for that. A round trip is a thousandth of it; a waiter that has just died costs the others no more than this.
pub const GRANT_TTL: Duration = Duration::from_millis(1_500);
/// How many fences are reserved with an exclusive lease that is handed to a waiter, who then need not ask for more in order to
/// hand it on within its process.
pub const GRANT_FENCES: u32 = BLOCK;
/// How long a waiter keeps its place without being heard of.
pub const WAITER_LIFE: Duration = Duration::from_millis(2500);
/// How long a node of a quorum refuses repairs of a lock that was broken. A request to break a lock
/// reaches the nodes one after the other, but within 60 s, the longest time-out of a request. If
/// this is smaller, a lease may be repaired at the first nodes before the last ones have broken the
/// lock. If it is larger, the next leases of the lock are without repairs for longer.
pub const BROKEN_LIFE: Duration = Duration::from_secs(120);

/// Asks for a lease.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Which lock.
    pub key: Key,
    /// Who will own the lease.
    pub token: Token,
    /// How long the lease lives without renewal.
    pub ttl: Ttl,
    /// The holder's name, shown to everyone who inspects the lock.
    pub holder: Arc<str>,
    /// Which other leases it bears beside it.
    pub mode: Mode,
    /// How many fences in a row are wanted, of which [`Reply::Acquired`] tells the first; at least 1.
    pub fences: u32,
    /// Where to stand in line if the lease can't be granted now; `None`: nowhere.
    pub place: Option<Place>,
    /// Whether the lease lives until its ttl ends, even if its process is gone. If not, a store
    /// that sees the end of a process may free the lease at once. A place in the queue always ends
    /// with its process.
    pub outlives_process: bool,
    /// True if a [quorum](quorum) repairs a lease that other nodes have renewed. A repair has no
    /// `place` and goes before all waiters. If another lease excludes it, it takes the first place
    /// in the queue for one ttl and answers [`Reply::Queued`]. When the lock is free, the node hands
    /// it the lease until that ttl ends, and sends no notice. The place ends when the lease ends,
    /// is broken or moves. Lists of waiters do not show the repair. The node refuses the repair
    /// with [`Reply::Busy`] if the lock was broken there in the last [`BROKEN_LIFE`].
    pub repairs: bool,
}

impl Ask {
    /// For an exclusive lease with one fence, or nothing.
    pub fn new(key: Key, token: Token, ttl: Ttl, holder: Arc<str>) -> Self {
        let (mode, fences, place) = (Mode::Exclusive, 1, None);
        Self { key, token, ttl, holder, mode, fences, place, outlives_process: false, repairs: false }
    }
}

/// A place in the queue of a lock. It belongs to the token that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// What a [`Notice`] calls the waiter; no other waiter of the process is ever called the same. The store keeps that of
    /// the last acquire that it carried out: a waiter with another number for each learns by a notice after which of
    /// them its lease began.
    pub number: u64,
}

/// One thing that a store is asked to do.
#[derive(Clone, Debug)]
pub enum Request {
    /// Reach the store and make sure that it is one that can be used: right kind, version, rights.
    Ping,
    /// Grant a lease if that is possible and nobody waits who came earlier. The way to ask, to wait, to keep one's place,
    /// and to take up a lease that was handed over.
    Acquire(Ask),
    /// Let the lease live for at least `ttl` from now, if `token` still holds it. A renewal never makes it live
    /// shorter: one that was held up on its way would else undo one that overtook it.
    Renew {
        /// Which lock.
        key: Key,
        /// Who must own it.
        token: Token,
        /// How long the lease lives from now, at least.
        ttl: Ttl,
        /// How many more fences are wanted, 0 for none.
        fences: u32,
    },
    /// End the lease of `token` and its place in the queue, whichever it has.
    Release {
        /// Which lock.
        key: Key,
        /// Who owns the lease, or waits for one.
        token: Token,
        /// The last fence that a holder got under this token. An exclusive lease gives back the
        /// larger fences of its reservation: a store may reserve those again. `None`: the last
        /// fence is not known, so the lease gives back none.
        used: Option<Fence>,
    },
    /// Let the lease of `token` be that of `heir` from now on, and live for at least `ttl`: then only `heir` can
    /// renew and release it. Harmless if it is that of `heir` already.
    Adopt {
        /// Which lock.
        key: Key,
        /// Who must own it.
        token: Token,
        /// Who owns it then.
        heir: Token,
        /// How long the lease lives from now, at least.
        ttl: Ttl,
        /// The new holder's name.
        holder: Arc<str>,
        /// See [`Ask::outlives_process`].
        outlives_process: bool,
        /// Says where the fence and the ttl come from.
        source: Source,
    },
    /// Move the lease of `token` to `to`. The lease keeps its end, its fence and its holder's name,
    /// and outlives its process as after [`Request::Detach`]. If `to` or `heir` owns the lease
    /// already, the request changes nothing. A [quorum](quorum) sends it to single nodes: it claims
    /// them for an heir, and gives them back to the ticket.
    Move {
        /// Which lock.
        key: Key,
        /// Who must own it.
        token: Token,
        /// Who owns it then.
        to: Token,
        /// Who keeps the lease if it owns the lease already.
        heir: Token,
    },
    /// Undo an adoption whose caller does not have the lease: the call failed, or the caller ended
    /// it. A single store ends the lease of `token`. A [quorum](quorum) gives the lease back to the
    /// ticket, because other heirs may still be adopting it.
    GiveBack {
        /// Which lock.
        key: Key,
        /// The heir, who may own the lease.
        token: Token,
        /// The token of the ticket.
        ticket: Token,
    },
    /// As [`Request::Renew`] without fences; and from now on only the ttl ends the lease, or whoever knows the token:
    /// a store that frees what a process held when the process ends leaves this one alone. The
    /// store also notes the lease's fence and ttl for the [heir](Inherited).
    Detach {
        /// Which lock.
        key: Key,
        /// Who must own it.
        token: Token,
        /// How long the lease lives from now, at least.
        ttl: Ttl,
        /// The fence of the lease's last holder.
        fence: Fence,
        /// The lease's own ttl, which its heir may have, too.
        own_ttl: Ttl,
    },
    /// Let `fence` be the first of the `count` fences of `token`'s lease, and no later lease get one that is not larger.
    /// The second half of a fenced [quorum](quorum): what is one lease at several stores has one fence at all of them.
    Accept {
        /// Which lock.
        key: Key,
        /// Who must own it.
        token: Token,
        /// The first of the fences.
        fence: Fence,
        /// How many there are in a row; at least 1.
        count: u32,
    },
    /// Tell who holds the lock, and who waits for it.
    Inspect {
        /// Which lock.
        key: Key,
    },
    /// End every lease of the lock, and hand it to whoever is first of those who wait, as the release of a lease would.
    Break {
        /// Which lock.
        key: Key,
        /// True if the store is a node of a quorum. For [`BROKEN_LIFE`], the node then refuses to
        /// grant a lease of the lock as a repair, even if it knew no lease.
        bars_repairs: bool,
    },
    /// Tell which locks are held, who holds them, and who waits for them.
    List(Wanted),
    /// Look at the store, and tell what may go wrong with leases of that ttl.
    Diagnose {
        /// The ttl that leases usually have.
        ttl: Ttl,
        /// The lock that a Redis store acquires and releases to find out whether this user may
        /// lock. `None` for a node of a cluster: the cluster's store does that.
        key: Option<Key>,
    },
}

impl Request {
    /// The lock that it is about, if it is about one.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Request::Ping | Request::List(_) | Request::Diagnose { .. } => None,
            Request::Acquire(Ask { key, .. })
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
            Request::Acquire(Ask { token, ttl, .. })
            | Request::Renew { token, ttl, .. }
            | Request::Detach { token, ttl, .. }
            | Request::Adopt { heir: token, ttl, .. } => Some((*token, *ttl)),
            _ => None,
        }
    }
}

/// What a store says when it did what it was asked, or found that it could not be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To [`Request::Ping`]: the store is there and fit.
    Ready,
    /// To [`Request::Acquire`]: the lease is the token's, from now on for the ttl.
    Acquired {
        /// The first of the fences that were asked for.
        fence: Fence,
        /// How many wait for the lock at the store.
        waiting: u32,
    },
    /// To [`Request::Acquire`] without a place: somebody else holds the key, or waits for it. The token is not to be used
    /// again: a quorum may still be taking back what a node has granted it.
    Busy {
        /// When the first of the leases in the way ends unless it is renewed; `None` if none ever does (a foreign
        /// key without expiry).
        remaining: Option<Duration>,
    },
    /// Answers [`Request::Acquire`] with a place, and a [repair](Ask::repairs): the request has
    /// got its place in the queue, or still has it.
    Queued {
        /// As for [`Reply::Busy`].
        remaining: Option<Duration>,
        /// How many stand before it.
        ahead: u32,
        /// Whether a [`Notice`] will come; otherwise only looking again tells.
        told: bool,
        /// The [mark](Token::mark) of whoever has the exclusive lease in the way. By it a quorum sees whether most of its
        /// nodes are held by the same one.
        by: Option<u32>,
    },
    /// To [`Request::Renew`] and [`Request::Detach`].
    Renewed {
        /// The first of the fences that were asked for, and how many wait for the lock at the store. `None` if no
        /// fences were asked for.
        block: Option<(Fence, u32)>,
    },
    /// To [`Request::Release`], [`Request::GiveBack`] and [`Request::Break`]: the lease or the lock
    /// was held.
    Released,
    /// To [`Request::Acquire`]: some of a quorum's nodes granted it and too few did, and others have the rest of them. The
    /// token may hold something there, is to be released, and not to be used again.
    Split,
    /// To [`Request::Adopt`] and [`Request::Move`]: the new owner has the lease, or had it before.
    Adopted(Inherited),
    /// To [`Request::Move`]: another heir [claims](Token::claim) the lease of the token.
    Claimed {
        /// The claim. Its heir has the same [mark](Token::mark).
        by: Token,
    },
    /// To [`Request::Accept`].
    Accepted,
    /// To [`Request::Renew`], [`Request::Detach`], [`Request::Release`], [`Request::Adopt`],
    /// [`Request::Move`], [`Request::GiveBack`] or [`Request::Accept`]: the token does not hold the
    /// key. To [`Request::Break`]: no token held the key ([`Absence::Missing`]).
    NotHeld(Absence),
    /// To [`Request::Inspect`]: the leases and the queue, or `None` if nobody holds the lock.
    Inspected(Option<LockInfo>),
    /// To [`Request::List`].
    Listed(Listing),
    /// To [`Request::Diagnose`]: what was found, a report for each server. One that can't be reached or used is no error but a
    /// report that says so.
    Diagnosed(Vec<Report>),
}

impl Reply {
    /// Returns true for [`Reply::Adopted`].
    pub fn is_adopted(&self) -> bool {
        matches!(self, Reply::Adopted(_))
    }
}

/// Why a token does not hold a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Nobody holds the key.
    Missing,
    /// Another token holds the key.
    Taken,
}

/// What a store answers to one request.
pub type Answer = Result<Reply, StoreError>;

/// What a store says without being asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The waiter of a [`Place`] was handed a lease, or may be.
    Granted {
        /// That of its place.
        number: u64,
        /// That of the exclusive lease that it has, for [`GRANT_TTL`] from some instant after its acquire of that number
        /// was carried out. It may take that lease up by renewing it. `None`: it is to repeat its acquire now.
        fence: Option<Fence>,
    },
    /// Notices may have been lost, for instance with a connection: all waiters are to repeat their acquires.
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
    /// Whether the store as a whole can grant leases has changed. Sent before the
    /// [`Notice::Breaker`] of the server that caused the change. Before the first such notice, the
    /// store is usable.
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

    /// Divides a batch into parts. Returns a number for each request: requests with the same number
    /// may share a batch. The engine makes a batch of each part, so that a slow part does not hold
    /// up the answers of the others. Requests that change the same key have the same number.
    /// Returns `None` if all requests may share a batch, or while the store does not know which
    /// may.
    fn parts(&self, _batch: &[Request]) -> Option<Vec<u32>> {
        None
    }

    /// Notices go to `listener` from now on. Called once, before the first batch.
    fn listen(&self, listener: Listener);

    /// Gives back what the store holds open (connections, files, threads). Called once, after the last
    /// batch was answered.
    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()>;
}

/// The same answer to each of `count` requests: for stores that fail as a whole.
pub fn all_failed(count: usize, error: &StoreError) -> Vec<Answer> {
    (0..count).map(|_| Err(error.clone())).collect()
}
