//! Held leases: deadlines, renewal, loss.

use super::*;

#[test]
fn a_lease_is_renewed_in_time_and_lives_on() {
    let mut world = World::new();
    let asked = world.hold();
    for _ in 0..10 {
        world.pass_until_due();
        world.pulse.beat(world.now);
        let batch = world.only_batch();
        assert!(matches!(batch.requests[..], [Request::Renew { .. }]));
        world.answer(batch, [Ok(Reply::Renewed { block: None })]);
    }
    assert!(asked.state.is_held(world.now));
    assert_eq!(world.stats.renewals.get(), 10);
    assert!(world.settled().is_empty(), "nobody asked to be told");
}

#[test]
fn a_failed_renewal_is_tried_again_until_the_deadline_and_then_the_lease_is_expired() {
    let mut world = World::new();
    let asked = world.hold();
    let mut attempts = 0;
    let lost = loop {
        world.pass_until_due();
        world.pulse.beat(world.now);
        for batch in world.batches() {
            if matches!(batch.requests[..], [Request::Renew { .. }]) {
                attempts += 1;
                assert!(asked.state.is_held(world.now));
            }
            world.answer(batch, [timed_out()]);
        }
        if let Some(last) = world.settled().pop() {
            break last;
        }
    };
    assert!(attempts > 3);
    assert!(matches!(lost.outcome, Outcome::Lost(LossReason::Expired)));
    assert_eq!(asked.state.phase(world.now), Phase::Lost(LossReason::Expired));
}

#[test]
fn a_store_that_does_not_answer_at_all_does_not_delay_the_loss() {
    let mut world = World::new();
    let asked = world.hold();
    world.pass_until_due();
    let renewal = world.only_batch();
    world.pass_until_due();
    assert!(matches!(world.outcome_of(asked.op), Outcome::Lost(LossReason::Expired)));
    world.answer(renewal, [Ok(Reply::Renewed { block: None })]);
    assert!(!asked.state.is_held(world.now), "a late answer revives nothing");
}

#[test]
fn a_missing_or_taken_key_is_a_loss_and_never_taken_again() {
    for (absence, reason) in [(Absence::Missing, LossReason::Missing), (Absence::Taken, LossReason::Taken)] {
        let mut world = World::new();
        let asked = world.hold();
        world.pass_until_due();
        let renewal = world.only_batch();
        world.answer(renewal, [Ok(Reply::NotHeld(absence))]);
        assert!(matches!(world.outcome_of(asked.op), Outcome::Lost(r) if r == reason));
        assert!(world.batches().is_empty());
    }
}

#[test]
fn a_thread_that_does_not_answer_for_max_stall_loses_its_lease_as_stalled() {
    let mut world = World::new();
    let asked = world.hold();
    let began = world.now;
    let lost = loop {
        world.pass_until_due();
        for batch in world.batches() {
            let answers: Vec<Answer> =
                batch.requests.iter().map(|_| Ok(Reply::Renewed { block: None })).collect();
            world.answer(batch, answers);
        }
        if let Some(settled) = world.settled().pop() {
            break settled.outcome;
        }
    };
    assert!(matches!(lost, Outcome::Lost(LossReason::Stalled)));
    assert!(!asked.state.is_held(world.now));
    let lived = world.now.since(began);
    assert!(lived > Duration::from_secs(60) && lived < Duration::from_secs(60 + 18), "{lived:?}");
}

#[test]
fn an_excused_thread_keeps_its_lease_however_long_it_does_not_answer() {
    let mut world = World::new();
    let asked = world.hold();
    world.pulse.excuse();
    let end = world.now + Duration::from_secs(600);
    while world.now < end {
        world.pass_until_due();
        for batch in world.batches() {
            let answers: Vec<Answer> =
                batch.requests.iter().map(|_| Ok(Reply::Renewed { block: None })).collect();
            world.answer(batch, answers);
        }
        assert!(asked.state.is_held(world.now));
    }
}

#[test]
fn a_thread_that_answers_again_before_its_lease_ran_out_keeps_it() {
    let mut world = World::new();
    let asked = world.hold();
    while asked.state.phase(world.now) != Phase::Stalled {
        world.step();
        for batch in world.batches() {
            world.answer(batch, [Ok(Reply::Renewed { block: None })]);
        }
    }
    world.pulse.beat(world.now);
    world.pass_until_due();
    let renewal = world.only_batch();
    world.answer(renewal, [Ok(Reply::Renewed { block: None })]);
    assert_eq!(asked.state.phase(world.now), Phase::Held);
}

