//! The rules, one by one: a store that answers what the test says, and a clock that the test moves.

mod adopting;
mod cleanup;
mod cohorts;
mod ending;
mod failing_fast;
mod fences;
mod health;
mod holder_names;
mod holding;
mod lost;
mod lost_prolongations;
mod moved;
mod offering;
mod quorum;
mod taking_up;
mod unseen_tickets;
mod waiting;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use super::{Batch, Core, Effects};
use crate::engine::command::{AcquireCommand, ClientSettings, Command, Outcome, Settlement, Wait};
use crate::engine::ids::OpId;
use crate::engine::known_lease::KnownLease;
use crate::engine::pulse::Pulse;
use crate::engine::stats::Stats;
use crate::engine::thread_hand_offs::ThreadHandOffs;
use crate::lease::{Fence, Instant, LossReason, Mode, Phase, Token, Ttl};
use crate::store::memory::LeaseTable;
use crate::store::{
    Absence, AdoptedLease, Answer, LeaseInfo, LockInfo, Notice, Reply, Request, StoreError, StoreErrorKind,
};

const ENV: u32 = 1;
const CLIENT: u32 = 7;
const STORE: u32 = 3;
const TTL: u32 = 9_000;

struct World {
    core: Core,
    now: Instant,
    pulse: Arc<Pulse>,
    thread_hand_offs: Arc<ThreadHandOffs>,
    stats: Arc<Stats>,
    next_slot: u32,
    /// A store that works, for those who need one.
    table: LeaseTable,
}

/// An acquire as its caller sees it.
struct Operation {
    op: OpId,
    state: Arc<KnownLease>,
}

impl World {
    fn new() -> Self {
        let pulse = Arc::new(Pulse::default());
        let thread_hand_offs = Arc::new(ThreadHandOffs::default());
        let stats = Arc::new(Stats::default());
        let mut world = World {
            core: Core::new(1),
            now: Instant::from_micros(1_000_000_000),
            pulse: pulse.clone(),
            thread_hand_offs: thread_hand_offs.clone(),
            stats: stats.clone(),
            next_slot: 0,
            table: LeaseTable::default(),
        };
        world.give(Command::OpenEnv { env: ENV, pulse, thread_hand_offs });
        world.give(Command::OpenClient {
            client: CLIENT,
            store: STORE,
            batch: 64,
            settings: ClientSettings {
                env: ENV,
                name: "test".into(),
                max_stall: Duration::from_secs(60),
                store_timeout: Duration::from_secs(1),
                hand_offs: 32,
                stats,
            },
        });
        world
    }

    fn give(&mut self, command: Command) {
        self.core.command(self.now, command);
    }

    fn op(&mut self) -> OpId {
        self.next_slot += 1;
        OpId { env: ENV, slot: self.next_slot }
    }

    fn acquire(&mut self, wait: Wait) -> Operation {
        self.acquire_with(wait, |_| {})
    }

    fn acquire_with(&mut self, wait: Wait, change: impl FnOnce(&mut AcquireCommand)) -> Operation {
        let mut command = self.asking(wait);
        let asked = Operation { op: command.op, state: command.state.clone() };
        change(&mut command);
        self.give(Command::Acquire(command));
        asked
    }

    /// What an acquire or an adoption asks for.
    fn asking(&mut self, wait: Wait) -> AcquireCommand {
        AcquireCommand {
            op: self.op(),
            client: CLIENT,
            key: "lock:k".into(),
            token: Token::random(),
            mode: Mode::Exclusive,
            ttl: Ttl::from_millis(TTL).unwrap(),
            wait,
            max_hold: None,
            auto_renew: true,
            report: false,
            section: false,
            fail_fast: false,
            outlives_process: false,
            holder: None,
            state: Arc::default(),
        }
    }

    /// An acquire that the store grants.
    fn hold(&mut self) -> Operation {
        let asked = self.acquire(Wait::Forever);
        let batch = self.only_batch();
        self.answer(batch, [Ok(Reply::Acquired { fence: Fence(5), waiting: 0 })]);
        assert!(matches!(self.settled()[..], [Settlement { outcome: Outcome::Acquired(Fence(5), _), .. }]));
        asked
    }

    fn batches(&mut self) -> Vec<Batch> {
        self.core.take_batches(self.now)
    }

    fn only_batch(&mut self) -> Batch {
        let mut batches = self.batches();
        assert_eq!(batches.len(), 1, "one batch is to be sent");
        batches.remove(0)
    }

    fn answer(&mut self, batch: Batch, answers: impl IntoIterator<Item = Answer>) {
        self.core.answered(self.now, batch.sent, answers.into_iter().collect());
    }

    /// The store carries out all that is to be sent, and what that leads to. Returns what it was
    /// sent.
    fn exchange(&mut self) -> Vec<Request> {
        let mut sent = Vec::new();
        loop {
            let batches = self.batches();
            if batches.is_empty() {
                return sent;
            }
            for batch in batches {
                sent.extend(batch.requests.iter().cloned());
                let answers = batch.requests.into_iter().map(|request| self.ask(request)).collect();
                self.core.answered(self.now, batch.sent, answers);
            }
            for notice in self.table.take_notices() {
                self.core.noticed(self.now, STORE, notice);
            }
        }
    }

    /// Lets the store carry out a request of any client.
    fn ask(&mut self, request: Request) -> Answer {
        self.table.apply(request, self.now, self.now.as_micros())
    }

    fn release(&mut self, asked: &Operation) {
        assert!(asked.state.release(self.now), "it was held");
        self.give(Command::Release { op: asked.op });
    }

    fn settled(&mut self) -> Vec<Settlement> {
        self.core.take_effects().settled
    }

    /// Returns the only outcome of `op`, except for what the store says about an adopted lease.
    fn outcome_of(&mut self, op: OpId) -> Outcome {
        let mut settled = self.settled();
        settled.retain(|settlement| !matches!(settlement.outcome, Outcome::Adopted { .. }));
        assert_eq!(settled.len(), 1, "{settled:?}");
        assert_eq!(settled[0].op, op);
        settled[0].outcome.clone()
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.core.tick(self.now);
    }

    /// Goes to the next instant at which something may be due.
    fn step(&mut self) {
        self.now = self.core.next_wake().expect("something is due").max(self.now);
        self.core.tick(self.now);
    }

    /// Goes to the next instant at which there is something to send or to tell.
    fn pass_until_due(&mut self) {
        while self.core.cx.effects.settled.is_empty() && !self.core.stores.has_unsent() {
            self.step();
        }
    }
}

/// Returns the store's answer to an adoption of an exclusive lease with that fence.
fn adopted(fence: Fence) -> Answer {
    Ok(Reply::Adopted(AdoptedLease {
        first: fence,
        last: fence,
        granted: fence,
        mode: Mode::Exclusive,
        ttl: None,
        remaining: None,
    }))
}

fn queued() -> Answer {
    Ok(Reply::Queued { remaining: Some(Duration::from_secs(5)), ahead: 0, notified: true, by: None })
}

fn timed_out() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "no answer"))
}
