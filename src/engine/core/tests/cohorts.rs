//! Cohorts: who is handed the lease, by whom, and with how many words to the store.

use super::*;
use crate::lease::hand_off::{BLOCK, LONGEST};
use crate::store::{AcquireRequest, GRANT_TTL, Place, WAITER_LIFE};

/// Asks for the lock as a client of another process, and waits for it if need be.
pub(super) fn rival(world: &mut World, token: Token) -> Reply {
    let ttl = Ttl::from_millis(TTL).unwrap();
    let ask = AcquireRequest {
        place: Some(Place { number: 4711 }),
        ..AcquireRequest::new("lock:k".into(), token, ttl, "rival".into())
    };
    world.ask(Request::Acquire(ask)).unwrap()
}

fn fence_of(settled: &[Settlement], op: OpId) -> Option<u64> {
    settled.iter().find_map(|settled| match settled.outcome {
        Outcome::Acquired(fence, _) if settled.op == op => Some(fence.0),
        _ => None,
    })
}

/// A holder and so many behind it, whose place and fences are there.
fn cohort(world: &mut World, waiters: usize) -> (Operation, Vec<Operation>) {
    let holder = world.acquire(Wait::Forever);
    world.exchange();
    let waiters = (0..waiters).map(|_| world.acquire(Wait::Forever)).collect();
    world.exchange();
    world.settled();
    (holder, waiters)
}

#[test]
fn many_waiters_are_one_at_the_store() {
    let mut world = World::new();
    let holder = world.acquire(Wait::Forever);
    world.exchange();
    for _ in 0..50 {
        world.acquire(Wait::Forever);
    }
    let sent = world.exchange();
    let polls = sent.iter().filter(|request| matches!(request, Request::Acquire(_))).count();
    assert_eq!(polls, 1, "{sent:?}");
    assert!(holder.state.is_held(world.now));
}

#[test]
fn a_lease_is_handed_on_in_order_each_time_with_a_larger_fence_and_without_the_store() {
    let mut world = World::new();
    let (mut holder, waiters) = cohort(&mut world, 15);
    let mut last = 0;
    for next in waiters {
        world.release(&holder);
        let settled = world.settled();
        assert!(settled.iter().any(|s| s.op == holder.op && matches!(s.outcome, Outcome::Released(true))));
        let fence = fence_of(&settled, next.op).expect("it is the next one's");
        assert!(fence > last && next.state.is_held(world.now));
        last = fence;
        holder = next;
    }
    assert!(world.exchange().is_empty(), "nothing was to be said to the store");
    world.release(&holder);
    let sent = world.exchange();
    assert!(
        matches!(sent[..], [Request::Release { .. }, Request::Release { .. }]),
        "the lease and the place: {sent:?}"
    );
    assert!(world.table.is_empty());
    let rival = rival(&mut world, Token::random());
    assert!(
        matches!(rival, Reply::Acquired { fence, .. } if fence.0 > last),
        "after all fences of the block"
    );
}

#[test]
fn fences_are_asked_for_again_before_they_run_out() {
    let mut world = World::new();
    let (mut holder, mut waiters) = cohort(&mut world, 3);
    let mut last = 0;
    for _ in 0..10 * BLOCK {
        waiters.push(world.acquire(Wait::Forever));
        world.release(&holder);
        let next = waiters.remove(0);
        let settled = world.settled();
        let fence = fence_of(&settled, next.op).expect("without a word to the store in between");
        assert!(fence > last);
        last = fence;
        holder = next;
        let renewals = world.exchange();
        assert!(
            renewals.iter().all(|request| matches!(request, Request::Renew { fences: BLOCK, .. })),
            "{renewals:?}"
        );
    }
}

