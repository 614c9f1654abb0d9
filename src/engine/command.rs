//! What goes in to the engine and what comes out of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use super::known::KnownLease;
use super::relay::Relay;
use super::stats::Stats;
use crate::lease::{Fence, Instant, Key, LossReason, Mode, Token, Ttl};
use crate::store::breaker::Health;
use crate::store::diagnosis::Report;
use crate::store::listing::{Listing, Wanted};
use crate::store::{Availability, LockInfo, StoreError};

/// One JavaScript environment: the main thread or a worker thread.
pub type EnvId = u32;
/// One `createLockClient()`.
pub type ClientId = u32;
/// One open store, shared by all clients that name the same one.
pub type StoreId = u32;

/// The line of one client's waiters for one lock.
pub type LineId = (ClientId, Key);

/// One pending operation of an environment; after an acquire was granted, its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// Whose operation.
    pub env: EnvId,
    /// Which one: a small number that the environment chose, and chooses again only after it has seen the
    /// operation's last [`Settlement`].
    pub slot: u32,
}

/// What a client was opened with.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The environment it belongs to.
    pub env: EnvId,
    /// The holder's name, shown to everyone who inspects a lock, unless an acquire gives another.
    pub name: Arc<str>,
    /// How long the environment's thread may leave a sign of life unanswered before renewal stops.
    pub max_stall: Duration,
    /// How long a call to the store may take.
    pub store_timeout: Duration,
    /// How often in a row a lease may be handed on in this process while others wait elsewhere; 0 is never.
    pub hand_offs: u32,
    /// Where the client's doings are counted.
    pub stats: Arc<Stats>,
}

/// What an acquire asks for.
#[derive(Debug)]
pub struct AcquireCommand {
    /// The operation, and later the lease.
    pub op: OpId,
    /// Whose.
    pub client: ClientId,
    /// Which lock.
    pub key: Key,
    /// Proof of ownership, fresh.
    pub token: Token,
    /// Which other leases it bears.
    pub mode: Mode,
    /// How long the lease lives without renewal.
    pub ttl: Ttl,
    /// How long to wait while somebody else holds the lock.
    pub wait: Wait,
    /// How long the lease may be held in all.
    pub max_hold: Option<Duration>,
    /// Whether the engine renews the lease.
    pub auto_renew: bool,
    /// Whether each automatic renewal is reported.
    pub report: bool,
    /// Whether the lease is for a section: a draining client lets the caller's code under it end.
    pub section: bool,
    /// Whether the acquire ends, rather than waits, while the store can't grant leases.
    pub fail_fast: bool,
    /// Whether the lease lives until its ttl ends even if this process is gone.
    pub outlives_process: bool,
    /// What the store shows of the holder in place of the client's name.
    pub holder: Option<Arc<str>>,
    /// What both threads know of the lease.
    pub state: Arc<KnownLease>,
}

/// What an adoption asks for.
#[derive(Debug)]
pub struct AdoptCommand {
    /// As for an acquire: the token is the one that the lease has from then on. It does not wait.
    pub asked: AcquireCommand,
    /// The token that the lease has now.
    pub from: Token,
    /// The fence in the ticket.
    pub fence: Fence,
    /// True if the ttl, too, comes from the ticket.
    pub with_ttl: bool,
}

/// How long an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all, and a held lock is an answer ([`Outcome::Busy`]), not a failure.
    Never,
    /// Up to so long; a held lock is then a failure ([`Outcome::TimedOut`]).
    For(Duration),
    /// Until it is granted, cancelled or closed.
    Forever,
}

