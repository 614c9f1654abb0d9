//! Acquires that fail fast: what ends them when the store goes away, and what they leave behind.

use super::*;
use crate::lease::Key;
use crate::store::{AcquireRequest, Availability};

fn refusal() -> StoreError {
    StoreError::not_done(StoreErrorKind::Unreachable, "refused, and not asked again")
}

fn refused() -> Answer {
    Err(refusal())
}

impl World {
    fn tell_availability(&mut self, told: Availability) {
        self.core.noticed(self.now, STORE, Notice::Availability(told));
    }

    fn go_away(&mut self) {
        self.tell_availability(Availability::Away(refusal()));
    }

    fn acquire_fail_fast(&mut self, change: impl FnOnce(&mut AcquireCommand)) -> Operation {
        self.acquire_with(Wait::Forever, |command| {
            command.fail_fast = true;
            change(command);
        })
    }

    /// Returns the operations that failed with the store's refusal, in order. None may have ended
    /// otherwise.
    fn failed(&mut self) -> Vec<OpId> {
        let op = |settled: Settlement| match settled.outcome {
            Outcome::Failed(error) if error == refusal() => settled.op,
            other => panic!("{other:?}"),
        };
        self.settled().into_iter().map(op).collect()
    }

    /// Checks that failed acquires have left nothing behind, once the store answers again.
    fn check_nothing_is_left(&mut self) {
        self.tell_availability(Availability::Usable);
        while self.core.concerns() > 0 {
            self.step();
            self.exchange();
        }
        assert!(self.table.is_empty());
    }
}

#[test]
fn when_the_store_goes_away_waiters_end_at_once_in_the_order_of_their_arrival() {
    let mut world = World::new();
    let token = Token::random();
    let (key, ttl) = (Key::from("lock:k"), Ttl::from_millis(TTL).unwrap());
    world
        .ask(Request::Acquire(AcquireRequest::new(key.clone(), token, ttl, "another client".into())))
        .unwrap();
    // One waits in the queue alone, two in a cohort, one for a permit.
    let alone = world.acquire_fail_fast(|command| command.auto_renew = false);
    let first = world.acquire_fail_fast(|_| {});
    let second = world.acquire_fail_fast(|_| {});
    let reader = world.acquire_fail_fast(|command| command.mode = Mode::Shared { most: 5 });
    world.exchange();
    // The answer to this one is not there yet.
    let asking = world.acquire_fail_fast(|command| command.key = "lock:other".into());
    let batch = world.only_batch();
    // This one does not fail fast.
    let patient = world.acquire(Wait::Forever);
    world.exchange();
    assert!(world.settled().is_empty());
    world.go_away();
    assert_eq!(world.failed(), [alone.op, first.op, second.op, reader.op, asking.op]);
    // The store has granted it all the same. Its answer makes the engine release it.
    let answers = batch.requests.iter().map(|request| world.ask(request.clone())).collect::<Vec<_>>();
    assert!(matches!(answers[..], [Ok(Reply::Acquired { .. })]));
    world.answer(batch, answers);
    world.give(Command::Cancel { op: patient.op });
    assert!(matches!(world.outcome_of(patient.op), Outcome::Cancelled));
    world.ask(Request::Release { key, token, used: None }).unwrap();
    world.check_nothing_is_left();
}

#[test]
fn an_acquire_that_may_have_been_granted_is_released_until_the_store_has_answered() {
    let mut world = World::new();
    let asked = world.acquire_fail_fast(|command| command.auto_renew = false);
    let batch = world.only_batch();
    world.ask(batch.requests[0].clone()).unwrap();
    world.answer(batch, [timed_out()]);
    assert!(world.settled().is_empty(), "one failure is tried again");
    world.go_away();
    assert_eq!(world.failed(), [asked.op]);
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Release { .. }]), "{:?}", batch.requests);
    world.answer(batch, [timed_out()]);
    world.check_nothing_is_left();
}

#[test]
fn while_the_store_is_usable_a_failure_is_tried_again() {
    let mut world = World::new();
    let asked = world.acquire_fail_fast(|_| {});
    for _ in 0..5 {
        let batch = world.only_batch();
        world.answer(batch, [refused()]);
        assert!(world.settled().is_empty());
        world.pass_until_due();
    }
    world.exchange();
    assert!(matches!(world.outcome_of(asked.op), Outcome::Acquired(..)));
}

#[test]
fn while_the_store_is_away_a_later_acquire_asks_once_and_gets_its_error() {
    let mut world = World::new();
    // An acquire that does not fail fast waits in a cohort, whose poll is not answered for long.
    let patient = world.acquire(Wait::Forever);
    let silent = world.only_batch();
    world.go_away();
    for mode in [Mode::Exclusive, Mode::Shared { most: 3 }] {
        let asked = world.acquire_fail_fast(|command| command.mode = mode);
        let batch = world.only_batch();
        assert!(world.settled().is_empty(), "the store may first look whether its server is back");
        world.answer(batch, [refused()]);
        assert_eq!(world.failed(), [asked.op]);
        assert!(world.batches().is_empty(), "it was certainly not done");
    }
    // The server is back, and the next one finds it.
    let asked = world.acquire_fail_fast(|_| {});
    world.tell_availability(Availability::Usable);
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Acquired(Fence(1), _)));
    world.answer(silent, [queued()]);
    assert!(world.core.waiters.waits(patient.op), "it waits still");
}

#[test]
fn while_the_store_refuses_a_refused_poll_is_not_repeated_but_waiters_for_a_holder_go_on() {
    let mut world = World::new();
    let full = || StoreError::not_done(StoreErrorKind::Full, "no memory left");
    let failing = world.acquire_fail_fast(|_| {});
    let patient = world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.answer(batch, [queued()]);
    world.tell_availability(Availability::Refusing);
    assert!(world.settled().is_empty());
    world.pass_until_due();
    let batch = world.only_batch();
    world.answer(batch, [queued()]);
    world.pass_until_due();
    let batch = world.only_batch();
    world.answer(batch, [Err(full())]);
    assert!(matches!(world.outcome_of(failing.op), Outcome::Failed(error) if error == full()));
    // The other waiter of the cohort goes on.
    world.pass_until_due();
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    assert!(matches!(world.outcome_of(patient.op), Outcome::Acquired(Fence(1), _)));
}

#[test]
fn an_outage_of_one_store_ends_nothing_at_another() {
    let mut world = World::new();
    let asked = world.acquire_fail_fast(|_| {});
    world.core.noticed(world.now, STORE + 1, Notice::Availability(Availability::Away(refusal())));
    assert!(world.settled().is_empty());
    world.exchange();
    assert!(matches!(world.outcome_of(asked.op), Outcome::Acquired(..)));
}

#[test]
fn watchers_are_told_before_waiters() {
    let mut world = World::new();
    let (watch, late) = (world.op(), world.op());
    world.give(Command::Watch { op: watch, client: CLIENT });
    let asked = world.acquire_fail_fast(|_| {});
    world.go_away();
    let told: Vec<_> = world.settled().into_iter().map(|settled| (settled.op, settled.outcome)).collect();
    assert!(matches!(
        &told[..],
        [(one, Outcome::Availability(Availability::Away(_))), (other, Outcome::Failed(_))]
            if *one == watch && *other == asked.op
    ));
    world.give(Command::Watch { op: late, client: CLIENT });
    assert!(matches!(world.outcome_of(late), Outcome::Availability(Availability::Away(_))));
    world.tell_availability(Availability::Usable);
    assert!(matches!(world.outcome_of(late), Outcome::Availability(Availability::Usable)));
}
