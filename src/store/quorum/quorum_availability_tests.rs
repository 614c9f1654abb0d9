use super::*;
use crate::store::{NodeAnswer, StoreError, StoreErrorKind};

fn away(node: usize) -> Availability {
    let message = format!("node {node} is gone{}", crate::store::breaker::NOT_ASKED);
    Availability::Away(StoreError::not_done(StoreErrorKind::Unreachable, message))
}

fn nodes(count: usize) -> Nodes {
    Nodes { names: (0..count).map(|node| format!("node {node}").into()).collect() }
}

#[test]
fn a_quorum_is_away_while_no_majority_can_be_reached() {
    for (count, veto) in [(3, 2), (4, 2), (5, 3), (7, 4)] {
        let (nodes, mut availability) = (nodes(count), QuorumAvailability::new(count));
        for node in 0..veto - 1 {
            assert_eq!(availability.changed(node, away(node), &nodes), None, "{node} of {count}");
        }
        let told = availability.changed(veto - 1, away(veto - 1), &nodes);
        assert!(matches!(told, Some(Availability::Away(_))), "{told:?}");
        if veto < count {
            assert_eq!(availability.changed(veto, away(veto), &nodes), None, "it was away before");
            assert_eq!(availability.changed(veto, Availability::Usable, &nodes), None, "it is away still");
        }
        assert_eq!(availability.changed(0, Availability::Usable, &nodes), Some(Availability::Usable));
    }
}

#[test]
fn the_error_has_the_votes_and_the_words_of_a_request_that_failed() {
    let (nodes, mut availability) = (nodes(3), QuorumAvailability::new(3));
    availability.changed(0, away(0), &nodes);
    let Some(Availability::Away(error)) = availability.changed(2, away(2), &nodes) else {
        panic!("it is usable")
    };
    assert_eq!(error.kind, StoreErrorKind::Quorum);
    assert!(error.message.ends_with(": node 0 is gone; node 2 is gone"), "{error}");
    let said: Vec<_> =
        error.votes.iter().map(|vote| (&*vote.store, matches!(vote.said, NodeAnswer::Failed(..)))).collect();
    assert_eq!(said, [("node 0", true), ("node 1", false), ("node 2", true)]);
}

#[test]
fn a_quorum_refuses_while_its_usable_nodes_are_no_majority() {
    use Availability::{Refusing, Usable};
    let (nodes, mut availability) = (nodes(3), QuorumAvailability::new(3));
    assert_eq!(availability.changed(0, Refusing, &nodes), None);
    assert_eq!(availability.changed(1, away(1), &nodes), Some(Refusing));
    assert!(matches!(availability.changed(0, away(0), &nodes), Some(Availability::Away(_))));
    assert_eq!(availability.changed(1, Refusing, &nodes), Some(Refusing));
    assert_eq!(availability.changed(1, Usable, &nodes), Some(Usable));
}