/// What the engine is asked to do.
#[derive(Debug)]
pub enum Command {
    /// A JavaScript environment is there.
    OpenEnv {
        /// Its number.
        env: EnvId,
        /// Where it says that it lives.
        pulse: Arc<Pulse>,
        /// Where it is left hand-offs.
        relay: Arc<Relay>,
    },
    /// A JavaScript environment ends, or is about to: its clients are closed, its leases released, its operations
    /// forgotten.
    CloseEnv {
        /// Its number.
        env: EnvId,
        /// Told when the leases are released, or `patience` is over.
        done: SyncSender<()>,
        /// How long to try.
        patience: Duration,
    },
    /// JavaScript has ended in an environment, but work that it has begun may go on, for example in
    /// Node's thread pool. Pending and later acquires are [`Outcome::Closed`]. The leases are
    /// renewed until [`Command::CloseEnv`], even if its thread does not answer.
    ExcuseEnv {
        /// Its number.
        env: EnvId,
    },
    /// A client is there, on a store that the driver has opened.
    OpenClient {
        /// Its number.
        client: ClientId,
        /// Its store.
        store: StoreId,
        /// The most requests that the store is sent together, at least 1.
        batch: usize,
        /// What it was opened with.
        settings: ClientSettings,
    },
    /// Drains a client: pending and later acquires are [`Outcome::Closed`], leases that belong to
    /// no section are lost and released. Sections keep their leases until they release them or the
    /// client is closed.
    DrainClient {
        /// The client.
        client: ClientId,
    },
    /// Ends a client: pending acquires are [`Outcome::Closed`], leases lost and released, then [`Outcome::Done`].
    CloseClient {
        /// Which.
        client: ClientId,
        /// The operation that waits for it.
        op: OpId,
        /// How long to try to release what is held.
        patience: Duration,
    },
    /// Reach the store.
    Ping {
        /// The operation.
        op: OpId,
        /// Whose.
        client: ClientId,
    },
    /// Look at the store, and tell what may go wrong with leases of that ttl.
    Diagnose {
        /// The operation.
        op: OpId,
        /// Whose.
        client: ClientId,
        /// The ttl.
        ttl: Ttl,
        /// The lock that a Redis store acquires and releases to find out whether this user may
        /// lock.
        key: Key,
    },
    /// Reports the state of the store's servers from now on: [`Outcome::Breaker`] whenever a server
    /// goes or comes back, and at once for a server that is gone. Reports
    /// [`Outcome::Availability`] in the same way. Ends with the client, in [`Outcome::Done`].
    Watch {
        /// The operation.
        op: OpId,
        /// Whose; it has no other such operation.
        client: ClientId,
    },
    /// Ask who holds a lock.
    Inspect {
        /// The operation.
        op: OpId,
        /// Whose.
        client: ClientId,
        /// Which lock.
        key: Key,
    },
    /// End every lease of a lock: [`Outcome::Released`] says whether there was one.
    Break {
        /// The operation.
        op: OpId,
        /// Whose.
        client: ClientId,
        /// Which lock.
        key: Key,
    },
    /// Ask which locks are held.
    List {
        /// The operation.
        op: OpId,
        /// Whose.
        client: ClientId,
        /// Which locks.
        wanted: Wanted,
    },
    /// Ask for a lock.
    Acquire(AcquireCommand),
    /// The caller does not want it any more: ends in [`Outcome::Cancelled`] unless its last word crosses this
    /// command; a grant that crosses it is given back.
    Cancel {
        /// The acquire.
        op: OpId,
    },
    /// Go on with a lease that was detached elsewhere.
    Adopt(AdoptCommand),
    /// Renew a lease and forget it, so that another process can adopt it. Ends in [`Outcome::Detached`], or goes on after
    /// [`Outcome::RenewFailed`].
    Detach {
        /// The lease.
        op: OpId,
        /// How long it lives for whoever adopts it, if not for its own ttl.
        ttl: Option<Ttl>,
    },
    /// Renew a lease now.
    Renew {
        /// The lease.
        op: OpId,
        /// Its new ttl, if it shall have another.
        ttl: Option<Ttl>,
    },
    /// Stops renewing a lease, so that it runs out. Its holder can still release or detach it.
    StopRenewing {
        /// The lease.
        op: OpId,
    },
    /// Give a lease back, whose state says so already.
    Release {
        /// The lease.
        op: OpId,
    },
}

impl Command {
    /// The operation that the command concerns, if it is one.
    pub fn op(&self) -> Option<OpId> {
        match self {
            Command::Acquire(acquire) => Some(acquire.op),
            Command::Adopt(adopt) => Some(adopt.asked.op),
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
            | Command::DrainClient { .. } => None,
        }
    }
}

/// An outcome of an operation. It is the operation's last outcome unless the variant says
/// otherwise: seven do.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The lock is held, by a lease of that token: not the last word, the operation goes on as the lease.
    Acquired(Fence, Token),
    /// Somebody else holds the lock, and the caller did not want to wait.
    Busy,
    /// The lock was held for as long as the caller would wait.
    TimedOut {
        /// Whether its own client holds it.
        by_itself: bool,
    },
    /// The store failed.
    Failed(StoreError),
    /// The client was closed first.
    Closed,
    /// The caller cancelled it.
    Cancelled,
    /// The lease was given back, or the lock broken; `false` if the store did not know it any more.
    Released(bool),
    /// The lease is lost.
    Lost(LossReason),
    /// The renewal that was asked for is done: not the last word.
    Renewed,
    /// The renewal that was asked for failed, the lease lives on until its deadline: not the last word.
    RenewFailed(StoreError),
    /// The engine renewed the lease by itself: not the last word.
    AutoRenewed,
    /// The adopted lease has a shorter ttl than the one in its ticket: not the last word.
    Shortened(Ttl),
    /// The lease lives on without its holder.
    Detached,
    /// Who holds the lock, and how many wait for it in this process.
    Inspected(Box<(Option<LockInfo>, usize)>),
    /// Which locks are held, and how many wait for each in this process.
    Listed(Listing, Vec<usize>),
    /// What was found at the store.
    Diagnosed(Vec<Report>),
    /// A server of the store is gone, or back: not the last word.
    Breaker(Arc<Health>),
    /// Whether the store can grant leases has changed: not the last word.
    Availability(Availability),
    /// It is done.
    Done,
}

/// What became of which operation.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The operation.
    pub op: OpId,
    /// What became of it.
    pub outcome: Outcome,
}

/// The last sign of life of an environment's thread. That thread writes it, the engine reads it.
#[derive(Debug, Default)]
pub struct Pulse(AtomicU64);

impl Pulse {
    /// The thread lives at `now`.
    pub fn beat(&self, now: Instant) {
        self.0.store(now.as_micros(), Ordering::Release);
    }

    /// Notes that the thread does not answer any more although its work goes on. From now on, it
    /// counts as alive.
    pub fn excuse(&self) {
        self.0.store(u64::MAX, Ordering::Release);
    }

    /// When it last said so.
    pub fn last(&self) -> Instant {
        Instant::from_micros(self.0.load(Ordering::Acquire))
    }
}
