//! What the store is to show of whoever asks.

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

fn acquire_as(world: &mut World, holder: &str) -> Asked {
    world.acquire_with(Wait::Forever, |command| command.holder = Some(holder.into()))
}

#[test]
fn it_is_the_clients_name_unless_the_acquire_says_another() {
    let mut world = World::new();
    let named = acquire_as(&mut world, "one");
    assert_eq!(shown(&world.exchange()), ["one"]);
    world.release(&named);
    world.exchange();
    world.acquire(Wait::Forever);
    assert_eq!(shown(&world.exchange()), ["test"]);
}

#[test]
fn of_a_line_it_is_whoever_is_first_when_the_store_is_asked() {
    let mut world = World::new();
    let held = acquire_as(&mut world, "one");
    world.exchange();
    let next = acquire_as(&mut world, "two");
    acquire_as(&mut world, "three");
    assert_eq!(shown(&world.exchange()), ["two"]);
    world.release(&held);
    let settled = world.settled();
    assert!(settled.iter().any(|s| s.op == next.op && matches!(s.outcome, Outcome::Acquired(..))));
    let mut looks = Vec::new();
    while looks.is_empty() {
        world.step();
        looks = world.exchange();
        looks.retain(|request| matches!(request, Request::Acquire(_)));
    }
    assert_eq!(shown(&looks), ["three"], "who keeps the line's place now");
}

#[test]
fn it_is_the_heirs_of_an_adopted_lease() {
    let mut world = World::new();
    let asked = AcquireCommand { holder: Some("heir".into()), ..world.asking(Wait::Never) };
    world.give(Command::Adopt(AdoptCommand {
        asked,
        from: Token::random(),
        fence: Fence(7),
        with_ttl: true,
    }));
    assert_eq!(shown(&world.exchange()), ["heir"]);
}
