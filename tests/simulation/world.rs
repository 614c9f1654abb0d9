//! The simulated world: time, the network, the store, and who is watched.

mod adopters;
mod breakers;
mod network;
mod repairs;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashSet};
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Mode, Token};
use leasehold::store::{Answer, BROKEN_LIFE, Notice, Request};

use super::campaign::Write;
use super::node::Node;
use super::process::{Errand, Granted, Message, Parcel, Process, TIDY_TTL_MS};

const PROCESSES: usize = 3;

/// What happens at an instant, by its number in `World::events`.
enum Event {
    /// Requests reach a store, of which the process wants to hear until then.
    Arrive { process: usize, message: Message, until: Instant, reply_lost: bool },
    /// A request reaches a store so late that nobody waits for it any more.
    Stray { process: usize, node: usize, request: Request },
    /// Its answers, or the word that there are none, reach the process.
    Answer { process: usize, errand: Errand, answers: Vec<Answer> },
    /// The code of a process does something.
    Act { process: usize },
    /// The store's word that a waiter was handed a lease reaches its process.
    Notice { process: usize, node: usize, notice: Notice },
    /// Something befalls a node, or the way to it.
    Mishap,
    /// A process looks at its timers.
    Wake { process: usize },
    /// The breaker before a node changes its state in a process.
    Breaker { process: usize },
}

/// What a schedule came to.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// Leases that were granted.
    pub leases: u64,
    /// Those of them that a process handed on by itself.
    pub hand_offs: u64,
    /// How many of those by its JavaScript thread.
    pub relayed: u64,
    /// Those of them that a notice alone was enough for.
    pub early: u64,
    /// How often the work of a worker was begun.
    pub tenures: u64,
    /// How many of the acquires that fail fast have failed.
    pub failed_fast: u64,
}

/// Where leases live in a world.
#[derive(Clone, Copy)]
pub struct Shape {
    /// One store, or the nodes of a quorum.
    pub nodes: usize,
    /// Whether nodes lose their data now and then. Such a one stays away until every lease that it knew has ended, and all
    /// wall clocks agree.
    pub lossy: bool,
    /// Leases are held for long, and the only trouble is that the nodes restart, one after the
    /// other. Each node comes back after the leases that it knew have ended. In a `lossy` world, it
    /// may come back without its data.
    pub rolling: bool,
    /// It does not stay away, which is wrong.
    pub hasty: bool,
    /// Whether circuit breakers open and close at random, and some acquires fail fast.
    pub breakers: bool,
}

/// The longest ttl that anybody asks for.
const LONGEST_TTL: Duration = Duration::from_secs(3);

pub struct World {
    now: Instant,
    rng: fastrand::Rng,
    nodes: Vec<Node>,
    /// Until when a process can't reach a node.
    cut_until: BTreeMap<(usize, usize), Instant>,
    shape: Shape,
    /// How many times a node was restarted in turn.
    rolled: usize,
    /// The largest fence granted for each key.
    fences: BTreeMap<Key, Fence>,
    processes: Vec<Process>,
    /// Counts the lives of each process, so that what was meant for a dead one is dropped.
    lives: Vec<u64>,
    /// When each process next looks at its timers.
    wakes: [Option<Instant>; PROCESSES],
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: BTreeMap<u64, (u64, Event)>,
    serial: u64,
    grants: u64,
    /// How many of them a notice alone was enough for.
    early: u64,
    /// The largest fence that what the workers' lock protects has seen.
    storage: Fence,
    trouble_until: Instant,
    /// By how much the network is quicker than a slow one.
    pace: u32,
    /// By how much all but the network is quicker.
    haste: u32,
    crowded: bool,
    /// Whether nothing may be left to a ttl: leases outlive all patience, nobody dies, and no message comes twice.
    tidy: bool,
    /// Whether a process holds a lease at the end while all nodes restart.
    carries: bool,
    /// How many processes meanwhile wait for the lock, each briefly and repeatedly.
    stream: usize,
    /// Whose waiter has which number at the store.
    waiters: BTreeMap<u64, (usize, u64, u64)>,
    parcels: Vec<Parcel>,
    /// The tickets that were adopted.
    adopted: HashSet<Token>,
    /// How much longer a message between a process and a node takes, in each direction.
    distances: BTreeMap<(usize, usize), Duration>,
    /// The nodes whose answers to the first process get lost, about every second one.
    mute: Vec<usize>,
    /// The process and the slot of each acquire that must fail, because a ticket or its heir has
    /// the lock.
    strangers: BTreeSet<(usize, u32)>,
    /// Draws for the breakers alone, so that worlds without them do not change.
    breakers: fastrand::Rng,
}