#[test]
fn while_others_wait_the_lease_is_handed_on_a_bounded_number_of_times() {
    let mut world = World::new();
    let (mut holder, mut waiters) = cohort(&mut world, 3);
    let rivals = Token::random();
    assert!(matches!(rival(&mut world, rivals), Reply::Queued { .. }));
    let mut turns = 0;
    loop {
        assert!(turns < 10 * BLOCK, "the rival starves");
        waiters.push(world.acquire(Wait::Forever));
        world.release(&holder);
        world.exchange();
        let next = waiters.remove(0);
        if fence_of(&world.settled(), next.op).is_none() {
            break;
        }
        holder = next;
        turns += 1;
    }
    assert!(turns >= 32, "only {turns}");
    // The cohort had taken its place before the rival came: it has one more turn, and then the
    // rival has the lock.
    assert!(matches!(rival(&mut world, rivals), Reply::Acquired { .. } | Reply::Queued { ahead: 0, .. }));
}

#[test]
fn while_others_wait_the_lease_is_handed_on_for_a_bounded_time() {
    let mut world = World::new();
    let (holder, waiters) = cohort(&mut world, 3);
    rival(&mut world, Token::random());
    world.pass(u64::try_from(LONGEST.as_millis()).unwrap());
    world.release(&holder);
    assert!(!waiters[0].state.is_held(world.now), "not without asking the store");
    assert!(world.exchange().iter().any(|request| matches!(request, Request::Release { .. })));
}

#[test]
fn a_lease_that_is_about_to_end_is_not_handed_on() {
    let mut world = World::new();
    let holder = world.acquire(Wait::Forever);
    world.exchange();
    // Nothing is renewed any more: the store does not answer.
    while holder.state.deadline().since(world.now) > Duration::from_millis(u64::from(TTL) / 4) {
        world.pass(100);
        for batch in world.batches() {
            let count = batch.requests.len();
            world.answer(batch, (0..count).map(|_| timed_out()));
        }
    }
    let next = world.acquire(Wait::Forever);
    world.exchange();
    // The renewal that goes with the poll for more fences has made it whole again.
    world.settled();
    world.release(&holder);
    world.exchange();
    assert!(fence_of(&world.settled(), next.op).is_some());
    assert!(next.state.deadline().since(world.now) > Duration::from_millis(u64::from(TTL) / 4));
}

#[test]
fn with_no_hand_offs_every_waiter_has_its_own_place_in_the_order_of_arrival() {
    let mut world = World::new();
    let settings = ClientSettings {
        env: ENV,
        name: "strict".into(),
        max_stall: Duration::from_secs(60),
        store_timeout: Duration::from_secs(1),
        hand_offs: 0,
        stats: world.stats.clone(),
    };
    world.give(Command::OpenClient { client: CLIENT + 1, store: STORE, batch: 64, settings });
    let all: Vec<Operation> =
        (0..10).map(|_| world.acquire_with(Wait::Forever, |c| c.client = CLIENT + 1)).collect();
    let sent = world.exchange();
    assert_eq!(sent.iter().filter(|request| matches!(request, Request::Acquire(_))).count(), 10);
    for (turn, holder) in all.iter().enumerate() {
        assert!(holder.state.is_held(world.now), "turn {turn}");
        world.release(holder);
        world.exchange();
    }
    assert!(world.table.is_empty());
}

#[test]
fn a_notice_without_a_fence_is_followed_by_a_poll_that_takes_the_lease_up() {
    let mut world = World::new();
    let rivals = Token::random();
    rival(&mut world, rivals);
    let asked = world.acquire(Wait::Forever);
    world.exchange();
    assert!(!asked.state.is_held(world.now));
    world.ask(Request::Release { key: "lock:k".into(), token: rivals, used: None }).unwrap();
    for notice in world.table.take_notices() {
        let Notice::Granted { number, .. } = notice else { panic!("{notice:?}") };
        world.core.noticed(world.now, STORE, Notice::Granted { number, fence: None });
    }
    assert!(matches!(world.exchange()[..], [Request::Acquire(_)]));
    assert!(asked.state.is_held(world.now));
    assert_eq!(world.stats.remote_hand_offs.get(), 1);
    world.pass(u64::try_from(GRANT_TTL.as_millis()).unwrap());
    assert!(asked.state.is_held(world.now), "for its whole ttl, not only for that of the grant");
}

