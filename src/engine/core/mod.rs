//! The engine's rules, as a pure state machine: it is handed commands, answers and the time, and leaves
//! behind batches for stores and settlements for JavaScript. It does no I/O and reads no clock, so every
//! schedule of events can be tested.
//!
//! - this file: what the engine knows, and how events come in and effects go out;
//! - [`waiting`]: waiters, from asking for a lock to their lease;
//! - [`tickets`]: what stands in the queue at the store for them;
//! - [`notices`]: what stores say by themselves;
//! - [`health`]: whether a store's servers are there;
//! - [`failing_fast`]: acquires that end when the store goes away;
//! - [`early`]: leases that are taken up on a notice alone;
//! - [`lines`]: waiters who are one waiter at the store, and hand the lease on among themselves;
//! - [`relaying`]: hand-offs that are left to JavaScript threads;
//! - [`holding`]: tenures, from the grant to the loss;
//! - [`renewing`]: how they are kept alive;
//! - [`adopting`]: leases that come from another process;
//! - [`ending`]: releases, closing clients and environments;
//! - [`cleanup`]: releases of what ambiguous requests may have left behind;
//! - [`outgoing`]: requests on their way to a store.

mod adopting;
mod cleanup;
mod early;
mod ending;
mod failing_fast;
mod health;
mod holding;
mod lines;
mod notices;
mod outgoing;
mod relaying;
mod renewing;
#[cfg(test)]
mod tests;
mod tickets;
mod waiting;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rustc_hash::FxHashMap;

use self::adopting::Adoption;
use self::cleanup::Cleanup;
use self::ending::Barrier;
use self::holding::Tenure;
use self::lines::Line;
pub use self::outgoing::{Batch, Sent};
use self::outgoing::{Link, Purpose, Tag};
use self::tickets::Ticket;
use self::waiting::Waiter;
use super::command::{
    ClientId, ClientSettings, Command, EnvId, LineId, OpId, Outcome, Pulse, Settlement, StoreId,
};
use super::relay::Relay;
use super::timers::Timers;
use crate::lease::doubts::Doubts;
use crate::lease::queue::Arrival;
use crate::lease::{Instant, Key};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Reply, Request, StoreError, StoreErrorKind};

/// What a timer wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    Waiter(OpId),
    Ticket(u64),
    Tenure(OpId),
    Adoption(OpId),
    Cleanup(u64),
    Barrier(u64),
}

/// An environment.
struct Env {
    pulse: Arc<Pulse>,
    relay: Arc<Relay>,
    /// When its thread was last asked for a sign of life.
    asked: Instant,
}

/// A client.
struct Client {
    store: StoreId,
    settings: ClientSettings,
    /// Requests without an answer that may make or end a lease at the store. Whoever waits for the client's end waits
    /// for them.
    outstanding: usize,
    /// The operation that is told how the store's servers are.
    watch: Option<OpId>,
    /// Whether the client refuses acquires, while its sections end.
    draining: bool,
    /// It takes no more commands, and is forgotten with its last outstanding request.
    closed: bool,
}

/// What the engine wants done by whoever drives it.
#[derive(Default)]
pub struct Effects {
    /// What became of operations, to be told to their environments.
    pub settled: Vec<Settlement>,
    /// Environments whose thread is to give a sign of life.
    pub pings: Vec<EnvId>,
    /// Stores that nobody uses any more.
    pub unused: Vec<StoreId>,
    /// Threads that wait for an end, and need wait no longer.
    pub unblocked: Vec<SyncSender<()>>,
}

/// The engine's rules and all that it knows. See the module.
pub struct Core {
    now: Instant,
    rng: fastrand::Rng,
    envs: FxHashMap<EnvId, Env>,
    clients: FxHashMap<ClientId, Client>,
    stores: FxHashMap<StoreId, Link>,
    waiters: FxHashMap<OpId, Waiter>,
    tickets: FxHashMap<u64, Ticket>,
    lines: FxHashMap<LineId, Line>,
    /// Lines whose next hand-offs are left to a JavaScript thread, and those for which they may be.
    left: Vec<LineId>,
    relaying: Vec<LineId>,
    arrivals: Arrival,
    adoptions: FxHashMap<OpId, Adoption>,
    tenures: FxHashMap<OpId, Tenure>,
    cleanups: FxHashMap<u64, Cleanup>,
    /// The number of overdue clean-ups.
    overdue: usize,
    /// Whose acquire may yet arrive at a store, after its lease was released.
    doubts: Doubts,
    barriers: FxHashMap<u64, Barrier>,
    /// The tickets by the numbers of their last looks, except the first look of each.
    numbers: FxHashMap<u64, u64>,
    /// The last number given to a clean-up or a barrier, or to the arrival of a ticket.
    serial: u64,
    timers: Timers<Wake>,
    effects: Effects,
}

