//! Ends: releases, clean-up, closing.

use super::*;

#[test]
fn what_may_have_been_granted_is_released_until_the_store_has_said_so() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Never);
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Failed(_)));
    for _ in 0..3 {
        let release = world.only_batch();
        assert!(matches!(release.requests[..], [Request::Release { .. }]));
        world.answer(release, [timed_out()]);
        world.pass_until_due();
    }
    let release = world.only_batch();
    world.answer(release, [Ok(Reply::Released)]);
    // It may arrive once more, if it was asked more than once.
    for _ in 0..2 {
        world.pass_until_due();
        let release = world.only_batch();
        world.answer(release, [Ok(Reply::NotHeld(Absence::Missing))]);
    }
    assert!(world.core.clean_ups.len() == 0);
}

#[test]
fn a_lease_that_was_asked_for_by_an_unanswered_poll_is_released_again_should_that_one_still_arrive() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    world.pass_until_due();
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    world.settled();
    world.release(&asked);
    let release = world.only_batch();
    world.answer(release, [Ok(Reply::Released)]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Released(true)), "nobody waits for the rest");
    for _ in 0..2 {
        world.pass_until_due();
        let release = world.only_batch();
        assert!(matches!(release.requests[..], [Request::Release { .. }]));
        world.answer(release, [Ok(Reply::NotHeld(Absence::Missing))]);
    }
    assert_eq!(world.core.concerns(), 0);
}

/// Acquires a lease for a section.
fn hold_section(world: &mut World) -> Operation {
    let section = world.acquire_with(Wait::Forever, |asked| {
        asked.section = true;
        asked.key = "lock:section".into();
    });
    world.exchange();
    section
}

#[test]
fn a_draining_client_keeps_the_leases_of_sections_and_ends_the_others() {
    let mut world = World::new();
    let section = hold_section(&mut world);
    let bare = world.acquire(Wait::Forever);
    let waiter = world.acquire(Wait::Forever);
    world.exchange();
    world.settled();
    world.give(Command::DrainClient { client: CLIENT });
    let settled = world.settled();
    assert!(settled.iter().any(|s| s.op == waiter.op && matches!(s.outcome, Outcome::Closed)));
    assert!(
        settled.iter().any(|s| s.op == bare.op && matches!(s.outcome, Outcome::Lost(LossReason::Closed)))
    );
    assert_eq!(settled.len(), 2);
    world.exchange();
    assert_eq!(world.table.len(), 1, "only the section's lease is left");

    let late = world.acquire(Wait::Never);
    assert!(matches!(world.outcome_of(late.op), Outcome::Closed));
    for _ in 0..3 {
        world.pass_until_due();
        world.pulse.beat(world.now);
        assert!(matches!(world.exchange()[..], [Request::Renew { .. }]), "the lease is renewed as before");
    }
    world.release(&section);
    world.exchange();
    assert!(matches!(world.outcome_of(section.op), Outcome::Released(true)));
    assert!(world.table.is_empty());
}

#[test]
fn an_excused_environment_keeps_its_leases_without_answers_and_waits_for_nothing() {
    let mut world = World::new();
    let held = world.acquire(Wait::Forever);
    let waiter = world.acquire(Wait::Forever);
    world.exchange();
    world.settled();
    world.give(Command::ExcuseEnv { env: ENV });
    assert!(matches!(world.outcome_of(waiter.op), Outcome::Closed));
    let late = world.acquire(Wait::Never);
    assert!(matches!(world.outcome_of(late.op), Outcome::Closed));
    let end = world.now + Duration::from_secs(600);
    while world.now < end {
        world.pass_until_due();
        world.exchange();
        assert!(held.state.is_held(world.now));
    }
}

#[test]
fn a_lease_whose_renewal_stopped_can_still_be_released_and_ends_by_its_ttl() {
    let mut world = World::new();
    let (released, expired) = (hold_section(&mut world), world.acquire(Wait::Forever));
    world.exchange();
    world.settled();
    for section in [&released, &expired] {
        world.give(Command::StopRenewing { op: section.op });
    }
    world.pass(u64::from(TTL) / 2);
    assert!(world.exchange().is_empty(), "nothing is renewed");
    world.release(&released);
    assert!(matches!(world.exchange()[..], [Request::Release { .. }]));
    assert!(matches!(world.outcome_of(released.op), Outcome::Released(true)));
    world.pass_until_due();
    assert!(matches!(world.outcome_of(expired.op), Outcome::Lost(LossReason::Expired)));
    assert!(world.exchange().is_empty(), "nothing releases the lease while its work may run");
}

