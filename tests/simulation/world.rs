//! The simulated world: time, the network, the nodes and the processes.
//!
//! - [`shape`], [`event`], [`counts`]: the kind of a world, what happens in it, and the result;
//! - [`network`], [`breakers`], [`late_copies`]: what befalls messages and nodes;
//! - [`checks`]: what must hold after each grant;
//! - [`adopters`], [`half_used_tickets`], [`repairs`], [`ticket_chains`], [`closed_detachments`],
//!   [`lost_prolongations`]: scenes at the end of a schedule.

mod adopters;
mod breakers;
mod checks;
mod closed_detachments;
mod counts;
mod event;
mod half_used_tickets;
mod late_copies;
mod lost_prolongations;
mod network;
mod repairs;
mod shape;
mod ticket_chains;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Token};
use leasehold::store::{BROKEN_LIFE, Request};

pub use self::counts::Counts;
use self::event::Event;
pub use self::shape::Shape;
use super::history::History;
use super::node::Node;
use super::process::{DetachedLease, Process, TIDY_TTL_MS};

const PROCESSES: usize = 3;

/// The longest ttl of a lease in a world that is not tidy.
const LONGEST_TTL: Duration = Duration::from_secs(3);

/// See the module.
pub struct World {
    now: Instant,
    rng: fastrand::Rng,
    nodes: Vec<Node>,
    /// The process can't reach the node until that instant.
    cut_until: BTreeMap<(usize, usize), Instant>,
    shape: Shape,
    /// The number of restarts in a rolling world.
    rolled: usize,
    /// The largest fence granted for each key.
    fences: BTreeMap<Key, Fence>,
    processes: Vec<Process>,
    /// Counts the lives of each process. Events of an earlier life are dropped.
    lives: Vec<u64>,
    /// When each process next looks at its timers.
    wakes: [Option<Instant>; PROCESSES],
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, (u64, Event)>,
    serial: u64,
    /// The number of leases that were granted.
    grants: u64,
    /// The number of grants that were taken up on a notice.
    on_notice: u64,
    /// The largest fence that the storage behind the workers' lock has seen.
    storage: Fence,
    trouble_until: Instant,
    /// How many times faster the network is than a slow one.
    pace: u32,
    /// How many times faster everything but the network is.
    haste: u32,
    crowded: bool,
    /// True if no lease may end by its ttl: ttls are longer than all waits, no process dies, and no
    /// message comes twice.
    tidy: bool,
    /// True if a process holds a lease at the end while all nodes restart.
    carries: bool,
    /// The number of processes that meanwhile wait for the lock, briefly and repeatedly.
    stream: usize,
    /// The process, its life and the waiter's own number, by the number in a node's notices.
    waiters: BTreeMap<u64, (usize, u64, u64)>,
    detached_leases: Vec<DetachedLease>,
    /// The tickets that were adopted.
    adopted: HashSet<Token>,
    /// How much longer a message between a process and a node takes, in each direction.
    distances: BTreeMap<(usize, usize), Duration>,
    /// The nodes whose answers to the first process get lost about half of the time.
    mute: Vec<usize>,
    /// The acquires and detachments that the first process has sent to each node, while they are
    /// kept.
    copies: Option<Vec<(usize, Request)>>,
    /// While the scene `lost_prolongations` runs: when the lease of the first process ends at each
    /// node, by the node's clock, if nothing prolongs it.
    lease_ends: Option<BTreeMap<usize, Instant>>,
    /// The process and the slot of each acquire that must fail, because a ticket or its adopter has
    /// the lock.
    strangers: BTreeSet<(usize, u32)>,
    /// The random numbers of the breakers. They are separate, so that breakers do not change what
    /// else happens in a world.
    breakers: fastrand::Rng,
    history: History,
}

