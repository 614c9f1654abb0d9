//! Which last used fence a release names.

use std::collections::VecDeque;

use super::*;
use crate::engine::command::AdoptCommand;

/// Returns the last used fences that the releases of `token` in `sent` name. A release that only
/// gives up a place in the queue names none.
fn told(sent: &[Request], token: Token) -> Vec<Option<Fence>> {
    let used = sent.iter().filter_map(|request| match request {
        Request::Release { token: whose, used, .. } if *whose == token => Some(*used),
        _ => None,
    });
    used.collect()
}

fn granted(world: &mut World, asked: &Operation) -> (Fence, Token) {
    match world.outcome_of(asked.op) {
        Outcome::Acquired(fence, token) => (fence, token),
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn a_lease_that_was_not_handed_on_used_its_own_fence() {
    let mut world = World::new();
    let holder = world.acquire(Wait::Forever);
    world.exchange();
    let (fence, token) = granted(&mut world, &holder);
    world.release(&holder);
    assert_eq!(told(&world.exchange(), token), [Some(fence)]);
}

#[test]
fn fences_that_the_engine_and_the_thread_handed_on_are_used() {
    let mut world = World::new();
    let first = world.acquire(Wait::Forever);
    world.exchange();
    let (fence, token) = granted(&mut world, &first);
    let waiters: Vec<_> = (0..4).map(|_| world.acquire(Wait::Forever)).collect();
    world.exchange();
    // The engine hands on.
    world.release(&first);
    world.settled();
    world.core.offer_hand_offs(world.now);
    // The thread hands on; the release tells the engine of that.
    let mut last = fence;
    for pair in waiters.windows(2) {
        let handed = world
            .thread_hand_offs
            .hand_on(pair[0].op, &pair[0].state, world.now)
            .expect("the thread may hand on");
        assert!(handed.fence > last);
        last = handed.fence;
    }
    world.release(&waiters[3]);
    assert_eq!(told(&world.exchange(), token), [Some(last)]);
}

#[test]
fn fences_of_a_refill_on_its_way_are_not_used() {
    let mut world = World::new();
    let mut holder = world.acquire(Wait::Forever);
    world.exchange();
    let (mut last, token) = granted(&mut world, &holder);
    let mut waiters: VecDeque<_> = (0..60).map(|_| world.acquire(Wait::Forever)).collect();
    world.exchange();
    world.settled();
    let asks_for_more = |batch: &Batch| {
        batch.requests.iter().any(|request| matches!(request, Request::Renew { fences: 1.., .. }))
    };
    // Hand on until the engine asks for more fences. That request stays unanswered.
    loop {
        world.release(&holder);
        holder = waiters.pop_front().expect("the engine asks for more fences before all waiters are served");
        let next = world.settled().into_iter().find(|settled| settled.op == holder.op);
        let Some(Outcome::Acquired(fence, _)) = next.map(|settled| settled.outcome) else {
            panic!("the lease was not handed on")
        };
        assert!(fence > last);
        last = fence;
        if world.batches().iter().any(asks_for_more) {
            break;
        }
    }
    for waiter in waiters {
        world.give(Command::Cancel { op: waiter.op });
    }
    world.release(&holder);
    let sent: Vec<Request> = world.batches().into_iter().flat_map(|batch| batch.requests).collect();
    assert_eq!(told(&sent, token), [Some(last)]);
}

#[test]
fn an_adopter_names_no_used_fence_whatever_its_ticket_says() {
    let mut world = World::new();
    let held = world.acquire(Wait::Forever);
    world.exchange();
    let (_, from) = granted(&mut world, &held);
    world.give(Command::Detach { op: held.op, ttl: None, remembers: false });
    world.exchange();
    world.settled();
    let asked = world.asking(Wait::Never);
    let adopter = Operation { op: asked.op, state: asked.state.clone() };
    world.give(Command::Adopt(AdoptCommand { acquire: asked, from, fence: Fence(1), with_ttl: true }));
    world.exchange();
    let (_, token) = granted(&mut world, &adopter);
    world.release(&adopter);
    assert_eq!(told(&world.exchange(), token), [None]);
}

#[test]
fn a_clean_up_names_no_used_fence() {
    let mut world = World::new();
    let holder = world.acquire(Wait::Forever);
    world.exchange();
    let (_, token) = granted(&mut world, &holder);
    world.give(Command::Cancel { op: holder.op });
    let sent = world.exchange();
    assert_eq!(told(&sent, token), [None]);
}