#[test]
fn closing_ends_waiters_and_leases_and_waits_for_the_releases() {
    let mut world = World::new();
    let held = world.acquire(Wait::Forever);
    let waiter = world.acquire(Wait::Forever);
    world.exchange();
    world.settled();
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
    let Effects { settled, unused, .. } = world.core.take_effects();
    assert!(unused.is_empty(), "the store is needed until the lease is released there");
    assert!(settled.iter().any(|s| s.op == waiter.op && matches!(s.outcome, Outcome::Closed)));
    assert!(
        settled.iter().any(|s| s.op == held.op && matches!(s.outcome, Outcome::Lost(LossReason::Closed)))
    );
    assert_eq!(settled.len(), 2);
    world.exchange();
    assert!(world.table.is_empty());
    let effects = world.core.take_effects();
    assert!(matches!(effects.settled[..], [Settlement { outcome: Outcome::Done, .. }]));
    assert_eq!(effects.unused, [STORE], "the store is closed with its last client");
}

#[test]
fn closing_does_not_wait_longer_than_its_patience() {
    let mut world = World::new();
    world.hold();
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
    world.settled();
    let _never_answered = world.only_batch();
    world.pass(500);
    assert!(matches!(world.outcome_of(op), Outcome::Done));
}

#[test]
fn the_end_of_a_process_waits_for_releases_that_its_code_has_just_asked_for() {
    let mut world = World::new();
    let held = world.hold();
    assert!(held.state.release(world.now));
    world.give(Command::Release { op: held.op });
    let (done, _ended) = sync_channel(1);
    world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_millis(500) });
    assert!(world.core.take_effects().unblocked.is_empty());
    let release = world.only_batch();
    world.answer(release, [Ok(Reply::Released)]);
    assert_eq!(world.core.take_effects().unblocked.len(), 1);
}

#[test]
fn a_panic_fails_one_operation_and_nothing_else() {
    let mut world = World::new();
    let held = world.hold();
    let op = world.op();
    world.core.catch_panic(Some(op), |_| panic!("boom"));
    assert!(
        matches!(world.outcome_of(op), Outcome::Failed(e) if e.kind == StoreErrorKind::Internal && e.message.contains("boom"))
    );
    assert!(held.state.is_held(world.now));
    world.core.catch_panic(Some(held.op), |_| panic!("boom"));
    world.settled();
    world.pass_until_due();
    let renewal = world.only_batch();
    assert!(matches!(renewal.requests[..], [Request::Renew { .. }]), "the lease is looked at again");
}

#[test]
fn an_end_waits_for_an_acquire_on_its_way_and_for_giving_back_what_it_got() {
    for answer in [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 }), timed_out()] {
        let mut world = World::new();
        world.acquire(Wait::Forever);
        let poll = world.only_batch();
        let (done, _ended) = sync_channel(1);
        world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_millis(500) });
        assert!(world.core.take_effects().unblocked.is_empty());
        world.answer(poll, [answer]);
        assert!(world.core.take_effects().unblocked.is_empty());
        let release = world.only_batch();
        world.answer(release, [Ok(Reply::Released)]);
        assert_eq!(world.core.take_effects().unblocked.len(), 1);
    }
}

#[test]
fn an_end_does_not_hand_the_lock_to_a_waiter_that_ends_too() {
    let mut world = World::new();
    for _ in 0..3 {
        world.acquire(Wait::Forever);
    }
    world.exchange();
    let (done, _ended) = sync_channel(1);
    world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_millis(500) });
    let sent = world.exchange();
    assert!(sent.iter().all(|request| matches!(request, Request::Release { .. })), "{sent:?}");
    assert!(world.table.is_empty());
}

