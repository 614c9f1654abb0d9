//! Tests what the engine does when another server replaces the store's server. The new server may
//! not have received the last requests.

use super::*;

#[test]
fn every_lease_is_renewed_at_once_those_that_end_first_before_the_others() {
    let mut world = World::new();
    let first = world.hold();
    world.pass(1_000);
    let second = world.acquire_with(Wait::Forever, |command| command.key = "lock:second".into());
    // The engine does not renew this lease.
    let by_hand = world.acquire_with(Wait::Forever, |command| {
        command.key = "lock:third".into();
        command.auto_renew = false;
    });
    let batch = world.only_batch();
    world.answer(batch, [6, 7].map(|fence| Ok(Reply::Acquired { fence: Fence(fence), waiting: 0 })));
    world.settled();

    world.core.noticed(world.now, STORE, Notice::Moved);
    let renewals: Vec<_> = [0, 1]
        .iter()
        .flat_map(|_| {
            world.pass(1);
            world
                .batches()
                .into_iter()
                .flat_map(|batch| {
                    let keys: Vec<_> =
                        batch.requests.iter().map(|request| request.key().unwrap().to_string()).collect();
                    assert!(batch.requests.iter().all(|request| matches!(request, Request::Renew { .. })));
                    keys
                })
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(renewals, ["lock:k", "lock:second"]);
    assert!([&first, &second, &by_hand].iter().all(|asked| asked.state.is_held(world.now)));
}

#[test]
fn a_lease_that_the_new_server_does_not_have_is_lost_at_once() {
    let mut world = World::new();
    let held = world.hold();
    world.core.noticed(world.now, STORE, Notice::Moved);
    world.pass(1);
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::NotHeld(Absence::Taken))]);
    assert!(matches!(world.outcome_of(held.op), Outcome::Lost(LossReason::Taken)));
}

#[test]
fn waiters_and_failed_acquires_ask_the_new_server_again() {
    let mut world = World::new();
    world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.answer(batch, [queued()]);
    world.acquire_with(Wait::Forever, |command| command.key = "lock:other".into());
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    assert!(world.batches().is_empty());
    world.core.noticed(world.now, STORE, Notice::Moved);
    let asked: Vec<_> = world.batches().into_iter().flat_map(|batch| batch.requests).collect();
    let mut keys: Vec<_> = asked.iter().map(|request| request.key().unwrap().to_string()).collect();
    keys.sort();
    assert_eq!(keys, ["lock:k", "lock:other"]);
    assert!(asked.iter().all(|request| matches!(request, Request::Acquire(_))), "{asked:?}");
}

#[test]
fn a_release_that_failed_is_sent_again_at_once() {
    let mut world = World::new();
    let held = world.hold();
    world.release(&held);
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    assert!(world.batches().is_empty());
    world.core.noticed(world.now, STORE, Notice::Moved);
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Release { .. }]), "{:?}", batch.requests);
}
