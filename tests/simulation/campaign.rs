//! Simulates a lock worker in a process. Drives the worker's state machine as
//! `lib/worker/worker.ts` does, and simulates the work.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::command::{Command, Outcome, Wait};
use leasehold::engine::ids::OpId;
use leasehold::engine::known_lease::KnownLease;
use leasehold::lease::{Fence, Instant, Mode};
use leasehold::worker::{Effect, Event, State, Worker};

use super::process::{ENV, Process};

/// The key of the lock that all workers campaign for.
pub const KEY: &str = "a";

/// The lease that the worker asks for or has.
struct Lease {
    slot: u32,
    state: Arc<KnownLease>,
    fence: Option<Fence>,
    /// True if its last outcome has arrived.
    ended: bool,
    releasing: bool,
}

/// See the module.
#[derive(Default)]
pub struct Campaign {
    worker: Worker,
    lease: Option<Lease>,
    /// True while the work runs.
    working: bool,
    /// The next event of the worker, the end of a pause or of the work, and when it happens.
    due: Option<(Instant, Event)>,
    /// The outcomes of its acquire or its lease, and when its thread receives each.
    inbox: VecDeque<(Instant, Outcome)>,
    /// True if the worker was told to stop and has not stopped yet.
    stopping: bool,
    /// The number of times that the work began.
    pub terms: u64,
}

/// A write of a worker to the storage that the lock protects.
pub struct Write {
    pub fence: Fence,
    /// True if the worker believes that it holds its lease.
    pub believes: bool,
}

impl Campaign {
    pub fn next_wake(&self) -> Option<Instant> {
        [self.due.map(|(at, _)| at), self.inbox.front().map(|(at, _)| *at)].into_iter().flatten().min()
    }

    /// Returns true if the acquire of `slot` is the worker's. Only the worker cancels or releases
    /// it.
    pub fn owns(&self, slot: u32) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.slot == slot)
    }

    pub fn check_rest(&self) {
        assert_eq!(self.worker.state(), State::Idle, "a worker that was stopped did not come to rest");
        assert!(!self.working && !self.stopping, "nor did it say so");
    }

    /// Returns what the work writes next, if it runs.
    pub fn write(&self, now: Instant) -> Option<Write> {
        let lease = self.lease.as_ref().filter(|_| self.working)?;
        Some(Write { fence: lease.fence?, believes: lease.state.is_held(now) })
    }
}

impl Process {
    /// Lets the code that uses the worker do one random thing, or nothing.
    pub fn act_on_worker(&mut self, now: Instant) {
        match (self.rng.u8(..20), self.campaign.worker.state()) {
            (0, _) | (1..10, State::Idle) => self.drive(now, Event::Start),
            (1, _) => self.stop_worker(now),
            (2, State::Working) => self.drive(now, Event::WorkFailed),
            (3, State::Working) => {
                let slot = self.campaign.lease.as_ref().map(|lease| lease.slot).expect("it has a lease");
                // If the lease has ended, the worker is about to hear of that.
                if self.asked.get(&slot).is_some_and(|asked| !asked.released) {
                    self.give_back(now, slot);
                }
            }
            _ => {}
        }
    }

    pub fn stop_worker(&mut self, now: Instant) {
        self.campaign.stopping = true;
        self.drive(now, Event::Stop);
    }

