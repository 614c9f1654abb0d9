//! The lock worker's state machine, for `lib/worker.ts` to drive.

use napi_derive::napi;

use crate::worker::{Effect, Event, State, Worker};

/// In the order in which `lib/worker.ts` numbers them.
const EVENTS: [Event; 10] = [
    Event::Start,
    Event::Stop,
    Event::Granted,
    Event::Busy,
    Event::Unavailable,
    Event::Rested,
    Event::Lost,
    Event::WorkFailed,
    Event::WorkEnded,
    Event::Released,
];

/// A lock worker's state, and what is to be done when something happens to it.
#[napi]
#[derive(Default)]
pub struct WorkerMachine(Worker);

#[napi]
impl WorkerMachine {
    /// A worker that is idle.
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the worker is doing, in the words of `WorkerState` in `index.d.ts`.
    #[napi(getter)]
    pub fn state(&self) -> &'static str {
        match self.0.state() {
            State::Idle => "idle",
            State::Acquiring => "acquiring",
            State::Waiting => "waiting",
            State::Working => "working",
            State::Pausing => "pausing",
            State::Cleanup => "cleanup",
            State::Releasing => "releasing",
        }
    }

    /// Takes notice of an event and says what is to be done, in order. An unknown event changes nothing.
    #[napi(catch_unwind)]
    pub fn send(&mut self, event: u32) -> Vec<u32> {
        let Some(event) = EVENTS.get(event as usize) else { return vec![] };
        self.0.handle(*event).into_iter().map(number).collect()
    }
}

/// An effect as `lib/worker.ts` knows it.
fn number(effect: Effect) -> u32 {
    match effect {
        Effect::TryAcquire => 0,
        Effect::Queue => 1,
        Effect::Sleep => 2,
        Effect::StartWork => 3,
        Effect::EndWork => 4,
        Effect::Release => 5,
        Effect::Cancel => 6,
        Effect::Rest => 7,
    }
}
