//! Tests releases that some nodes refuse, and releases of a lease that some nodes lack.

use super::adopting_tests::{TestNetwork, adopt, give_back};
use super::*;
use crate::lease::Token;
use crate::store::Place;

const MISSING: Reply = Reply::NotHeld(Absence::Missing);
const TAKEN: Reply = Reply::NotHeld(Absence::Taken);
/// The ttl of the tests in ms.
const TTL: u64 = 5_000;

fn ttl() -> Ttl {
    Ttl::from_millis(TTL as u32).unwrap()
}

fn denied() -> Answer {
    Err(StoreError::not_done(StoreErrorKind::Denied, "NOPERM"))
}

fn away() -> Answer {
    Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))
}

fn release(token: Token) -> Request {
    Request::Release { key: "k".into(), token, used: None }
}

impl TestQuorum {
    /// Acquires a lease that these nodes grant. The others are away.
    fn lease_at(&mut self, granted: [bool; 3]) -> Token {
        let token = Token::random();
        let ask = AcquireRequest::new("k".into(), token, ttl(), "h".into());
        self.submit(1, vec![Request::Acquire(ask)]);
        for (node, granted) in granted.into_iter().enumerate() {
            self.answer(node, vec![if granted { Ok(got(10)) } else { away() }]);
        }
        assert_eq!(self.settled_one(1), got(10));
        // A node that grants the lease after the decision accepts its fence.
        if granted == [true; 3] {
            self.answer_one(2, Reply::Accepted);
        }
        assert!(self.calls.is_empty());
        token
    }

    /// Releases the lease with these answers.
    fn release(&mut self, token: Token, answers: [Answer; 3]) -> Reply {
        self.submit(2, vec![release(token)]);
        for (node, answer) in answers.into_iter().enumerate() {
            self.answer(node, vec![answer]);
        }
        self.settled_one(2)
    }
}

#[test]
fn a_node_that_denies_a_release_is_asked_again_until_the_lease_has_ended_by_its_ttl() {
    for allowed_after in [None, Some(3)] {
        let mut quorum = TestQuorum::of(3);
        let token = quorum.lease_at([true; 3]);
        let end = quorum.now + ttl().as_duration();
        let released = quorum.release(token, [denied(), Ok(Reply::Released), Ok(Reply::Released)]);
        assert_eq!(released, Reply::Released);
        let mut asked = 0;
        while quorum.wait().is_some() {
            assert!(releases(quorum.asked(0), token), "the release is repeated");
            asked += 1;
            let answer = if allowed_after == Some(asked) { Ok(Reply::Released) } else { denied() };
            quorum.answer(0, vec![answer]);
            assert!(quorum.now < end + TIMEOUT);
        }
        assert_eq!(quorum.coordinator.concerns(), 0);
        match allowed_after {
            Some(after) => assert_eq!(asked, after),
            None => assert!(asked > 9 && quorum.now >= end, "asked {asked} times"),
        }
    }
}

/// How long a ticket lives, and for how long a holder renews its lease, in ms. It is longer than a
/// release is kept at a node that does not answer.
const LONG: u64 = 900_000;

/// Returns a request that lets the lease live for much longer.
fn prolong(token: Token, detaches: bool) -> Request {
    let (key, own_ttl, ttl) = ("k".into(), ttl(), Ttl::from_millis(LONG as u32).unwrap());
    if detaches {
        return Request::Detach { key, token, ttl, fence: Fence(10), own_ttl };
    }
    Request::Renew { key, token, ttl, fences: 0 }
}

/// Lets node 0 deny the release until the quorum stops repeating it. Returns how long that takes.
fn denied_for(quorum: &mut TestQuorum, token: Token) -> Duration {
    let begin = quorum.now;
    while quorum.wait().is_some() {
        if quorum.asked(0).is_some() {
            assert!(releases(quorum.asked(0), token), "the release is repeated");
            quorum.answer(0, vec![denied()]);
        }
    }
    assert_eq!(quorum.coordinator.concerns(), 0);
    quorum.now.since(begin)
}

