//! The commands that the engine takes, and the outcomes that it returns.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::ids::{ClientId, EnvId, OpId, StoreId};
use super::known_lease::KnownLease;
use super::pulse::Pulse;
use super::stats::Stats;
use super::thread_hand_offs::ThreadHandOffs;
use crate::lease::{Fence, Key, LossReason, Mode, Token, Ttl};
use crate::store::breaker::Health;
use crate::store::diagnosis::Report;
use crate::store::listing::{ListFilter, Listing};
use crate::store::{Availability, LockInfo, StoreError};

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The environment of the client.
    pub env: EnvId,
    /// The holder's name, which an inspection shows unless an acquire gives another one.
    pub name: Arc<str>,
    /// How long the environment's thread may leave a question unanswered before renewal stops.
    pub max_stall: Duration,
    /// How long the store may take to answer a request.
    pub store_timeout: Duration,
    /// The most hand-offs in a row within this process while others wait elsewhere; 0 allows none.
    pub hand_offs: u32,
    /// The client's counters.
    pub stats: Arc<Stats>,
}

/// An acquire.
#[derive(Debug)]
pub struct AcquireCommand {
    /// The operation. After the grant, it names the lease.
    pub op: OpId,
    /// The client that acquires the lock.
    pub client: ClientId,
    /// The lock.
    pub key: Key,
    /// A new token, which proves ownership.
    pub token: Token,
    /// Whether the lease is exclusive or shared.
    pub mode: Mode,
    /// How long the lease lives without renewal.
    pub ttl: Ttl,
    /// How long to wait while another client holds the lock.
    pub wait: Wait,
    /// How long the lease may be held in all, with its renewals.
    pub max_hold: Option<Duration>,
    /// Whether the engine renews the lease.
    pub auto_renew: bool,
    /// Whether the engine reports each automatic renewal.
    pub report: bool,
    /// Whether a section runs under the lease. Draining a client does not end such a lease.
    pub section: bool,
    /// Whether the acquire fails, instead of waiting, while the store can't grant leases.
    pub fail_fast: bool,
    /// Whether the lease lives until its ttl ends, even if this process is gone.
    pub outlives_process: bool,
    /// The holder's name at the store, if it differs from the client's name.
    pub holder: Option<Arc<str>>,
    /// What both threads know of the lease.
    pub state: Arc<KnownLease>,
}

/// An adoption.
#[derive(Debug)]
pub struct AdoptCommand {
    /// The same data as for an acquire. The token is the lease's new one. An adoption does not
    /// wait.
    pub acquire: AcquireCommand,
    /// The token that the lease has now.
    pub from: Token,
    /// The fence in the ticket.
    pub fence: Fence,
    /// Whether the ttl comes from the ticket, too.
    pub with_ttl: bool,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It does not wait. If the lock is held, the outcome is [`Outcome::Busy`], which is no
    /// failure.
    Never,
    /// It waits for at most this time, and then fails with [`Outcome::TimedOut`].
    For(Duration),
    /// It waits until it is granted or cancelled, or the client is closed.
    Forever,
}

