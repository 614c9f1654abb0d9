//! The lock worker's state machine: `(state, event) → (state, effects)`. Pure: it does nothing
//! itself and knows no time.
//!
//! ```text
//!  Idle ──Start──▶ Acquiring ──Granted──▶ Working ──────────────────┐
//!                    ▲   │ Busy/Unavailable  │ Lost/WorkFailed      │ Stop
//!                    │   ▼                   ▼                      ▼
//!                  Waiting ──Granted──▶ …  Pausing                Cleanup
//!                                            │ WorkEnded            │ WorkEnded
//!                                            ▼                      ▼
//!                                         Releasing, if the lease is held
//!                                            │ Released
//!                                            ▼
//!                  Idle after Stop, Waiting after WorkFailed, else Acquiring
//! ```
//!
//! The machine promises its driver the following. Its tests check the promises in every state that
//! any sequence of events leads to:
//!
//! - work is started once per term, and ended exactly once for each start;
//! - a lease that is still held is released after the work has ended, never before;
//! - the machine never asks for a lock while work has not ended or a lease is still held;
//! - after [`Event::Stop`], it always comes to rest, and reports that with [`Effect::Rest`].
//!
//! The driver is `lib/worker/worker.ts`: it turns effects into promises, and their results into
//! events.

use crate::mutants::{self, Mutant};

/// The state of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not started.
    Idle,
    /// Asks for the lock.
    Acquiring,
    /// Waits in the queue for the lock, or pauses after a failure.
    Waiting,
    /// Holds the lock, and works.
    Working,
    /// Ends its work, because the lease was lost, or because the work failed or gave the lease
    /// away.
    Pausing,
    /// Ends its work, because the worker was stopped.
    Cleanup,
    /// Releases the lease, or cancels its request for one.
    Releasing,
}

/// What happens to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The user starts the worker.
    Start,
    /// The user stops the worker.
    Stop,
    /// The store granted the lease that [`Effect::TryAcquire`] or [`Effect::Queue`] asked for.
    Granted,
    /// Another client holds the lock. Ends [`Effect::TryAcquire`], and [`Effect::Queue`] if the
    /// driver limits that wait.
    Busy,
    /// The store failed, or the request was cancelled. Also ends one of these two effects.
    Unavailable,
    /// [`Effect::Sleep`] has ended, or was cancelled.
    Rested,
    /// The lease is lost.
    Lost,
    /// The work failed, at its start or later, or gave the lease away. The worker pauses before it
    /// tries again.
    WorkFailed,
    /// The work has ended, after [`Effect::EndWork`].
    WorkEnded,
    /// [`Effect::Release`] has ended, with or without success.
    Released,
}

/// What the driver has to do. Each effect but the last two ends with an event of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask for the lock without waiting for it.
    TryAcquire,
    /// Wait in the queue for the lock.
    Queue,
    /// Do nothing for the retry interval.
    Sleep,
    /// Begin the work.
    StartWork,
    /// End the work, and wait for its end.
    EndWork,
    /// Release the lease.
    Release,
    /// End [`Effect::TryAcquire`], [`Effect::Queue`] or [`Effect::Sleep`] early.
    Cancel,
    /// Notify the callers that wait for the worker to stop.
    Rest,
}

/// A lock worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    state: State,
    /// True if the worker was started, and not stopped since.
    wanted: bool,
    /// True if a caller waits for the worker to stop.
    stopping: bool,
    /// True if the lease is not released yet.
    holding: bool,
    /// True if the work has failed or given the lease away. Then other workers have a chance first.
    failed: bool,
}

impl Default for Worker {
    fn default() -> Self {
        Self { state: State::Idle, wanted: false, stopping: false, holding: false, failed: false }
    }
}