impl World {
    /// Things go wrong for as long as `trouble`; afterwards everybody goes on on a network that works.
    pub fn new(seed: u64, shape: Shape, trouble: Duration) -> Self {
        // Within a machine, leases are handed on; over a slow network, everything crosses everything.
        let pace = if seed % 2 == 1 { 50 } else { 1 };
        // Now and then the network is quick and people are slow, and leases live to their end: then it is clocks that matter.
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
            early: 0,
            storage: Fence(0),
            trouble_until: now + trouble / if crowded && count == 1 { 20 } else { haste },
            pace,
            haste,
            crowded,
            tidy,
            carries: seed % 4 == 2,
            stream: 0,
            waiters: BTreeMap::new(),
            parcels: Vec::new(),
            adopted: HashSet::new(),
            distances: BTreeMap::new(),
            mute: Vec::new(),
            strangers: BTreeSet::new(),
            breakers: fastrand::Rng::with_seed(!seed),
        }
    }

    /// Lives through a whole schedule.
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
        // Whoever holds gives back, and so everybody who waits is served or told, and nobody has to be told to go.
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
        // Nodes remember for a while that a lock was broken.
        self.live_until(self.now + Duration::from_secs(60) + self.longest_expiry() + BROKEN_LIFE);
        for process in &self.processes {
            assert_eq!(process.concerns(), 0, "an engine minds what has ended");
            process.campaign.check_rest();
            let forgotten = process.asked.values().filter(|asked| !asked.ended).count();
            assert_eq!(forgotten, 0, "somebody was never told");
        }
        let keys: Vec<Key> = self.fences.keys().cloned().collect();
        for node in &mut self.nodes {
            node.check_empty(&keys, self.now);
        }
        let hand_offs = self.processes.iter().map(Process::handed_on).sum();
        let relayed = self.processes.iter().map(|process| process.relayed).sum();
        let tenures = self.processes.iter().map(|process| process.campaign.tenures).sum();
        let failed_fast = self.processes.iter().map(|process| process.failed_fast).sum();
        Counts { leases: self.grants, hand_offs, relayed, early: self.early, tenures, failed_fast }
    }

    /// Returns how long a lost lease may live on at the store beyond the usual patience. In a tidy
    /// world, leases are so long that almost none is lost: only one that was taken up on a notice
    /// ends early, if no renewal is answered while its thread hangs.
    fn longest_expiry(&self) -> Duration {
        let has_lost = self.processes.iter().any(|process| process.has_lost);
        let longest = Duration::from_millis(TIDY_TTL_MS.into());
        if self.tidy && has_lost { longest } else { Duration::ZERO }
    }

    fn plan(&mut self, process: usize, after: Duration, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse((self.now + after, self.serial)));
        self.events.insert(self.serial, (self.lives[process], event));
    }

    fn live_until(&mut self, end: Instant) {
        while let Some(Reverse((at, serial))) = self.queue.peek().copied() {
            if at > end {
                break;
            }
            self.queue.pop();
            let (life, event) = self.events.remove(&serial).expect("planned once");
            self.now = self.now.max(at);
            self.happen(life, event);
        }
        self.now = self.now.max(end);
    }

    /// How long a message is on its way.
    fn delay(&mut self) -> Duration {
        Duration::from_micros(self.rng.u64(100..20_000)) / self.pace
    }

    /// By how much what befalls processes is shorter: in a crowd leases are short, and there is much to be seen soon.
    fn hurry(&self) -> u32 {
        if self.crowded { self.haste } else { 1 }
    }

    /// In a crowd most things go well, or nothing would move on but by time-outs.
    fn spared(&mut self) -> bool {
        self.crowded && self.rng.u8(..10) > 0
    }

    fn is_trouble(&self) -> bool {
        self.now < self.trouble_until
    }

    fn happen(&mut self, life: u64, event: Event) {
        match event {
            // The store carries out also what a dead process has sent.
            Event::Arrive { process, message, until, reply_lost } => {
                self.arrive(life, process, message, until, reply_lost)
            }
            Event::Stray { process, node, request } if self.nodes[node].down_until <= self.now => {
                let _nobody_hears = self.apply(process, node, life, request);
            }
            Event::Stray { .. } => {}
            Event::Mishap => self.mishap(),
            Event::Breaker { process } => self.switch_breaker(process),
            Event::Answer { process, .. }
            | Event::Act { process }
            | Event::Notice { process, .. }
            | Event::Wake { process }
                if life != self.lives[process] => {}
            Event::Answer { process, .. }
            | Event::Act { process }
            | Event::Notice { process, .. }
            | Event::Wake { process }
                if self.processes[process].frozen_until > self.now =>
            {
                let wait = self.processes[process].frozen_until.since(self.now);
                self.plan(process, wait, event);
            }
            Event::Answer { process, errand, answers } => {
                self.processes[process].answered(self.now, errand, answers);
                self.after(process);
            }
            Event::Notice { process, node, notice } => {
                self.processes[process].noticed(self.now, node, notice);
                // What is granted now is granted by that alone.
                self.early += self.after(process);
            }
            // Since this was planned, an earlier time was; what is due then has planned the next.
            Event::Wake { process } if self.wakes[process].is_none_or(|at| at > self.now) => {}
            Event::Wake { process } => {
                self.wakes[process] = None;
                self.after(process);
            }
            Event::Act { process } => self.act(process),
        }
    }

    /// A caller hears that it holds a lease. Here two holders would meet.
    fn check_grant(&mut self, process: usize, granted: &Granted) {
        // It may have been lost, or handed on, by the time that its caller hears of it.
        let ours = self.processes[process].asked.get(&granted.slot);
        let Some(ours) = ours.filter(|ours| ours.state.is_held(self.now)) else { return };
        let key = ours.key.clone();
        let mut sharers = 1;
        for (index, other) in self.processes.iter().enumerate() {
            for (slot, asked) in &other.asked {
                let same = index == process && *slot == granted.slot;
                if same || asked.key != key || !asked.state.is_held(self.now) {
                    continue;
                }
                assert!(
                    ours.mode.is_shared() && asked.mode.is_shared(),
                    "process {process} was given {key} while process {index} believes in its lease"
                );
                sharers += 1;
            }
        }
        if let Mode::Shared { most } = ours.mode {
            assert!(sharers <= most, "{sharers} share {key}, at most {most} should");
        } else if granted.adopted.is_none() {
            let last = self.fences.entry(key).or_insert(Fence(0));
            assert!(granted.fence > *last, "a fence went back: {:?} after {:?}", granted.fence, *last);
            *last = granted.fence;
        }
    }

    /// The process' worker writes to a storage that compares fences. It may be late, but never while it believes that it
    /// holds its lease.
    fn write(&mut self, process: usize) {
        let Some(Write { fence, believes }) = self.processes[process].campaign.write(self.now) else {
            return;
        };
        assert!(fence >= self.storage || !believes, "{fence:?} is refused after {:?}", self.storage);
        self.storage = self.storage.max(fence);
    }

    /// Kills the process. Another takes its place.
    fn kill(&mut self, process: usize) {
        self.lives[process] += 1;
        self.wakes[process] = None;
        self.processes[process] = Process::new(self.now, self.shape, self.crowded, self.tidy, &mut self.rng);
    }

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
            25..100 if !self.parcels.is_empty() => {
                let parcel = &self.parcels[self.rng.usize(..self.parcels.len())];
                let _slot = self.processes[process].adopt(self.now, parcel);
            }
            _ if self.processes[process].hung_until <= self.now => self.processes[process].act(self.now),
            _ => {}
        }
        self.write(process);
        let longest = match self.shape {
            _ if self.crowded => 4_000,
            // Leases are to outlive restarts.
            Shape { rolling: true, .. } => 2_000_000,
            _ => 80_000,
        };
        let pause = Duration::from_micros(self.rng.u64(1_000..longest)) / self.haste;
        self.plan(process, pause, Event::Act { process });
        self.after(process);
    }

    /// What the driver does after each turn of a process. Returns how many leases were granted by it.
    fn after(&mut self, process: usize) -> u64 {
        let before = self.grants;
        self.processes[process].tick(self.now);
        for message in self.processes[process].hear_council(self.now) {
            self.send(process, message);
        }
        let effects = self.processes[process].core.take_effects();
        if !effects.pings.is_empty() && self.processes[process].hung_until <= self.now {
            self.processes[process].pulse.beat(self.now);
        }
        let mut settled = std::mem::take(&mut self.processes[process].settled);
        settled.extend(effects.settled);
        for granted in self.processes[process].hear(self.now, settled) {
            self.grants += 1;
            self.check_stranger(process, granted.slot);
            if let Some((ticket, fence)) = granted.adopted {
                assert!(self.adopted.insert(ticket), "a ticket was adopted twice");
                // If no node knows the fence any more, the heir gets a larger one.
                let is_replaced = self.shape.lossy && granted.fence > fence;
                assert!(granted.fence == fence || is_replaced, "{fence:?} became {:?}", granted.fence);
            }
            self.check_grant(process, &granted);
            if self.crowded && self.is_trouble() && self.rng.u16(..300) == 0 {
                // In a crowd whoever holds is gone the next moment: it has to freeze here.
                let span = Duration::from_millis(self.rng.u64(1..4_000)) / self.hurry();
                self.processes[process].frozen_until = self.now + span;
            }
        }
        let detached = std::mem::take(&mut self.processes[process].detached);
        self.parcels.extend(detached);
        self.processes[process].core.relay(self.now);
        for message in self.processes[process].take_messages(self.now) {
            self.send(process, message);
        }
        if let Some(at) = self.processes[process].next_wake() {
            // One for each process: every turn would else leave one more behind.
            if self.wakes[process].is_none_or(|wake| at < wake) {
                self.wakes[process] = Some(at);
                self.plan(process, at.since(self.now), Event::Wake { process });
            }
        }
        self.grants - before
    }
}
