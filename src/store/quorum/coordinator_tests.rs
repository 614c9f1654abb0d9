#[path = "coordinator_tests/test_quorum.rs"]
mod test_quorum;

use self::test_quorum::{BUSY, TIMEOUT, TestQuorum, accepts, acquire, got, queued, releases};
use super::super::pending_releases::STRAGGLER_PAUSES;
use super::*;
use crate::lease::{Fence, Token, Ttl};
use crate::store::{Absence, Availability, LeaseInfo, LockInfo, Servers};

#[test]
fn all_nodes_are_asked_at_once_and_the_last_one_need_not_answer() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![Request::Ping]);
    assert_eq!(quorum.calls.len(), 3);
    quorum.answer_one(2, Reply::Ready);
    assert!(quorum.answers.is_empty());
    quorum.answer_one(0, Reply::Ready);
    assert_eq!(quorum.settled_one(1), Reply::Ready);
    assert_eq!(quorum.coordinator.concerns(), 1, "an answer is still to come");
    quorum.answer_one(1, Reply::Ready);
    assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
}

#[test]
fn a_lease_takes_two_rounds_within_the_time_of_its_batch() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![acquire(Token::random(), None)]);
    let first = quorum.asked(0).unwrap().timeout;
    quorum.answer_one(0, got(10));
    quorum.answer_one(1, got(20));
    assert!(accepts(quorum.asked(0), 20));
    assert!(first + quorum.asked(0).unwrap().timeout <= TIMEOUT);
    assert!(quorum.answers.is_empty(), "not before most have accepted it");
    quorum.answer_one(0, Reply::Accepted);
    assert_eq!(quorum.settled_one(1), got(20));
    // A node that grants the lease late learns the fence.
    quorum.answer_one(2, got(30));
    assert!(accepts(quorum.asked(2), 20));
    quorum.answer_one(2, Reply::Accepted);
    assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
}

#[test]
fn what_a_node_grants_after_all_was_refused_is_taken_back() {
    for late in [Ok(got(10)), Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))] {
        let (mut quorum, token) = (TestQuorum::of(3), Token::random());
        quorum.submit(1, vec![acquire(token, None)]);
        quorum.answer_one(0, BUSY);
        quorum.answer_one(1, BUSY);
        assert_eq!(quorum.settled_one(1), BUSY);
        let times = if late.is_err() { 3 } else { 1 };
        quorum.answer(2, vec![late]);
        // A lease that the node has is released at once. A lease that the node may still grant is
        // released several times.
        for _ in 0..times {
            if times > 1 {
                quorum.wait();
            }
            assert!(releases(quorum.asked(2), token), "{:?}", quorum.calls);
            quorum.answer_one(2, Reply::Released);
        }
        assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
    }
}

#[test]
fn what_a_node_may_have_granted_before_all_was_refused_is_taken_back() {
    let (mut quorum, token) = (TestQuorum::of(3), Token::random());
    quorum.submit(1, vec![acquire(token, None)]);
    quorum.answer(0, vec![Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))]);
    quorum.answer_one(1, BUSY);
    quorum.answer_one(2, BUSY);
    assert_eq!(quorum.settled_one(1), BUSY);
    quorum.wait();
    assert!(releases(quorum.asked(0), token));
    assert_eq!(quorum.calls.len(), 1, "and nowhere else");
}

#[test]
fn what_some_nodes_have_of_an_acquire_that_failed_is_taken_back_from_them() {
    let away = || vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))];
    for has_queued in [false, true] {
        let (mut quorum, token) = (TestQuorum::of(5), Token::random());
        if has_queued {
            quorum.submit(1, vec![acquire(token, Some(7))]);
            (0..5).for_each(|node| quorum.answer_one(node, queued()));
            assert_eq!(quorum.settled_one(1), queued());
        }
        quorum.submit(2, vec![acquire(token, Some(8))]);
        quorum.answer_one(0, got(10));
        quorum.answer_one(1, queued());
        quorum.answer(2, away());
        quorum.answer(3, away());
        assert!(quorum.answers.is_empty(), "it depends on the last one");
        quorum.answer(4, away());
        assert_eq!(quorum.settled(2)[0].as_ref().unwrap_err().kind, StoreErrorKind::Quorum);
        // A node that could not be asked has at most the place that the token had there before.
        for node in 0..5 {
            let is_there = node < 2 || has_queued;
            assert_eq!(releases(quorum.asked(node), token), is_there, "{node}: {:?}", quorum.calls);
            if is_there {
                quorum.answer_one(node, Reply::Released);
            }
        }
        assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
    }
}