    /// Delivers the events and outcomes that are due.
    pub fn tick_worker(&mut self, now: Instant) {
        if let Some((_, event)) = self.campaign.due.take_if(|(at, _)| *at <= now) {
            self.campaign.working &= event != Event::WorkEnded;
            self.drive(now, event);
        }
        while self.campaign.inbox.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, outcome)) = self.campaign.inbox.pop_front() else { return };
            self.tell_worker(now, &outcome);
        }
    }

    /// Puts an outcome of its acquire or its lease into the inbox. The worker's thread receives it
    /// a little later.
    pub fn enqueue_for_worker(&mut self, now: Instant, outcome: Outcome) {
        let lag = Duration::from_micros(self.rng.u64(0..2_000));
        let last = self.campaign.inbox.back().map_or(now, |(at, _)| *at);
        let at = (now + lag).max(self.hung_until).max(last);
        self.campaign.inbox.push_back((at, outcome));
    }

    fn tell_worker(&mut self, now: Instant, outcome: &Outcome) {
        let Some(lease) = &mut self.campaign.lease else { return };
        let (granted, releasing) = (lease.fence.is_some(), lease.releasing);
        match outcome {
            Outcome::Acquired(fence, _) if lease.state.is_held(now) => {
                lease.fence = Some(*fence);
                self.drive(now, Event::Granted);
            }
            // The lease was lost before the worker heard of the grant. The worker tries again as if
            // the lock were busy.
            Outcome::Acquired(..) => {
                self.campaign.lease = None;
                self.drive(now, Event::Busy);
            }
            Outcome::Renewed | Outcome::RenewFailed(_) | Outcome::AutoRenewed => {}
            _ if !granted => {
                self.campaign.lease = None;
                let busy = matches!(outcome, Outcome::Busy | Outcome::TimedOut { .. });
                self.drive(now, if busy { Event::Busy } else { Event::Unavailable });
            }
            Outcome::Lost(_) => {
                lease.ended = true;
                self.drive(now, Event::Lost);
                if releasing {
                    self.drive(now, Event::Released);
                }
            }
            _ if releasing => self.drive(now, Event::Released),
            // The user's code has released the lease.
            _ => {
                lease.ended = true;
                self.drive(now, Event::WorkFailed);
            }
        }
    }

    fn drive(&mut self, now: Instant, event: Event) {
        let mut happened = VecDeque::from([event]);
        while let Some(event) = happened.pop_front() {
            for effect in self.campaign.worker.handle(event) {
                happened.extend(self.carry_out(now, effect));
            }
        }
    }

    /// Carries out an effect of the state machine. Returns the event that follows at once.
    fn carry_out(&mut self, now: Instant, effect: Effect) -> Option<Event> {
        match effect {
            Effect::TryAcquire => self.campaign_with(now, Wait::Never),
            Effect::Queue => self.campaign_with(now, Wait::Forever),
            Effect::Sleep => self.campaign.due = Some((now + self.pause(1_000), Event::Rested)),
            Effect::StartWork => {
                assert!(!std::mem::replace(&mut self.campaign.working, true), "work was begun twice");
                self.campaign.terms += 1;
            }
            Effect::EndWork => self.campaign.due = Some((now + self.pause(200), Event::WorkEnded)),
            Effect::Release => {
                let lease = self.campaign.lease.as_mut().expect("it has a lease");
                lease.releasing = true;
                if lease.ended {
                    return Some(Event::Released);
                }
                let (slot, op) = (lease.slot, OpId { env: ENV, slot: lease.slot });
                // The lease has ended, and the worker is about to hear of that.
                if self.asked.get(&slot).is_none_or(|asked| asked.released) {
                    return None;
                }
                assert!(!self.campaign.working, "a lease was given back before the work had ended {op:?}");
                self.give_back(now, slot);
            }
            Effect::Cancel => {
                if let Some((_, event)) = self.campaign.due.take() {
                    return Some(event);
                }
                let slot = self.campaign.lease.as_ref().map(|lease| lease.slot).expect("it asks for one");
                // Cancel only an acquire without an outcome. Any outcome is on its way to the
                // worker.
                if let Some(asked) = self.asked.get_mut(&slot).filter(|asked| !asked.granted) {
                    asked.cancelled = true;
                    self.core.command(now, Command::Cancel { op: OpId { env: ENV, slot } });
                }
            }
            Effect::Rest => {
                assert!(std::mem::take(&mut self.campaign.stopping), "rest without a stop");
            }
        }
        None
    }

    fn campaign_with(&mut self, now: Instant, wait: Wait) {
        assert!(!self.campaign.working, "a worker asks for the lock while it works");
        let ms = self.rng.u32(100..1_000);
        let ttl = self.ttl(ms);
        let (slot, state) = self.ask(now, KEY, Mode::Exclusive, ttl, wait, None, true);
        self.campaign.lease = Some(Lease { slot, state, fence: None, ended: false, releasing: false });
    }

    fn pause(&mut self, longest: u64) -> Duration {
        Duration::from_millis(self.rng.u64(0..longest))
    }
}
