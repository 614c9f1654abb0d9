//! The lock worker's state machine, for `lib/worker/worker.ts` to drive.

use napi_derive::napi;

use super::protocol::{WorkerEffect, WorkerEvent};
use crate::worker::{Effect, Event, State, Worker};

/// Keeps a lock worker's state, and decides what to do after each event.
#[napi]
#[derive(Default)]
pub struct WorkerMachine(Worker);

#[napi]
impl WorkerMachine {
    /// Returns a worker that is idle.
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns what the worker is doing, in the words of `WorkerState` in `types/worker.d.ts`.
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

    /// Handles an event. Returns the effects that JavaScript has to carry out, in order. An unknown
    /// event changes nothing.
    #[napi(catch_unwind)]
    pub fn send(&mut self, event: u32) -> Vec<u32> {
        let Some(event) = WorkerEvent::from_number(event) else { return vec![] };
        self.0.handle(event_of(event)).into_iter().map(number_of).collect()
    }
}

fn event_of(event: WorkerEvent) -> Event {
    match event {
        WorkerEvent::Start => Event::Start,
        WorkerEvent::Stop => Event::Stop,
        WorkerEvent::Granted => Event::Granted,
        WorkerEvent::Busy => Event::Busy,
        WorkerEvent::Unavailable => Event::Unavailable,
        WorkerEvent::Rested => Event::Rested,
        WorkerEvent::Lost => Event::Lost,
        WorkerEvent::WorkFailed => Event::WorkFailed,
        WorkerEvent::WorkEnded => Event::WorkEnded,
        WorkerEvent::Released => Event::Released,
    }
}

fn number_of(effect: Effect) -> u32 {
    let effect = match effect {
        Effect::TryAcquire => WorkerEffect::TryAcquire,
        Effect::Queue => WorkerEffect::Queue,
        Effect::Sleep => WorkerEffect::Sleep,
        Effect::StartWork => WorkerEffect::StartWork,
        Effect::EndWork => WorkerEffect::EndWork,
        Effect::Release => WorkerEffect::Release,
        Effect::Cancel => WorkerEffect::Cancel,
        Effect::Rest => WorkerEffect::Rest,
    };
    effect.number()
}
