//! Waiters: polls, order, time-outs, cancellation.

use super::*;

#[test]
fn a_granted_lease_is_held_until_its_deadline_counted_from_before_the_request() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.pass(1_000);
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Acquired(Fence(1), _)));
    assert_eq!(
        asked.state.deadline().since(world.now),
        Duration::from_millis(TTL.into()) * 99 / 100 - Duration::from_millis(1_002)
    );
}

#[test]
fn an_answer_that_took_longer_than_the_ttl_grants_nothing() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Never);
    let batch = world.only_batch();
    world.pass(u64::from(TTL));
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Failed(e) if e.kind == StoreErrorKind::TimedOut));
    assert!(!asked.state.is_held(world.now));
    assert!(
        matches!(world.only_batch().requests[..], [Request::Release { .. }]),
        "what it may have is given back"
    );
}

#[test]
fn an_unreachable_store_is_another_failure_than_a_held_lock() {
    let mut world = World::new();
    let asked = world.acquire(Wait::For(Duration::from_millis(100)));
    let outcome = loop {
        for batch in world.batches() {
            world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"))]);
        }
        world.pass_until_due();
        if let Some(settled) = world.settled().pop() {
            break settled;
        }
    };
    assert_eq!(outcome.op, asked.op);
    assert!(matches!(outcome.outcome, Outcome::Failed(e) if e.kind == StoreErrorKind::Unreachable));
    assert!(world.batches().is_empty(), "it was certainly not done, so there is nothing to give back");
}

#[test]
fn a_wrong_password_is_told_at_once() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Denied, "wrong password"))]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Failed(e) if e.kind == StoreErrorKind::Denied));
}

#[test]
fn a_waiter_that_never_polled_gets_the_error_of_the_outage() {
    let mut world = World::new();
    world.acquire(Wait::Forever);
    let unreachable = || Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"));
    let batch = world.only_batch();
    world.answer(batch, [unreachable()]);
    let behind = world.acquire(Wait::For(Duration::from_millis(200)));
    let outcome = loop {
        world.step();
        for batch in world.batches() {
            world.answer(batch, [unreachable()]);
        }
        if let Some(settled) = world.settled().pop() {
            break settled;
        }
    };
    assert_eq!(outcome.op, behind.op);
    assert!(matches!(outcome.outcome, Outcome::Failed(e) if e.kind == StoreErrorKind::Unreachable));
}

#[test]
fn an_impatient_client_does_not_make_others_fail() {
    let mut world = World::new();
    let settings = ClientSettings {
        env: ENV,
        name: "impatient".into(),
        max_stall: Duration::from_secs(60),
        store_timeout: Duration::from_millis(10),
        hand_offs: 32,
        stats: world.stats.clone(),
    };
    world.give(Command::OpenClient { client: CLIENT + 1, store: STORE, batch: 64, settings });
    world.acquire(Wait::Forever);
    world.acquire_with(Wait::Forever, |c| c.client = CLIENT + 1);
    let timeouts: Vec<Duration> = world.batches().iter().map(|batch| batch.timeout).collect();
    assert_eq!(timeouts, [Duration::from_secs(1), Duration::from_millis(10)]);
}

#[test]
fn inspecting_tells_how_many_wait_here() {
    let mut world = World::new();
    for _ in 0..4 {
        world.acquire(Wait::Forever);
    }
    world.exchange();
    world.settled();
    let op = world.op();
    world.give(Command::Inspect { op, client: CLIENT, key: "lock:k".into() });
    let batch = world.only_batch();
    let lease = LeaseInfo { mark: None, holder: None, fence: None, remaining: None, servers: None };
    let info = LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() };
    world.answer(batch, [Ok(Reply::Inspected(Some(info)))]);
    assert!(matches!(world.outcome_of(op), Outcome::Inspected(told) if told.1 == 3));
}

#[test]
fn waiting_ends_with_a_time_out_and_leaves_nothing_behind() {
    let mut world = World::new();
    let asked = world.acquire(Wait::For(Duration::from_millis(100)));
    let began = world.now;
    let outcome = loop {
        for batch in world.batches() {
            world.answer(batch, [queued()]);
        }
        world.pass_until_due();
        if let Some(settled) = world.settled().pop() {
            break settled;
        }
    };
    assert!(matches!(outcome.outcome, Outcome::TimedOut { .. }));
    assert_eq!(outcome.op, asked.op);
    assert_eq!(world.now.since(began), Duration::from_millis(100));
    assert!(matches!(world.only_batch().requests[..], [Request::Release { .. }]), "its place is given up");
    assert!(
        world.core.waiters.len() == 0 && world.core.cohorts.len() == 0 && world.core.queue_entries.is_empty()
    );
}

#[test]
fn an_acquire_that_is_cancelled_in_mid_flight_is_given_back_when_its_answer_comes() {
    for (answer, given_back) in
        [(Ok(Reply::Acquired { fence: Fence(1), waiting: 0 }), true), (timed_out(), true), (queued(), true)]
    {
        let mut world = World::new();
        let asked = world.acquire(Wait::Forever);
        let batch = world.only_batch();
        world.give(Command::Cancel { op: asked.op });
        assert!(matches!(world.outcome_of(asked.op), Outcome::Cancelled));
        world.answer(batch, [answer]);
        let releases = world.batches();
        assert_eq!(releases.len(), usize::from(given_back));
        assert!(releases.iter().all(|b| matches!(b.requests[..], [Request::Release { .. }])));
        assert!(!asked.state.is_held(world.now));
    }
}

#[test]
fn a_grant_that_crosses_its_cancellation_is_given_back() {
    let mut world = World::new();
    let asked = world.hold();
    world.give(Command::Cancel { op: asked.op });
    assert!(matches!(world.outcome_of(asked.op), Outcome::Cancelled));
    assert!(matches!(world.only_batch().requests[..], [Request::Release { .. }]));
    assert!(!asked.state.is_held(world.now));
}
