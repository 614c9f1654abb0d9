//! Tests in how many calls the requests of many adoptions go to the nodes.

use super::super::super::adoptions::MOST_UNDER_WAY;
use super::adopting_tests::{adopt, give_back};
use super::*;
use crate::lease::{Fence, Token};
use crate::store::AdoptedLease;

#[test]
fn adoptions_that_begin_one_after_the_other_share_their_calls() {
    let names = (0..3).map(|node| format!("n{node}").into()).collect();
    let (mut coordinator, start) = (Coordinator::new(names, 1), Instant::from_micros(1_000_000));
    let at = |micros: u64| start + Duration::from_micros(micros);
    for batch in 0..100 {
        let request = adopt(Token::random(), Token::random());
        coordinator.submit(at(batch * 10), batch, vec![request], Duration::from_secs(2));
    }
    let lease = AdoptedLease {
        first: Fence(77),
        last: Fence(77),
        granted: Fence(77),
        mode: Mode::Exclusive,
        ttl: None,
        remaining: Some(Duration::from_secs(10)),
    };
    // The claims, and then the second round.
    for _ in 0..2 {
        let calls = coordinator.take_effects().calls;
        assert_eq!(calls.iter().map(|call| call.requests.len()).collect::<Vec<_>>(), [100; 3]);
        for call in calls {
            coordinator.answered(at(3_000), call.id, vec![Ok(Reply::Adopted(lease)); 100]);
        }
    }
    assert_eq!(coordinator.take_effects().answers.len(), 100);
}

/// Returns the request that adopts the lease of a key with this number.
fn adopt_key(number: usize, ticket: Token, adopter: Token) -> Request {
    let mut adoption = adopt(ticket, adopter);
    if let Request::Adopt { key, .. } = &mut adoption {
        *key = format!("k{number}").into();
    }
    adoption
}

#[test]
fn adoptions_wait_for_their_turn_while_many_are_under_way() {
    let names = (0..3).map(|node| format!("n{node}").into()).collect();
    let (mut coordinator, start) = (Coordinator::new(names, 1), Instant::from_micros(1_000_000));
    let adoptions =
        (0..2 * MOST_UNDER_WAY + 1).map(|number| adopt_key(number, Token::random(), Token::random()));
    coordinator.submit(start, 1, adoptions.collect(), Duration::from_secs(2));
    let asked = |calls: &[Call]| calls.iter().map(|call| call.requests.len()).collect::<Vec<_>>();
    let calls = coordinator.take_effects().calls;
    assert_eq!(asked(&calls), [MOST_UNDER_WAY; 3]);
    // The next ones begin when the first ones have ended.
    for call in calls {
        coordinator.answered(start, call.id, vec![Ok(Reply::NotHeld(Absence::Missing)); MOST_UNDER_WAY]);
    }
    assert_eq!(asked(&coordinator.take_effects().calls), [MOST_UNDER_WAY; 3]);
    // The last one gets no turn in half of its time, and has asked no node.
    assert_eq!(coordinator.next_wake(), Some(start + Duration::from_secs(1)));
    coordinator.tick(start + Duration::from_secs(1));
    assert!(coordinator.take_effects().calls.is_empty());
    coordinator.tick(start + Duration::from_secs(2));
    let answers = coordinator.take_effects().answers.remove(0).1;
    let last = answers.last().unwrap().as_ref().unwrap_err();
    assert_eq!((last.kind, last.maybe_done), (StoreErrorKind::TimedOut, false));
    assert!(last.message.contains("did not get its turn"), "{}", last.message);
}

#[test]
fn an_adoption_that_is_given_up_while_it_waits_for_its_turn_asks_no_node() {
    let mut quorum = TestQuorum::of(3);
    let many = (0..MOST_UNDER_WAY).map(|number| adopt_key(number, Token::random(), Token::random()));
    quorum.submit(1, many.collect());
    let [ticket, adopter] = [Token::random(), Token::random()];
    quorum.submit(2, vec![adopt_key(MOST_UNDER_WAY, ticket, adopter)]);
    quorum.submit(3, vec![give_back(adopter, ticket)]);
    assert!(quorum.settled(2)[0].is_err());
    for node in 0..3 {
        quorum.answer(node, vec![Ok(Reply::NotHeld(Absence::Missing)); MOST_UNDER_WAY]);
    }
    let moves_of_ticket =
        |request: &Request| matches!(request, Request::Move { token, .. } if *token == ticket);
    assert!(!quorum.calls.iter().flat_map(|call| &call.requests).any(moves_of_ticket));
    (0..3).for_each(|node| quorum.answer_one(node, Reply::NotHeld(Absence::Missing)));
    assert_eq!(quorum.coordinator.concerns(), 0);
}