impl Worker {
    /// Returns the state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Handles `event`. Returns what the driver has to do, in order. An event without a meaning in
    /// this state changes nothing.
    pub fn handle(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Start => self.start(),
            Event::Stop => self.stop(),
            Event::Granted => self.granted(),
            Event::Busy => self.unanswered(Effect::Queue),
            Event::Unavailable => self.unanswered(Effect::Sleep),
            Event::Rested => self.rested(),
            Event::Lost => self.lost(),
            Event::WorkFailed => self.work_failed(),
            Event::WorkEnded => self.work_ended(),
            Event::Released => self.released(),
        }
    }

    fn start(&mut self) -> Vec<Effect> {
        self.wanted = true;
        // A worker that is stopping starts again when it has come to rest.
        if self.state == State::Idle { self.go(State::Acquiring, Effect::TryAcquire) } else { vec![] }
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.wanted = false;
        self.stopping = true;
        match self.state {
            State::Idle => self.next(),
            State::Acquiring | State::Waiting => self.go(State::Releasing, Effect::Cancel),
            State::Working => self.go(State::Cleanup, Effect::EndWork),
            // These states come to rest without another effect.
            State::Pausing | State::Cleanup | State::Releasing => vec![],
        }
    }

    fn granted(&mut self) -> Vec<Effect> {
        match self.state {
            State::Acquiring | State::Waiting => {
                self.holding = true;
                self.go(State::Working, Effect::StartWork)
            }
            // The grant arrived after the request was cancelled.
            State::Releasing => {
                if mutants::is(Mutant::GrantAfterStopKept) {
                    return self.next();
                }
                self.holding = true;
                vec![Effect::Release]
            }
            _ => vec![],
        }
    }

    /// Handles the end of a request for the lock without a grant.
    fn unanswered(&mut self, before_the_next: Effect) -> Vec<Effect> {
        match self.state {
            State::Acquiring => self.go(State::Waiting, before_the_next),
            // The wait in the queue is over: ask again. After a failure of the store, pause first.
            State::Waiting if before_the_next == Effect::Queue => {
                self.go(State::Acquiring, Effect::TryAcquire)
            }
            State::Waiting => vec![before_the_next],
            State::Releasing => self.next(),
            _ => vec![],
        }
    }

    fn rested(&mut self) -> Vec<Effect> {
        match self.state {
            State::Waiting => self.go(State::Acquiring, Effect::TryAcquire),
            State::Releasing => self.next(),
            _ => vec![],
        }
    }

    fn lost(&mut self) -> Vec<Effect> {
        self.holding = false;
        match self.state {
            State::Working => self.go(State::Pausing, Effect::EndWork),
            _ => vec![],
        }
    }

    fn work_failed(&mut self) -> Vec<Effect> {
        match self.state {
            State::Working => {
                self.failed = true;
                self.go(State::Pausing, Effect::EndWork)
            }
            // The work is ending already.
            _ => vec![],
        }
    }

    fn work_ended(&mut self) -> Vec<Effect> {
        match self.state {
            State::Pausing | State::Cleanup if self.holding => self.go(State::Releasing, Effect::Release),
            State::Pausing | State::Cleanup => self.next(),
            _ => vec![],
        }
    }

    fn released(&mut self) -> Vec<Effect> {
        self.holding = false;
        match self.state {
            State::Releasing => self.next(),
            _ => vec![],
        }
    }

    /// Goes to rest or to the next campaign. No lease is held or asked for, and no work runs.
    fn next(&mut self) -> Vec<Effect> {
        let stopped = std::mem::take(&mut self.stopping);
        let failed = std::mem::take(&mut self.failed);
        let mut effects = Vec::with_capacity(2);
        if stopped {
            effects.push(Effect::Rest);
        }
        let (state, effect) = match (self.wanted, failed && !stopped) {
            (false, _) => (State::Idle, None),
            (true, true) => (State::Waiting, Some(Effect::Sleep)),
            (true, false) => (State::Acquiring, Some(Effect::TryAcquire)),
        };
        self.state = state;
        effects.extend(effect);
        effects
    }

    fn go(&mut self, state: State, effect: Effect) -> Vec<Effect> {
        self.state = state;
        vec![effect]
    }
}

#[cfg(test)]
mod tests;
