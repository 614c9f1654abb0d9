//! One simulated process: an engine and the code that uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::command::{
    AcquireCommand, AdoptCommand, ClientSettings, Command, OpId, Outcome, Pulse, Settlement, Wait,
};
use leasehold::engine::core::Core;
use leasehold::engine::relay::{HandedOn, Relay};
use leasehold::engine::stats::Stats;
use leasehold::lease::{Fence, Instant, Key, LeaseState, Mode, Token, Ttl};
use leasehold::store::Notice;

pub const ENV: u32 = 1;
const CLIENT: u32 = 1;
const STORE: u32 = 1;

/// An acquire, from the question to its last word.
pub struct Asked {
    pub key: Key,
    pub mode: Mode,
    /// That of the lease, once it is granted.
    pub token: Option<Token>,
    pub state: Arc<LeaseState>,
    pub granted: bool,
    fence: Fence,
    adopted: bool,
    /// What its last word was.
    pub ended: bool,
    cancelled: bool,
    released: bool,
    detaching: bool,
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
    pub adopted: bool,
}

pub struct Process {
    pub core: Core,
    pub asked: HashMap<u32, Asked>,
    /// What it has detached, for others to adopt.
    pub detached: Vec<Parcel>,
    /// Until when it does nothing at all, as under SIGSTOP.
    pub frozen_until: Instant,
    /// Until when its JavaScript thread does not answer.
    pub hung_until: Instant,
    pub pulse: Arc<Pulse>,
    relay: Arc<Relay>,
    /// What its JavaScript thread has settled by itself.
    pub settled: Vec<Settlement>,
    /// How many leases that one has handed on.
    pub relayed: u64,
    stats: Arc<Stats>,
    slots: u32,
    /// Whether most of it competes for one lock.
    crowded: bool,
    rng: fastrand::Rng,
}

impl Process {
    pub fn new(now: Instant, crowded: bool, rng: &mut fastrand::Rng) -> Self {
        let pulse = Arc::new(Pulse::default());
        let stats = Arc::new(Stats::default());
        let mut core = Core::new(rng.u64(..));
        let relay = Arc::new(Relay::default());
        core.command(now, Command::OpenEnv { env: ENV, pulse: pulse.clone(), relay: relay.clone() });
        let settings = ClientSettings {
            env: ENV,
            name: "simulated".into(),
            max_stall: Duration::from_millis(rng.u64(200..5_000)),
            store_timeout: Duration::from_millis(rng.u64(20..500)),
            hand_offs: [0, 1, 32][rng.usize(..3)],
            stats: stats.clone(),
        };
        core.command(now, Command::OpenClient { client: CLIENT, store: STORE, settings });
        Self {
            core,
            asked: HashMap::new(),
            detached: Vec::new(),
            frozen_until: now,
            hung_until: now,
            pulse,
            relay,
            settled: Vec::new(),
            relayed: 0,
            stats,
            slots: 0,
            crowded,
            rng: rng.fork(),
        }
    }

    /// The code that uses the engine does one thing.
    pub fn act(&mut self, now: Instant) {
        if self.rng.u8(..10) < 3 {
            // Now and then many at once, of whom one process makes a line.
            let many = if self.rng.u8(..4) == 0 { 6 } else { 1 };
            return (0..many).for_each(|_| self.acquire(now));
        }
        let open: Vec<u32> = self.asked.iter().filter(|(_, a)| !a.ended).map(|(slot, _)| *slot).collect();
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
                6..8 => self
                    .core
                    .command(now, Command::Renew { op, ttl: Ttl::from_millis(self.rng.u32(0..3_000)) }),
                8 if !asked.mode.is_shared() => {
                    asked.detaching = true;
                    self.core.command(now, Command::Detach { op, ttl: None });
                }
                _ => {}
            }
        }
    }

    fn acquire(&mut self, now: Instant) {
        self.slots += 1;
        let crowd = self.crowded && self.rng.u8(..20) > 0;
        let key: Key = if crowd { "a" } else { ["a", "b"][self.rng.usize(..2)] }.into();
        let state = Arc::new(LeaseState::default());
        let ms = [100, 1_000, 1_000, self.rng.u32(20..2_000)][self.rng.usize(..4)];
        let ttl = Ttl::from_millis(if crowd { 10 } else { ms }).expect("in range");
        // One is a read/write lock, the other a semaphore that is also locked as a whole.
        let most = if &*key == "a" { u32::MAX } else { 2 };
        let mode = if !crowd && self.rng.u8(..10) < 3 { Mode::Shared { most } } else { Mode::Exclusive };
        self.remember(key.clone(), mode, state.clone());
        let wait = match self.rng.u8(..10) {
            0 => Wait::Never,
            1 => Wait::For(Duration::ZERO),
            2..8 => Wait::For(Duration::from_millis(self.rng.u64(1..3_000))),
            _ => Wait::Forever,
        };
        self.core.command(
            now,
            Command::Acquire(AcquireCommand {
                op: OpId { env: ENV, slot: self.slots },
                client: CLIENT,
                key,
                token: Token::random(),
                mode,
                ttl,
                wait,
                max_hold: (!crowd && self.rng.u8(..10) == 0).then(|| ttl.as_duration() * 2),
                auto_renew: crowd || self.rng.u8(..10) > 1,
                report: false,
                state,
            }),
        );
    }

    fn remember(&mut self, key: Key, mode: Mode, state: Arc<LeaseState>) {
        let asked = Asked {
            key,
            mode,
            token: None,
            state,
            granted: false,
            fence: Fence(0),
            adopted: false,
            ended: false,
            cancelled: false,
            released: false,
            detaching: false,
        };
        self.asked.insert(self.slots, asked);
    }

    /// Goes on with what another has detached.
    pub fn adopt(&mut self, now: Instant, parcel: &Parcel) {
        self.slots += 1;
        let state = Arc::new(LeaseState::default());
        self.remember(parcel.key.clone(), Mode::Exclusive, state.clone());
        self.asked.get_mut(&self.slots).expect("just remembered").adopted = true;
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
            state,
        };
        self.core
            .command(now, Command::Adopt(AdoptCommand { asked, from: parcel.token, fence: parcel.fence }));
    }

    /// How many leases it has handed on by itself.
    pub fn handed_on(&self) -> u64 {
        self.stats.local_hand_offs.get()
    }

    pub fn noticed(&mut self, now: Instant, notice: Notice) {
        self.core.noticed(now, STORE, notice);
    }

    /// Gives back all that it holds. Whoever waits goes on waiting.
    pub fn let_go(&mut self, now: Instant) {
        let mut open: Vec<u32> = self.asked.iter().filter(|(_, a)| !a.ended).map(|(slot, _)| *slot).collect();
        open.sort_unstable();
        for slot in open {
            let asked = &self.asked[&slot];
            if asked.granted && !asked.released && !asked.cancelled {
                self.give_back(now, slot);
            }
        }
    }

    /// Gives a lease back as the binding does it.
    fn give_back(&mut self, now: Instant, slot: u32) {
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
    pub fn hear(&mut self, settled: Vec<Settlement>) -> Vec<Granted> {
        let mut grants = Vec::new();
        for Settlement { op, outcome } in settled {
            let asked = self.asked.get_mut(&op.slot).expect("somebody asked for it");
            assert!(!asked.ended, "a word after the last one: {outcome:?}");
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
                _ => asked.ended = true,
            }
        }
        // Nothing may be said of these any more; whatever is would be of nobody's.
        self.asked.retain(|_, asked| !asked.ended);
        grants
    }
}