impl Core {
    /// An engine that knows nothing yet, with the seed of its jitter.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::default(),
            rng: fastrand::Rng::with_seed(seed),
            envs: FxHashMap::default(),
            clients: FxHashMap::default(),
            stores: FxHashMap::default(),
            waiters: FxHashMap::default(),
            tickets: FxHashMap::default(),
            lines: FxHashMap::default(),
            left: Vec::new(),
            relaying: Vec::new(),
            arrivals: 0,
            adoptions: FxHashMap::default(),
            tenures: FxHashMap::default(),
            cleanups: FxHashMap::default(),
            overdue: 0,
            doubts: Doubts::default(),
            barriers: FxHashMap::default(),
            numbers: FxHashMap::default(),
            serial: 0,
            timers: Timers::default(),
            effects: Effects::default(),
        }
    }

    /// Carries out a command at `now`.
    pub fn command(&mut self, now: Instant, command: Command) {
        self.begin(now);
        self.guarded(command.op(), |core| core.carry_out(command));
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::OpenEnv { env, pulse, relay } => {
                pulse.beat(self.now);
                self.envs.insert(env, Env { pulse, relay, asked: self.now });
            }
            Command::CloseEnv { env, done, patience } => self.close_env(env, done, patience),
            Command::ExcuseEnv { env } => self.excuse_env(env),
            Command::OpenClient { client, store, batch, settings } => {
                let link = self.stores.entry(store).or_default();
                link.clients += 1;
                link.most = batch;
                link.health.iter().for_each(|health| settings.stats.servers.tell(health.clone()));
                let known =
                    Client { store, settings, outstanding: 0, watch: None, draining: false, closed: false };
                self.clients.insert(client, known);
            }
            Command::DrainClient { client } => self.drain_client(client),
            Command::CloseClient { client, op, patience } => self.close_client(client, op, patience),
            Command::Ping { op, client } => self.ask(op, client, Request::Ping, Tag::Ping(op, client)),
            Command::Diagnose { op, client, ttl, key } => {
                let request = Request::Diagnose { ttl, key: Some(key) };
                self.ask(op, client, request, Tag::Ping(op, client));
            }
            Command::Watch { op, client } => self.watch(op, client),
            Command::Inspect { op, client, key } => {
                self.ask(op, client, Request::Inspect { key: key.clone() }, Tag::Inspect(op, client, key));
            }
            Command::Break { op, client, key } => {
                self.ask(op, client, Request::Break { key, bars_repairs: false }, Tag::Ping(op, client));
            }
            Command::List { op, client, wanted } => {
                self.ask(op, client, Request::List(wanted), Tag::Ping(op, client));
            }
            Command::Acquire(acquire) => self.acquire(acquire),
            Command::Cancel { op } => self.cancel(op),
            Command::Adopt(adopt) => self.adopt(adopt),
            Command::Detach { op, ttl } => self.renew_now(op, Purpose::Detach, ttl),
            Command::Renew { op, ttl } => self.renew_now(op, Purpose::Asked, ttl),
            Command::StopRenewing { op } => self.stop_renewing(op),
            Command::Release { op } => self.release(op),
        }
    }

    /// Takes in what a store answered to a batch, at `now`.
    pub fn answered(&mut self, now: Instant, sent: Sent, answers: Vec<Answer>) {
        self.begin(now);
        debug_assert_eq!(sent.tags.len(), answers.len(), "a store answers each request once");
        for (tag, answer) in sent.tags.into_iter().zip(answers) {
            self.guarded(tag.op(), |core| match tag {
                Tag::Ping(op, client) => core.asked(op, client, None, answer),
                Tag::Inspect(op, client, key) => core.asked(op, client, Some(key), answer),
                Tag::Acquire(tag) => {
                    let at = if mutants::is(Mutant::GrantFromReply) { now } else { sent.at };
                    core.looked(sent.store, at, tag, answer)
                }
                Tag::Adopt(tag) => core.adopted(sent.store, sent.at, tag, answer),
                Tag::Renew(tag) => {
                    let at = if mutants::is(Mutant::RenewalFromReply) { now } else { sent.at };
                    core.renewed(at, tag, answer)
                }
                Tag::Release(tag) => core.gave_back(sent.store, tag, answer),
                Tag::Cleanup(id) => core.cleaned_up(id, answer),
            });
        }
        if let Some(link) = self.stores.get_mut(&sent.store) {
            link.in_flight -= 1;
        }
        self.drop_if_unused(sent.store);
    }

    /// Does what is due at `now`.
    pub fn tick(&mut self, now: Instant) {
        self.begin(now);
        while let Some((at, wake)) = self.timers.pop_due(now) {
            if !self.is_scheduled(at, wake) {
                continue;
            }
            match wake {
                Wake::Waiter(op) => self.guarded(Some(op), |core| core.wake_waiter(op)),
                Wake::Ticket(number) => self.guarded(None, |core| core.wake_ticket(number)),
                Wake::Adoption(op) => self.guarded(Some(op), |core| core.try_to_adopt(op)),
                Wake::Tenure(op) => self.guarded(Some(op), |core| core.wake_tenure(op)),
                Wake::Cleanup(id) => self.guarded(None, |core| core.wake_cleanup(id)),
                Wake::Barrier(id) => self.guarded(None, |core| core.lift_barrier(id)),
            }
        }
        let live = self.waiters.len()
            + self.tickets.len()
            + self.tenures.len()
            + self.adoptions.len()
            + self.cleanups.len()
            + self.barriers.len();
        let mut timers = std::mem::take(&mut self.timers);
        timers.compact(live, |at, wake| self.is_scheduled(at, wake));
        self.timers = timers;
    }

    /// When [`Core::tick`] has something to do next.
    pub fn next_wake(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// How many things the engine still minds: waiters, places in queues, leases, releases to be done.
    pub fn concerns(&self) -> usize {
        self.waiters.len()
            + self.tickets.len()
            + self.lines.len()
            + self.tenures.len()
            + self.adoptions.len()
            + self.cleanups.len()
    }

    /// Takes what is to be sent to stores. Deadlines count from `now`.
    pub fn take_batches(&mut self, now: Instant) -> Vec<Batch> {
        let mut batches = Vec::new();
        for (store, link) in &mut self.stores {
            link.take(*store, now, &mut batches);
        }
        batches
    }

    /// Takes what is to be done beside that.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.effects)
    }

    /// Runs one step that concerns `op`. Should it panic, that operation fails with an internal error, and
    /// everything else goes on: one bug must not cost a server all of its leases.
    fn guarded(&mut self, op: Option<OpId>, step: impl FnOnce(&mut Self)) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| step(self))) else { return };
        let Some(op) = op else { return };
        let error = StoreError::maybe_done(StoreErrorKind::Internal, describe_panic(&*panic));
        if self.waiters.contains_key(&op) {
            self.end_waiter(op, Outcome::Failed(error));
        } else if self.adoptions.contains_key(&op) {
            self.end_adoption(op, Outcome::Failed(error));
        } else if self.tenures.contains_key(&op) {
            self.revive_tenure(op, error);
        } else if !self.effects.settled.iter().any(|settled| settled.op == op) {
            self.settle(op, Outcome::Failed(error));
        }
    }

    fn is_scheduled(&self, at: Instant, wake: Wake) -> bool {
        let scheduled = match wake {
            Wake::Waiter(op) => self.waiters.get(&op).and_then(|w| w.wake),
            Wake::Ticket(number) => self.tickets.get(&number).and_then(|t| t.wake),
            Wake::Adoption(op) => self.adoptions.get(&op).and_then(|a| a.wake),
            Wake::Tenure(op) => self.tenures.get(&op).map(|t| t.wake),
            Wake::Cleanup(id) => self.cleanups.get(&id).and_then(|c| c.wake),
            Wake::Barrier(id) => self.barriers.get(&id).map(|b| b.until),
        };
        scheduled == Some(at)
    }

    fn settle(&mut self, op: OpId, outcome: Outcome) {
        self.effects.settled.push(Settlement { op, outcome });
    }

    fn jitter(&mut self) -> f64 {
        self.rng.f64()
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Sends a request that concerns no lease.
    fn ask(&mut self, op: OpId, client: ClientId, request: Request, tag: Tag) {
        match self.open_client(client) {
            None => self.settle(op, Outcome::Closed),
            Some(known) => {
                let (store, timeout) = (known.store, known.settings.store_timeout);
                self.send(store, request, tag, timeout);
            }
        }
    }

    fn asked(&mut self, op: OpId, client: ClientId, key: Option<Key>, answer: Answer) {
        let outcome = match answer {
            Ok(Reply::Inspected(info)) => {
                let waiting = key.map_or(0, |key| self.waiting_for(client, &key));
                Outcome::Inspected(Box::new((info, waiting)))
            }
            Ok(Reply::Listed(listing)) => {
                let waiting = listing.locks.iter().map(|(key, _)| self.waiting_for(client, key)).collect();
                Outcome::Listed(listing, waiting)
            }
            Ok(Reply::Released) => Outcome::Released(true),
            Ok(Reply::NotHeld(_)) => Outcome::Released(false),
            Ok(Reply::Diagnosed(reports)) => Outcome::Diagnosed(reports),
            Ok(_) => Outcome::Done,
            Err(error) => {
                self.count_error(client);
                Outcome::Failed(error)
            }
        };
        self.settle(op, outcome);
    }

    /// A client that may still ask for something.
    fn open_client(&self, client: ClientId) -> Option<&Client> {
        self.clients.get(&client).filter(|client| !client.closed)
    }

    /// Returns the client if it may still acquire locks.
    fn asking_client(&self, client: ClientId) -> Option<&Client> {
        self.open_client(client).filter(|client| !client.draining)
    }

    fn count_error(&self, client: ClientId) {
        if let Some(client) = self.clients.get(&client) {
            client.settings.stats.errors.up();
        }
    }

    fn store_timeout(&self, client: ClientId) -> Duration {
        const LEFT_BEHIND: Duration = Duration::from_secs(1);
        self.clients.get(&client).map_or(LEFT_BEHIND, |c| c.settings.store_timeout)
    }
}

/// What a panic said, for an error message.
pub fn describe_panic(panic: &(dyn Any + Send)) -> String {
    let said =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a bug in leasehold, please report it: {}", said.unwrap_or("panic without a message"))
}
