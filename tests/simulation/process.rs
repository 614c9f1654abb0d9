//! One simulated process: an engine and the code that uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::command::{
    AcquireCommand, AdoptCommand, ClientSettings, Command, OpId, Outcome, Pulse, Settlement, Wait,
};
use leasehold::engine::core::{Batch, Core, Sent};
use leasehold::engine::known::KnownLease;
use leasehold::engine::relay::{HandedOn, Relay};
use leasehold::engine::stats::Stats;
use leasehold::lease::{Fence, Instant, Key, Mode, Token, Ttl};
use leasehold::store::quorum::council::{Call, Council};
use leasehold::store::{Answer, Notice, Request};

use super::campaign::Campaign;
use super::world::Shape;

pub const ENV: u32 = 1;
const CLIENT: u32 = 1;
/// The ttl of all leases in a tidy world, in ms: longer than any waiter waits.
pub const TIDY_TTL_MS: u32 = 600_000;
const STORE: u32 = 1;

/// An acquire, from the question to its last word.
pub struct Asked {
    pub key: Key,
    pub mode: Mode,
    /// That of the lease, once it is granted.
    pub token: Option<Token>,
    pub state: Arc<KnownLease>,
    pub granted: bool,
    fence: Fence,
    /// The ticket and its fence, if the lease is adopted and not acquired.
    adopted: Option<(Token, Fence)>,
    /// What its last word was.
    pub ended: bool,
    pub(super) cancelled: bool,
    pub(super) released: bool,
    detaching: bool,
}

/// What a process has sent.
pub struct Message {
    pub node: usize,
    pub errand: Errand,
    pub requests: Vec<Request>,
    pub timeout: Duration,
}

/// Whom the answer concerns.
pub enum Errand {
    Batch(Sent),
    Call(u64),
}

fn names(nodes: usize) -> Vec<Arc<str>> {
    (0..nodes).map(|node| format!("node {node}").into()).collect()
}

/// A lease that somebody has detached.
pub struct Parcel {
    pub key: Key,
    pub token: Token,
    pub fence: Fence,
    pub ttl: Ttl,
}

/// A grant, as its caller hears of it.
pub struct Granted {
    pub slot: u32,
    pub fence: Fence,
    /// The ticket and its fence, if the lease was adopted.
    pub adopted: Option<(Token, Fence)>,
}