#[test]
fn a_release_that_may_have_overtaken_its_acquire_is_repeated() {
    let mut world = World::new();
    world.acquire(Wait::Never);
    let poll = world.only_batch();
    world.answer(poll, [timed_out()]);
    for _ in 0..3 {
        let release = world.only_batch();
        assert!(matches!(release.requests[..], [Request::Release { .. }]));
        world.answer(release, [Ok(Reply::NotHeld(Absence::Missing))]);
        world.settled();
        if world.core.next_wake().is_some() {
            world.step();
        }
    }
    assert!(world.batches().is_empty() && world.core.clean_ups.len() == 0);
}

#[test]
fn ten_thousand_leases_come_and_go_without_leaving_a_trace() {
    let mut world = World::new();
    for _ in 0..10_000 {
        let held = world.hold();
        held.state.release(world.now);
        world.give(Command::Release { op: held.op });
        let batch = world.only_batch();
        world.answer(batch, [Ok(Reply::Released)]);
        world.settled();
        world.core.tick(world.now);
    }
    assert!(
        world.core.held_leases.len() == 0 && world.core.waiters.len() == 0 && world.core.cohorts.len() == 0
    );
    assert_eq!(
        (world.stats.held.get(), world.stats.waiting.get(), world.stats.acquired.get()),
        (0, 0, 10_000)
    );
}

#[test]
fn what_an_earlier_poll_may_have_got_is_given_back_whatever_becomes_of_the_last() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    let first = world.only_batch();
    for request in first.requests.clone() {
        world.ask(request).unwrap();
    }
    world.answer(first, [timed_out()]);
    world.pass_until_due();
    let second = world.only_batch();
    world.give(Command::Cancel { op: asked.op });
    let refused = StoreError::not_done(StoreErrorKind::Unreachable, "nobody there");
    world.answer(second, [Err(refused)]);
    world.exchange();
    assert!(world.table.is_empty(), "it was granted by the first");
}

/// Detaches a lease, gets no answer, and ends the client. Returns the requests that follow.
fn end_after_a_failed_detachment(world: &mut World, remembers: bool) -> Vec<Request> {
    let held = world.acquire(Wait::Forever);
    world.exchange();
    world.settled();
    world.give(Command::Detach { op: held.op, ttl: None, remembers });
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Detach { .. }]));
    // The store may have detached the lease, although its answer did not arrive in time.
    world.answer(batch, [timed_out()]);
    world.settled();
    let requests = end_environment(world);
    assert!(!held.state.is_held(world.now));
    requests
}

/// Ends the environment. Returns the requests that follow.
fn end_environment(world: &mut World) -> Vec<Request> {
    let (done, _closed) = std::sync::mpsc::sync_channel(1);
    world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_secs(1) });
    world.exchange()
}

#[test]
fn the_end_of_a_client_releases_a_lease_whose_detachment_failed() {
    let mut world = World::new();
    let requests = end_after_a_failed_detachment(&mut world, false);
    assert!(requests.iter().any(|request| matches!(request, Request::Release { .. })), "{requests:?}");
    assert_eq!(world.table.len(), 0);
}

#[test]
fn the_end_of_a_client_releases_no_lease_that_the_store_is_to_remember() {
    let mut world = World::new();
    let requests = end_after_a_failed_detachment(&mut world, true);
    assert!(!requests.iter().any(|request| matches!(request, Request::Release { .. })), "{requests:?}");
    assert_eq!(world.table.len(), 1);
}

#[test]
fn the_watch_of_a_closed_client_ends_with_its_last_release_and_not_with_the_patience_of_the_end() {
    let mut world = World::new();
    let (watch, close) = (world.op(), world.op());
    world.give(Command::Watch { op: watch, client: CLIENT });
    let held = world.hold();
    world.give(Command::CloseClient { client: CLIENT, op: close, patience: Duration::from_millis(100) });
    assert!(matches!(world.outcome_of(held.op), Outcome::Lost(LossReason::Closed)));
    let release = world.only_batch();
    world.pass(100);
    assert!(matches!(world.outcome_of(close), Outcome::Done), "the store takes too long");
    world.answer(release, [Ok(Reply::Released)]);
    assert!(matches!(world.outcome_of(watch), Outcome::Done), "now the engine forgets the client");
}
