//! The lock worker's state machine: `(state, event) → (state, effects)`. Pure: it does nothing itself and knows no time.
//!
//! ```text
//!  Idle ──Start──▶ Acquiring ──Granted──▶ Working ─────────────────────────┐
//!                    ▲   │ Busy/Unavailable  │ Lost/WorkFailed             │ Stop
//!                    │   ▼                   ▼                             ▼
//!                  Waiting ◀───────────── Pausing ──WorkEnded──▶ …      Cleanup ──WorkEnded──▶ Releasing ──▶ Idle
//! ```
//!
//! What it promises whoever drives it, and its tests check in every state that any sequence of events leads to:
//!
//! - work is started once per tenure, and ended exactly once for each start;
//! - a lease that is still held is released after the work has ended, never before;
//! - a lock is never asked for while work has not ended or a lease is still held;
//! - after [`Event::Stop`] it comes to rest, and says so by [`Effect::Rest`], whatever else happens.
//!
//! The driver is `lib/worker.ts`: it turns effects into promises, and what becomes of them into events.

use crate::mutants::{self, Mutant};

/// What the worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Not started.
    Idle,
    /// Asks for the lock.
    Acquiring,
    /// In line for the lock, or resting after a failure.
    Waiting,
    /// Holds the lock, and works.
    Working,
    /// Ends its work, because the lease was lost, or the work failed or gave it away.
    Pausing,
    /// Ends its work, because it was stopped.
    Cleanup,
    /// Gives the lease back, or takes back its question for one.
    Releasing,
}

/// What happens to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// It shall campaign.
    Start,
    /// It shall stop.
    Stop,
    /// What [`Effect::TryAcquire`] or [`Effect::Queue`] asked for is granted.
    Granted,
    /// Somebody else holds the lock: the end of [`Effect::TryAcquire`], or of [`Effect::Queue`] when its time is over.
    Busy,
    /// The store failed: another end of the two. Also how a cancelled question ends.
    Unavailable,
    /// The end of [`Effect::Sleep`], also when it was cancelled.
    Rested,
    /// The lease is lost.
    Lost,
    /// The work failed, at its start or later, or gave the lease away: either way it wants no more of it for now.
    WorkFailed,
    /// The work has ended, after [`Effect::EndWork`].
    WorkEnded,
    /// The end of [`Effect::Release`], whatever became of it.
    Released,
}

/// What the driver has to do. Each but the last two ends in an event of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask for the lock without waiting for it.
    TryAcquire,
    /// Stand in line for the lock, for the retry interval.
    Queue,
    /// Do nothing for the retry interval.
    Sleep,
    /// Begin the work.
    StartWork,
    /// End the work, and wait for its end.
    EndWork,
    /// Give the lease back.
    Release,
    /// Put an early end to what [`Effect::TryAcquire`], [`Effect::Queue`] or [`Effect::Sleep`] began.
    Cancel,
    /// It has come to rest: tell who waits for that.
    Rest,
}

/// A lock worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    state: State,
    /// Whether it shall campaign: started, and not stopped since.
    wanted: bool,
    /// Whether somebody waits for it to come to rest.
    stopping: bool,
    /// Whether the lease is still to be given back.
    holding: bool,
    /// Whether the work has failed or given the lease away, and others shall have their chance first.
    failed: bool,
}

impl Default for Worker {
    fn default() -> Self {
        Self { state: State::Idle, wanted: false, stopping: false, holding: false, failed: false }
    }
}

impl Worker {
    /// What it is doing.
    pub fn state(&self) -> State {
        self.state
    }

    /// Takes notice of `event` and says what is to be done, in order. Events that mean nothing in this state change nothing.
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
        // On its way to rest it goes on when it gets there.
        if self.state == State::Idle { self.go(State::Acquiring, Effect::TryAcquire) } else { vec![] }
    }

    fn stop(&mut self) -> Vec<Effect> {
        self.wanted = false;
        self.stopping = true;
        match self.state {
            State::Idle => self.next(),
            State::Acquiring | State::Waiting => self.go(State::Releasing, Effect::Cancel),
            State::Working => self.go(State::Cleanup, Effect::EndWork),
            // Both get there by themselves.
            State::Pausing | State::Cleanup | State::Releasing => vec![],
        }
    }

    fn granted(&mut self) -> Vec<Effect> {
        match self.state {
            State::Acquiring | State::Waiting => {
                self.holding = true;
                self.go(State::Working, Effect::StartWork)
            }
            // It crossed the cancellation.
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

    /// The question for the lock ended without it.
    fn unanswered(&mut self, before_the_next: Effect) -> Vec<Effect> {
        match self.state {
            State::Acquiring => self.go(State::Waiting, before_the_next),
            // In line until the interval was over: look anew. A store that fails gets its rest first.
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
            // It is being ended anyway.
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

    /// Nothing is held, asked for or being done: to rest, or to the next campaign.
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
