//! Simulates a server: a store in memory with its own clock. The server may crash, freeze and come
//! back.

use std::time::Duration;

use leasehold::lease::{Instant, Key};
use leasehold::store::memory::LeaseTable;
use leasehold::store::{Answer, Notice, Reply, Request};

/// The instant at which all clocks start.
const BEGIN: Instant = Instant::from_micros(1_000_000_000);
/// How much faster or slower than a holder's clock a server's clock runs at most, in millionths.
/// This is a little less than the drift allowance. If it is larger, leases may overlap.
const MOST_DRIFT: i64 = 9_000;

pub struct Node {
    table: LeaseTable,
    /// How much faster its clock runs, in millionths.
    drift: i64,
    /// The offset of its wall clock, in µs.
    wall: u64,
    /// True if the wall clock is right. In a lossy world it has to be, because after a loss of data
    /// only the wall clock makes fences grow.
    honest: bool,
    /// The node does nothing until that instant. Then it carries out the requests that have
    /// arrived.
    pub frozen_until: Instant,
    /// The node is down until that instant.
    pub down_until: Instant,
}

impl Node {
    pub fn new(honest: bool, rng: &mut fastrand::Rng) -> Self {
        let drift = rng.i64(-MOST_DRIFT..=MOST_DRIFT);
        let (table, wall) = (LeaseTable::default(), if honest { 1_000_000 } else { 0 });
        Self { table, drift, wall, honest, frozen_until: BEGIN, down_until: BEGIN }
    }

    /// Returns what its clock shows.
    pub fn clock(&self, now: Instant) -> Instant {
        let passed = now.since(BEGIN).as_micros() as i64;
        let shown = passed + passed * self.drift / 1_000_000;
        BEGIN + Duration::from_micros(shown.unsigned_abs())
    }

    /// Sets the wall clock to a random time, unless it has to be right.
    pub fn set_wall_clock(&mut self, rng: &mut fastrand::Rng) {
        if !self.honest {
            self.wall = rng.u64(0..2_000_000_000);
        }
    }

    pub fn apply(&mut self, request: Request, now: Instant) -> Answer {
        // A wall clock that need not be right stands still: fences have to grow without it.
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

    /// Restarts the node without its data.
    pub fn forget(&mut self) {
        self.table = LeaseTable::default();
    }

    /// Checks that the node has no leases of `keys`, and no places in queues.
    pub fn check_empty(&mut self, keys: &[Key], now: Instant) {
        for key in keys {
            let left = self.apply(Request::Inspect { key: key.clone() }, now);
            assert_eq!(left.unwrap(), Reply::Inspected(None), "a lease was left behind");
        }
        self.apply(Request::Ping, now).unwrap();
        assert!(self.table.is_empty(), "a place in a queue was left behind");
    }
}