impl World {
    /// Creates a world in which nodes, processes and the network fail for as long as `trouble`.
    /// After that, they work.
    pub fn new(seed: u64, shape: Shape, trouble: Duration) -> Self {
        // On a quick network, most leases are handed on; on a slow one, messages cross each other.
        let pace = if seed % 2 == 1 { 50 } else { 1 };
        // Now and then, the network is quick and callers are slow. Then leases live to their end,
        // and the clocks decide.
        let is_near = seed % 8 == 3;
        let haste = if is_near { 1 } else { pace };
        let trouble = if is_near { trouble * 5 } else { trouble };
        // Now and then a crowd competes for one lock and holds it for a moment.
        let crowded = seed % 8 == 7;
        let tidy = seed % 8 == 5 && !shape.lossy;
        let mut rng = fastrand::Rng::with_seed(seed);
        let now = Instant::from_micros(1_000_000_000);
        let Shape { nodes: count, lossy, .. } = shape;
        let processes = (0..PROCESSES).map(|_| Process::new(now, shape, crowded, tidy, &mut rng)).collect();
        let nodes = (0..count).map(|_| Node::new(lossy, &mut rng)).collect();
        Self {
            now,
            rng,
            nodes,
            cut_until: BTreeMap::new(),
            shape,
            rolled: 0,
            fences: BTreeMap::new(),
            processes,
            lives: vec![0; PROCESSES],
            wakes: [None; PROCESSES],
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            serial: 0,
            grants: 0,
            on_notice: 0,
            storage: Fence(0),
            trouble_until: now + trouble / if crowded && count == 1 { 20 } else { haste },
            pace,
            haste,
            crowded,
            tidy,
            carries: seed % 4 == 2,
            stream: 0,
            waiters: BTreeMap::new(),
            detached_leases: Vec::new(),
            adopted: HashSet::new(),
            distances: BTreeMap::new(),
            mute: Vec::new(),
            copies: None,
            lease_ends: None,
            strangers: BTreeSet::new(),
            breakers: fastrand::Rng::with_seed(!seed),
            history: History::default(),
        }
    }

    /// Adds a digest of all that happens to the counts.
    #[cfg(feature = "mutants")]
    pub fn with_digest(self) -> Self {
        Self { history: History::with_digest(), ..self }
    }

    /// Runs the whole schedule. Checks that it leaves no lease, place or caller behind.
    pub fn run(mut self) -> Counts {
        for process in 0..PROCESSES {
            self.plan(process, Duration::ZERO, Event::Act { process });
        }
        if self.nodes.len() > 1 {
            self.plan(0, Duration::ZERO, Event::Mishap);
        }
        if self.shape.breakers {
            (0..PROCESSES).for_each(|process| self.plan(process, Duration::ZERO, Event::Breaker { process }));
        }
        self.live_until(self.trouble_until);
        for process in 0..PROCESSES {
            self.processes[process].frozen_until = self.now;
            self.processes[process].hung_until = self.now;
            self.processes[process].pulse.beat(self.now);
        }
        // All holders release, so each waiter is served or rejected, and none has to be cancelled.
        let (patience, began) = (Duration::from_secs(60), self.now);
        while self.now < began + patience + self.longest_expiry() {
            self.live_until(self.now + Duration::from_millis(100) / self.haste);
            for process in 0..PROCESSES {
                self.processes[process].let_go(self.now);
                self.after(process);
            }
            if self.processes.iter().all(|process| process.asked.values().all(|asked| asked.ended)) {
                break;
            }
        }
        if self.nodes.len() > 1 {
            self.adopt_at_once();
            if self.carries {
                self.restart_under_a_lease();
            }
        }
        self.deliver_late_copies();
        if self.nodes.len() > 1 {
            self.hand_over_in_a_chain();
            self.adopt_a_half_used_ticket();
        }
        self.lose_while_prolonging();
        if self.nodes.len() > 1 {
            self.close_while_detaching();
        }
        // Nodes remember for a while that a lock was broken.
        self.live_until(self.now + Duration::from_secs(60) + self.longest_expiry() + BROKEN_LIFE);
        for process in &self.processes {
            assert_eq!(process.concerns(), 0, "an engine cares for something that has ended");
            process.campaign.check_rest();
            let forgotten = process.asked.values().filter(|asked| !asked.ended).count();
            assert_eq!(forgotten, 0, "a caller was never answered");
        }
        let keys: Vec<Key> = self.fences.keys().cloned().collect();
        for node in &mut self.nodes {
            node.check_empty(&keys, self.now);
        }
        self.counts()
    }

    /// Returns how much longer than the usual patience the store may keep a lost lease. In a tidy
    /// world, ttls are so long that processes rarely lose a lease. They lose only a lease that was
    /// taken up on a notice, if no renewal is answered while its thread hangs.
    fn longest_expiry(&self) -> Duration {
        let has_lost = self.processes.iter().any(|process| process.has_lost);
        let longest = Duration::from_millis(TIDY_TTL_MS.into());
        if self.tidy && has_lost { longest } else { Duration::ZERO }
    }