#[test]
fn a_lost_notice_costs_no_more_than_a_heartbeat() {
    let mut world = World::new();
    let rivals = Token::random();
    rival(&mut world, rivals);
    let asked = world.acquire(Wait::Forever);
    world.exchange();
    world.ask(Request::Release { key: "lock:k".into(), token: rivals, used: None }).unwrap();
    world.table.take_notices();
    let began = world.now;
    while !asked.state.is_held(world.now) {
        world.step();
        world.exchange();
    }
    assert!(world.now.since(began) <= Duration::from_millis(500));
}

#[test]
fn a_waiter_keeps_its_place_for_as_long_as_it_waits() {
    let mut world = World::new();
    let rivals = Token::random();
    rival(&mut world, rivals);
    let asked = world.acquire(Wait::Forever);
    world.exchange();
    let end = world.now + WAITER_LIFE * 4;
    let renew = |ttl| Request::Renew { key: "lock:k".into(), token: rivals, ttl, fences: 0 };
    while world.now < end {
        world.ask(renew(Ttl::from_millis(TTL).unwrap())).unwrap();
        world.step();
        world.exchange();
    }
    let late = Token::random();
    assert!(matches!(rival(&mut world, late), Reply::Queued { ahead: 1, .. }));
    world.give(Command::Cancel { op: asked.op });
    world.exchange();
    assert!(
        matches!(rival(&mut world, late), Reply::Queued { ahead: 0, .. }),
        "its place is given up at once"
    );
}

#[test]
fn after_missed_notices_every_waiter_polls() {
    let mut world = World::new();
    rival(&mut world, Token::random());
    world.acquire(Wait::Forever);
    world.exchange();
    world.core.noticed(world.now, STORE, Notice::Missed);
    assert!(matches!(world.exchange()[..], [Request::Acquire(_)]));
}

#[test]
fn a_renewal_on_its_way_serves_whoever_has_the_lease_when_it_is_answered() {
    let mut world = World::new();
    let (holder, waiters) = cohort(&mut world, 1);
    world.give(Command::Renew { op: holder.op, ttl: None });
    let renewal = world.only_batch();
    world.release(&holder);
    assert!(waiters[0].state.is_held(world.now));
    let before = waiters[0].state.deadline();
    world.settled();
    let sent = world.now;
    world.pass(5);
    world.answer(renewal, [Ok(Reply::Renewed { block: None })]);
    assert!(waiters[0].state.deadline() >= before && sent < world.now);
    assert!(world.settled().is_empty(), "the caller that asked for it has given the lease back");
}

#[test]
fn a_lease_that_is_being_detached_is_not_handed_on_when_it_is_given_back() {
    let mut world = World::new();
    let (holder, waiters) = cohort(&mut world, 2);
    world.give(Command::Detach { op: holder.op, ttl: None, remembers: false });
    let detaching = world.only_batch();
    world.release(&holder);
    assert!(fence_of(&world.settled(), waiters[0].op).is_none(), "it may be another process's by now");
    let answers: Vec<_> = detaching.requests.iter().cloned().map(|request| world.ask(request)).collect();
    world.answer(detaching, answers);
    world.exchange();
    let settled = world.settled();
    assert!(fence_of(&settled, waiters[0].op).is_some(), "{settled:?}");
    assert!(settled.iter().all(|s| !matches!(s.outcome, Outcome::Detached)), "{settled:?}");
    assert!(waiters[0].state.is_held(world.now));
}

