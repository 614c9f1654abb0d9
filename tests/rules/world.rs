//! Simulates one lock, its clients, and the network between them.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Mode, Token};
use leasehold::store::rules::{Lock, RuleContext, Waiting};
use leasehold::store::{Absence, Reply, Request};

use crate::actor::{Actor, Goal, modes};
use crate::checker::{CheckResult, Checker, Operation, fits, require};
use crate::mutants::Mutant;

/// After the trouble, the lock must serve all waiters within this simulated time.
const PATIENCE: Duration = Duration::from_secs(60);

enum Event {
    /// The owner of a token acts.
    Act { actor: usize },
    /// A notice asked the owner to poll.
    Poll { actor: usize },
    /// A request reaches the lock.
    Arrive { actor: usize, sent: Instant, request: Request, answered: bool },
    /// The answer reaches the owner.
    Answer { actor: usize, sent: Instant, reply: Reply },
}

/// Counts what happened in the schedules, so that the test knows that they covered it.
#[derive(Debug, Default)]
pub struct Seen {
    requests: u64,
    grants: u64,
    handed: u64,
    taken_up: u64,
    deaths: u64,
    adopted: u64,
    given_up: u64,
    /// The number of fences that actors used without a request.
    handed_on: u64,
    /// The most leases at a time.
    shared: u64,
    /// The longest queue.
    queue: u64,
}

impl Seen {
    fn counts(&self) -> [u64; 8] {
        let Seen { requests, grants, handed, taken_up, deaths, adopted, given_up, handed_on, .. } = *self;
        [requests, grants, handed, taken_up, deaths, adopted, given_up, handed_on]
    }

    pub fn add(&mut self, other: &Seen) {
        let counts = self.counts();
        let sum: Vec<u64> = counts.iter().zip(other.counts()).map(|(a, b)| a + b).collect();
        let (shared, queue) = (self.shared.max(other.shared), self.queue.max(other.queue));
        let [requests, grants, handed, taken_up, deaths, adopted, given_up, handed_on] = sum[..] else {
            unreachable!()
        };
        *self =
            Seen { requests, grants, handed, taken_up, deaths, adopted, given_up, handed_on, shared, queue };
    }

    /// Fails unless each of these things happened often in `schedules` schedules.
    pub fn assert_all(&self, schedules: u64) {
        assert!(
            self.counts().iter().all(|count| *count > schedules / 20),
            "too rare to prove anything: {self:?}"
        );
        assert!(self.shared > 2 && self.queue > 4, "{self:?}");
    }
}

pub struct World {
    now: Instant,
    rng: fastrand::Rng,
    key: Key,
    lock: Lock,
    checker: Checker,
    /// The floor of the fences that the store keeps.
    floor: Fence,
    actors: Vec<Actor>,
    modes: Vec<Mode>,
    crowd: usize,
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    events: HashMap<u64, Event>,
    serial: u64,
    trouble_until: Instant,
    mutant: Option<Mutant>,
    strike_at: Instant,
    seen: Seen,
}

