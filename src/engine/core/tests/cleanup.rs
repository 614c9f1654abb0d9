//! Tests clean-ups whose release the store refuses or does not answer.

use super::*;
use crate::engine::core::state::clean_ups::MOST_OVERDUE;
use crate::store::breaker::{BreakerState, Health};

fn refused(kind: StoreErrorKind) -> Answer {
    Err(StoreError::not_done(kind, "no"))
}

impl World {
    /// Answers every request with `answer` for `ms`. Returns the number of releases that were sent.
    fn answer_all_for(&mut self, ms: u64, answer: fn() -> Answer) -> usize {
        let (end, mut releases) = (self.now + Duration::from_millis(ms), 0);
        loop {
            for batch in self.batches() {
                let is_release = |request: &&Request| matches!(request, Request::Release { .. });
                releases += batch.requests.iter().filter(is_release).count();
                let answers: Vec<_> = batch.requests.iter().map(|_| answer()).collect();
                self.answer(batch, answers);
            }
            match self.core.next_wake().filter(|at| *at <= end) {
                Some(_) => self.step(),
                None => break,
            }
        }
        self.now = end;
        self.core.tick(end);
        releases
    }

    /// Sends an acquire that times out. Returns its request.
    fn give_up(&mut self) -> Request {
        self.acquire(Wait::Never);
        let batch = self.only_batch();
        let request = batch.requests[0].clone();
        self.answer(batch, [timed_out()]);
        self.settled();
        request
    }
}

#[test]
fn a_store_that_is_silent_for_longer_than_the_lease_lives_is_asked_until_it_answers() {
    let mut world = World::new();
    let acquire = world.give_up();
    world.answer_all_for(10 * u64::from(TTL), timed_out);
    // The store resumes, and first carries out the pending acquire.
    world.ask(acquire.clone()).unwrap();
    assert_eq!(world.table.len(), 1);
    let thawed = world.now;
    world.pass_until_due();
    assert!(world.now.since(thawed) <= Duration::from_secs(2), "{:?}", world.now.since(thawed));
    world.exchange();
    assert!(world.table.is_empty());
    // The store may also carry out the acquire after that release. Then the next release ends the
    // lease.
    world.ask(acquire).unwrap();
    world.pass_until_due();
    world.exchange();
    assert!(world.table.is_empty());
    world.pass_until_due();
    world.exchange();
    assert_eq!((world.core.concerns(), world.core.clean_ups.overdue()), (0, 0));
}

#[test]
fn a_silent_store_is_asked_seldom() {
    let mut world = World::new();
    world.give_up();
    world.answer_all_for(2 * u64::from(TTL), timed_out);
    let releases = world.answer_all_for(60_000, timed_out);
    assert!((30..=65).contains(&releases), "{releases} in a minute");
}

#[test]
fn a_release_that_is_refused_is_repeated_until_the_lease_has_ended() {
    use StoreErrorKind::{Denied, Forbidden, Full, Loading, ReadOnly, Unsupported};
    for kind in [Denied, Forbidden, Full, Loading, ReadOnly, Unsupported] {
        let mut world = World::new();
        let held = world.hold();
        world.release(&held);
        let release = world.only_batch();
        world.answer(release, [refused(kind)]);
        assert!(matches!(world.outcome_of(held.op), Outcome::Failed(_)));
        let mut releases = 0;
        for _ in 0..6 {
            world.pass_until_due();
            let release = world.only_batch();
            releases += release.requests.len();
            world.answer(release, [refused(kind)]);
        }
        assert_eq!(releases, 6, "{kind:?}");
        world.pass_until_due();
        let release = world.only_batch();
        world.answer(release, [Ok(Reply::Released)]);
        assert_eq!(world.core.concerns(), 0, "{kind:?}");
    }
}

#[test]
fn a_release_that_is_always_refused_is_given_up_when_the_lease_has_ended() {
    let mut world = World::new();
    let held = world.hold();
    world.release(&held);
    let denied = || refused(StoreErrorKind::Denied);
    assert!(world.answer_all_for(u64::from(TTL) - 1_000, denied) > 10);
    assert_eq!(world.core.clean_ups.len(), 1);
    // The store's clock may be a little slower.
    world.answer_all_for(1_000 + u64::from(TTL) / 50, denied);
    assert_eq!(world.core.concerns(), 0);
}

