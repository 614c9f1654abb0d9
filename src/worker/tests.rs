//! Tests every transition by name, and then every state that any sequence of events leads to.

use std::collections::HashSet;

use super::Effect::*;
use super::Event::*;
use super::State::*;
use super::*;

/// Returns a worker after `events`, ignoring their effects.
fn after(events: &[Event]) -> Worker {
    let mut worker = Worker::default();
    for event in events {
        worker.handle(*event);
    }
    worker
}

#[track_caller]
fn check(before: &[Event], event: Event, state: State, effects: &[Effect]) {
    let mut worker = after(before);
    assert_eq!(worker.handle(event), effects, "effects of {event:?} after {before:?}");
    assert_eq!(worker.state(), state, "state by {event:?} after {before:?}");
}

#[test]
fn a_worker_starts_one_campaign() {
    check(&[], Start, Acquiring, &[TryAcquire]);
    check(&[Start], Start, Acquiring, &[]);
    check(&[Start, Granted], Start, Working, &[]);
}

#[test]
fn a_worker_queues_for_a_held_lock_and_tries_again_after_the_interval() {
    check(&[Start], Busy, Waiting, &[Queue]);
    check(&[Start, Busy], Busy, Acquiring, &[TryAcquire]);
    check(&[Start, Busy], Granted, Working, &[StartWork]);
}

#[test]
fn a_worker_pauses_when_the_store_fails_and_tries_again() {
    check(&[Start], Unavailable, Waiting, &[Sleep]);
    check(&[Start, Unavailable], Rested, Acquiring, &[TryAcquire]);
    check(&[Start, Busy], Unavailable, Waiting, &[Sleep]);
    check(&[Start, Busy, Unavailable], Rested, Acquiring, &[TryAcquire]);
}

#[test]
fn a_lost_lease_ends_the_work_before_the_next_campaign() {
    check(&[Start, Granted], Lost, Pausing, &[EndWork]);
    check(&[Start, Granted, Lost], WorkEnded, Acquiring, &[TryAcquire]);
    check(&[Start, Granted, Lost], Lost, Pausing, &[]);
    check(&[Start, Granted, Lost], WorkFailed, Pausing, &[]);
}

#[test]
fn failed_work_ends_and_releases_its_lease_before_the_next_try() {
    check(&[Start, Granted], WorkFailed, Pausing, &[EndWork]);
    check(&[Start, Granted, WorkFailed], WorkEnded, Releasing, &[Release]);
    check(&[Start, Granted, WorkFailed, WorkEnded], Released, Waiting, &[Sleep]);
    check(&[Start, Granted, WorkFailed, WorkEnded, Released], Rested, Acquiring, &[TryAcquire]);
}

#[test]
fn a_lease_lost_while_its_failed_work_ends_is_not_released() {
    check(&[Start, Granted, WorkFailed], Lost, Pausing, &[]);
    check(&[Start, Granted, WorkFailed, Lost], WorkEnded, Waiting, &[Sleep]);
}

#[test]
fn stop_ends_the_work_then_releases_then_rests() {
    check(&[Start, Granted], Stop, Cleanup, &[EndWork]);
    check(&[Start, Granted, Stop], WorkEnded, Releasing, &[Release]);
    check(&[Start, Granted, Stop, WorkEnded], Released, Idle, &[Rest]);
    check(&[Start, Granted, Stop], Stop, Cleanup, &[]);
}

#[test]
fn a_lease_lost_during_a_stop_is_not_released() {
    check(&[Start, Granted, Stop], Lost, Cleanup, &[]);
    check(&[Start, Granted, Stop, Lost], WorkEnded, Idle, &[Rest]);
    check(&[Start, Granted, Stop, WorkEnded], Lost, Releasing, &[]);
    check(&[Start, Granted, Stop, WorkEnded, Lost], Released, Idle, &[Rest]);
}

#[test]
fn stop_cancels_the_campaign_and_releases_a_lease_granted_meanwhile() {
    check(&[Start], Stop, Releasing, &[Cancel]);
    check(&[Start, Stop], Unavailable, Idle, &[Rest]);
    check(&[Start, Stop], Busy, Idle, &[Rest]);
    check(&[Start, Stop], Granted, Releasing, &[Release]);
    check(&[Start, Stop, Granted], Released, Idle, &[Rest]);
    check(&[Start, Busy], Stop, Releasing, &[Cancel]);
    check(&[Start, Unavailable], Stop, Releasing, &[Cancel]);
    check(&[Start, Unavailable, Stop], Rested, Idle, &[Rest]);
}

#[test]
fn stop_while_pausing_comes_to_rest_instead_of_campaigning() {
    check(&[Start, Granted, Lost], Stop, Pausing, &[]);
    check(&[Start, Granted, Lost, Stop], WorkEnded, Idle, &[Rest]);
    check(&[Start, Granted, WorkFailed, Stop, WorkEnded], Released, Idle, &[Rest]);
}

#[test]
fn stop_of_an_idle_worker_is_answered_at_once() {
    check(&[], Stop, Idle, &[Rest]);
    check(&[Start, Granted, Stop, WorkEnded, Released], Stop, Idle, &[Rest]);
}