#[test]
fn a_release_that_a_node_did_not_hear_is_repeated_there() {
    let (mut quorum, token) = (TestQuorum::of(3), Token::random());
    quorum.submit(1, vec![Request::Release { key: "k".into(), token, used: None }]);
    quorum.answer_one(0, Reply::Released);
    quorum.answer_one(1, Reply::Released);
    assert_eq!(quorum.settled_one(1), Reply::Released);
    quorum.answer(2, vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))]);
    for _ in 0..3 {
        quorum.wait();
        assert!(releases(quorum.asked(2), token));
        quorum.answer(2, vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))]);
    }
    quorum.wait();
    quorum.answer_one(2, Reply::NotHeld(Absence::Missing));
    assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
}

#[test]
fn a_waiter_with_a_minority_backs_off_after_a_while() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![acquire(Token::random(), Some(7))]);
    quorum.answer_one(0, got(10));
    quorum.answer_one(1, queued());
    quorum.answer_one(2, queued());
    assert!(quorum.answers.is_empty(), "it may still come");
    let waited = quorum.wait().expect("not for ever");
    assert!(!waited.is_zero() && waited <= 2 * LONGEST_PATIENCE, "{waited:?}");
    assert_eq!(quorum.settled_one(1), Reply::Split);
    assert_eq!(quorum.coordinator.concerns(), 0);
    // A client that does not wait backs off at once.
    quorum.submit(2, vec![acquire(Token::random(), None)]);
    quorum.answer_one(0, got(10));
    quorum.answer_one(1, BUSY);
    quorum.answer_one(2, BUSY);
    assert_eq!(quorum.settled_one(2), Reply::Split);
}

#[test]
fn a_waiter_that_backed_off_often_waits_no_longer_than_at_first() {
    let mut quorum = TestQuorum::of(3);
    let longest = quorum.coordinator.patience().mul_f64(1.5);
    for batch in 1..=100 {
        quorum.submit(batch, vec![acquire(Token::random(), Some(batch))]);
        quorum.answer_one(0, got(1));
        quorum.answer_one(1, queued());
        quorum.answer_one(2, queued());
        let waited = quorum.wait().expect("it holds what it has");
        assert!(waited <= longest, "in round {batch}: {waited:?}");
        assert_eq!(quorum.settled_one(batch), Reply::Split);
    }
}

#[test]
fn a_waiter_with_a_minority_takes_nodes_that_are_handed_to_it_meanwhile() {
    // The notice comes while the waiter holds a minority, or before the last node has answered.
    for early in [false, true] {
        let mut quorum = TestQuorum::of(3);
        quorum.submit(1, vec![acquire(Token::random(), Some(7))]);
        quorum.answer_one(0, got(10));
        quorum.answer_one(1, queued());
        if early {
            quorum.notice(1, 7);
            quorum.answer_one(2, queued());
        } else {
            quorum.answer_one(2, queued());
            quorum.notice(1, 7);
        }
        let Some(Call { requests, .. }) = quorum.asked(1) else { panic!("it is asked again") };
        assert!(matches!(&requests[..], [Request::Acquire(_)]), "{requests:?}");
        quorum.answer_one(1, got(20));
        assert!(accepts(quorum.asked(0), 20));
        quorum.answer_one(0, Reply::Accepted);
        assert_eq!(quorum.settled_one(1), got(20));
        assert_eq!((quorum.coordinator.concerns(), quorum.notices.len()), (0, 0));
        assert_eq!(quorum.wait(), None);
    }
}