    /// Returns how long a message takes.
    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.rng.u64(100..20_000)) / self.pace
    }

    /// Returns how many times shorter the failures of processes are. In a crowd, leases are short,
    /// so failures are, too.
    fn hurry(&self) -> u32 {
        if self.crowded { self.haste } else { 1 }
    }

    /// Returns true if nothing fails now. In a crowd, most things go well, because otherwise the
    /// crowd would only wait for time-outs.
    fn spared(&mut self) -> bool {
        self.crowded && self.rng.u8(..10) > 0
    }

    fn is_trouble(&self) -> bool {
        self.now < self.trouble_until
    }

    /// Kills the process. Another takes its place.
    fn kill(&mut self, process: usize) {
        self.lives[process] += 1;
        self.wakes[process] = None;
        self.processes[process] = Process::new(self.now, self.shape, self.crowded, self.tidy, &mut self.rng);
    }

    /// Lets something happen to the process, or lets its code do something.
    fn act(&mut self, process: usize) {
        if !self.is_trouble() {
            return;
        }
        let fate = self.rng.u16(..1000);
        match if self.spared() { u16::MAX } else { fate } {
            0..5 if !self.tidy => self.kill(process),
            5..15 => {
                let span = Duration::from_millis(self.rng.u64(1..4_000)) / self.hurry();
                self.processes[process].frozen_until = self.now + span;
            }
            15..25 => {
                let span = Duration::from_millis(self.rng.u64(1..8_000)) / self.hurry();
                self.processes[process].hung_until = self.now + span;
            }
            25..100 if !self.detached_leases.is_empty() => {
                let detached = &self.detached_leases[self.rng.usize(..self.detached_leases.len())];
                let _slot = self.processes[process].adopt(self.now, detached);
            }
            _ if self.processes[process].hung_until <= self.now => self.processes[process].act(self.now),
            _ => {}
        }
        self.write(process);
        let longest = match self.shape {
            _ if self.crowded => 4_000,
            // Callers act seldom, so that leases outlive restarts.
            Shape { rolling: true, .. } => 2_000_000,
            _ => 80_000,
        };
        let pause = Duration::from_micros(self.rng.u64(1_000..longest)) / self.haste;
        self.plan(process, pause, Event::Act { process });
        self.after(process);
    }

    /// Does what the driver does after each event of a process. Returns the number of leases that
    /// were granted.
    fn after(&mut self, process: usize) -> u64 {
        let before = self.grants;
        self.processes[process].tick(self.now);
        for message in self.processes[process].take_coordinator_effects(self.now) {
            self.send(process, message);
        }
        let effects = self.processes[process].core.take_effects();
        if !effects.pings.is_empty() && self.processes[process].hung_until <= self.now {
            self.processes[process].pulse.beat(self.now);
        }
        let mut settled = std::mem::take(&mut self.processes[process].settled);
        settled.extend(effects.settled);
        let outcomes: Vec<_> = settled.iter().map(|settled| &settled.outcome).collect();
        self.history.record(self.now, process, &outcomes);
        for granted in self.processes[process].hear(self.now, settled) {
            self.grants += 1;
            self.check_grant(process, &granted);
            if self.crowded && self.is_trouble() && self.rng.u16(..300) == 0 {
                // In a crowd, a holder releases at once, so it has to freeze here.
                let span = Duration::from_millis(self.rng.u64(1..4_000)) / self.hurry();
                self.processes[process].frozen_until = self.now + span;
            }
        }
        let detached = std::mem::take(&mut self.processes[process].detached);
        self.detached_leases.extend(detached);
        self.processes[process].core.offer_hand_offs(self.now);
        for message in self.processes[process].take_messages(self.now) {
            self.send(process, message);
        }
        if let Some(at) = self.processes[process].next_wake() {
            // Plan a wake only if it is earlier than the planned one. Otherwise, each event would
            // leave one more behind.
            if self.wakes[process].is_none_or(|wake| at < wake) {
                self.wakes[process] = Some(at);
                self.plan(process, at.since(self.now), Event::Wake { process });
            }
        }
        self.grants - before
    }
}
