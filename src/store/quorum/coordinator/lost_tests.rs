//! Tests a node that loses its leases: what still counts, and when the node may grant its locks
//! again.

use std::sync::mpsc::{Receiver, TryRecvError};

use super::*;
use crate::store::Acknowledgement;

impl TestQuorum {
    /// Sends the notice of `node` that it has lost its leases. The returned receiver disconnects
    /// when the node may go on.
    fn lose(&mut self, node: usize) -> Receiver<()> {
        let (acknowledgement, dropped) = Acknowledgement::pair();
        self.coordinator.noticed(self.now, node, Notice::Lost(acknowledgement));
        self.gather();
        dropped
    }

    /// Acquires a lease that `nodes` grant and the other nodes fail to grant.
    fn lease_of(&mut self, batch: u64, nodes: &[usize]) -> Token {
        let token = Token::random();
        self.submit(batch, vec![acquire(token, None)]);
        for node in 0..3 {
            match nodes.contains(&node) {
                true => self.answer_one(node, got(10)),
                false => self.answer(node, vec![Err(away())]),
            }
        }
        assert_eq!(self.settled_one(batch), got(10));
        token
    }
}

fn away() -> StoreError {
    StoreError::not_done(StoreErrorKind::Unreachable, "away")
}

fn is_held_back(dropped: &Receiver<()>) -> bool {
    dropped.try_recv() == Err(TryRecvError::Empty)
}

#[test]
fn a_node_that_a_lease_needs_waits_until_the_engine_knows_of_the_loss() {
    let mut quorum = TestQuorum::of(3);
    quorum.lease_of(1, &[0, 1]);
    let dropped = quorum.lose(1);
    assert!(matches!(quorum.notices[..], [Notice::Lost(_)]), "{:?}", quorum.notices);
    assert!(is_held_back(&dropped), "the engine has not heard of it");
    quorum.notices.clear();
    assert!(!is_held_back(&dropped));
}

#[test]
fn a_node_that_no_lease_needs_goes_on_at_once() {
    let mut quorum = TestQuorum::of(3);
    quorum.lease_of(1, &[0, 1, 2]);
    let dropped = quorum.lose(1);
    assert_eq!((&quorum.notices[..], is_held_back(&dropped)), (&[Notice::Missed][..], false));
    let dropped = quorum.lose(1);
    assert!(!is_held_back(&dropped), "it had lost its leases before");
    let dropped = quorum.lose(0);
    assert!(is_held_back(&dropped), "one node is left");
}

#[test]
fn a_lease_that_was_released_or_has_run_out_needs_no_node() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.lease_of(1, &[0, 1]);
    quorum.submit(2, vec![Request::Release { key: "k".into(), token, used: None }]);
    assert!(!is_held_back(&quorum.lose(0)));
    let mut quorum = TestQuorum::of(3);
    quorum.lease_of(1, &[0, 1]);
    quorum.now = quorum.now + Ttl::MIN.as_duration();
    assert!(!is_held_back(&quorum.lose(0)));
}

#[test]
fn the_vote_of_a_node_that_then_lost_its_leases_does_not_count() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![acquire(Token::random(), None)]);
    quorum.answer_one(0, got(10));
    quorum.lose(0);
    quorum.answer_one(1, got(10));
    assert!(quorum.answers.is_empty(), "only one node has the lease");
    quorum.answer_one(2, got(10));
    assert_eq!(quorum.settled_one(1), got(10));
}

#[test]
fn the_answer_of_a_lost_node_to_the_fence_does_not_count() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![acquire(Token::random(), None)]);
    quorum.answer(2, vec![Err(away())]);
    quorum.answer_one(0, got(20));
    quorum.answer_one(1, got(10));
    assert!(accepts(quorum.asked(1), 20));
    quorum.lose(0);
    assert!(matches!(quorum.settled(1)[..], [Err(_)]), "only one node has the lease");
}

#[test]
fn an_answer_that_a_node_gave_before_its_loss_does_not_count() {
    let mut quorum = TestQuorum::of(3);
    quorum.submit(1, vec![acquire(Token::random(), None)]);
    quorum.lose(0);
    quorum.answer_one(0, got(10));
    quorum.answer(2, vec![Err(away())]);
    quorum.answer_one(1, got(10));
    assert!(matches!(quorum.settled(1)[..], [Err(_)]), "only one node has the lease");
}

#[test]
fn the_answers_of_a_lost_node_to_later_requests_count() {
    let mut quorum = TestQuorum::of(3);
    quorum.lose(0);
    quorum.lease_of(1, &[0, 1]);
}