#[test]
fn the_next_waiter_asks_a_node_whose_lease_is_about_to_end_again_before_it_backs_off() {
    let soon =
        || Reply::Queued { remaining: Some(Duration::from_millis(2)), ahead: 0, notified: true, by: Some(1) };
    let gone = || vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))];
    for ended in [true, false] {
        let mut quorum = TestQuorum::of(3);
        quorum.submit(1, vec![acquire(Token::random(), Some(7))]);
        quorum.answer(2, gone());
        quorum.answer_one(0, got(10));
        quorum.answer_one(1, soon());
        let waited = quorum.wait().expect("not for ever");
        assert!(waited >= Duration::from_millis(3), "it has ended by then: {waited:?}");
        assert_eq!(quorum.calls.len(), 1, "{:?}", quorum.calls);
        assert!(matches!(quorum.asked(1).unwrap().requests[..], [Request::Acquire(_)]));
        if ended {
            quorum.answer_one(1, got(20));
            quorum.answer_one(0, Reply::Accepted);
            assert_eq!(quorum.settled_one(1), got(20));
        } else {
            quorum.answer_one(1, soon());
            assert!(quorum.wait().expect("once, and not again") <= LONGEST_PATIENCE);
            assert_eq!(quorum.settled_one(1), Reply::Split);
        }
        assert_eq!((quorum.coordinator.concerns(), quorum.calls.len()), (0, 0));
    }
}

#[test]
fn notices_are_gathered_until_most_nodes_have_sent_one() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![acquire(Token::random(), Some(7))]);
    for node in 0..3 {
        quorum.answer_one(node, queued());
    }
    assert_eq!(quorum.settled_one(1), queued());
    quorum.notice(0, 7);
    assert_eq!(quorum.notices, []);
    quorum.notice(2, 7);
    let called = [Notice::Granted { number: 7, fence: None }];
    assert_eq!(quorum.notices, called, "and tells no fence: every node has another");
    quorum.notice(1, 7);
    assert_eq!((quorum.wait(), &quorum.notices[..]), (None, &called[..]));
    // A waiter that may have missed a notice polls again.
    quorum.coordinator.noticed(quorum.now, 1, Notice::Missed);
    quorum.gather();
    assert_eq!(quorum.notices[1..], [Notice::Missed]);
}

#[test]
fn a_node_that_answers_late_that_it_has_granted_the_lock_is_as_good_as_a_notice() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![acquire(Token::random(), Some(7))]);
    quorum.answer_one(0, queued());
    quorum.answer_one(1, queued());
    assert_eq!(quorum.settled_one(1), queued());
    quorum.answer_one(2, got(10));
    quorum.notice(0, 7);
    assert_eq!(quorum.notices, [Notice::Granted { number: 7, fence: None }]);
}

#[test]
fn an_inspection_waits_for_a_node_that_is_farther_away() {
    let lease = |servers| {
        let fence = Some(Fence(5));
        let lease = LeaseInfo { mark: Some(7), holder: None, fence, remaining: None, servers };
        Reply::Inspected(Some(LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() }))
    };
    for heard in [true, false] {
        let mut quorum = TestQuorum::of(3);
        quorum.submit(1, vec![Request::Inspect { key: "k".into() }]);
        [0, 1].into_iter().for_each(|node| quorum.answer_one(node, lease(None)));
        assert!(quorum.answers.is_empty());
        let waited = quorum.coordinator.next_wake().expect("it does not wait for ever").since(quorum.now);
        assert_eq!(waited, TIMEOUT);
        let (held, unheard) = if heard { (3, 0) } else { (2, 1) };
        if heard {
            quorum.now = quorum.now + TIMEOUT / 2;
            quorum.answer_one(2, lease(None));
        } else {
            quorum.wait();
        }
        assert_eq!(quorum.settled_one(1), lease(Some(Servers { held, total: 3, unheard })));
    }
}

#[test]
fn requests_on_one_key_wait_for_the_one_before() {
    let (mut quorum, token) = (TestQuorum::of(3), Token::random());
    let release = Request::Release { key: "k".into(), token, used: None };
    let other = Request::Inspect { key: "other".into() };
    quorum.submit(1, vec![acquire(token, None), release, other, Request::Inspect { key: "k".into() }]);
    for node in 0..3 {
        let kinds: usize = quorum.calls.iter().filter(|c| c.node == node).map(|c| c.requests.len()).sum();
        assert_eq!(kinds, 2, "the first of each key");
    }
    let nobody = || Reply::Inspected(None);
    // The acquire has less time than the other requests, so it makes a call of its own.
    for node in 0..3 {
        quorum.answer_one(node, got(10));
        quorum.answer_one(node, nobody());
    }
    for node in 0..3 {
        assert!(releases(quorum.asked(node), token), "after the second round: {:?}", quorum.calls);
        quorum.answer_one(node, Reply::Released);
    }
    // The last node granted the lease after the decision. Its answer came when the release was on
    // its way, which may have arrived first. So the node is asked to release the lease again, and
    // to accept the fence.
    assert!(releases(quorum.asked(2), token), "{:?}", quorum.calls);
    quorum.answer_one(2, Reply::NotHeld(Absence::Missing));
    assert!(accepts(quorum.asked(2), 10), "{:?}", quorum.calls);
    quorum.answer_one(2, Reply::NotHeld(Absence::Missing));
    for node in 0..3 {
        assert!(matches!(quorum.asked(node).unwrap().requests[..], [Request::Inspect { .. }]));
        quorum.answer_one(node, nobody());
    }
    assert_eq!(quorum.settled(1), [got(10), Reply::Released, nobody(), nobody()].map(Ok));
    assert_eq!(quorum.coordinator.concerns(), 0);
}