/// A command to the engine.
#[derive(Debug)]
pub enum Command {
    /// Registers a JavaScript environment.
    OpenEnv {
        /// Its number.
        env: EnvId,
        /// Holds the last sign of life of its thread.
        pulse: Arc<Pulse>,
        /// Holds the hand-offs that the engine leaves to its thread.
        thread_hand_offs: Arc<ThreadHandOffs>,
    },
    /// Ends a JavaScript environment: closes its clients, releases its leases and forgets its
    /// operations.
    CloseEnv {
        /// Its number.
        env: EnvId,
        /// Gets a message when the leases are released, or when `patience` is over.
        done: SyncSender<()>,
        /// How long `done` waits for the releases at most.
        patience: Duration,
    },
    /// Tells the engine that JavaScript has ended in an environment, but work that it has begun may
    /// go on, for example in Node's thread pool. Pending and later acquires end in
    /// [`Outcome::Closed`]. The engine renews the leases until [`Command::CloseEnv`], even if the
    /// thread does not answer.
    ExcuseEnv {
        /// Its number.
        env: EnvId,
    },
    /// Registers a client of a store that the driver has opened.
    OpenClient {
        /// Its number.
        client: ClientId,
        /// Its store.
        store: StoreId,
        /// The most requests in one batch to the store, at least 1.
        batch: usize,
        /// Its settings.
        settings: ClientSettings,
    },
    /// Drains a client. Pending and later acquires end in [`Outcome::Closed`]. Leases that belong
    /// to no section count as lost, and the engine releases them. Sections keep their leases until
    /// they release them or the client is closed.
    DrainClient {
        /// The client.
        client: ClientId,
    },
    /// Closes a client. Pending acquires end in [`Outcome::Closed`]. All leases count as lost, and
    /// the engine releases them. Then the operation ends in [`Outcome::Done`].
    CloseClient {
        /// The client.
        client: ClientId,
        /// The operation.
        op: OpId,
        /// How long the operation waits for the releases at most.
        patience: Duration,
    },
    /// Checks that the store answers.
    Ping {
        /// The operation.
        op: OpId,
        /// The client that asks.
        client: ClientId,
    },
    /// Examines the store, and reports what may go wrong with leases of `ttl`.
    Diagnose {
        /// The operation.
        op: OpId,
        /// The client that asks.
        client: ClientId,
        /// The ttl.
        ttl: Ttl,
        /// The lock that a Redis store acquires and releases to find out whether this user may
        /// lock.
        key: Key,
    },
    /// Reports the state of the store's servers until the client is closed. Returns
    /// [`Outcome::Breaker`] whenever a server goes away or comes back, and at once for a server
    /// that is away. Returns [`Outcome::Availability`] in the same way. Ends in [`Outcome::Done`]
    /// when the engine has forgotten the client: when the client is closed, and its last request
    /// that may make or end a lease is answered.
    Watch {
        /// The operation.
        op: OpId,
        /// The client that watches. It has no other operation of this kind.
        client: ClientId,
    },
    /// Asks who holds a lock.
    Inspect {
        /// The operation.
        op: OpId,
        /// The client that asks.
        client: ClientId,
        /// The lock.
        key: Key,
    },
    /// Ends every lease of a lock. [`Outcome::Released`] says whether there was one.
    Break {
        /// The operation.
        op: OpId,
        /// The client that breaks the lock.
        client: ClientId,
        /// The lock.
        key: Key,
    },
    /// Asks which locks are held.
    List {
        /// The operation.
        op: OpId,
        /// The client that asks.
        client: ClientId,
        /// Selects the locks.
        filter: ListFilter,
    },
    /// Asks for a lock.
    Acquire(AcquireCommand),
    /// Cancels an acquire or an adoption. It ends in [`Outcome::Cancelled`], unless its last
    /// outcome is already on the way. If the lock was granted meanwhile, the engine releases it.
    Cancel {
        /// The acquire or the adoption.
        op: OpId,
    },
    /// Adopts a lease that was detached.
    Adopt(AdoptCommand),
    /// Renews a lease and forgets it, so that another process can adopt it. Ends in
    /// [`Outcome::Detached`]. After [`Outcome::RenewFailed`], the lease stays held.
    Detach {
        /// The lease.
        op: OpId,
        /// The ttl for the adopter, if it differs from the lease's own.
        ttl: Option<Ttl>,
        /// True if the store is to remember the lease, although nobody gets a ticket. The end of
        /// the client does not release such a lease, even if the request fails here.
        remembers: bool,
    },
    /// Says that the caller of a detachment has its ticket. Until then, the end of the environment
    /// releases the lease, and the client is not forgotten.
    SeeTicket {
        /// The environment of the caller.
        env: EnvId,
        /// The token of the lease.
        token: Token,
    },
    /// Renews a lease now.
    Renew {
        /// The lease.
        op: OpId,
        /// The new ttl, if it changes.
        ttl: Option<Ttl>,
    },
    /// Stops renewing a lease, so that it runs out. Its holder can still release or detach it.
    StopRenewing {
        /// The lease.
        op: OpId,
    },
    /// Releases a lease whose state is already *released*.
    Release {
        /// The lease.
        op: OpId,
    },
    /// Tells the engine that the holder has released a lease after its loss. The engine then
    /// releases what a prolongation may have left at the store.
    ReleaseLost {
        /// The lease, if the engine has not reported its loss yet. Otherwise any operation.
        op: OpId,
        /// The token of the lease.
        token: Token,
    },
}

