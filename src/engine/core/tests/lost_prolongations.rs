//! Tests leases that are lost while the store may have prolonged them by much.

use super::*;

/// How long the tickets would live, and for how long the holders renew their leases, in ms.
const LONG: u32 = 600_000;

/// How a holder prolongs its lease.
#[derive(Clone, Copy, Debug)]
enum Prolongs {
    Detach,
    Renew,
}

use Prolongs::{Detach, Renew};

/// Acquires a lease and prolongs it. The store carries out the request, if `arrives`. Returns the
/// lease, and the batch to answer.
fn prolong(
    world: &mut World,
    how: Prolongs,
    arrives: bool,
    change: impl FnOnce(&mut AcquireCommand),
) -> (Operation, Batch) {
    let held = world.acquire_with(Wait::Forever, change);
    world.exchange();
    world.settled();
    let batch = ask(world, &held, how);
    if arrives {
        world.ask(batch.requests[0].clone()).unwrap();
    }
    (held, batch)
}

/// Asks to prolong a lease. Returns the batch to answer.
fn ask(world: &mut World, held: &Operation, how: Prolongs) -> Batch {
    let (op, ttl) = (held.op, Ttl::from_millis(LONG));
    world.give(match how {
        Detach => Command::Detach { op, ttl, remembers: false },
        Renew => Command::Renew { op, ttl },
    });
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Detach { .. } | Request::Renew { .. }]));
    batch
}

/// Lets time pass until the lease is lost. No renewal arrives at the store.
fn lose(world: &mut World, held: &Operation) {
    while held.state.is_held(world.now) {
        world.step();
        for batch in world.batches() {
            let answers: Vec<_> = batch.requests.iter().map(|_| timed_out()).collect();
            world.answer(batch, answers);
        }
    }
    let settled = world.settled();
    assert!(settled.iter().any(|told| matches!(told.outcome, Outcome::Lost(_))), "{settled:?}");
}

/// Lets the engine do what is due until `end`. Returns the requests that it sends.
fn run_until(world: &mut World, end: Instant) -> Vec<Request> {
    let mut sent = world.exchange();
    while world.core.next_wake().is_some_and(|at| at <= end) {
        world.step();
        sent.extend(world.exchange());
    }
    world.now = end;
    sent
}

fn is_release(request: &Request) -> bool {
    matches!(request, Request::Release { .. })
}

fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

fn no_renewal(asked: &mut AcquireCommand) {
    asked.auto_renew = false;
}

fn drained(world: &mut World) -> Vec<Request> {
    world.give(Command::DrainClient { client: CLIENT });
    world.exchange()
}

#[test]
fn a_lease_is_released_when_it_would_have_ended_without_a_prolongation_that_was_not_answered() {
    for how in [Detach, Renew] {
        let mut world = World::new();
        let granted = world.now;
        let (held, batch) = prolong(&mut world, how, true, no_renewal);
        world.answer(batch, [timed_out()]);
        lose(&mut world, &held);
        let sent = run_until(&mut world, granted + ms(TTL));
        assert!(sent.is_empty(), "{how:?}: the store's clock may be slower");
        assert_eq!(world.table.len(), 1);
        let sent = run_until(&mut world, granted + ms(TTL + TTL / 50 + 10));
        assert!(matches!(sent[..], [Request::Release { .. }]), "{how:?}: {sent:?}");
        assert!(world.table.is_empty());
        assert_eq!(world.core.concerns(), 0);
    }
}

#[test]
fn renewals_without_an_answer_put_the_release_off() {
    for how in [Detach, Renew] {
        let mut world = World::new();
        let (held, batch) = prolong(&mut world, how, true, |_| {});
        world.answer(batch, [timed_out()]);
        let mut last = None;
        while held.state.is_held(world.now) {
            world.step();
            for batch in world.batches() {
                last = Some(world.now);
                let answers: Vec<_> = batch.requests.iter().map(|_| timed_out()).collect();
                world.answer(batch, answers);
            }
        }
        let last = last.expect("the lease was renewed");
        let sent = run_until(&mut world, last + ms(TTL));
        assert!(sent.is_empty(), "{how:?}: the last renewal may have arrived");
        let sent = run_until(&mut world, last + ms(2 * TTL));
        assert!(sent.iter().any(is_release), "{how:?}: {sent:?}");
        assert!(world.table.is_empty());
    }
}

