//! Simulates one process: an engine and the code that uses the engine.
//!
//! - [`operation`]: what its callers have requested;
//! - [`caller`]: what they do;
//! - [`outcomes`]: what they receive;
//! - [`message`]: what it sends to nodes. [`Process`] itself connects the engine with one store, or
//!   with the coordinator of a quorum.

mod caller;
mod message;
mod operation;
mod outcomes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::command::{ClientSettings, Command, Outcome, Settlement};
use leasehold::engine::core::{Batch, Core, Sent};
use leasehold::engine::pulse::Pulse;
use leasehold::engine::stats::Stats;
use leasehold::engine::thread_hand_offs::ThreadHandOffs;
use leasehold::lease::Instant;
use leasehold::store::quorum::coordinator::{Call, Coordinator};
use leasehold::store::{Answer, Notice};

pub use self::message::{Message, ReplyTo};
pub use self::operation::{DetachedLease, Granted, Operation};
use super::campaign::Campaign;
use super::world::Shape;

pub const ENV: u32 = 1;
pub const CLIENT: u32 = 1;
/// The ttl of all leases in a tidy world, in ms: longer than any waiter waits.
pub const TIDY_TTL_MS: u32 = 600_000;
const STORE: u32 = 1;

/// See the module.
pub struct Process {
    pub core: Core,
    /// The coordinator, if the store is a quorum.
    coordinator: Option<Coordinator>,
    /// The engine's batches that the coordinator has not answered, by their numbers there.
    coordinator_batches: BTreeMap<u64, Sent>,
    /// The operations that have not ended, by their slots.
    pub asked: BTreeMap<u32, Operation>,
    /// The outcome of each adoption that got no lease, by its slot.
    pub adoption_outcomes: BTreeMap<u32, Outcome>,
    /// The leases that it has detached, for others to adopt.
    pub detached: Vec<DetachedLease>,
    /// The process does nothing until that instant, as under SIGSTOP.
    pub frozen_until: Instant,
    /// The JavaScript thread does not answer until that instant.
    pub hung_until: Instant,
    pub pulse: Arc<Pulse>,
    thread_hand_offs: Arc<ThreadHandOffs>,
    /// True if this process lost a lease. The store may keep a lost lease until its ttl ends.
    pub has_lost: bool,
    /// The outcomes that its JavaScript thread has decided by itself.
    pub settled: Vec<Settlement>,
    /// The number of leases that this thread has handed on.
    pub handed_on_by_thread: u64,
    stats: Arc<Stats>,
    slots: u32,
    /// The number of batches that went to the coordinator.
    batches: u64,
    /// True if most callers compete for one lock.
    crowded: bool,
    /// True if its leases outlive all waits.
    tidy: bool,
    /// True if every second acquire fails fast.
    breakers: bool,
    /// The acquires that fail fast and have not ended.
    fail_fast: BTreeSet<u32>,
    /// The number of such acquires that failed.
    pub failed_fast: u64,
    /// Its lock worker.
    pub campaign: Campaign,
    pub(super) rng: fastrand::Rng,
}

impl Process {
    pub fn new(now: Instant, shape: Shape, crowded: bool, tidy: bool, rng: &mut fastrand::Rng) -> Self {
        let nodes = shape.nodes;
        let pulse = Arc::new(Pulse::default());
        let stats = Arc::new(Stats::default());
        let mut core = Core::new(rng.u64(..));
        let thread_hand_offs = Arc::new(ThreadHandOffs::default());
        core.command(
            now,
            Command::OpenEnv { env: ENV, pulse: pulse.clone(), thread_hand_offs: thread_hand_offs.clone() },
        );
        let settings = ClientSettings {
            env: ENV,
            name: "simulated".into(),
            max_stall: Duration::from_millis(rng.u64(200..5_000)),
            // Most nodes of a quorum have to answer, twice.
            store_timeout: Duration::from_millis(rng.u64(if nodes > 1 { 150..500 } else { 20..500 })),
            hand_offs: [0, 1, 32][rng.usize(..3)],
            stats: stats.clone(),
        };
        let batch = if nodes > 1 { 1 } else { 64 };
        core.command(now, Command::OpenClient { client: CLIENT, store: STORE, batch, settings });
        Self {
            core,
            coordinator: (nodes > 1).then(|| Coordinator::new(names(nodes), rng.u64(..))),
            coordinator_batches: BTreeMap::new(),
            asked: BTreeMap::new(),
            adoption_outcomes: BTreeMap::new(),
            detached: Vec::new(),
            frozen_until: now,
            hung_until: now,
            pulse,
            thread_hand_offs,
            has_lost: false,
            settled: Vec::new(),
            handed_on_by_thread: 0,
            stats,
            slots: 0,
            batches: 0,
            crowded,
            tidy,
            breakers: shape.breakers,
            fail_fast: BTreeSet::new(),
            failed_fast: 0,
            campaign: Campaign::default(),
            rng: rng.fork(),
        }
    }