impl Command {
    /// Returns the operation that the command concerns, if there is one.
    pub fn op(&self) -> Option<OpId> {
        match self {
            Command::Acquire(acquire) => Some(acquire.op),
            Command::Adopt(adopt) => Some(adopt.acquire.op),
            Command::CloseClient { op, .. }
            | Command::Ping { op, .. }
            | Command::Diagnose { op, .. }
            | Command::Watch { op, .. }
            | Command::Inspect { op, .. }
            | Command::Break { op, .. }
            | Command::List { op, .. }
            | Command::Cancel { op }
            | Command::Detach { op, .. }
            | Command::Renew { op, .. }
            | Command::StopRenewing { op }
            | Command::Release { op } => Some(*op),
            Command::OpenEnv { .. }
            | Command::CloseEnv { .. }
            | Command::ExcuseEnv { .. }
            | Command::OpenClient { .. }
            | Command::SeeTicket { .. }
            | Command::DrainClient { .. }
            | Command::ReleaseLost { .. } => None,
        }
    }
}

/// An outcome of an operation. The operation's last one, unless the variant says "not the last":
/// seven do.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The lock is held by a lease with this fence and this token. Not the last: from now on, the
    /// operation is the lease.
    Acquired(Fence, Token),
    /// Another client holds the lock, and the acquire does not wait.
    Busy,
    /// The lock was held for as long as the acquire would wait.
    TimedOut {
        /// Whether the acquire's own client holds the lock.
        by_itself: bool,
    },
    /// The operation failed, nearly always because the store did.
    Failed(StoreError),
    /// The client was closed or drained first.
    Closed,
    /// The caller cancelled the operation.
    Cancelled,
    /// The lease was released, or the lock broken; `false` if the store had no lease to end.
    Released(bool),
    /// The lease is lost.
    Lost(LossReason),
    /// The requested renewal succeeded. Not the last.
    Renewed,
    /// The requested renewal or detachment failed. The lease lives on until its deadline. Not the
    /// last.
    RenewFailed(StoreError),
    /// The engine renewed the lease by itself. Not the last.
    AutoRenewed,
    /// The store has moved a lease to its adopter. Not the last.
    Adopted {
        /// The ttl of the lease, which may be shorter than the one in its ticket.
        ttl: Ttl,
        /// Whether the lease is shared, as the store knows it.
        shared: bool,
    },
    /// The lease lives on without its holder.
    Detached,
    /// Who holds the lock, and the number of its waiters in this process.
    Inspected(Box<(Option<LockInfo>, usize)>),
    /// The locks that are held, and for each the number of its waiters in this process.
    Listed(Listing, Vec<usize>),
    /// The findings about the store.
    Diagnosed(Vec<Report>),
    /// A server of the store went away or came back. Not the last.
    Breaker(Arc<Health>),
    /// The store became able or unable to grant leases. Not the last.
    Availability(Availability),
    /// The operation is done.
    Done,
}

/// An outcome, with its operation.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The operation.
    pub op: OpId,
    /// The outcome.
    pub outcome: Outcome,
}