#[test]
fn a_lease_that_reached_its_max_hold_is_released_when_the_store_would_have_ended_it() {
    let mut world = World::new();
    let granted = world.now;
    let (held, batch) = prolong(&mut world, Detach, true, |asked| {
        (asked.max_hold, asked.auto_renew) = (Some(ms(TTL / 3)), false);
    });
    world.answer(batch, [timed_out()]);
    lose(&mut world, &held);
    assert_eq!(world.now, granted + ms(TTL / 3));
    assert!(run_until(&mut world, granted + ms(TTL)).is_empty(), "the holder's work may run");
    let sent = run_until(&mut world, granted + ms(2 * TTL));
    assert!(sent.iter().any(is_release), "{sent:?}");
    assert!(world.table.is_empty());
}

#[test]
fn a_prolongation_that_succeeds_after_the_loss_is_undone() {
    for (how, engine_knows) in [(Detach, true), (Detach, false), (Renew, true), (Renew, false)] {
        let mut world = World::new();
        let granted = world.now;
        let (held, batch) = prolong(&mut world, how, true, no_renewal);
        if engine_knows {
            lose(&mut world, &held);
        } else {
            world.now = granted + ms(TTL);
            assert!(!held.state.is_held(world.now));
        }
        world.answer(batch, [Ok(Reply::Renewed { block: None })]);
        let sent = run_until(&mut world, granted + ms(2 * TTL));
        assert!(sent.iter().any(is_release), "{how:?}: {sent:?}");
        let settled = world.settled();
        let is_told = |told: &Settlement| matches!(told.outcome, Outcome::Detached | Outcome::Renewed);
        assert!(!settled.iter().any(is_told), "{settled:?}");
        assert!(world.table.is_empty());
        assert_eq!(world.core.concerns(), 0);
    }
}

#[test]
fn a_renewal_that_succeeds_before_the_loss_is_not_undone() {
    let mut world = World::new();
    let (held, batch) = prolong(&mut world, Renew, true, no_renewal);
    world.answer(batch, [Ok(Reply::Renewed { block: None })]);
    world.settled();
    world.pass(u64::from(LONG / 2));
    assert!(held.state.is_held(world.now));
    lose(&mut world, &held);
    assert!(world.exchange().is_empty());
    assert_eq!(world.core.concerns(), 0);
}

#[test]
fn a_detachment_that_lasts_no_longer_than_the_lease_is_undone_too() {
    // A node of a quorum keeps an adopted lease until the end of its ticket.
    let mut world = World::new();
    let granted = world.now;
    let held = world.acquire_with(Wait::Forever, no_renewal);
    world.exchange();
    world.give(Command::Detach { op: held.op, ttl: Ttl::from_millis(1_000), remembers: false });
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    lose(&mut world, &held);
    let sent = run_until(&mut world, granted + ms(2 * TTL));
    assert!(sent.iter().any(is_release), "{sent:?}");
    assert_eq!(world.core.concerns(), 0);
}

#[test]
fn a_prolongation_that_certainly_failed_leaves_nothing_to_release() {
    for how in [Detach, Renew] {
        let mut world = World::new();
        let (held, batch) = prolong(&mut world, how, false, no_renewal);
        world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"))]);
        lose(&mut world, &held);
        assert_eq!(world.core.concerns(), 0);
        assert!(world.exchange().is_empty(), "{how:?}");
    }
}