fn late() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))
}

#[test]
fn a_denied_release_is_repeated_for_as_long_as_an_unanswered_prolongation_may_keep_the_lease() {
    for (detaches, is_lost) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut quorum = TestQuorum::of(3);
        let token = quorum.lease_at([true; 3]);
        quorum.submit(3, vec![prolong(token, detaches)]);
        for node in 0..3 {
            quorum.answer(node, vec![late()]);
        }
        assert!(quorum.settled(3)[0].is_err());
        if is_lost {
            quorum.now = quorum.now + 2 * ttl().as_duration();
            // Other leases do not displace it.
            for _ in 0..300 {
                quorum.lease_at([true; 3]);
            }
        }
        let released = quorum.release(token, [denied(), Ok(Reply::Released), Ok(Reply::Released)]);
        assert!(released == Reply::Released, "detaches: {detaches}, lost: {is_lost}");
        let took = denied_for(&mut quorum, token);
        let least = Duration::from_millis(LONG - if is_lost { 2 * TTL } else { 0 });
        let case = format!("detaches: {detaches}, lost: {is_lost}: {took:?}");
        // The clock of the node may be slower, and the request may have been on its way for long.
        let most = least + Duration::from_millis(LONG / 50) + 2 * TIMEOUT;
        assert!(took >= least && took < most, "{case}");
    }
}

/// Releases the lease, which the first node denies. Fails if the quorum repeats the release there
/// for less than [`LONG`].
fn assert_denied_for_long(quorum: &mut TestQuorum, token: Token) {
    quorum.release(token, [denied(), Ok(Reply::Released), Ok(Reply::Released)]);
    let took = denied_for(quorum, token);
    assert!(took >= Duration::from_millis(LONG), "{took:?}");
}

#[test]
fn a_denied_release_is_repeated_although_a_late_renewal_did_not_help_the_holder() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_at([true; 3]);
    quorum.submit(3, vec![prolong(token, false)]);
    quorum.now = quorum.now + ttl().as_duration();
    for node in 0..3 {
        quorum.answer_one(node, Reply::Renewed { block: None });
    }
    assert_denied_for_long(&mut quorum, token);
}

#[test]
fn a_denied_release_of_a_ticket_that_no_caller_got_is_repeated_until_the_ticket_has_ended() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_at([true; 3]);
    quorum.submit(3, vec![prolong(token, true)]);
    for node in 0..3 {
        quorum.answer_one(node, Reply::Renewed { block: None });
    }
    assert!(quorum.settled(3)[0].is_ok());
    assert_denied_for_long(&mut quorum, token);
}

#[test]
fn a_denied_release_is_repeated_at_a_node_that_missed_the_last_renewal() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_at([true; 3]);
    quorum.submit(3, vec![prolong(token, false)]);
    quorum.answer(0, vec![late()]);
    for node in [1, 2] {
        quorum.answer_one(node, Reply::Renewed { block: None });
    }
    assert!(quorum.settled(3)[0].is_ok());
    assert_denied_for_long(&mut quorum, token);
}

#[test]
fn a_denied_release_of_a_token_without_a_lease_is_not_repeated() {
    let mut quorum = TestQuorum::of(3);
    let released = quorum.release(Token::random(), [denied(), Ok(MISSING), Ok(MISSING)]);
    assert_eq!(released, MISSING);
    assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
}

#[test]
fn a_denied_release_is_not_repeated_at_a_node_that_never_had_the_lease() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_at([true, true, false]);
    let released = quorum.release(token, [Ok(Reply::Released), Ok(Reply::Released), denied()]);
    assert_eq!(released, Reply::Released);
    assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
}

