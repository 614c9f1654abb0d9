//! Tickets: what the end of their client and of their environment does before and after their
//! callers have them.

use super::*;

/// Detaches a lease for a caller that does not have the ticket yet. Returns the token of the lease.
fn detach(world: &mut World) -> Token {
    let held = world.acquire(Wait::Forever);
    world.exchange();
    let Outcome::Acquired(_, token) = world.outcome_of(held.op) else { panic!("it was granted") };
    world.give(Command::Detach { op: held.op, ttl: None, remembers: false });
    world.exchange();
    assert!(matches!(world.outcome_of(held.op), Outcome::Detached));
    token
}

/// Closes the client. Returns the operation.
fn close(world: &mut World) -> OpId {
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(100) });
    op
}

/// Ends the environment. Returns what says when its leases are released.
fn end_environment(world: &mut World) -> Receiver<()> {
    let (done, ended) = sync_channel(1);
    world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_secs(1) });
    ended
}

/// Returns whether the end no longer waits.
fn has_ended(world: &mut World, ended: &Receiver<()>) -> bool {
    world.core.take_effects().unblocked.into_iter().for_each(|done| done.send(()).unwrap());
    ended.try_recv().is_ok()
}

#[test]
fn the_end_of_an_environment_releases_a_detached_lease_whose_ticket_no_caller_has() {
    let mut world = World::new();
    detach(&mut world);
    let ended = end_environment(&mut world);
    assert!(!has_ended(&mut world, &ended), "it waits for the release");
    let requests = world.exchange();
    assert!(matches!(requests[..], [Request::Release { .. }]), "{requests:?}");
    assert!(has_ended(&mut world, &ended));
    assert_eq!((world.table.len(), world.core.concerns()), (0, 0));
}

#[test]
fn the_end_of_an_environment_leaves_a_detached_lease_whose_ticket_a_caller_has() {
    let mut world = World::new();
    let token = detach(&mut world);
    world.give(Command::SeeTicket { env: ENV, token });
    let ended = end_environment(&mut world);
    assert!(has_ended(&mut world, &ended));
    assert!(world.exchange().is_empty());
    assert_eq!((world.table.len(), world.core.concerns()), (1, 0));
}

#[test]
fn only_the_environment_of_the_caller_sees_and_ends_a_ticket() {
    let mut world = World::new();
    let token = detach(&mut world);
    let (done, _ended) = sync_channel(1);
    world.give(Command::SeeTicket { env: ENV + 1, token });
    world.give(Command::CloseEnv { env: ENV + 1, done, patience: Duration::from_secs(1) });
    assert!(world.exchange().is_empty());
    end_environment(&mut world);
    world.exchange();
    assert_eq!(world.table.len(), 0);
}

#[test]
fn the_end_of_an_environment_releases_the_unseen_leases_of_clients_that_were_closed() {
    let mut world = World::new();
    let (watch, _) = (world.op(), detach(&mut world));
    world.give(Command::Watch { op: watch, client: CLIENT });
    let closed = close(&mut world);
    assert!(world.exchange().is_empty(), "a caller may still get the ticket");
    world.pass(100);
    assert!(matches!(world.outcome_of(closed), Outcome::Done), "the thread takes too long");
    assert!(world.core.is_used(STORE), "the release needs it");
    let ended = end_environment(&mut world);
    assert!(!has_ended(&mut world, &ended), "it waits for the release");
    let requests = world.exchange();
    assert!(matches!(requests[..], [Request::Release { .. }]), "{requests:?}");
    assert!(has_ended(&mut world, &ended));
    assert!(!world.core.is_used(STORE));
    assert_eq!((world.table.len(), world.core.concerns()), (0, 0));
}

#[test]
fn a_closed_client_is_forgotten_when_its_caller_has_the_ticket() {
    let mut world = World::new();
    let (watch, token) = (world.op(), detach(&mut world));
    world.give(Command::Watch { op: watch, client: CLIENT });
    let closed = close(&mut world);
    assert!(world.settled().is_empty());
    world.give(Command::SeeTicket { env: ENV, token });
    let settled: Vec<OpId> = world.settled().iter().map(|settled| settled.op).collect();
    assert_eq!(settled, [watch, closed]);
    assert!(!world.core.is_used(STORE));
    end_environment(&mut world);
    assert!(world.exchange().is_empty());
    assert_eq!(world.table.len(), 1);
}
