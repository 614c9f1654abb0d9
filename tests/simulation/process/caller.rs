//! The code of a process that uses the engine: it acquires, renews, detaches, adopts and releases
//! at random.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::command::{AcquireCommand, AdoptCommand, Command, Outcome, Settlement, Wait};
use leasehold::engine::ids::OpId;
use leasehold::engine::known_lease::KnownLease;
use leasehold::engine::thread_hand_offs::HandedOn;
use leasehold::lease::{Fence, Instant, Key, Mode, Token, Ttl};

use super::{CLIENT, DetachedLease, ENV, Operation, Process, TIDY_TTL_MS};

impl Process {
    /// Lets the code that uses the engine do one random thing.
    pub fn act(&mut self, now: Instant) {
        self.act_on_worker(now);
        if self.rng.u8(..10) < 3 {
            // Now and then, acquire many at once, so that the waiters form a cohort.
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
                    self.detach(now, slot, None);
                }
                _ => {}
            }
        }
    }

    /// Requests a lock with random options.
    fn acquire(&mut self, now: Instant) {
        let crowd = self.crowded && self.rng.u8(..20) > 0;
        let key = if crowd { "a" } else { ["a", "b"][self.rng.usize(..2)] };
        let shortest = if self.coordinator.is_some() { 100 } else { 20 };
        let ms = [100, 1_000, 1_000, self.rng.u32(shortest..2_000)][self.rng.usize(..4)];
        let ttl = self.ttl(if crowd { 10 } else { ms });
        // "a" is a read/write lock. "b" is a semaphore that is sometimes locked as a whole.
        let most = if key == "a" || self.coordinator.is_some() { u32::MAX } else { 2 };
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
            self.fail_fast.insert(self.slots + 1);
        }
        self.ask(now, key, mode, ttl, wait, max_hold, auto_renew);
    }

    /// Returns a ttl of `ms`, or of [`TIDY_TTL_MS`] in a tidy world.
    pub(in super::super) fn ttl(&self, ms: u32) -> Ttl {
        Ttl::from_millis(if self.tidy { TIDY_TTL_MS } else { ms }).expect("in range")
    }

    /// Requests a lock. Returns the slot of the request, and the state of its lease.
    #[expect(clippy::too_many_arguments, reason = "they are the options of an acquire")]
    pub(in super::super) fn ask(
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
                fail_fast: self.fail_fast.contains(&self.slots),
                outlives_process: false,
                holder: None,
                state: state.clone(),
            }),
        );
        (self.slots, state)
    }

    /// Returns the slots of the operations that have not ended, except the worker's.
    fn open(&self) -> Vec<u32> {
        let open = self.asked.iter().filter(|(slot, asked)| !asked.ended && !self.campaign.owns(**slot));
        let mut open: Vec<u32> = open.map(|(slot, _)| *slot).collect();
        // Sort, because the same seed must do the same.
        open.sort_unstable();
        open
    }

    /// Notes an operation in the current slot.
    fn remember(&mut self, key: Key, mode: Mode, state: Arc<KnownLease>) {
        let asked = Operation {
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
    pub fn adopt(&mut self, now: Instant, detached: &DetachedLease) -> u32 {
        self.slots += 1;
        let state = Arc::new(KnownLease::default());
        self.remember(detached.key.clone(), Mode::Exclusive, state.clone());
        let ticket = (detached.token, detached.fence);
        self.asked.get_mut(&self.slots).expect("just remembered").adopted = Some(ticket);
        let asked = AcquireCommand {
            op: OpId { env: ENV, slot: self.slots },
            client: CLIENT,
            key: detached.key.clone(),
            token: Token::random(),
            mode: Mode::Exclusive,
            ttl: detached.ttl,
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
            Command::Adopt(AdoptCommand {
                acquire: asked,
                from: detached.token,
                fence: detached.fence,
                with_ttl: true,
            }),
        );
        self.slots
    }

    /// Detaches the lease of `slot`, for its own ttl or for another.
    pub fn detach(&mut self, now: Instant, slot: u32, ttl: Option<Ttl>) {
        self.asked.get_mut(&slot).expect("it is held").detaching = true;
        self.core.command(now, Command::Detach { op: OpId { env: ENV, slot }, ttl, remembers: false });
    }

    /// Renews the lease of `slot`, for its own ttl or for another.
    pub fn renew(&mut self, now: Instant, slot: u32, ttl: Option<Ttl>) {
        self.core.command(now, Command::Renew { op: OpId { env: ENV, slot }, ttl });
    }

    /// Releases all that it holds. Its waiters go on waiting, except for the worker.
    pub fn let_go(&mut self, now: Instant) {
        self.stop_worker(now);
        for slot in self.open() {
            let asked = &self.asked[&slot];
            if asked.granted && !asked.released && !asked.cancelled {
                self.give_back(now, slot);
            }
        }
    }

    /// Releases a lease as the binding does it.
    pub(in super::super) fn give_back(&mut self, now: Instant, slot: u32) {
        let asked = self.asked.get_mut(&slot).expect("it is held");
        asked.released = true;
        let op = OpId { env: ENV, slot };
        if let Some(HandedOn { to, fence, token, .. }) = self.thread_hand_offs.hand_on(op, &asked.state, now)
        {
            self.handed_on_by_thread += 1;
            self.settled.push(Settlement { op, outcome: Outcome::Released(true) });
            self.settled.push(Settlement { op: to, outcome: Outcome::Acquired(fence, token) });
        } else if asked.state.release(now) {
            self.core.command(now, Command::Release { op });
        } else if let Some(token) = asked.token {
            self.core.command(now, Command::ReleaseLost { op, token });
        }
    }
}