#[test]
fn start_while_stopping_starts_again_after_the_rest() {
    check(&[Start, Granted, Stop], Start, Cleanup, &[]);
    check(&[Start, Granted, Stop, Start, WorkEnded], Released, Acquiring, &[Rest, TryAcquire]);
    check(&[Start, Stop, Start], Unavailable, Acquiring, &[Rest, TryAcquire]);
    check(&[Start, Granted, Stop, Start], Stop, Cleanup, &[]);
    check(&[Start, Granted, Stop, Start, Stop, WorkEnded], Released, Idle, &[Rest]);
}

/// A worker and what its effects have started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct World {
    worker: Worker,
    /// The one effect that has not ended yet.
    under_way: Option<Effect>,
    working: bool,
    held: bool,
    stop_unanswered: bool,
}

impl World {
    fn possible(&self) -> Vec<Event> {
        let mut events = vec![Start, Stop];
        events.extend_from_slice(self.ends());
        if self.held {
            events.push(Lost);
        }
        if self.working && self.under_way != Some(EndWork) {
            events.push(WorkFailed);
        }
        events
    }

    fn ends(&self) -> &'static [Event] {
        match self.under_way {
            Some(TryAcquire | Queue) => &[Granted, Busy, Unavailable],
            Some(Sleep) => &[Rested],
            Some(EndWork) => &[WorkEnded],
            Some(Release) => &[Released],
            _ => &[],
        }
    }

    fn step(&self, event: Event) -> World {
        let mut next = self.clone();
        match event {
            Start => {}
            Stop => next.stop_unanswered = true,
            Lost => next.held = false,
            WorkFailed => {}
            Granted => next.held = true,
            WorkEnded => next.working = false,
            Released => next.held = false,
            Busy | Unavailable | Rested => {}
        }
        if !matches!(event, Start | Stop | Lost | WorkFailed) {
            next.under_way = None;
        }
        for effect in next.worker.handle(event) {
            next.act(effect, self, event);
        }
        next
    }

    fn act(&mut self, effect: Effect, before: &World, event: Event) {
        let place = || format!("{effect:?} by {event:?} in {before:?}");
        if !matches!(effect, StartWork | Cancel | Rest) {
            assert!(self.under_way.is_none(), "two effects at once: {}", place());
            self.under_way = Some(effect);
        }
        match effect {
            TryAcquire | Queue | Sleep => assert!(
                !self.working && !self.held,
                "the worker asks while it works or holds the lease: {}",
                place()
            ),
            StartWork => {
                assert!(self.held && !self.working, "work starts without a lease, or twice: {}", place());
                self.working = true;
            }
            EndWork => assert!(self.working, "no work to end: {}", place()),
            Release => assert!(self.held && !self.working, "released before the work has ended: {}", place()),
            Cancel => assert!(matches!(self.under_way, Some(TryAcquire | Queue | Sleep)), "{}", place()),
            Rest => {
                assert!(!self.working && !self.held && self.under_way.is_none(), "not at rest: {}", place());
                self.stop_unanswered = false;
            }
        }
    }
}

#[test]
fn the_promises_hold_in_every_reachable_state() {
    let mut seen = HashSet::from([World::default()]);
    let mut unexplored = vec![World::default()];
    while let Some(world) = unexplored.pop() {
        let resting = world.worker.state() == Idle;
        assert_eq!(resting, world == World { worker: Worker::default(), ..World::default() }, "{world:?}");
        // Something is always under way that leads to the next state, so the worker never hangs and
        // every stop is answered.
        assert!(resting || world.working || world.under_way.is_some(), "stuck: {world:?}");
        assert!(!world.stop_unanswered || world.under_way.is_some(), "never stops: {world:?}");
        for event in world.possible() {
            let next = world.step(event);
            if seen.insert(next.clone()) {
                unexplored.push(next);
            }
        }
    }
    assert!(seen.len() > 20, "only {} states: the exploration itself is broken", seen.len());
}

#[test]
fn after_a_stop_the_worker_rests_within_two_steps() {
    fn longest(world: &World, limit: u32) -> u32 {
        assert!(limit > 0, "the worker does not come to rest: {world:?}");
        let steps = world.ends().iter().map(|end| world.step(*end));
        steps
            .map(|next| if next.worker.state() == Idle { 1 } else { 1 + longest(&next, limit - 1) })
            .max()
            .unwrap_or(0)
    }
    for events in
        [&[Start][..], &[Start, Busy], &[Start, Unavailable], &[Start, Granted], &[Start, Granted, Lost]]
    {
        let world = events.iter().fold(World::default(), |world, event| world.step(*event));
        assert!(longest(&world.step(Stop), 5) <= 2, "{events:?}");
    }
}

#[test]
fn events_without_a_meaning_change_nothing() {
    for event in [Granted, Busy, Unavailable, Rested, Lost, WorkFailed, WorkEnded, Released] {
        check(&[], event, Idle, &[]);
    }
    for event in [WorkEnded, Released, Rested, Busy, Unavailable, Granted] {
        check(&[Start, Granted], event, Working, &[]);
    }
}