#[test]
fn max_hold_ends_the_lease_however_often_it_is_renewed_and_lets_it_run_out_at_the_store() {
    let mut world = World::new();
    let asked = world.acquire_with(Wait::Forever, |c| c.max_hold = Some(Duration::from_secs(20)));
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    world.settled();
    let began = world.now;
    let (end, mut store_keeps) = (began + Duration::from_secs(20), began);
    let lost = loop {
        world.pass_until_due();
        world.pulse.beat(world.now);
        if let Some(settled) = world.settled().pop() {
            break settled.outcome;
        }
        for batch in world.batches() {
            let [Request::Renew { ttl, .. }] = batch.requests[..] else { panic!("{:?}", batch.requests) };
            store_keeps = world.now + ttl.as_duration();
            world.answer(batch, [Ok(Reply::Renewed { block: None })]);
        }
    };
    assert!(matches!(lost, Outcome::Lost(LossReason::Expired)));
    assert_eq!(world.now, end);
    assert!(world.batches().is_empty(), "nothing releases the lease: the work may still run");
    assert!(store_keeps >= end && store_keeps.since(end) <= Duration::from_millis(110), "{store_keeps:?}");
    assert!(!asked.state.is_held(world.now));
}

#[test]
fn a_renewal_that_the_holder_asks_for_does_not_keep_the_lease_beyond_its_max_hold() {
    for ttl in [None, Ttl::from_millis(600_000)] {
        let mut world = World::new();
        let held = world.acquire_with(Wait::Forever, |asked| {
            (asked.max_hold, asked.auto_renew) = (Some(Duration::from_secs(20)), false);
        });
        world.exchange();
        let end = world.now + Duration::from_secs(20);
        for _ in 0..4 {
            world.pass(4_000);
            world.settled();
            world.give(Command::Renew { op: held.op, ttl });
            let batch = world.only_batch();
            let [Request::Renew { ttl: asked, .. }] = batch.requests[..] else {
                panic!("{:?}", batch.requests)
            };
            let keeps = (world.now + asked.as_duration()).min(end);
            assert!((world.now + asked.as_duration()).since(end) <= Duration::from_millis(210), "{asked:?}");
            world.answer(batch, [Ok(Reply::Renewed { block: None })]);
            assert!(matches!(world.outcome_of(held.op), Outcome::Renewed));
            let deadline = held.state.deadline();
            assert!(deadline <= end && deadline + Duration::from_millis(100) > keeps, "{deadline:?}");
        }
        assert_eq!(held.state.deadline(), end);
        world.give(Command::Detach { op: held.op, ttl: None, remembers: false });
        let batch = world.only_batch();
        let [Request::Detach { own_ttl, .. }] = batch.requests[..] else { panic!("{:?}", batch.requests) };
        assert_eq!(own_ttl, ttl.unwrap_or(Ttl::from_millis(TTL).unwrap()), "an adopter has no such limit");
    }
}

#[test]
fn a_renewal_for_a_shorter_ttl_shortens_nothing_and_is_the_ttl_from_then_on() {
    let mut world = World::new();
    let held = world.hold();
    let deadline = held.state.deadline();
    world.give(Command::Renew { op: held.op, ttl: Ttl::from_millis(100) });
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Renewed { block: None })]);
    assert!(matches!(world.outcome_of(held.op), Outcome::Renewed));
    assert_eq!(held.state.deadline(), deadline);
    world.pass_until_due();
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Renew { ttl, .. }] if ttl.as_millis() == 100));
}

#[test]
fn a_thread_that_hangs_is_noticed_also_when_renewals_are_rare() {
    let mut world = World::new();
    let asked = world.acquire_with(Wait::Forever, |c| c.ttl = Ttl::from_millis(600_000).unwrap());
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    world.settled();
    // It answers nothing from here on.
    while asked.state.phase(world.now) == Phase::Held {
        world.step();
        assert!(world.batches().is_empty(), "a renewal for a thread that hangs");
    }
    assert_eq!(asked.state.phase(world.now), Phase::Stalled);
}

#[test]
fn an_explicit_renewal_brings_the_new_ttl_and_its_failure_does_not_end_the_lease() {
    let mut world = World::new();
    let held = world.hold();
    world.give(Command::Renew { op: held.op, ttl: Ttl::from_millis(60_000) });
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Renewed { block: None })]);
    assert!(matches!(world.outcome_of(held.op), Outcome::Renewed));
    assert!(held.state.deadline().since(world.now) > Duration::from_secs(59));
    world.give(Command::Renew { op: held.op, ttl: None });
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Renew { ttl, .. }] if ttl.as_millis() == 60_000));
    world.answer(batch, [timed_out()]);
    assert!(matches!(world.outcome_of(held.op), Outcome::RenewFailed(_)));
    assert!(held.state.is_held(world.now));
}
