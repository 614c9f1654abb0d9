//! What the store shows of a client that asks for a lock.

use super::*;
use crate::engine::command::AdoptCommand;

fn shown(sent: &[Request]) -> Vec<&str> {
    sent.iter()
        .filter_map(|request| match request {
            Request::Acquire(ask) => Some(&*ask.holder),
            Request::Adopt { holder, .. } => Some(&**holder),
            _ => None,
        })
        .collect()
}

fn acquire_as(world: &mut World, holder: &str) -> Operation {
    world.acquire_with(Wait::Forever, |command| command.holder = Some(holder.into()))
}

#[test]
fn the_holder_is_the_clients_name_unless_the_acquire_names_another() {
    let mut world = World::new();
    let named = acquire_as(&mut world, "one");
    assert_eq!(shown(&world.exchange()), ["one"]);
    world.release(&named);
    world.exchange();
    world.acquire(Wait::Forever);
    assert_eq!(shown(&world.exchange()), ["test"]);
}

#[test]
fn the_holder_of_a_cohort_is_the_first_waiter_at_the_time_of_the_poll() {
    let mut world = World::new();
    let held = acquire_as(&mut world, "one");
    world.exchange();
    let next = acquire_as(&mut world, "two");
    acquire_as(&mut world, "three");
    assert_eq!(shown(&world.exchange()), ["two"]);
    world.release(&held);
    let settled = world.settled();
    assert!(settled.iter().any(|s| s.op == next.op && matches!(s.outcome, Outcome::Acquired(..))));
    let mut polls = Vec::new();
    while polls.is_empty() {
        world.step();
        polls = world.exchange();
        polls.retain(|request| matches!(request, Request::Acquire(_)));
    }
    assert_eq!(shown(&polls), ["three"], "who keeps the cohort's place now");
}

#[test]
fn the_holder_of_an_adopted_lease_is_the_adopter() {
    let mut world = World::new();
    let asked = AcquireCommand { holder: Some("adopter".into()), ..world.asking(Wait::Never) };
    world.give(Command::Adopt(AdoptCommand {
        acquire: asked,
        from: Token::random(),
        fence: Fence(7),
        with_ttl: true,
    }));
    assert_eq!(shown(&world.exchange()), ["adopter"]);
}