    /// Returns the number of leases that the process has handed on by itself.
    pub fn handed_on(&self) -> u64 {
        self.stats.local_hand_offs.get()
    }

    /// Receives a notice of a node.
    pub fn noticed(&mut self, now: Instant, node: usize, notice: Notice) {
        match &mut self.coordinator {
            Some(coordinator) => coordinator.noticed(now, node, notice),
            None => self.core.noticed(now, STORE, notice),
        }
    }

    /// Receives the answers of a node.
    pub fn answered(&mut self, now: Instant, reply_to: ReplyTo, answers: Vec<Answer>) {
        match (reply_to, &mut self.coordinator) {
            (ReplyTo::Call(id), Some(coordinator)) => coordinator.answered(now, id, answers),
            (ReplyTo::Batch(sent), _) => self.core.answered(now, sent, answers),
            (ReplyTo::Call(_), None) => unreachable!("there is no coordinator"),
        }
    }

    /// Takes the messages that the engine wants to send.
    pub fn take_messages(&mut self, now: Instant) -> Vec<Message> {
        let mut messages = Vec::new();
        for batch in self.core.take_batches(now) {
            let Batch { sent, requests, timeout } = batch;
            match &mut self.coordinator {
                Some(coordinator) => {
                    self.batches += 1;
                    self.coordinator_batches.insert(self.batches, sent);
                    coordinator.submit(now, self.batches, requests, timeout);
                }
                None => messages.push(Message { node: 0, reply_to: ReplyTo::Batch(sent), requests, timeout }),
            }
        }
        messages.extend(self.take_coordinator_effects(now));
        messages
    }

    /// Hands the answers and notices of the coordinator to the engine. Returns the messages that
    /// the coordinator wants to send.
    pub fn take_coordinator_effects(&mut self, now: Instant) -> Vec<Message> {
        let Some(coordinator) = &mut self.coordinator else { return Vec::new() };
        let effects = coordinator.take_effects();
        for (batch, answers) in effects.answers {
            let sent = self.coordinator_batches.remove(&batch).expect("answered once");
            self.core.answered(now, sent, answers);
        }
        for notice in effects.notices {
            self.core.noticed(now, STORE, notice);
        }
        let message = |Call { id, node, requests, timeout }| Message {
            node,
            reply_to: ReplyTo::Call(id),
            requests,
            timeout,
        };
        effects.calls.into_iter().map(message).collect()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Instant) {
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.tick(now);
        }
        self.core.tick(now);
        self.tick_worker(now);
    }

    /// Returns when something is due next.
    pub fn next_wake(&self) -> Option<Instant> {
        let there = self.coordinator.as_ref().and_then(Coordinator::next_wake);
        [self.core.next_wake(), there, self.campaign.next_wake()].into_iter().flatten().min()
    }

    /// Returns the number of things that the engine and the coordinator still care for.
    pub fn concerns(&self) -> usize {
        self.core.concerns() + self.coordinator.as_ref().map_or(0, Coordinator::concerns)
    }
}

fn names(nodes: usize) -> Vec<Arc<str>> {
    (0..nodes).map(|node| format!("node {node}").into()).collect()
}
