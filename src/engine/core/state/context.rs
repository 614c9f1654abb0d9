//! Context: the time, random numbers, timers, and the list of effects outside of the engine. All
//! other state may use it. Touches no other state.

use std::sync::mpsc::SyncSender;

use crate::engine::command::{Outcome, Settlement};
use crate::engine::ids::{EnvId, OpId, StoreId};
use crate::engine::timers::Timers;
use crate::lease::Instant;

/// What a timer wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    Waiter(OpId),
    QueueEntry(u64),
    HeldLease(OpId),
    LostProlongation(u64),
    Adoption(OpId),
    CleanUp(u64),
    Barrier(u64),
}

/// The effects that the driver has to carry out for the engine.
#[derive(Default)]
pub struct Effects {
    /// The outcomes of operations, for their environments.
    pub settled: Vec<Settlement>,
    /// The environments whose threads have to give a sign of life.
    pub pings: Vec<EnvId>,
    /// The stores that no client, request or clean-up uses any more.
    pub unused: Vec<StoreId>,
    /// The threads that no longer have to wait for the end of clients.
    pub unblocked: Vec<SyncSender<()>>,
}

/// See the module.
pub struct Context {
    /// The time of the current event.
    pub now: Instant,
    pub timers: Timers<Wake>,
    pub effects: Effects,
    rng: fastrand::Rng,
    /// The last number given to a clean-up or a barrier, or to the arrival of a queue entry.
    serial: u64,
}

impl Context {
    /// Makes a context with the seed of its random numbers.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::default(),
            timers: Timers::default(),
            effects: Effects::default(),
            rng: fastrand::Rng::with_seed(seed),
            serial: 0,
        }
    }

    /// Tells the caller of `op` its outcome.
    pub fn settle(&mut self, op: OpId, outcome: Outcome) {
        self.effects.settled.push(Settlement { op, outcome });
    }

    /// Returns a random number from 0 to 1.
    pub fn jitter(&mut self) -> f64 {
        self.rng.f64()
    }

    /// Returns a number that is larger than all before it.
    pub fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}
