//! Adoptions: leases that change their process.

use super::*;
use crate::engine::command::AdoptCommand;

/// Detaches the lease of `asked`. Returns its token.
fn detach(world: &mut World, asked: &Operation, token: Token) -> Token {
    world.give(Command::Detach { op: asked.op, ttl: None, remembers: false });
    world.exchange();
    assert!(matches!(world.outcome_of(asked.op), Outcome::Detached));
    assert!(!asked.state.is_held(world.now));
    assert_eq!((world.stats.held.get(), world.stats.detached.get()), (0, 1));
    token
}

fn hold_real(world: &mut World) -> (Operation, Token) {
    let asked = world.acquire(Wait::Forever);
    world.exchange();
    let Outcome::Acquired(_, token) = world.outcome_of(asked.op) else { panic!("not granted") };
    (asked, token)
}

fn adopt(world: &mut World, from: Token) -> Operation {
    let asked = world.asking(Wait::Never);
    let known = Operation { op: asked.op, state: asked.state.clone() };
    world.give(Command::Adopt(AdoptCommand { acquire: asked, from, fence: Fence(7), with_ttl: true }));
    known
}

#[test]
fn a_detached_lease_is_neither_renewed_nor_released_and_is_adopted_with_its_fence() {
    let mut world = World::new();
    let held = world.acquire(Wait::Forever);
    world.exchange();
    let Outcome::Acquired(fence, token) = world.outcome_of(held.op) else { panic!("not granted") };
    let token = detach(&mut world, &held, token);
    world.pass(u64::from(TTL) / 2);
    assert!(world.batches().is_empty(), "the adopter renews it");
    let adopter = adopt(&mut world, token);
    world.exchange();
    // The ticket contains another fence.
    assert!(
        matches!(world.outcome_of(adopter.op), Outcome::Acquired(its, _) if its == fence && its != Fence(7))
    );
    assert!(adopter.state.is_held(world.now));
    world.release(&adopter);
    world.exchange();
    assert!(world.table.is_empty());
}

#[test]
fn an_adopter_has_the_ttl_that_the_lease_had_unless_it_asks_for_another() {
    for (with_ttl, expected) in [(true, TTL), (false, 20 * TTL)] {
        let mut world = World::new();
        let (held, token) = hold_real(&mut world);
        let from = detach(&mut world, &held, token);
        let mut asked = world.asking(Wait::Never);
        asked.ttl = Ttl::from_millis(20 * TTL).unwrap();
        let op = asked.op;
        world.give(Command::Adopt(AdoptCommand { acquire: asked, from, fence: Fence(7), with_ttl }));
        world.exchange();
        let settled = world.settled();
        let Outcome::Adopted { ttl, shared: false } = settled[0].outcome else { panic!("{settled:?}") };
        assert_eq!(ttl.as_millis(), if with_ttl { TTL } else { 20 * TTL });
        assert!(matches!(settled.last().unwrap().outcome, Outcome::Acquired(..)), "{settled:?}");
        let left = |world: &mut World| match world.ask(Request::Inspect { key: "lock:k".into() }) {
            Ok(Reply::Inspected(Some(info))) => info.leases[0].remaining.unwrap().as_millis() as u32,
            other => panic!("{other:?}"),
        };
        assert_eq!(left(&mut world), expected);
        assert_eq!(world.core.held_leases.ttl_of(op).as_millis(), expected);
    }
}

#[test]
fn one_of_two_adopters_gets_the_lease_and_the_other_an_error() {
    let mut world = World::new();
    let (held, token) = hold_real(&mut world);
    let token = detach(&mut world, &held, token);
    let (first, second) = (adopt(&mut world, token), adopt(&mut world, token));
    world.exchange();
    let settled = world.settled();
    assert!(settled.iter().any(|s| s.op == first.op && matches!(s.outcome, Outcome::Acquired(..))));
    assert!(
        settled.iter().any(|s| s.op == second.op && matches!(s.outcome, Outcome::Lost(LossReason::Taken)))
    );
}

