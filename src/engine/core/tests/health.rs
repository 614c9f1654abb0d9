//! Health: who is told of breakers, and who polls again when a server is back.

use super::*;
use crate::store::breaker::{BreakerState, Health};

const SERVER: &str = "redis://somewhere";

fn health(state: BreakerState) -> Arc<Health> {
    let reason = (state != BreakerState::Closed).then_some(StoreErrorKind::Unreachable);
    Arc::new(Health { store: SERVER.into(), state, failures: 3, since: 1, reason })
}

fn tell(world: &mut World, state: BreakerState) {
    world.core.noticed(world.now, STORE, Notice::Breaker(health(state)));
}

fn told(world: &mut World) -> Vec<(OpId, BreakerState)> {
    let state = |settled: Settlement| match settled.outcome {
        Outcome::Breaker(health) => (settled.op, health.state),
        other => panic!("{other:?}"),
    };
    world.settled().into_iter().map(state).collect()
}

/// Another client of the same store.
fn open_client(world: &mut World, client: u32) -> Arc<Stats> {
    let stats = Arc::new(Stats::default());
    let settings = ClientSettings {
        env: ENV,
        name: "other".into(),
        max_stall: Duration::from_secs(60),
        store_timeout: Duration::from_secs(1),
        hand_offs: 32,
        stats: stats.clone(),
    };
    world.give(Command::OpenClient { client, store: STORE, batch: 64, settings });
    stats
}

#[test]
fn every_client_that_watches_is_told_once_that_a_server_is_gone_and_once_that_it_is_back_and_stats_know_all()
{
    let mut world = World::new();
    open_client(&mut world, 8);
    let (one, other) = (world.op(), world.op());
    world.give(Command::Watch { op: one, client: CLIENT });
    world.give(Command::Watch { op: other, client: 8 });
    assert!(told(&mut world).is_empty(), "nothing is wrong");
    use BreakerState::{Closed, HalfOpen, Open, Refusing};
    // A probe that fails, one that is answered; the same once more; and one that refuses before it
    // goes, and after.
    for state in [
        Open, HalfOpen, Open, HalfOpen, Closed, Open, HalfOpen, Closed, Refusing, Open, HalfOpen, Refusing,
        Closed,
    ] {
        let before = world.stats.servers.all();
        tell(&mut world, state);
        let mut heard = told(&mut world);
        heard.sort_unstable_by_key(|(op, _)| *op);
        let is_away = |state| matches!(state, Open | HalfOpen);
        let probed = before.iter().any(|health| is_away(health.state)) && is_away(state);
        assert_eq!(heard, if probed { vec![] } else { vec![(one, state), (other, state)] });
        assert_eq!(world.stats.servers.all(), [health(state)]);
    }
}

#[test]
fn a_client_that_is_opened_during_an_outage_is_told_at_once() {
    let mut world = World::new();
    tell(&mut world, BreakerState::Open);
    assert!(world.settled().is_empty(), "nobody watches");
    let stats = open_client(&mut world, 8);
    assert_eq!(stats.servers.all(), [health(BreakerState::Open)]);
    let op = world.op();
    world.give(Command::Watch { op, client: 8 });
    assert_eq!(told(&mut world), [(op, BreakerState::Open)]);
    tell(&mut world, BreakerState::HalfOpen);
    let op = world.op();
    world.give(Command::Watch { op, client: CLIENT });
    assert_eq!(told(&mut world), [(op, BreakerState::Open)], "what it does about that is not told");
    tell(&mut world, BreakerState::Closed);
    world.settled();
    let (op, stats) = (world.op(), open_client(&mut world, 9));
    world.give(Command::Watch { op, client: 9 });
    assert!(told(&mut world).is_empty(), "it is over");
    assert_eq!(stats.servers.all(), [health(BreakerState::Closed)]);
}

#[test]
fn a_watch_ends_with_its_client_and_one_of_a_closed_client_at_once() {
    let mut world = World::new();
    let (watch, close, late) = (world.op(), world.op(), world.op());
    world.give(Command::Watch { op: watch, client: CLIENT });
    world.give(Command::CloseClient { client: CLIENT, op: close, patience: Duration::ZERO });
    let ended: Vec<_> = world.settled().into_iter().map(|settled| (settled.op, settled.outcome)).collect();
    assert!(ended.iter().any(|(op, outcome)| *op == watch && matches!(outcome, Outcome::Done)), "{ended:?}");
    tell(&mut world, BreakerState::Open);
    assert!(world.settled().is_empty());
    world.give(Command::Watch { op: late, client: CLIENT });
    assert!(matches!(world.outcome_of(late), Outcome::Closed));
}

#[test]
fn waiters_whose_poll_failed_poll_at_once_when_the_server_is_back() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    for _ in 0..8 {
        let batch = world.only_batch();
        world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"))]);
        world.pass_until_due();
    }
    let batch = world.only_batch();
    world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"))]);
    tell(&mut world, BreakerState::HalfOpen);
    assert!(world.batches().is_empty(), "not yet");
    tell(&mut world, BreakerState::Closed);
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(5), waiting: 0 })]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Acquired(..)));
}

#[test]
fn waiters_for_a_holder_do_not_poll_when_a_server_is_back() {
    let mut world = World::new();
    world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.answer(batch, [queued()]);
    tell(&mut world, BreakerState::Closed);
    assert!(world.batches().is_empty());
}
