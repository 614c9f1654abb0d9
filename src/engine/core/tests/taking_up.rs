//! Early take-up: which notices are enough, for how long, and what is sent then.

use super::cohorts::rival;
use super::*;
use crate::lease::validity;
use crate::store::{AcquireRequest, GRANT_TTL};

/// Lets waiters have places in the queue of a lock that another client holds.
fn behind_a_rival<const N: usize>(
    world: &mut World,
    change: fn(&mut AcquireCommand),
) -> (Token, [Operation; N]) {
    let rivals = Token::random();
    rival(world, rivals);
    let waiters = std::array::from_fn(|_| world.acquire_with(Wait::Forever, change));
    world.exchange();
    (rivals, waiters)
}

/// The rival gives the lock back. What the store says then has not arrived yet.
fn notice(world: &mut World, rivals: Token) -> Notice {
    world.ask(Request::Release { key: "lock:k".into(), token: rivals, used: None }).unwrap();
    let mut notices = world.table.take_notices();
    assert_eq!(notices.len(), 1);
    notices.remove(0)
}

/// One notice reaches one waiter, so long after it had polled. Returns what is sent, and whether
/// the lease is its own.
fn told_after(ms: u64, change: fn(&mut AcquireCommand)) -> (Vec<Request>, bool) {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, change);
    let notice = notice(&mut world, rivals);
    world.now = world.now + Duration::from_millis(ms);
    world.core.noticed(world.now, STORE, notice);
    let held = asked.state.is_held(world.now);
    (world.only_batch().requests, held)
}

/// What a lease lives for that was handed over, less the drift.
fn grant() -> Duration {
    let ttl = Ttl::from_millis(GRANT_TTL.as_millis() as u32).unwrap();
    GRANT_TTL - validity::drift(ttl)
}

#[test]
fn a_notice_that_tells_the_fence_is_enough_and_a_renewal_does_the_rest() {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, |_| {});
    let polled = world.now;
    world.pass(100);
    let notice = notice(&mut world, rivals);
    let Notice::Granted { fence: Some(fence), .. } = notice else { panic!("{notice:?}") };
    world.core.noticed(world.now, STORE, notice);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Acquired(told, _) if told == fence));
    assert_eq!(asked.state.deadline(), polled + grant(), "from its poll, not from the notice");
    let sent = world.exchange();
    assert!(
        matches!(sent[..], [Request::Renew { ttl, fences: 0, .. }] if ttl.as_millis() == TTL),
        "{sent:?}"
    );
    assert_eq!(asked.state.deadline(), validity::deadline(world.now, Ttl::from_millis(TTL).unwrap()));
    assert!(world.settled().is_empty(), "no renewal that anybody asked for");
    let counts = [&world.stats.remote_hand_offs, &world.stats.waited, &world.stats.renewals];
    assert_eq!(counts.map(|count| count.get()), [1, 1, 0]);
    world.release(&asked);
    world.exchange();
    assert!(world.table.is_empty());
}

#[test]
fn enough_has_to_be_left_of_the_lease() {
    let last = (grant() - GRANT_TTL * 2 / 5).as_millis() as u64;
    assert!(matches!(told_after(last, |_| {}), (sent, true) if matches!(sent[..], [Request::Renew { .. }])));
    assert!(
        matches!(told_after(last + 1, |_| {}), (sent, false) if matches!(sent[..], [Request::Acquire(_)]))
    );
}

#[test]
fn a_lease_that_nobody_renews_is_asked_for_with_its_own_ttl() {
    assert!(!told_after(1, |asked| asked.auto_renew = false).1);
}

#[test]
fn nobody_believes_in_a_lease_for_longer_than_its_ttl() {
    type Change = fn(&mut AcquireCommand);
    let short: Change = |asked| asked.ttl = Ttl::from_millis(100).unwrap();
    let longer: Change = |asked| asked.ttl = Ttl::from_millis(500).unwrap();
    for (ms, change, is_enough) in [(100, short, false), (500, longer, true)] {
        let ttl = Ttl::from_millis(ms).unwrap();
        let mut world = World::new();
        let (rivals, [asked]) = behind_a_rival(&mut world, change);
        let polled = world.now;
        let notice = notice(&mut world, rivals);
        world.now = world.now + Duration::from_millis(20);
        world.core.noticed(world.now, STORE, notice);
        assert_eq!(asked.state.is_held(world.now), is_enough, "{ms} ms");
        assert!(asked.state.deadline() <= validity::deadline(polled, ttl));
        let sent = world.only_batch().requests;
        assert_eq!(matches!(sent[..], [Request::Renew { .. }]), is_enough, "{sent:?}");
    }
}