#[test]
fn a_lease_that_is_being_detached_is_not_renewed_for_those_who_come_meanwhile() {
    let mut world = World::new();
    let (holder, _) = cohort(&mut world, 0);
    world.give(Command::Detach { op: holder.op, ttl: None, remembers: false });
    let detaching = world.only_batch();
    world.acquire(Wait::Forever);
    let renewals: Vec<_> = world.batches().into_iter().flat_map(|batch| batch.requests).collect();
    assert!(!renewals.iter().any(|request| matches!(request, Request::Renew { .. })), "{renewals:?}");
    drop(detaching);
}

#[test]
fn a_lease_that_was_renewed_for_longer_than_the_others_want_is_not_handed_on() {
    for answered in [true, false] {
        let mut world = World::new();
        let (holder, waiters) = cohort(&mut world, 2);
        let hour = Ttl::from_millis(3_600_000);
        world.give(Command::Renew { op: holder.op, ttl: hour });
        let mut on_its_way = None;
        if answered {
            world.exchange();
        } else {
            on_its_way = Some(world.only_batch());
        }
        world.release(&holder);
        world.exchange();
        for request in on_its_way.into_iter().flat_map(|batch| batch.requests) {
            world.ask(request).unwrap();
        }
        assert!(fence_of(&world.settled(), waiters[0].op).is_some());
        // Its process dies.
        world.now = world.now + Duration::from_millis(u64::from(TTL) + 1);
        let late = rival(&mut world, Token::random());
        assert!(
            matches!(late, Reply::Acquired { .. } | Reply::Queued { remaining: Some(GRANT_TTL), .. }),
            "{late:?}"
        );
    }
}

#[test]
fn a_renewal_is_not_told_to_a_later_lease_of_the_same_number() {
    let mut world = World::new();
    let (holder, waiters) = cohort(&mut world, 1);
    world.give(Command::Renew { op: holder.op, ttl: Ttl::from_millis(TTL / 2) });
    let renewal = world.only_batch();
    world.release(&holder);
    // Its slot is free again, and the next acquire takes it.
    let again = world.acquire_with(Wait::Forever, |command| command.op = holder.op);
    world.release(&waiters[0]);
    assert!(again.state.is_held(world.now), "both without the store");
    world.settled();
    world.answer(renewal, [Ok(Reply::Renewed { block: None })]);
    assert!(world.settled().is_empty(), "it did not ask");
    assert_eq!(world.core.held_leases.ttl_of(holder.op), Ttl::from_millis(TTL).unwrap());
}

#[test]
fn a_waiter_that_polls_when_notices_may_have_been_lost_polls_again() {
    let mut world = World::new();
    let rivals = Token::random();
    rival(&mut world, rivals);
    let asked = world.acquire(Wait::Forever);
    let poll = world.only_batch();
    let answers: Vec<_> = poll.requests.iter().cloned().map(|request| world.ask(request)).collect();
    // Handed to the waiter before it has heard that it waits, by a notice that is lost.
    world.ask(Request::Release { key: "lock:k".into(), token: rivals, used: None }).unwrap();
    world.table.take_notices();
    world.core.noticed(world.now, STORE, Notice::Missed);
    world.answer(poll, answers);
    assert!(matches!(world.exchange()[..], [Request::Acquire(_)]), "at once");
    assert!(asked.state.is_held(world.now));
}

#[test]
fn a_cohort_without_waiters_gives_its_place_up() {
    let mut world = World::new();
    let (holder, waiters) = cohort(&mut world, 1);
    world.give(Command::Cancel { op: waiters[0].op });
    let end = world.now + Duration::from_millis(600);
    while world.now < end {
        world.step();
        world.exchange();
    }
    let inspected = world.ask(Request::Inspect { key: "lock:k".into() });
    assert!(matches!(inspected, Ok(Reply::Inspected(Some(LockInfo { waiters, .. }))) if waiters.is_empty()));
    let next = world.acquire(Wait::Forever);
    world.exchange();
    world.settled();
    world.release(&holder);
    world.exchange();
    assert!(next.state.is_held(world.now), "a later waiter has a place again");
}