#[test]
fn a_lease_that_a_late_acquire_got_with_the_tickets_token_is_not_adopted() {
    let mut world = World::new();
    let late = world.acquire(Wait::Forever);
    let on_its_way = world.only_batch().requests.clone();
    let Request::Acquire(ask) = &on_its_way[0] else { panic!("{on_its_way:?}") };
    let token = ask.token;
    world.give(Command::Cancel { op: late.op });
    world.settled();
    // The ticket's lease, with fence 7, was adopted and released before the acquire arrives.
    for request in on_its_way {
        world.ask(request).unwrap();
    }
    let adopter = adopt(&mut world, token);
    world.exchange();
    assert!(matches!(world.outcome_of(adopter.op), Outcome::Lost(LossReason::Taken)));
    assert!(!adopter.state.is_held(world.now));
    world.exchange();
    assert!(world.table.is_empty(), "nobody has that lease");
}

#[test]
fn an_adoption_without_an_answer_is_tried_again() {
    let mut world = World::new();
    let (held, token) = hold_real(&mut world);
    let token = detach(&mut world, &held, token);
    let adopter = adopt(&mut world, token);
    let batch = world.only_batch();
    for request in batch.requests.clone() {
        world.ask(request).unwrap();
    }
    world.answer(batch, [timed_out()]);
    world.pass_until_due();
    world.exchange();
    assert!(matches!(world.outcome_of(adopter.op), Outcome::Acquired(..)));
}

#[test]
fn what_an_early_attempt_got_is_given_back_though_the_last_was_certainly_not_done() {
    let mut world = World::new();
    let (held, token) = hold_real(&mut world);
    let token = detach(&mut world, &held, token);
    let adopter = adopt(&mut world, token);
    let batch = world.only_batch();
    for request in batch.requests.clone() {
        world.ask(request).unwrap();
    }
    world.answer(batch, [timed_out()]);
    let outcome = loop {
        world.pass_until_due();
        if let Some(settled) = world.settled().pop() {
            break settled;
        }
        for batch in world.batches() {
            world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"))]);
        }
    };
    assert_eq!(outcome.op, adopter.op);
    assert!(matches!(outcome.outcome, Outcome::Failed(_)));
    let sent = world.exchange();
    let gives_back =
        |request: &Request| matches!(request, Request::GiveBack { ticket, .. } if *ticket == token);
    assert!(sent.iter().any(gives_back), "{sent:?}");
}

#[test]
fn what_an_adoption_got_before_its_caller_cancelled_goes_back_to_the_ticket() {
    let mut world = World::new();
    let (held, token) = hold_real(&mut world);
    let token = detach(&mut world, &held, token);
    let adopter = adopt(&mut world, token);
    world.exchange();
    world.give(Command::Cancel { op: adopter.op });
    assert!(world.settled().iter().any(|settled| matches!(settled.outcome, Outcome::Cancelled)));
    let sent = world.exchange();
    let gives_back =
        |request: &Request| matches!(request, Request::GiveBack { ticket, .. } if *ticket == token);
    assert!(sent.iter().any(gives_back), "{sent:?}");
}

#[test]
fn what_a_cancelled_adoption_got_is_given_back() {
    let mut world = World::new();
    let (held, token) = hold_real(&mut world);
    let token = detach(&mut world, &held, token);
    let adopter = adopt(&mut world, token);
    world.give(Command::Cancel { op: adopter.op });
    assert!(matches!(world.outcome_of(adopter.op), Outcome::Cancelled));
    world.exchange();
    assert!(world.table.is_empty());
}

#[test]
fn a_lease_that_could_not_be_detached_is_held_and_renewed_on() {
    let mut world = World::new();
    let (held, _) = hold_real(&mut world);
    world.give(Command::Detach { op: held.op, ttl: None, remembers: false });
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    assert!(matches!(world.outcome_of(held.op), Outcome::RenewFailed(_)));
    for _ in 0..10 {
        world.pass(u64::from(TTL) / 3);
        world.exchange();
    }
    assert!(held.state.is_held(world.now));
}
