//! The engine's rules, as a pure state machine: it takes commands, answers and the time, and
//! returns batches for stores and settlements for JavaScript. It does no I/O and reads no clock, so
//! every schedule of events can be tested.
//!
//! [`state`] holds what the engine knows: each of its files owns a map, takes events, and returns
//! what they mean for other files. [`Core`] only routes between these files:
//!
//! - this file: how events come in and effects go out;
//! - [`waiting`]: an acquire, to its place at the store or to the reason why there is no lease;
//! - [`polling`]: a queue entry, from its first poll to the lease;
//! - [`handing_on`]: a lease, from one waiter of a cohort to the next;
//! - [`holding`]: a lease, from the answer of the store to the release;
//! - [`ending`]: clients and environments that are closed or drained;
//! - [`notices`]: notices that stores send without a request.

mod ending;
mod handing_on;
mod holding;
mod notices;
mod polling;
mod state;
#[cfg(test)]
mod tests;
mod waiting;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use self::state::adoptions::Adoptions;
use self::state::clean_ups::CleanUps;
use self::state::clients::Clients;
use self::state::cohorts::Cohorts;
pub use self::state::context::Effects;
use self::state::context::{Context, Wake};
use self::state::envs::Envs;
use self::state::held_leases::HeldLeases;
use self::state::offers::Offers;
use self::state::outgoing::Outgoing;
pub use self::state::outgoing::{Batch, Sent};
use self::state::queue_entries::QueueEntries;
use self::state::stores::Stores;
use self::state::tags::{Purpose, Tag};
use self::state::unseen_tickets::UnseenTickets;
use self::state::waiters::Waiters;
use super::command::{Command, Outcome};
use super::ids::{ClientId, OpId, StoreId};
use crate::lease::{Instant, Key};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Reply, Request, StoreError, StoreErrorKind};

/// The engine's rules and all that it knows. See the module.
pub struct Core {
    cx: Context,
    envs: Envs,
    clients: Clients,
    stores: Stores,
    waiters: Waiters,
    cohorts: Cohorts,
    queue_entries: QueueEntries,
    held_leases: HeldLeases,
    offers: Offers,
    adoptions: Adoptions,
    clean_ups: CleanUps,
    unseen_tickets: UnseenTickets,
}

