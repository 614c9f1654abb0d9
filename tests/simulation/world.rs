//! The simulated world: time, the network, the store, and who is watched.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use leasehold::engine::core::{Batch, Sent};
use leasehold::lease::{Fence, Instant, Key};
use leasehold::store::memory::LeaseTable;
use leasehold::store::{Answer, Reply, Request, StoreError, StoreErrorKind};

use super::process::Process;

const PROCESSES: usize = 3;
/// How long things go wrong; afterwards everybody winds up on a network that works.
const TROUBLE: Duration = Duration::from_secs(10);

/// What happens at an instant, by its number in `World::events`.
enum Event {
    /// A batch reaches the store.
    Arrive { process: usize, batch: Batch, reply_lost: bool },
    /// A request reaches the store so late that nobody waits for it any more.
    Stray { process: usize, request: Request },
    /// Its answers, or the word that there are none, reach the process.
    Answer { process: usize, sent: Sent, answers: Vec<Answer> },
    /// The code of a process does something.
    Act { process: usize },
    /// A process looks at its timers.
    Wake { process: usize },
}

pub struct World {
    now: Instant,
    rng: fastrand::Rng,
    table: LeaseTable,
    /// The largest fence granted for each key.
    fences: HashMap<Key, Fence>,
    processes: Vec<Process>,
    /// Counts the lives of each process, so that what was meant for a dead one is dropped.
    lives: Vec<u64>,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: HashMap<u64, (u64, Event)>,
    serial: u64,
    grants: u64,
    trouble_until: Instant,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let now = Instant::from_micros(1_000_000_000);
        let processes = (0..PROCESSES).map(|_| Process::new(now, &mut rng)).collect();
        Self {
            now,
            rng,
            table: LeaseTable::default(),
            fences: HashMap::new(),
            processes,
            lives: vec![0; PROCESSES],
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            serial: 0,
            grants: 0,
            trouble_until: now + TROUBLE,
        }
    }

    /// Lives through a whole schedule. Returns how many leases were granted.
    pub fn run(mut self) -> u64 {
        for process in 0..PROCESSES {
            self.plan(process, Duration::ZERO, Event::Act { process });
        }
        self.live_until(self.trouble_until);
        for process in 0..PROCESSES {
            self.processes[process].frozen_until = self.now;
            self.processes[process].hung_until = self.now;
            self.processes[process].wind_up(self.now);
            self.after(process);
        }
        // A grant that was on its way when everything was wound up is given back in the next round.
        for _ in 0..10 {
            self.live_until(self.now + Duration::from_secs(1));
            for process in 0..PROCESSES {
                self.processes[process].wind_up(self.now);
                self.after(process);
            }
        }
        self.live_until(self.now + Duration::from_secs(60));
        for process in &self.processes {
            let forgotten = process.asked.values().filter(|asked| !asked.ended).count();
            assert_eq!(forgotten, 0, "somebody was never told");
        }
        for key in self.fences.keys().cloned().collect::<Vec<_>>() {
            let left = self.table.apply(Request::Inspect { key }, self.now, 0);
            assert_eq!(left.unwrap(), Reply::Inspected(None), "a lease was left behind");
        }
        self.grants
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

    fn is_trouble(&self) -> bool {
        self.now < self.trouble_until
    }

    fn happen(&mut self, life: u64, event: Event) {
        match event {
            // The store carries out also what a dead process has sent.
            Event::Arrive { process, batch, reply_lost } => self.arrive(life, process, batch, reply_lost),
            Event::Stray { process, request } => {
                let _nobody_hears = self.apply(process, life, request);
            }
            Event::Answer { process, .. } | Event::Act { process } | Event::Wake { process }
                if life != self.lives[process] => {}
            Event::Answer { process, .. } | Event::Act { process } | Event::Wake { process }
                if self.processes[process].frozen_until > self.now =>
            {
                let wait = self.processes[process].frozen_until.since(self.now);
                self.plan(process, wait, event);
            }
            Event::Answer { process, sent, answers } => {
                self.processes[process].core.answered(self.now, sent, answers);
                self.after(process);
            }
            Event::Wake { process } => self.after(process),
            Event::Act { process } => self.act(process),
        }
    }

    fn arrive(&mut self, life: u64, process: usize, batch: Batch, reply_lost: bool) {
        let Batch { sent, requests, timeout } = batch;
        let count = requests.len();
        let mut answers: Vec<Answer> =
            requests.into_iter().map(|request| self.apply(process, life, request)).collect();
        let back = Duration::from_micros(self.rng.u64(100..20_000));
        let wait = if reply_lost { timeout } else { back };
        if reply_lost {
            answers = vec![Err(no_answer()); count];
        }
        if life == self.lives[process] {
            self.plan(process, wait, Event::Answer { process, sent, answers });
        }
    }

    /// The store carries out a request. Here two holders would meet.
    fn apply(&mut self, process: usize, life: u64, request: Request) -> Answer {
        let acquire = match &request {
            Request::Acquire { key, token, .. } => Some((key.clone(), *token)),
            _ => None,
        };
        let answer = self.table.apply(request, self.now, self.now.as_micros());
        if let (Some((key, token)), Ok(Reply::Acquired { fence })) = (acquire, &answer) {
            for (index, other) in self.processes.iter().enumerate() {
                for asked in other.asked.values().filter(|asked| asked.key == key && asked.token != token) {
                    assert!(
                        !asked.state.is_held(self.now),
                        "process {process} (life {life}) was given {key} while process {index} believes in its lease"
                    );
                }
            }
            let last = self.fences.entry(key).or_insert(Fence(0));
            assert!(*fence >= *last, "a fence went back");
            *last = *fence;
        }
        answer
    }

    fn act(&mut self, process: usize) {
        if !self.is_trouble() {
            return;
        }
        match self.rng.u16(..1000) {
            0..5 => {
                // It dies, and another takes its place.
                self.lives[process] += 1;
                self.processes[process] = Process::new(self.now, &mut self.rng);
            }
            5..15 => {
                let span = Duration::from_millis(self.rng.u64(1..4_000));
                self.processes[process].frozen_until = self.now + span;
            }
            15..25 => {
                let span = Duration::from_millis(self.rng.u64(1..8_000));
                self.processes[process].hung_until = self.now + span;
            }
            _ if self.processes[process].hung_until <= self.now => self.processes[process].act(self.now),
            _ => {}
        }
        let pause = Duration::from_micros(self.rng.u64(1_000..80_000));
        self.plan(process, pause, Event::Act { process });
        self.after(process);
    }

    /// What the driver does after each turn of a process.
    fn after(&mut self, process: usize) {
        self.processes[process].core.tick(self.now);
        let effects = self.processes[process].core.take_effects();
        if !effects.pings.is_empty() && self.processes[process].hung_until <= self.now {
            self.processes[process].pulse.beat(self.now);
        }
        self.grants += self.processes[process].hear(effects.settled);
        for batch in self.processes[process].core.take_batches(self.now) {
            self.send(process, batch);
        }
        if let Some(at) = self.processes[process].core.next_wake() {
            self.plan(process, at.since(self.now), Event::Wake { process });
        }
    }

    fn send(&mut self, process: usize, batch: Batch) {
        let trouble = self.is_trouble();
        let there = Duration::from_micros(self.rng.u64(100..20_000));
        match self.rng.u8(..100) {
            0..8 if trouble => {
                // It never arrives.
                let Batch { sent, requests, timeout } = batch;
                let answers = vec![Err(no_answer()); requests.len()];
                self.plan(process, timeout, Event::Answer { process, sent, answers });
            }
            8..16 if trouble => self.plan(process, there, Event::Arrive { process, batch, reply_lost: true }),
            16..20 if trouble => {
                // It arrives when nobody waits for it any more.
                let Batch { sent, requests, timeout } = batch;
                let late = timeout + Duration::from_micros(self.rng.u64(0..2_000_000));
                let answers = vec![Err(no_answer()); requests.len()];
                for request in requests {
                    self.plan(process, late, Event::Stray { process, request });
                }
                self.plan(process, timeout, Event::Answer { process, sent, answers });
            }
            _ => self.plan(process, there, Event::Arrive { process, batch, reply_lost: false }),
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::maybe_done(StoreErrorKind::TimedOut, "lost on its way")
}