#[test]
fn a_notice_of_another_poll_than_the_last_is_not_believed() {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, |_| {});
    let Notice::Granted { number, fence } = notice(&mut world, rivals) else { panic!("no notice") };
    world.core.noticed(world.now, STORE, Notice::Granted { number: number - 1, fence });
    assert!(world.batches().is_empty(), "no ticket has this number");
    // The second notice names the poll before the last.
    for told in [Notice::Missed, Notice::Granted { number, fence }] {
        world.core.noticed(world.now, STORE, told);
        let batch = world.only_batch();
        assert!(matches!(batch.requests[..], [Request::Acquire(_)]));
        world.answer(batch, [queued()]);
    }
    assert!(!asked.state.is_held(world.now));
}

#[test]
fn a_notice_of_another_store_is_not_believed() {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, |_| {});
    let notice = notice(&mut world, rivals);
    world.core.noticed(world.now, STORE + 1, notice.clone());
    assert!(world.batches().is_empty() && !asked.state.is_held(world.now));
    world.core.noticed(world.now, STORE, notice);
    assert!(asked.state.is_held(world.now));
}

#[test]
fn while_a_poll_is_on_its_way_only_its_answer_grants() {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, |_| {});
    world.core.noticed(world.now, STORE, Notice::Missed);
    let poll = world.only_batch();
    let told = notice(&mut world, rivals);
    world.core.noticed(world.now, STORE, told);
    assert!(world.batches().is_empty() && !asked.state.is_held(world.now));
    // It came first, as it may: then it has to be asked again.
    world.answer(poll, [queued()]);
    world.exchange();
    assert!(asked.state.is_held(world.now));
}

#[test]
fn a_poll_whose_answer_was_lost_grants_nothing() {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, |_| {});
    world.core.noticed(world.now, STORE, Notice::Missed);
    let poll = world.only_batch();
    let told = notice(&mut world, rivals);
    world.answer(poll, [timed_out()]);
    world.core.noticed(world.now, STORE, told);
    assert!(matches!(world.exchange()[..], [Request::Acquire(_)]));
    assert!(asked.state.is_held(world.now));
}

#[test]
fn a_cohort_may_hand_on_a_granted_lease_at_once() {
    let mut world = World::new();
    let (rivals, [first, second, third]) = behind_a_rival(&mut world, |_| {});
    let notice = notice(&mut world, rivals);
    world.core.noticed(world.now, STORE, notice);
    assert!(first.state.is_held(world.now));
    world.release(&first);
    assert!(second.state.is_held(world.now), "before the renewal is answered");
    let sent = world.exchange();
    assert!(
        matches!(sent[..], [Request::Renew { fences: 0, .. }, Request::Acquire(_)]),
        "one renewal, and a place for the next: {sent:?}"
    );
    world.release(&second);
    assert!(world.batches().is_empty() && third.state.is_held(world.now), "handed on within the process");
}

#[test]
fn a_failed_renewal_is_repeated_while_the_lease_still_lives() {
    for crowd in [false, true] {
        let mut world = World::new();
        let long = |asked: &mut AcquireCommand| asked.ttl = Ttl::from_millis(600_000).unwrap();
        let (rivals, [asked]) = behind_a_rival(&mut world, long);
        if crowd {
            world.acquire_with(Wait::Forever, long);
        }
        let notice = notice(&mut world, rivals);
        world.core.noticed(world.now, STORE, notice);
        world.settled();
        let mut tries = 0;
        while asked.state.is_held(world.now) {
            // The poll of the next waiter gets no answer.
            let is_renewal = |batch: &Batch| matches!(batch.requests[..], [Request::Renew { .. }]);
            if let Some(batch) = world.batches().into_iter().find(is_renewal) {
                tries += 1;
                // As late as it may be.
                world.pass(batch.timeout.as_millis() as u64);
                assert!(tries > 1 || asked.state.is_held(world.now), "there is time for another");
                world.answer(batch, [timed_out()]);
            } else {
                world.step();
            }
        }
        assert!(tries >= 3, "{tries} tries");
    }
}