impl Core {
    /// Makes an engine that knows nothing yet, with the seed of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            cx: Context::new(seed),
            envs: Envs::default(),
            clients: Clients::default(),
            stores: Stores::default(),
            waiters: Waiters::default(),
            cohorts: Cohorts::default(),
            queue_entries: QueueEntries::default(),
            held_leases: HeldLeases::default(),
            offers: Offers::default(),
            adoptions: Adoptions::default(),
            clean_ups: CleanUps::default(),
            unseen_tickets: UnseenTickets::default(),
        }
    }

    /// Carries out a command at `now`.
    pub fn command(&mut self, now: Instant, command: Command) {
        self.begin(now);
        self.catch_panic(command.op(), |core| core.carry_out(command));
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::OpenEnv { env, pulse, thread_hand_offs } => {
                self.envs.open(env, pulse, thread_hand_offs, self.cx.now);
            }
            Command::CloseEnv { env, done, patience } => self.close_env(env, done, patience),
            Command::ExcuseEnv { env } => self.excuse_env(env),
            Command::OpenClient { client, store, batch, settings } => {
                self.stores.join(store, batch, &settings.stats.servers);
                self.clients.open(client, store, settings);
            }
            Command::DrainClient { client } => self.drain_client(client),
            Command::CloseClient { client, op, patience } => self.close_client(client, op, patience),
            Command::Ping { op, client } => self.ask(op, client, Request::Ping, Tag::Query(op, client)),
            Command::Diagnose { op, client, ttl, key } => {
                let request = Request::Diagnose { ttl, key: Some(key) };
                self.ask(op, client, request, Tag::Query(op, client));
            }
            Command::Watch { op, client } => self.watch(op, client),
            Command::Inspect { op, client, key } => {
                self.ask(op, client, Request::Inspect { key: key.clone() }, Tag::Inspect(op, client, key));
            }
            Command::Break { op, client, key } => {
                self.ask(op, client, Request::Break { key, bars_repairs: false }, Tag::Query(op, client));
            }
            Command::List { op, client, filter } => {
                self.ask(op, client, Request::List(filter), Tag::Query(op, client));
            }
            Command::Acquire(acquire) => self.acquire(acquire),
            Command::Cancel { op } => self.cancel(op),
            Command::Adopt(adopt) => self.adopt(adopt),
            Command::Detach { op, ttl, remembers } => {
                if remembers {
                    self.held_leases.remember(op);
                }
                self.renew_now(op, Purpose::Detach, ttl);
            }
            Command::SeeTicket { env, token } => self.see_ticket(env, token),
            Command::Renew { op, ttl } => self.renew_now(op, Purpose::Requested, ttl),
            Command::StopRenewing { op } => {
                self.held_leases.stop_renewing(op, &self.clients, &mut self.cx);
            }
            Command::Release { op } => self.release(op),
            Command::ReleaseLost { op, token } => self.release_lost(op, token),
        }
    }

    /// Handles a store's answers to a batch at `now`.
    pub fn answered(&mut self, now: Instant, sent: Sent, answers: Vec<Answer>) {
        self.begin(now);
        debug_assert_eq!(sent.tags.len(), answers.len(), "a store answers each request once");
        for (tag, answer) in sent.tags.into_iter().zip(answers) {
            self.catch_panic(tag.op(), |core| match tag {
                Tag::Query(op, client) => core.settle_question(op, client, None, answer),
                Tag::Inspect(op, client, key) => core.settle_question(op, client, Some(key), answer),
                Tag::Acquire(tag) => {
                    let at = if mutants::is(Mutant::GrantFromReply) { now } else { sent.at };
                    core.polled(sent.store, at, tag, answer)
                }
                Tag::Adopt(tag) => core.adopted(sent.store, sent.at, tag, answer),
                Tag::Renew(tag) => {
                    let at = if mutants::is(Mutant::RenewalFromReply) { now } else { sent.at };
                    core.renewed(at, tag, answer)
                }
                Tag::Release(tag) => core.gave_back(sent.store, tag, answer),
                Tag::CleanUp(id) => core.cleaned_up(id, answer),
            });
        }
        self.stores.answered(sent.store, &mut self.cx);
    }

    /// Does what is due at `now`.
    pub fn tick(&mut self, now: Instant) {
        self.begin(now);
        while let Some((at, wake)) = self.cx.timers.pop_due(now) {
            if !self.is_scheduled(at, wake) {
                continue;
            }
            match wake {
                Wake::Waiter(op) => self.catch_panic(Some(op), |core| core.wake_waiter(op)),
                Wake::QueueEntry(number) => self.catch_panic(None, |core| core.wake_entry(number)),
                Wake::Adoption(op) => self.catch_panic(Some(op), |core| core.try_to_adopt(op)),
                Wake::HeldLease(op) => self.catch_panic(Some(op), |core| core.wake_held_lease(op)),
                Wake::LostProlongation(id) => self.catch_panic(None, |core| core.wake_lost_prolongation(id)),
                Wake::CleanUp(id) => self.catch_panic(None, |core| core.wake_clean_up(id)),
                Wake::Barrier(id) => self.clients.lift_barrier(id, &mut self.cx),
            }
        }
        let live = self.waiters.len()
            + self.queue_entries.len()
            + self.held_leases.len()
            + self.held_leases.lost_prolongations.len()
            + self.adoptions.len()
            + self.clean_ups.len()
            + self.clients.barriers().len();
        let mut timers = std::mem::take(&mut self.cx.timers);
        timers.compact(live, |at, wake| self.is_scheduled(at, wake));
        self.cx.timers = timers;
    }

    /// Returns when [`Core::tick`] has something to do next.
    pub fn next_wake(&self) -> Option<Instant> {
        self.cx.timers.next()
    }

    /// Returns how many waiters, places in queues, leases and clean-ups there are. Counts lost
    /// leases that are to be released later, too.
    pub fn concerns(&self) -> usize {
        self.waiters.len()
            + self.queue_entries.len()
            + self.cohorts.len()
            + self.held_leases.len()
            + self.held_leases.lost_prolongations.len()
            + self.adoptions.len()
            + self.clean_ups.len()
    }

    /// Takes the unsent requests to stores. Deadlines count from `now`.
    pub fn take_batches(&mut self, now: Instant) -> Vec<Batch> {
        self.stores.take_batches(now)
    }

    /// Divides a batch. `parts` has the number of the part of each request.
    pub fn split(&mut self, batch: Batch, parts: &[u32]) -> Vec<Batch> {
        self.stores.split(batch, parts)
    }

    /// Returns whether a client, a request or a clean-up still needs `store`.
    pub fn is_used(&self, store: StoreId) -> bool {
        self.stores.is_used(store)
    }

    /// Forgets an unused store, which is about to be closed.
    pub fn forget_store(&mut self, store: StoreId) {
        self.stores.forget(store);
    }

    /// Takes the effects that the driver has to carry out.
    pub fn take_effects(&mut self) -> Effects {
        std::mem::take(&mut self.cx.effects)
    }

    /// Runs one step that concerns `op`. If the step panics, the operation fails with an internal
    /// error, and everything else goes on: one bug must not cost a server all of its leases.
    fn catch_panic(&mut self, op: Option<OpId>, step: impl FnOnce(&mut Self)) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| step(self))) else { return };
        let Some(op) = op else { return };
        let error = StoreError::maybe_done(StoreErrorKind::Internal, describe_panic(&*panic));
        if self.waiters.get(op).is_some() {
            self.end_waiter(op, Outcome::Failed(error));
        } else if self.adoptions.contains(op) {
            self.end_adoption(op, Outcome::Failed(error));
        } else if self.held_leases.contains(op) {
            self.held_leases.resume(op, error, &mut self.cx);
        } else if !self.cx.effects.settled.iter().any(|settled| settled.op == op) {
            self.cx.settle(op, Outcome::Failed(error));
        }
    }

    fn is_scheduled(&self, at: Instant, wake: Wake) -> bool {
        let due_at = match wake {
            Wake::Waiter(op) => self.waiters.due_at(op),
            Wake::QueueEntry(number) => self.queue_entries.due_at(number),
            Wake::Adoption(op) => self.adoptions.due_at(op),
            Wake::HeldLease(op) => self.held_leases.due_at(op),
            Wake::LostProlongation(id) => self.held_leases.lost_prolongations.due_at(id),
            Wake::CleanUp(id) => self.clean_ups.due_at(id),
            Wake::Barrier(id) => self.clients.barriers().until(id),
        };
        due_at == Some(at)
    }

    /// Sends a request that is bound to no token.
    fn ask(&mut self, op: OpId, client: ClientId, request: Request, tag: Tag) {
        match self.clients.get_open(client) {
            None => self.cx.settle(op, Outcome::Closed),
            Some(known) => {
                let (store, timeout) = (known.store, known.settings.store_timeout);
                self.stores.send(Outgoing { store, request, tag, timeout });
            }
        }
    }

    fn settle_question(&mut self, op: OpId, client: ClientId, key: Option<Key>, answer: Answer) {
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
                self.clients.count_error(client);
                Outcome::Failed(error)
            }
        };
        self.cx.settle(op, outcome);
    }
}

/// Returns the text of a panic, for an error message.
pub fn describe_panic(panic: &(dyn Any + Send)) -> String {
    let said =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a bug in leasehold, please report it: {}", said.unwrap_or("panic without a message"))
}