#[test]
fn counted_permits_are_refused_without_asking_anybody() {
    let mut quorum = TestQuorum::of(3);
    let Request::Acquire(ask) = acquire(Token::random(), None) else { unreachable!() };
    let permit = Request::Acquire(AcquireRequest { mode: Mode::Shared { most: 3 }, ..ask.clone() });
    let reader = Request::Acquire(AcquireRequest { mode: Mode::Shared { most: u32::MAX }, ..ask });
    quorum.submit(1, vec![permit, reader]);
    for node in 0..2 {
        quorum.answer_one(node, got(10));
    }
    let answers = quorum.settled(1);
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unsupported, false));
    assert_eq!(answers[1], Ok(got(10)));
}

#[test]
fn a_poll_that_was_open_at_the_release_is_released_again_at_its_node() {
    let (mut quorum, token) = (TestQuorum::of(3), Token::random());
    quorum.submit(1, vec![acquire(token, Some(7))]);
    quorum.answer_one(0, queued());
    quorum.answer_one(1, queued());
    assert_eq!(quorum.settled_one(1), queued());
    quorum.submit(2, vec![Request::Release { key: "k".into(), token, used: None }]);
    quorum.answer(2, vec![Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))]);
    (0..3).for_each(|node| quorum.answer_one(node, Reply::NotHeld(Absence::Missing)));
    assert_eq!(quorum.settled_one(2), Reply::NotHeld(Absence::Missing));
    for pause in STRAGGLER_PAUSES {
        assert_eq!(quorum.wait().as_ref(), Some(pause));
        assert!(releases(quorum.asked(2), token), "{:?}", quorum.calls);
        quorum.answer_one(2, Reply::NotHeld(Absence::Missing));
    }
    assert_eq!(
        (quorum.coordinator.concerns(), quorum.coordinator.open_requests.len(), quorum.wait()),
        (0, 0, None)
    );
}

#[path = "coordinator/adopting_calls_tests.rs"]
mod adopting_calls_tests;
#[path = "coordinator/adopting_tests.rs"]
mod adopting_tests;
#[path = "coordinator/detaching_tests.rs"]
mod detaching_tests;
#[path = "coordinator/late_adoption_tests.rs"]
mod late_adoption_tests;
#[path = "coordinator/lost_tests.rs"]
mod lost_tests;
#[path = "coordinator/missing_leases_tests.rs"]
mod missing_leases_tests;
#[path = "coordinator/newer_leases_tests.rs"]
mod newer_leases_tests;
#[path = "coordinator/releasing_tests.rs"]
mod releasing_tests;
#[path = "coordinator/repairing_tests.rs"]
mod repairing_tests;
#[path = "coordinator/ticket_chains_tests.rs"]
mod ticket_chains_tests;
#[path = "coordinator/used_tickets_tests.rs"]
mod used_tickets_tests;

#[test]
fn the_quorum_tells_that_it_is_away_once_and_passes_on_what_breakers_say() {
    let mut quorum = TestQuorum::of(3);
    let away = |node: usize| {
        Availability::Away(StoreError::not_done(StoreErrorKind::Unreachable, format!("n{node} is gone")))
    };
    for (node, notified) in
        [(0, away(0)), (2, away(2)), (1, away(1)), (1, Availability::Usable), (0, Availability::Usable)]
    {
        quorum.coordinator.noticed(quorum.now, node, Notice::Availability(notified));
    }
    quorum.gather();
    let [Notice::Availability(Availability::Away(error)), Notice::Availability(Availability::Usable)] =
        &quorum.notices[..]
    else {
        panic!("{:?}", quorum.notices)
    };
    assert_eq!((error.kind, error.votes.len()), (StoreErrorKind::Quorum, 3));
}