#[test]
fn a_later_certain_failure_does_not_forget_an_earlier_prolongation() {
    for (first, second) in [(Detach, Detach), (Detach, Renew), (Renew, Detach), (Renew, Renew)] {
        let mut world = World::new();
        let (held, batch) = prolong(&mut world, first, true, no_renewal);
        world.answer(batch, [timed_out()]);
        let batch = ask(&mut world, &held, second);
        world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"))]);
        lose(&mut world, &held);
        let end = world.now + ms(TTL);
        let sent = run_until(&mut world, end);
        assert!(sent.iter().any(is_release), "{first:?}, {second:?}: {sent:?}");
        assert!(world.table.is_empty());
    }
}

#[test]
fn a_lease_that_the_store_is_to_remember_is_not_released_after_its_loss() {
    let mut world = World::new();
    let held = world.acquire_with(Wait::Forever, no_renewal);
    world.exchange();
    world.give(Command::Detach { op: held.op, ttl: Ttl::from_millis(LONG), remembers: true });
    let batch = world.only_batch();
    world.ask(batch.requests[0].clone()).unwrap();
    world.answer(batch, [timed_out()]);
    lose(&mut world, &held);
    assert!(drained(&mut world).is_empty());
    let end = world.now + ms(LONG) / 2;
    assert!(run_until(&mut world, end).is_empty());
    assert_eq!((world.table.len(), world.core.concerns()), (1, 0));
}

#[test]
fn closing_releases_a_lost_lease_at_once_and_waits_for_that() {
    for how in [Detach, Renew] {
        let mut world = World::new();
        let (held, batch) = prolong(&mut world, how, true, no_renewal);
        world.answer(batch, [timed_out()]);
        lose(&mut world, &held);
        let op = world.op();
        world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
        assert!(world.settled().is_empty(), "{how:?}: the release has no answer yet");
        let sent = world.exchange();
        assert!(matches!(sent[..], [Request::Release { .. }]), "{how:?}: {sent:?}");
        assert!(world.table.is_empty());
        let effects = world.core.take_effects();
        assert!(matches!(effects.settled[..], [Settlement { outcome: Outcome::Done, .. }]));
        assert_eq!((effects.unused, world.core.concerns()), (vec![STORE], 0));
    }
}

#[test]
fn a_drain_releases_a_lost_lease_at_once_unless_its_section_may_run() {
    for section in [false, true] {
        let mut world = World::new();
        let (held, batch) = prolong(&mut world, Detach, true, |asked| {
            (asked.auto_renew, asked.section) = (false, section);
        });
        let token = batch.requests[0].lease().expect("of a lease").0;
        world.answer(batch, [timed_out()]);
        lose(&mut world, &held);
        assert_eq!(drained(&mut world).iter().any(is_release), !section);
        world.give(Command::ReleaseLost { op: held.op, token });
        assert_eq!(world.exchange().iter().any(is_release), section);
        assert!(world.table.is_empty());
        assert_eq!(world.core.concerns(), 0);
    }
}

#[test]
fn a_holder_that_releases_a_lost_lease_frees_the_lock_even_if_the_engine_does_not_know_the_loss() {
    for how in [Detach, Renew] {
        let mut world = World::new();
        let (held, batch) = prolong(&mut world, how, true, no_renewal);
        let token = batch.requests[0].lease().expect("of a lease").0;
        world.answer(batch, [timed_out()]);
        world.settled();
        world.now = world.now + ms(TTL);
        assert!(!held.state.is_held(world.now) && !held.state.release(world.now));
        world.give(Command::ReleaseLost { op: held.op, token: Token::random() });
        assert!(world.settled().is_empty(), "the operation is another lease's by now");
        world.give(Command::ReleaseLost { op: held.op, token });
        assert!(matches!(world.outcome_of(held.op), Outcome::Lost(LossReason::Expired)));
        let sent = world.exchange();
        assert!(matches!(sent[..], [Request::Release { .. }]), "{how:?}: {sent:?}");
        assert!(world.table.is_empty());
    }
}