#[test]
fn a_denied_release_is_repeated_for_the_ttl_at_a_node_that_may_still_grant_the_lease() {
    // The lease is granted without the node, or the client gives up waiting.
    for is_granted in [true, false] {
        // A node whose answer is missing may grant the lease to the token later.
        for answer in [Ok(got(11)), late()] {
            if is_granted && answer.is_ok() {
                continue;
            }
            let (mut quorum, token) = (TestQuorum::of(3), Token::random());
            let place = Some(Place { number: 7 });
            let ask = AcquireRequest { place, ..AcquireRequest::new("k".into(), token, ttl(), "h".into()) };
            quorum.submit(1, vec![Request::Acquire(ask)]);
            let others = if is_granted { got(10) } else { queued() };
            quorum.answer_one(0, others.clone());
            quorum.answer_one(1, others.clone());
            quorum.answer(2, vec![answer.clone()]);
            assert!(quorum.settled(1)[0].is_ok());
            let released = quorum.release(token, [Ok(Reply::Released), Ok(Reply::Released), denied()]);
            assert_eq!(released, Reply::Released);
            let (begin, mut asked) = (quorum.now, 0);
            while quorum.wait().is_some() {
                if quorum.asked(2).is_some() {
                    quorum.answer(2, vec![denied()]);
                    asked += 1;
                }
                assert!(quorum.now.since(begin) < 2 * ttl().as_duration());
            }
            let last = quorum.now.since(begin);
            let case = format!("granted: {is_granted}, {answer:?}: asked {asked} times in {last:?}");
            assert!(asked > 9 && last >= ttl().as_duration(), "{case}");
            assert_eq!(quorum.coordinator.concerns(), 0);
        }
    }
}

#[test]
fn a_release_is_not_repeated_at_a_node_that_has_other_data_under_the_key() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_at([true; 3]);
    let other_data = Err(StoreError::not_done(StoreErrorKind::WrongType, "other data"));
    let released = quorum.release(token, [other_data, Ok(Reply::Released), Ok(Reply::Released)]);
    assert_eq!(released, Reply::Released);
    assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
}

#[test]
fn a_node_that_refuses_to_take_a_ticket_back_is_asked_again_until_the_ticket_has_ended() {
    let (mut network, ticket, adopter) =
        (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.adopt(0, 1, ticket, adopter);
    network.live(100);
    assert!(network.settled(0, 1).unwrap().is_adopted());
    network.denying = vec![2];
    network.ask(0, 2, give_back(adopter, ticket));
    network.live(2_000);
    assert_eq!(network.settled(0, 2), Ok(Reply::Released));
    network.denying.clear();
    network.live(1_000);
    let marks = [0, 1, 2].map(|node| network.held_by(node).unwrap().leases[0].mark);
    assert_eq!(marks, [Some(ticket.mark()); 3]);
    let again = adopt(ticket, Token::random());
    network.down = vec![0];
    network.ask(0, 3, again);
    network.live(2_000);
    assert!(network.settled(0, 3).unwrap().is_adopted());
}

#[test]
fn a_release_is_true_although_a_node_never_had_the_lease_and_another_one_fails() {
    for answer in [MISSING, TAKEN] {
        let mut quorum = TestQuorum::of(3);
        let token = quorum.lease_at([true, true, false]);
        let answers = [Ok(Reply::Released), away(), Ok(answer)];
        assert_eq!(quorum.release(token, answers), Reply::Released);
    }
}

#[test]
fn a_release_is_true_although_a_node_lost_the_lease_unless_another_client_has_it_there() {
    for (answer, released) in [(MISSING, Reply::Released), (TAKEN, TAKEN)] {
        let mut quorum = TestQuorum::of(3);
        let token = quorum.lease_at([true; 3]);
        assert_eq!(quorum.release(token, [Ok(Reply::Released), away(), Ok(answer)]), released);
    }
}

#[test]
fn a_release_is_false_if_most_nodes_lost_the_lease_or_its_time_is_over() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_at([true; 3]);
    assert_eq!(quorum.release(token, [Ok(Reply::Released), Ok(MISSING), Ok(MISSING)]), MISSING);
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_at([true, true, false]);
    quorum.now = quorum.now + ttl().as_duration();
    assert_eq!(quorum.release(token, [Ok(Reply::Released), away(), Ok(MISSING)]), MISSING);
}
