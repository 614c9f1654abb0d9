//! Tests in how many calls the requests of many adoptions go to the nodes.

use super::super::super::adoptions::MOST_UNDER_WAY;
use super::adopting_tests::adopt;
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

#[test]
fn adoptions_wait_for_their_turn_while_many_are_under_way() {
    let names = (0..3).map(|node| format!("n{node}").into()).collect();
    let (mut coordinator, start) = (Coordinator::new(names, 1), Instant::from_micros(1_000_000));
    let adoptions = (0..2 * MOST_UNDER_WAY + 1).map(|number| {
        let mut adoption = adopt(Token::random(), Token::random());
        if let Request::Adopt { key, .. } = &mut adoption {
            *key = format!("k{number}").into();
        }
        adoption
    });
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