#[test]
fn a_store_that_refuses_after_its_silence_may_have_granted_the_lease_just_before() {
    let mut world = World::new();
    world.give_up();
    world.answer_all_for(10 * u64::from(TTL), timed_out);
    let denied = || refused(StoreErrorKind::Denied);
    world.answer_all_for(u64::from(TTL) - 1_000, denied);
    assert_eq!((world.core.clean_ups.len(), world.core.clean_ups.overdue()), (1, 0));
    world.answer_all_for(3_000, denied);
    assert_eq!(world.core.concerns(), 0);
}

#[test]
fn a_late_acquire_is_released_for_its_whole_ttl_if_the_store_then_refuses() {
    let (mut world, ttl) = (World::new(), 300_000);
    let asked = world.acquire_with(Wait::Forever, |acquire| acquire.ttl = Ttl::from_millis(ttl).unwrap());
    let poll = world.only_batch();
    world.answer(poll, [timed_out()]);
    world.pass_until_due();
    let poll = world.only_batch();
    world.answer(poll, [Ok(Reply::Acquired { fence: Fence(5), waiting: 0 })]);
    world.settled();
    world.release(&asked);
    let release = world.only_batch();
    world.answer(release, [Ok(Reply::Released)]);
    // The first acquire may have arrived before the store refused the second release.
    let denied = || refused(StoreErrorKind::Denied);
    world.answer_all_for(u64::from(ttl) - 1_000, denied);
    assert_eq!(world.core.clean_ups.len(), 1);
    world.answer_all_for(3_000, denied);
    assert_eq!(world.core.concerns(), 0);
}

#[test]
fn a_key_with_other_data_is_not_released() {
    let mut world = World::new();
    world.give_up();
    assert_eq!(world.answer_all_for(u64::from(TTL), || refused(StoreErrorKind::WrongType)), 1);
    assert_eq!(world.core.concerns(), 0);
}

#[test]
fn overdue_clean_ups_are_bounded_and_the_rest_is_left_to_the_ttl() {
    let mut world = World::new();
    for _ in 0..MOST_OVERDUE + 100 {
        world.acquire_with(Wait::Never, |asked| asked.key = format!("lock:{}", asked.op.slot).into());
    }
    let asked: Vec<_> = world.batches();
    let acquires: Vec<Request> = asked.iter().flat_map(|batch| batch.requests.clone()).collect();
    for batch in asked {
        let answers: Vec<_> = batch.requests.iter().map(|_| timed_out()).collect();
        world.answer(batch, answers);
    }
    assert_eq!(world.core.clean_ups.len(), MOST_OVERDUE + 100);
    world.answer_all_for(2 * u64::from(TTL), timed_out);
    assert_eq!((world.core.clean_ups.len(), world.core.clean_ups.overdue()), (MOST_OVERDUE, MOST_OVERDUE));
    for request in acquires {
        world.ask(request).unwrap();
    }
    while world.core.concerns() > 0 {
        world.step();
        world.exchange();
    }
    assert_eq!((world.table.len(), world.core.clean_ups.overdue()), (100, 0));
}

#[test]
fn the_end_of_a_client_does_not_wait_for_overdue_clean_ups_but_its_store_stays_open_for_them() {
    let mut world = World::new();
    let acquire = world.give_up();
    world.answer_all_for(2 * u64::from(TTL), timed_out);
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
    let effects = world.core.take_effects();
    assert!(matches!(effects.settled[..], [Settlement { outcome: Outcome::Done, .. }]));
    assert!(effects.unused.is_empty());
    world.ask(acquire).unwrap();
    for _ in 0..3 {
        world.pass_until_due();
        world.exchange();
    }
    assert!(world.table.is_empty());
    assert_eq!(world.core.take_effects().unused, [STORE]);
}

#[test]
fn a_breaker_that_closes_ends_the_pauses_of_clean_ups() {
    let mut world = World::new();
    world.give_up();
    world.answer_all_for(2 * u64::from(TTL), timed_out);
    assert!(world.batches().is_empty());
    let state = BreakerState::Closed;
    let health = Health { store: "redis://somewhere".into(), state, failures: 0, since: 1, reason: None };
    world.core.noticed(world.now, STORE, Notice::Breaker(Arc::new(health)));
    assert!(matches!(world.exchange()[..], [Request::Release { .. }]));
}
