//! A simulated server: a store in memory with a clock of its own, which crashes, freezes and comes back.

use std::time::Duration;

use leasehold::lease::{Instant, Key};
use leasehold::store::memory::LeaseTable;
use leasehold::store::{Answer, Notice, Reply, Request};

/// When all clocks began.
const BEGIN: Instant = Instant::from_micros(1_000_000_000);
/// How much faster or slower than a holder's a server's clock runs at most, in millionths: a little less than the drift
/// allowance.
const MOST_DRIFT: i64 = 9_000;

pub struct Node {
    table: LeaseTable,
    /// By how many millionths its clock is faster.
    drift: i64,
    /// What its wall clock shows beside the time since the beginning, in µs.
    wall: u64,
    /// Whether its wall clock can be relied upon, because it has to be once data is lost.
    honest: bool,
    /// Until when it does nothing, and then all that it was asked meanwhile.
    pub frozen_until: Instant,
    /// Until when it is gone.
    pub down_until: Instant,
}

impl Node {
    pub fn new(honest: bool, rng: &mut fastrand::Rng) -> Self {
        let drift = rng.i64(-MOST_DRIFT..=MOST_DRIFT);
        let (table, wall) = (LeaseTable::default(), if honest { 1_000_000 } else { 0 });
        Self { table, drift, wall, honest, frozen_until: BEGIN, down_until: BEGIN }
    }

    /// What its clock shows.
    fn clock(&self, now: Instant) -> Instant {
        let passed = now.since(BEGIN).as_micros() as i64;
        let shown = passed + passed * self.drift / 1_000_000;
        BEGIN + Duration::from_micros(shown.unsigned_abs())
    }

    /// Its wall clock is set to anything; not if it has to be relied upon.
    pub fn set_wall_clock(&mut self, rng: &mut fastrand::Rng) {
        if !self.honest {
            self.wall = rng.u64(0..2_000_000_000);
        }
    }

    pub fn apply(&mut self, request: Request, now: Instant) -> Answer {
        // Of one store alone the wall clock stands still: that fences grow is its own doing.
        let passes = if self.honest { now.since(BEGIN).as_micros() as u64 } else { 0 };
        self.table.apply(request, self.clock(now), self.wall + passes)
    }

    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.table.take_notices()
    }

    /// Stops the node's wall clock at 0, so that it can't make fences grow.
    pub fn distrust_clock(&mut self) {
        (self.wall, self.honest) = (0, false);
    }

    /// It is restarted without its data.
    pub fn forget(&mut self) {
        self.table = LeaseTable::default();
    }

    /// Nothing may be left of `keys`.
    pub fn check_empty(&mut self, keys: &[Key], now: Instant) {
        for key in keys {
            let left = self.apply(Request::Inspect { key: key.clone() }, now);
            assert_eq!(left.unwrap(), Reply::Inspected(None), "a lease was left behind");
        }
        self.apply(Request::Ping, now).unwrap();
        assert!(self.table.is_empty(), "a place in a queue was left behind");
    }
}
