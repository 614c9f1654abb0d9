//! What is left to JavaScript threads, and how it is taken in again.

use super::*;
use crate::engine::thread_hand_offs::HandedOn;
use crate::lease::hand_off::LONGEST;

/// A holder who was handed the lease within its cohort, with so many behind it, all of it known to
/// everybody.
fn handed(world: &mut World, waiters: usize) -> (Operation, Vec<Operation>) {
    let first = world.acquire(Wait::Forever);
    world.exchange();
    let mut waiters: Vec<_> = (0..=waiters).map(|_| world.acquire(Wait::Forever)).collect();
    world.exchange();
    world.release(&first);
    world.settled();
    world.core.offer_hand_offs(world.now);
    (waiters.remove(0), waiters)
}

fn hand_on(world: &World, asked: &Operation) -> Option<HandedOn> {
    world.thread_hand_offs.hand_on(asked.op, &asked.state, world.now)
}

#[test]
fn the_thread_hands_on_by_itself_and_the_engine_goes_on_from_there() {
    let mut world = World::new();
    let (holder, waiters) = handed(&mut world, 3);
    let mut last = hand_on(&world, &holder).expect("it was left to the thread");
    for waiter in &waiters[..2] {
        assert_eq!(last.to, waiter.op, "in the order in which they came");
        let next = hand_on(&world, waiter).expect("there is another");
        assert!(next.fence > last.fence);
        last = next;
    }
    assert!(waiters[2].state.is_held(world.now));
    assert_eq!(hand_on(&world, &waiters[2]), None, "nobody is left");
    world.release(&waiters[2]);
    let sent = world.exchange();
    assert!(sent.iter().any(|request| matches!(request, Request::Release { .. })), "{sent:?}");
    let settled = world.settled();
    assert_eq!(settled.len(), 1, "the others know already: {settled:?}");
    assert_eq!(world.stats.local_hand_offs.get(), 4);
    assert_eq!((world.stats.held.get(), world.stats.waiting.get(), world.stats.released.get()), (0, 0, 5));
    assert!(world.table.is_empty());
}

#[test]
fn nothing_is_left_to_the_thread_while_the_engine_is_at_work() {
    let mut world = World::new();
    let (holder, _waiters) = handed(&mut world, 3);
    world.core.tick(world.now);
    assert_eq!(hand_on(&world, &holder), None);
    world.core.offer_hand_offs(world.now);
    assert!(hand_on(&world, &holder).is_some(), "it was left to it again");
}

#[test]
fn a_successor_that_has_given_up_is_passed_over() {
    let mut world = World::new();
    let (holder, waiters) = handed(&mut world, 3);
    world.give(Command::Cancel { op: waiters[0].op });
    world.core.offer_hand_offs(world.now);
    assert_eq!(hand_on(&world, &holder).map(|handed| handed.to), Some(waiters[1].op));
    assert!(!waiters[0].state.is_held(world.now));
}

#[test]
fn a_cancel_that_the_hand_off_has_crossed_gives_the_lease_back() {
    let mut world = World::new();
    let (holder, waiters) = handed(&mut world, 3);
    assert_eq!(hand_on(&world, &holder).map(|handed| handed.to), Some(waiters[0].op));
    world.give(Command::Cancel { op: waiters[0].op });
    assert!(!waiters[0].state.is_held(world.now));
    world.exchange();
    let settled = world.settled();
    assert!(settled.iter().any(|s| s.op == waiters[1].op && matches!(s.outcome, Outcome::Acquired(..))));
}

#[test]
fn a_lease_that_is_lost_is_lost_to_whoever_has_it_by_then() {
    let mut world = World::new();
    let (holder, waiters) = handed(&mut world, 3);
    world.give(Command::Renew { op: holder.op, ttl: None });
    world.core.offer_hand_offs(world.now);
    let batch = world.only_batch();
    assert_eq!(hand_on(&world, &holder).map(|handed| handed.to), Some(waiters[0].op));
    let answers = vec![Ok(Reply::NotHeld(Absence::Taken)); batch.requests.len()];
    world.answer(batch, answers);
    assert_eq!(waiters[0].state.phase(world.now), Phase::Lost(LossReason::Taken));
    assert!(waiters[1..].iter().all(|waiter| waiter.state.phase(world.now) == Phase::Pending));
}

#[test]
fn a_closed_client_has_nothing_left_to_hand_on() {
    let mut world = World::new();
    let (holder, waiters) = handed(&mut world, 3);
    hand_on(&world, &holder).expect("it was left to the thread");
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
    world.core.offer_hand_offs(world.now);
    assert_eq!(waiters[0].state.phase(world.now), Phase::Lost(LossReason::Closed));
    assert_eq!(hand_on(&world, &waiters[0]), None);
    world.exchange();
    assert!(world.table.is_empty());
}

#[test]
fn what_ends_by_itself_or_is_detached_is_not_left_to_the_thread() {
    let mut world = World::new();
    let (holder, _waiters) = handed(&mut world, 3);
    world.give(Command::Detach { op: holder.op, ttl: None, remembers: false });
    world.core.offer_hand_offs(world.now);
    assert_eq!(hand_on(&world, &holder), None);

    let mut world = World::new();
    let first = world.acquire(Wait::Forever);
    world.exchange();
    let span = Some(Duration::from_secs(3));
    let limited = world.acquire_with(Wait::Forever, |asked| asked.max_hold = span);
    let waiters =
        [world.acquire(Wait::Forever), world.acquire_with(Wait::Forever, |asked| asked.max_hold = span)];
    world.exchange();
    world.release(&first);
    world.core.offer_hand_offs(world.now);
    assert_eq!(hand_on(&world, &limited), None);
    world.release(&limited);
    world.core.offer_hand_offs(world.now);
    assert_eq!(hand_on(&world, &waiters[0]), None, "the next has its own end");
}

#[test]
fn hand_offs_are_left_to_the_thread_no_longer_than_the_bound() {
    let mut world = World::new();
    let (holder, _waiters) = handed(&mut world, 3);
    world.now = world.now + LONGEST;
    assert_eq!(hand_on(&world, &holder), None);
}

#[test]
fn fences_are_asked_for_again_also_when_the_thread_hands_on() {
    let mut world = World::new();
    let (mut holder, waiters) = handed(&mut world, 60);
    let mut asked = 0;
    for waiter in waiters {
        let handed = hand_on(&world, &holder).or_else(|| {
            world.release(&holder);
            asked += world.exchange().len();
            world.settled();
            world.core.offer_hand_offs(world.now);
            None
        });
        assert!(handed.is_none_or(|handed| handed.to == waiter.op));
        assert!(waiter.state.is_held(world.now));
        holder = waiter;
    }
    assert!((2..6).contains(&asked), "{asked} words to the store");
}
