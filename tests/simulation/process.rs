//! One simulated process: an engine and the code that uses it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::command::{
    AcquireCommand, ClientSettings, Command, OpId, Outcome, Pulse, Settlement, Wait,
};
use leasehold::engine::core::Core;
use leasehold::engine::stats::Stats;
use leasehold::lease::{Instant, Key, LeaseState, Token, Ttl};

pub const ENV: u32 = 1;
const CLIENT: u32 = 1;
const STORE: u32 = 1;

/// An acquire, from the question to its last word.
pub struct Asked {
    pub key: Key,
    pub token: Token,
    pub state: Arc<LeaseState>,
    pub granted: bool,
    /// What its last word was.
    pub ended: bool,
    cancelled: bool,
    released: bool,
}

pub struct Process {
    pub core: Core,
    pub asked: HashMap<u32, Asked>,
    /// Until when it does nothing at all, as under SIGSTOP.
    pub frozen_until: Instant,
    /// Until when its JavaScript thread does not answer.
    pub hung_until: Instant,
    pub pulse: Arc<Pulse>,
    slots: u32,
    rng: fastrand::Rng,
}

impl Process {
    pub fn new(now: Instant, rng: &mut fastrand::Rng) -> Self {
        let pulse = Arc::new(Pulse::default());
        let mut core = Core::new(rng.u64(..));
        core.command(now, Command::OpenEnv { env: ENV, pulse: pulse.clone() });
        let settings = ClientSettings {
            env: ENV,
            name: "simulated".into(),
            max_stall: Duration::from_millis(rng.u64(200..5_000)),
            store_timeout: Duration::from_millis(rng.u64(20..500)),
            stats: Arc::new(Stats::default()),
        };
        core.command(now, Command::OpenClient { client: CLIENT, store: STORE, settings });
        Self {
            core,
            asked: HashMap::new(),
            frozen_until: now,
            hung_until: now,
            pulse,
            slots: 0,
            rng: rng.fork(),
        }
    }

    /// The code that uses the engine does one thing.
    pub fn act(&mut self, now: Instant) {
        if self.rng.u8(..10) < 4 {
            return self.acquire(now);
        }
        let open: Vec<u32> = self.asked.iter().filter(|(_, a)| !a.ended).map(|(slot, _)| *slot).collect();
        if open.is_empty() {
            return;
        }
        let slot = open[self.rng.usize(..open.len())];
        let asked = self.asked.get_mut(&slot).expect("just listed");
        let op = OpId { env: ENV, slot };
        if !asked.granted {
            if !asked.cancelled && self.rng.u8(..10) < 2 {
                asked.cancelled = true;
                self.core.command(now, Command::Cancel { op });
            }
        } else if !asked.released && !asked.cancelled {
            match self.rng.u8(..10) {
                0..6 => {
                    asked.released = true;
                    if asked.state.release(now) {
                        self.core.command(now, Command::Release { op });
                    }
                }
                6..8 => self.core.command(now, Command::Renew { op, ttl: None }),
                _ => {}
            }
        }
    }

    fn acquire(&mut self, now: Instant) {
        self.slots += 1;
        let key: Key = ["a", "b"][self.rng.usize(..2)].into();
        let (token, state) = (Token::random(), Arc::new(LeaseState::default()));
        let ttl = Ttl::from_millis(self.rng.u32(20..2_000)).expect("in range");
        let asked = Asked {
            key: key.clone(),
            token,
            state: state.clone(),
            granted: false,
            ended: false,
            cancelled: false,
            released: false,
        };
        self.asked.insert(self.slots, asked);
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
                token,
                ttl,
                wait,
                max_hold: (self.rng.u8(..10) == 0).then(|| ttl.as_duration() * 2),
                auto_renew: self.rng.u8(..10) > 1,
                report: false,
                state,
            }),
        );
    }

    /// Ends everything: nobody waits and nobody holds after that.
    pub fn wind_up(&mut self, now: Instant) {
        let mut open: Vec<u32> = self.asked.iter().filter(|(_, a)| !a.ended).map(|(slot, _)| *slot).collect();
        open.sort_unstable();
        for slot in open {
            let asked = self.asked.get_mut(&slot).expect("just listed");
            let op = OpId { env: ENV, slot };
            if !asked.granted && !asked.cancelled {
                asked.cancelled = true;
                self.core.command(now, Command::Cancel { op });
            } else if asked.granted && !asked.released && !asked.cancelled {
                asked.released = true;
                if asked.state.release(now) {
                    self.core.command(now, Command::Release { op });
                }
            }
        }
    }

    /// What JavaScript would do with what it is told. Returns how many grants were among it.
    pub fn hear(&mut self, settled: Vec<Settlement>) -> u64 {
        let mut grants = 0;
        for Settlement { op, outcome } in settled {
            let asked = self.asked.get_mut(&op.slot).expect("somebody asked for it");
            assert!(!asked.ended, "a word after the last one: {outcome:?}");
            match outcome {
                Outcome::Acquired(_) => {
                    assert!(!asked.granted, "granted twice");
                    asked.granted = true;
                    grants += 1;
                }
                Outcome::Renewed | Outcome::RenewFailed(_) | Outcome::AutoRenewed => assert!(asked.granted),
                _ => asked.ended = true,
            }
        }
        grants
    }
}
