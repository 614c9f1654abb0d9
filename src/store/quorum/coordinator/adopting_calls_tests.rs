//! Tests in how many calls the requests of many adoptions go to the nodes.

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