impl World {
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let now = Instant::from_micros(1_000_000_000);
        let trouble = Duration::from_millis(rng.u64(500..6_000));
        let crowd = rng.usize(2..8);
        Self {
            now,
            key: "lock".into(),
            lock: Lock::default(),
            checker: Checker::default(),
            floor: Fence::NONE,
            actors: Vec::new(),
            modes: modes(&mut rng),
            crowd,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            serial: 0,
            trouble_until: now + trouble,
            mutant,
            strike_at: now + trouble / 2,
            seen: Seen::default(),
            rng,
        }
    }

    /// Runs a whole schedule. Returns what happened, or which rule was broken.
    pub fn run(mut self) -> Result<Seen, String> {
        for _ in 0..self.crowd {
            self.add(Goal::Acquire);
        }
        let end = self.trouble_until + PATIENCE;
        while let Some(Reverse((at, serial))) = self.queue.pop() {
            require!(at < end, "some waiters were not served in time: {:?}", self.open());
            self.now = self.now.max(at);
            let event = self.events.remove(&serial).expect("each event is planned once");
            self.happen(event).map_err(|wrong| format!("at {:?}: {wrong}", self.now))?;
        }
        require!(self.open().is_empty(), "some waiters were forgotten: {:?}", self.open());
        // The leases of dead tokens end by themselves.
        self.now = self.now + Duration::from_secs(10);
        let stranger = Token::random();
        let reply =
            self.carry_out(&Request::Release { key: self.key.clone(), token: stranger, used: None })?;
        require!(reply == Reply::NotHeld(Absence::Missing), "a lease is left: {reply:?}");
        require!(self.lock.is_empty(), "the lock is not empty: {:?}", self.lock);
        Ok(self.seen)
    }

    fn open(&self) -> Vec<Goal> {
        self.actors.iter().filter(|actor| actor.is_open()).map(|actor| actor.goal).collect()
    }

    fn is_trouble(&self) -> bool {
        self.now < self.trouble_until
    }

    fn add(&mut self, goal: Goal) {
        let number = self.actors.len() as u64;
        self.actors.push(Actor::new(number, &self.modes, goal, &mut self.rng));
        let after = Duration::from_micros(self.rng.u64(0..300_000));
        self.plan(after, Event::Act { actor: number as usize });
    }

    fn plan(&mut self, after: Duration, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse((self.now + after, self.serial)));
        self.events.insert(self.serial, event);
    }

    fn happen(&mut self, event: Event) -> CheckResult {
        match event {
            Event::Act { actor } => self.act(actor),
            Event::Poll { actor } => {
                if let Some(request) = self.actors[actor].ask(&self.key, self.now, &mut self.rng) {
                    self.send(actor, request);
                }
                Ok(())
            }
            Event::Arrive { actor, sent, request, answered } => {
                let reply = self.carry_out(&request)?;
                self.keeps_its_place(actor, sent, &reply)?;
                if answered {
                    let back = Duration::from_micros(self.rng.u64(50..20_000));
                    self.plan(back, Event::Answer { actor, sent, reply });
                }
                Ok(())
            }
            Event::Answer { actor, sent, reply } => self.answer(actor, sent, &reply),
        }
    }

    fn act(&mut self, index: usize) -> CheckResult {
        let (now, trouble) = (self.now, self.is_trouble());
        let actor = &mut self.actors[index];
        if !actor.is_open() {
            return Ok(());
        }
        let used = actor.used();
        actor.hand_on();
        self.seen.handed_on += u64::from(actor.used() != used);
        self.checker.used(actor.token, actor.used())?;
        let actor = &mut self.actors[index];
        let mut pause = Duration::from_micros(self.rng.u64(10_000..400_000));
        if trouble {
            match self.rng.u8(..100) {
                0..4 => {
                    self.die(index);
                    return Ok(());
                }
                // The owner hangs for a while, sometimes for longer than its place lasts.
                4..8 => pause = Duration::from_millis(self.rng.u64(400..4_000)),
                8..12 if actor.goal == Goal::Acquire => {
                    actor.goal = Goal::Leave;
                    self.seen.given_up += 1;
                }
                _ => {}
            }
        } else if !actor.waits && actor.goal == Goal::Acquire {
            // A client without a place has no right to be served.
            actor.goal = Goal::Leave;
        }
        if let Some(request) = actor.ask(&self.key, now, &mut self.rng) {
            self.send(index, request);
        }
        if self.rng.u8(..20) == 0 {
            self.send(index, Request::Inspect { key: self.key.clone() });
        }
        self.plan(pause, Event::Act { actor: index });
        Ok(())
    }

    /// Ends an owner for good. Then another owner comes, or two adopters of its lease come.
    fn die(&mut self, index: usize) {
        self.seen.deaths += 1;
        let actor = &mut self.actors[index];
        let (held, token, mode) = (actor.relies_on_lease_at(self.now), actor.token, actor.mode);
        actor.goal = Goal::Nothing;
        if held && self.rng.bool() {
            for _ in 0..2 {
                self.add(Goal::Adopt(token));
                self.actors.last_mut().expect("just added").mode = mode;
            }
        } else {
            self.add(Goal::Acquire);
        }
    }

    fn send(&mut self, actor: usize, request: Request) {
        let sent = self.now;
        let there = Duration::from_micros(self.rng.u64(50..20_000));
        let arrive = |answered| Event::Arrive { actor, sent, request: request.clone(), answered };
        let (first, repeated) = (arrive(true), arrive(false));
        if !self.is_trouble() {
            return self.plan(there, first);
        }
        match self.rng.u8(..100) {
            // The request or its answer is lost, or the request arrives twice, or late.
            0..8 => {}
            8..16 => self.plan(there, repeated),
            16..24 => {
                let late = Duration::from_micros(self.rng.u64(0..1_500_000));
                self.plan(there, first);
                self.plan(late, repeated);
            }
            24..28 => {
                let late = Duration::from_micros(self.rng.u64(20_000..1_500_000));
                self.plan(late, first);
            }
            _ => self.plan(there, first),
        }
    }

    /// Lets the lock carry out a request, and checks the result.
    fn carry_out(&mut self, request: &Request) -> Result<Reply, String> {
        let now = self.now;
        let (mut handed, mut reserved) = (Vec::new(), Vec::new());
        let struck = now >= self.strike_at;
        if let Some(mutant) = self.mutant.filter(|_| struck) {
            mutant.strike(&mut self.lock, now);
        }
        let back = u64::from(struck && self.mutant == Some(Mutant::RepeatFence));
        let floor = Cell::from_mut(&mut self.floor);
        let mut fences = |after: Fence, count: u32| {
            let first = Fence((floor.get().max(after).0 + 1 - back).max(1));
            reserved.push((first, count));
            first
        };
        let mut hand = |waiting: &Waiting, fence: Option<Fence>| handed.push((waiting.token, fence));
        let lazy = struck && self.mutant == Some(Mutant::ForgetEndedFences);
        let mut raise = |fence: Fence| floor.set(if lazy { floor.get() } else { floor.get().max(fence) });
        let mut context = RuleContext { now, fences: &mut fences, raise: &mut raise, handed: &mut hand };
        let lock = &mut self.lock;
        let reply = match request {
            Request::Acquire(ask) => lock.acquire(ask, &mut context),
            Request::Renew { token, ttl, fences, .. } => lock.renew(*token, *ttl, *fences, &mut context),
            Request::Release { token, used, .. } => lock.release(*token, *used, &mut context),
            Request::Adopt { token, adopter, ttl, holder, source, .. } => {
                lock.adopt(*token, *adopter, *ttl, *source, holder, &mut context)
            }
            Request::Inspect { .. } => lock.inspect(now),
            Request::Accept { .. }
            | Request::Detach { .. }
            | Request::Move { .. }
            | Request::GiveBack { .. }
            | Request::Break { .. }
            | Request::List(_)
            | Request::Ping
            | Request::Diagnose { .. } => {
                unreachable!("no actor sends such requests")
            }
        };
        if struck && self.mutant == Some(Mutant::NoNotice) {
            handed.clear();
        }
        self.seen.requests += 1;
        self.seen.handed += handed.len() as u64;
        self.seen.adopted += u64::from(reply.is_adopted());
        self.seen.shared = self.seen.shared.max(self.lock.held.len() as u64);
        self.seen.queue = self.seen.queue.max(self.lock.queue.len() as u64);
        self.checker.record(&Operation {
            now,
            request,
            reply: &reply,
            handed: &handed,
            reserved: &reserved,
        })?;
        // Most owners poll when they get a notice; the others find out by their next poll.
        for (token, _) in handed {
            let actor = self
                .actors
                .iter()
                .position(|actor| actor.token == token)
                .expect("the token belongs to an actor");
            if self.rng.u8(..10) < 8 {
                self.seen.taken_up += 1;
                let there = Duration::from_micros(self.rng.u64(50..20_000));
                self.plan(there, Event::Poll { actor });
            }
        }
        Ok(reply)
    }

    /// Checks that no waiter falls back once the network works and no owner hangs.
    fn keeps_its_place(&mut self, index: usize, sent: Instant, reply: &Reply) -> CheckResult {
        let calm = sent > self.trouble_until + Duration::from_secs(6);
        let actor = &mut self.actors[index];
        if let (true, Goal::Acquire, Reply::Queued { ahead, .. }) = (calm, actor.goal, reply) {
            require!(actor.ahead.is_none_or(|before| *ahead <= before), "{} fell back", actor.token);
            actor.ahead = Some(*ahead);
        }
        Ok(())
    }

    fn answer(&mut self, index: usize, sent: Instant, reply: &Reply) -> CheckResult {
        let now = self.now;
        let actor = &mut self.actors[index];
        let was_open = actor.is_open();
        let begins = actor.handle(now, sent, reply, &mut self.rng);
        self.checker.used(actor.token, actor.used())?;
        if begins {
            self.seen.grants += 1;
            self.check_holders(index)?;
        }
        if was_open && !self.actors[index].is_open() && self.is_trouble() {
            self.add(Goal::Acquire);
        }
        Ok(())
    }

    /// Checks that an owner that begins to hold a lease does so alone, unless all holders share.
    fn check_holders(&self, index: usize) -> CheckResult {
        let actor = &self.actors[index];
        let others = self
            .actors
            .iter()
            .enumerate()
            .filter(|(i, other)| *i != index && other.relies_on_lease_at(self.now));
        let beside: Vec<&Actor> = others.map(|(_, other)| other).collect();
        require!(
            fits(actor.mode, beside.iter().map(|other| other.mode)),
            "{} and {} others hold the lock at the same time",
            actor.token,
            beside.len()
        );
        Ok(())
    }
}