pub struct Process {
    pub core: Core,
    /// What stands between it and several stores.
    council: Option<Council>,
    /// What it has asked of those.
    asked_there: BTreeMap<u64, Sent>,
    pub asked: BTreeMap<u32, Asked>,
    /// The outcome of each adoption that got no lease, by its slot.
    pub told: BTreeMap<u32, Outcome>,
    /// What it has detached, for others to adopt.
    pub detached: Vec<Parcel>,
    /// Until when it does nothing at all, as under SIGSTOP.
    pub frozen_until: Instant,
    /// Until when its JavaScript thread does not answer.
    pub hung_until: Instant,
    pub pulse: Arc<Pulse>,
    relay: Arc<Relay>,
    /// True if one of its leases was lost. The store may keep such a lease until its ttl ends.
    pub has_lost: bool,
    /// What its JavaScript thread has settled by itself.
    pub settled: Vec<Settlement>,
    /// How many leases that one has handed on.
    pub relayed: u64,
    stats: Arc<Stats>,
    slots: u32,
    /// How many batches went to several stores.
    batches: u64,
    /// Whether most of it competes for one lock.
    crowded: bool,
    /// Whether its leases outlive all patience.
    tidy: bool,
    /// Whether every second acquire fails fast, and which of them have not ended.
    breakers: bool,
    hasty: BTreeSet<u32>,
    /// How many of those failed.
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
        let relay = Arc::new(Relay::default());
        core.command(now, Command::OpenEnv { env: ENV, pulse: pulse.clone(), relay: relay.clone() });
        let settings = ClientSettings {
            env: ENV,
            name: "simulated".into(),
            max_stall: Duration::from_millis(rng.u64(200..5_000)),
            // Of several stores most have to answer, twice.
            store_timeout: Duration::from_millis(rng.u64(if nodes > 1 { 150..500 } else { 20..500 })),
            hand_offs: [0, 1, 32][rng.usize(..3)],
            stats: stats.clone(),
        };
        let batch = if nodes > 1 { 1 } else { 64 };
        core.command(now, Command::OpenClient { client: CLIENT, store: STORE, batch, settings });
        Self {
            core,
            council: (nodes > 1).then(|| Council::new(names(nodes), rng.u64(..))),
            asked_there: BTreeMap::new(),
            asked: BTreeMap::new(),
            told: BTreeMap::new(),
            detached: Vec::new(),
            frozen_until: now,
            hung_until: now,
            pulse,
            relay,
            has_lost: false,
            settled: Vec::new(),
            relayed: 0,
            stats,
            slots: 0,
            batches: 0,
            crowded,
            tidy,
            breakers: shape.breakers,
            hasty: BTreeSet::new(),
            failed_fast: 0,
            campaign: Campaign::default(),
            rng: rng.fork(),
        }
    }

    /// The code that uses the engine does one thing.
    pub fn act(&mut self, now: Instant) {
        self.act_on_worker(now);
        if self.rng.u8(..10) < 3 {
            // Now and then many at once, of whom one process makes a line.
            let many = if self.rng.u8(..4) == 0 { 6 } else { 1 };
            return (0..many).for_each(|_| self.acquire(now));
        }
        let open = self.open();
        if open.is_empty() {
            return;
        }
        let mut slot = open[self.rng.usize(..open.len())];
        if self.crowded && self.rng.u8(..10) < 8 {
            let holds = |slot: &u32| {
                let asked = &self.asked[slot];
                asked.granted && !asked.released && !asked.cancelled
            };
            slot = open.into_iter().find(holds).unwrap_or(slot);
        }
        let asked = self.asked.get_mut(&slot).expect("just listed");
        let op = OpId { env: ENV, slot };
        if !asked.granted {
            if !asked.cancelled && self.rng.u8(..10) < 2 {
                asked.cancelled = true;
                self.core.command(now, Command::Cancel { op });
            }
        } else if !asked.released && !asked.cancelled {
            match self.rng.u8(..10) {
                0..6 => self.give_back(now, slot),
                6..8 => {
                    let ttl = (!self.tidy).then(|| self.rng.u32(0..3_000)).and_then(Ttl::from_millis);
                    self.core.command(now, Command::Renew { op, ttl });
                }
                8 if !asked.mode.is_shared() && !self.tidy => {
                    self.detach(now, slot);
                }
                _ => {}
            }
        }
    }

    fn acquire(&mut self, now: Instant) {
        let crowd = self.crowded && self.rng.u8(..20) > 0;
        let key = if crowd { "a" } else { ["a", "b"][self.rng.usize(..2)] };
        let shortest = if self.council.is_some() { 100 } else { 20 };
        let ms = [100, 1_000, 1_000, self.rng.u32(shortest..2_000)][self.rng.usize(..4)];
        let ttl = self.ttl(if crowd { 10 } else { ms });
        // One is a read/write lock, the other a semaphore that is also locked as a whole.
        let most = if key == "a" || self.council.is_some() { u32::MAX } else { 2 };
        let mode = if !crowd && self.rng.u8(..10) < 3 { Mode::Shared { most } } else { Mode::Exclusive };
        let wait = match self.rng.u8(..10) {
            0 => Wait::Never,
            1 => Wait::For(Duration::ZERO),
            2..8 => Wait::For(Duration::from_millis(self.rng.u64(1..3_000))),
            _ => Wait::Forever,
        };
        let max_hold = (!crowd && self.rng.u8(..10) == 0).then(|| ttl.as_duration() * 2);
        let auto_renew = crowd || self.rng.u8(..10) > 1;
        if self.breakers && self.slots.is_multiple_of(2) {
            self.hasty.insert(self.slots + 1);
        }
        self.ask(now, key, mode, ttl, wait, max_hold, auto_renew);
    }

    /// So many ms; if nothing may be left to a ttl, more than anybody waits for.
    pub(super) fn ttl(&self, ms: u32) -> Ttl {
        Ttl::from_millis(if self.tidy { TIDY_TTL_MS } else { ms }).expect("in range")
    }

    /// Asks for a lock. Returns what the question is called, and where its lease will be seen.
    #[expect(clippy::too_many_arguments, reason = "they are the options of an acquire")]
    pub(super) fn ask(
        &mut self,
        now: Instant,
        key: &str,
        mode: Mode,
        ttl: Ttl,
        wait: Wait,
        max_hold: Option<Duration>,
        auto_renew: bool,
    ) -> (u32, Arc<KnownLease>) {
        self.slots += 1;
        let state = Arc::new(KnownLease::default());
        self.remember(key.into(), mode, state.clone());
        self.core.command(
            now,
            Command::Acquire(AcquireCommand {
                op: OpId { env: ENV, slot: self.slots },
                client: CLIENT,
                key: key.into(),
                token: Token::random(),
                mode,
                ttl,
                wait,
                max_hold,
                auto_renew,
                report: false,
                section: false,
                fail_fast: self.hasty.contains(&self.slots),
                outlives_process: false,
                holder: None,
                state: state.clone(),
            }),
        );
        (self.slots, state)
    }

    /// What its callers have asked for that has not ended, but for the worker's.
    fn open(&self) -> Vec<u32> {
        let open = self.asked.iter().filter(|(slot, asked)| !asked.ended && !self.campaign.owns(**slot));
        let mut open: Vec<u32> = open.map(|(slot, _)| *slot).collect();
        // So that the same seed does the same.
        open.sort_unstable();
        open
    }

    fn remember(&mut self, key: Key, mode: Mode, state: Arc<KnownLease>) {
        let asked = Asked {
            key,
            mode,
            token: None,
            state,
            granted: false,
            fence: Fence(0),
            adopted: None,
            ended: false,
            cancelled: false,
            released: false,
            detaching: false,
        };
        self.asked.insert(self.slots, asked);
    }

    /// Adopts a lease that another process detached. Returns the slot of the adoption.
    pub fn adopt(&mut self, now: Instant, parcel: &Parcel) -> u32 {
        self.slots += 1;
        let state = Arc::new(KnownLease::default());
        self.remember(parcel.key.clone(), Mode::Exclusive, state.clone());
        let ticket = (parcel.token, parcel.fence);
        self.asked.get_mut(&self.slots).expect("just remembered").adopted = Some(ticket);
        let asked = AcquireCommand {
            op: OpId { env: ENV, slot: self.slots },
            client: CLIENT,
            key: parcel.key.clone(),
            token: Token::random(),
            mode: Mode::Exclusive,
            ttl: parcel.ttl,
            wait: Wait::Never,
            max_hold: None,
            auto_renew: true,
            report: false,
            section: false,
            fail_fast: false,
            outlives_process: false,
            holder: None,
            state,
        };
        self.core.command(
            now,
            Command::Adopt(AdoptCommand { asked, from: parcel.token, fence: parcel.fence, with_ttl: true }),
        );
        self.slots
    }

    pub fn detach(&mut self, now: Instant, slot: u32) {
        self.asked.get_mut(&slot).expect("it is held").detaching = true;
        self.core.command(now, Command::Detach { op: OpId { env: ENV, slot }, ttl: None });
    }

    /// How many leases it has handed on by itself.
    pub fn handed_on(&self) -> u64 {
        self.stats.local_hand_offs.get()
    }

    /// A store says something by itself.
    pub fn noticed(&mut self, now: Instant, node: usize, notice: Notice) {
        match &mut self.council {
            Some(council) => council.noticed(now, node, notice),
            None => self.core.noticed(now, STORE, notice),
        }
    }

    /// A store has answered.
    pub fn answered(&mut self, now: Instant, errand: Errand, answers: Vec<Answer>) {
        match (errand, &mut self.council) {
            (Errand::Call(id), Some(council)) => council.answered(now, id, answers),
            (Errand::Batch(sent), _) => self.core.answered(now, sent, answers),
            (Errand::Call(_), None) => unreachable!("nobody has called"),
        }
    }

    /// Takes what is to be sent to which store.
    pub fn take_messages(&mut self, now: Instant) -> Vec<Message> {
        let mut messages = Vec::new();
        for batch in self.core.take_batches(now) {
            let Batch { sent, requests, timeout } = batch;
            match &mut self.council {
                Some(council) => {
                    self.batches += 1;
                    self.asked_there.insert(self.batches, sent);
                    council.submit(now, self.batches, requests, timeout);
                }
                None => messages.push(Message { node: 0, errand: Errand::Batch(sent), requests, timeout }),
            }
        }
        messages.extend(self.hear_council(now));
        messages
    }

    /// Takes in what came of several stores' answers. Returns what is to be sent to them.
    pub fn hear_council(&mut self, now: Instant) -> Vec<Message> {
        let Some(council) = &mut self.council else { return Vec::new() };
        let effects = council.take_effects();
        for (batch, answers) in effects.answers {
            let sent = self.asked_there.remove(&batch).expect("answered once");
            self.core.answered(now, sent, answers);
        }
        for notice in effects.notices {
            self.core.noticed(now, STORE, notice);
        }
        let message = |Call { id, node, requests, timeout }| Message {
            node,
            errand: Errand::Call(id),
            requests,
            timeout,
        };
        effects.calls.into_iter().map(message).collect()
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Instant) {
        if let Some(council) = &mut self.council {
            council.tick(now);
        }
        self.core.tick(now);
        self.tick_worker(now);
    }

    /// When something is due next.
    pub fn next_wake(&self) -> Option<Instant> {
        let there = self.council.as_ref().and_then(Council::next_wake);
        [self.core.next_wake(), there, self.campaign.next_wake()].into_iter().flatten().min()
    }

    /// How many things it still minds.
    pub fn concerns(&self) -> usize {
        self.core.concerns() + self.council.as_ref().map_or(0, Council::concerns)
    }

    /// Gives back all that it holds. Whoever waits goes on waiting, but for the worker.
    pub fn let_go(&mut self, now: Instant) {
        self.stop_worker(now);
        for slot in self.open() {
            let asked = &self.asked[&slot];
            if asked.granted && !asked.released && !asked.cancelled {
                self.give_back(now, slot);
            }
        }
    }

    /// Gives a lease back as the binding does it.
    pub(super) fn give_back(&mut self, now: Instant, slot: u32) {
        let asked = self.asked.get_mut(&slot).expect("it is held");
        asked.released = true;
        let op = OpId { env: ENV, slot };
        if let Some(HandedOn { to, fence, token, .. }) = self.relay.hand_on(op, &asked.state, now) {
            self.relayed += 1;
            self.settled.push(Settlement { op, outcome: Outcome::Released(true) });
            self.settled.push(Settlement { op: to, outcome: Outcome::Acquired(fence, token) });
        } else if asked.state.release(now) {
            self.core.command(now, Command::Release { op });
        }
    }

    /// What JavaScript would do with what it is told. Returns the grants among it.
    pub fn hear(&mut self, now: Instant, settled: Vec<Settlement>) -> Vec<Granted> {
        let (mut grants, mut of_worker) = (Vec::new(), Vec::new());
        for Settlement { op, outcome } in settled {
            let asked = self.asked.get_mut(&op.slot).expect("somebody asked for it");
            assert!(!asked.ended, "a word after the last one: {outcome:?}");
            if self.campaign.owns(op.slot) {
                of_worker.push(outcome.clone());
            }
            match outcome {
                Outcome::Acquired(fence, token) => {
                    assert!(!asked.granted, "granted twice");
                    asked.granted = true;
                    asked.token = Some(token);
                    asked.fence = fence;
                    grants.push(Granted { slot: op.slot, fence, adopted: asked.adopted });
                }
                Outcome::Detached => {
                    assert!(asked.detaching, "detached without having been asked to");
                    asked.ended = true;
                    let token = asked.token.expect("it was granted");
                    let ttl = Ttl::from_millis(500).expect("in range");
                    self.detached.push(Parcel { key: asked.key.clone(), token, fence: asked.fence, ttl });
                }
                Outcome::Renewed | Outcome::RenewFailed(_) | Outcome::AutoRenewed => assert!(asked.granted),
                Outcome::Shortened(_) => assert!(asked.adopted.is_some() && !asked.granted),
                last => {
                    asked.ended = true;
                    self.has_lost |= matches!(last, Outcome::Lost(_));
                    if self.hasty.remove(&op.slot) && matches!(last, Outcome::Failed(_)) {
                        self.failed_fast += 1;
                    }
                    if asked.adopted.is_some() && !asked.granted {
                        self.told.insert(op.slot, last);
                    }
                }
            }
        }
        // Nothing may be said of these any more; whatever is would be of nobody's.
        self.asked.retain(|_, asked| !asked.ended);
        for outcome in of_worker {
            self.write_to_worker(now, outcome);
        }
        grants
    }
}
