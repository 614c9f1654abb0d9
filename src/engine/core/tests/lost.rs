//! A store that loses all leases at once: holders know before the store grants their locks again.

use super::*;
use crate::engine::command::AdoptCommand;
use crate::store::Acknowledgement;
use std::sync::mpsc::TryRecvError;

/// Lets the store say that all leases are lost. Returns whether the engine has acknowledged that at
/// once.
fn lose_all(world: &mut World) -> bool {
    let (acknowledgement, dropped) = Acknowledgement::pair();
    assert_eq!(dropped.try_recv(), Err(TryRecvError::Empty));
    world.core.noticed(world.now, STORE, Notice::Lost(acknowledgement));
    dropped.try_recv() == Err(TryRecvError::Disconnected)
}

fn acquired() -> Answer {
    Ok(Reply::Acquired { fence: Fence(9), waiting: 0 })
}

#[test]
fn a_loss_is_acknowledged_once_every_lease_of_that_store_is_lost_and_no_other() {
    let mut world = World::new();
    let first = world.hold();
    let second = world.acquire_with(Wait::Forever, |command| command.key = "lock:other".into());
    let batch = world.only_batch();
    world.answer(batch, [acquired()]);
    world.settled();
    let elsewhere = {
        let stats = Arc::new(Stats::default());
        let settings = ClientSettings {
            env: ENV,
            name: "other".into(),
            max_stall: Duration::from_secs(60),
            store_timeout: Duration::from_secs(1),
            hand_offs: 32,
            stats,
        };
        world.give(Command::OpenClient { client: CLIENT + 1, store: STORE + 1, batch: 64, settings });
        let asked = world.acquire_with(Wait::Forever, |command| command.client = CLIENT + 1);
        let batch = world.only_batch();
        world.answer(batch, [acquired()]);
        world.settled();
        asked
    };
    assert!(lose_all(&mut world));
    for asked in [&first, &second] {
        assert_eq!(asked.state.phase(world.now), Phase::Lost(LossReason::Missing));
    }
    assert!(elsewhere.state.is_held(world.now));
    let told = world.settled();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|told| matches!(told.outcome, Outcome::Lost(LossReason::Missing))), "{told:?}");
    assert_eq!(world.stats.held.get(), 0);
}

#[test]
fn the_engine_repeats_an_acquire_whose_grant_arrives_after_the_loss() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    let on_its_way = world.only_batch();
    assert!(lose_all(&mut world));
    world.pass(1);
    world.answer(on_its_way, [acquired()]);
    assert!(!asked.state.is_held(world.now) && world.settled().is_empty());
    let again = world.only_batch();
    assert!(matches!(&again.requests[..], [Request::Acquire(_)]));
    world.answer(again, [acquired()]);
    assert!(asked.state.is_held(world.now));
}

#[test]
fn the_engine_repeats_an_adoption_whose_answer_arrives_after_the_loss() {
    let mut world = World::new();
    let asked = world.asking(Wait::Never);
    let state = asked.state.clone();
    world.give(Command::Adopt(AdoptCommand {
        acquire: asked,
        from: Token::random(),
        fence: Fence(7),
        with_ttl: true,
    }));
    let on_its_way = world.only_batch();
    assert!(lose_all(&mut world));
    world.pass(1);
    world.answer(on_its_way, [adopted(Fence(7))]);
    assert!(!state.is_held(world.now));
    let again = world.only_batch();
    world.answer(again, [Ok(Reply::NotHeld(Absence::Missing))]);
    assert!(matches!(world.settled()[..], [Settlement { outcome: Outcome::Lost(LossReason::Missing), .. }]));
}

#[test]
fn a_lost_lease_is_not_handed_on_and_the_waiter_asks_again() {
    let mut world = World::new();
    let first = world.hold();
    let next = world.acquire(Wait::Forever);
    let queue = world.only_batch();
    world.answer(queue, [Ok(Reply::Renewed { block: Some((Fence(6), 0)) }), queued()]);
    world.core.offer_hand_offs(world.now);
    assert!(lose_all(&mut world));
    assert!(world.thread_hand_offs.hand_on(first.op, &first.state, world.now).is_none());
    world.pass(1);
    let again = world.only_batch();
    assert!(matches!(&again.requests[..], [Request::Acquire(_)]));
    world.answer(again, [acquired()]);
    assert!(next.state.is_held(world.now));
}