#[test]
fn a_lease_that_is_gone_is_lost() {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, |_| {});
    let notice = notice(&mut world, rivals);
    world.core.noticed(world.now, STORE, notice);
    world.settled();
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::NotHeld(Absence::Taken))]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Lost(LossReason::Taken)));
}

#[test]
fn a_waiter_that_has_given_up_is_handed_nothing() {
    let mut world = World::new();
    let (rivals, [asked]) = behind_a_rival(&mut world, |_| {});
    let notice = notice(&mut world, rivals);
    world.give(Command::Cancel { op: asked.op });
    world.core.noticed(world.now, STORE, notice);
    assert!(matches!(world.exchange()[..], [Request::Release { .. }]));
    assert!(world.table.is_empty() && !asked.state.is_held(world.now));
}

#[test]
fn a_waiter_that_missed_the_notice_of_a_short_lease_polls_in_time() {
    for ms in [100, 300, 500, 9_000] {
        let ttl = Ttl::from_millis(ms).unwrap();
        let mut world = World::new();
        let holder = Token::random();
        let long = Ttl::from_millis(TTL).unwrap();
        let ask = AcquireRequest::new("lock:k".into(), holder, long, "holder".into());
        world.ask(Request::Acquire(ask)).unwrap();
        let asked = world.acquire_with(Wait::Forever, |asked| asked.ttl = ttl);
        world.exchange();
        let released = world.now;
        world.ask(Request::Release { key: "lock:k".into(), token: holder, used: None }).unwrap();
        assert_eq!(world.table.take_notices().len(), 1, "and nobody tells it");
        world.pass_until_due();
        world.exchange();
        assert!(asked.state.is_held(world.now), "{ms} ms: after {:?}", world.now.since(released));
    }
}

#[test]
fn the_numbers_of_some_waiters_do_not_tell_the_number_of_another() {
    let mut world = World::new();
    for _ in 0..8 {
        world.acquire_with(Wait::Forever, |wanted| wanted.key = format!("lock:{}", wanted.op.slot).into());
    }
    let mut queue_entries: Vec<u64> = world
        .exchange()
        .into_iter()
        .filter_map(|request| match request {
            Request::Acquire(ask) => ask.place.map(|place| place.number),
            _ => None,
        })
        .collect();
    assert_eq!(queue_entries.len(), 8, "each waits");
    queue_entries.sort_unstable();
    assert!(queue_entries.windows(2).all(|pair| pair[1] - pair[0] > 1_000), "{queue_entries:?}");
}

#[test]
fn the_number_of_a_poll_does_not_tell_the_number_of_the_next() {
    let mut world = World::new();
    let first = world.hold();
    let next = world.acquire_with(Wait::Forever, |wanted| wanted.key = "lock:other".into());
    let mut numbers = Vec::new();
    for _ in 0..6 {
        let batch = world.only_batch();
        for request in &batch.requests {
            if let Request::Acquire(AcquireRequest { place: Some(place), .. }) = request {
                numbers.push(place.number);
            }
        }
        world.answer(batch, [queued()]);
        // A notice without a fence: the store has to be asked.
        let number = numbers[numbers.len() - 1];
        world.core.noticed(world.now, STORE, Notice::Granted { number, fence: None });
    }
    assert_eq!(numbers.len(), 6);
    for pair in numbers.windows(2) {
        assert!(pair[0].abs_diff(pair[1]) > 1_000_000, "{numbers:?}");
    }
    // The queue entry knows only its last numbers, and that of its first poll.
    let batch = world.only_batch();
    world.answer(batch, [queued()]);
    let has_poll = |world: &mut World, number| {
        world.core.noticed(world.now, STORE, Notice::Granted { number, fence: None });
        !world.batches().is_empty()
    };
    assert!(!has_poll(&mut world, numbers[1]));
    assert!(has_poll(&mut world, numbers[0]));
    assert!(!next.state.is_held(world.now) && first.state.is_held(world.now));
    world.give(Command::Cancel { op: next.op });
    assert!(world.core.queue_entries.is_empty(), "nothing is left of the ticket");
}
