//! Tests which nodes a diagnosis names because they lack a lease, while nodes still have to answer
//! the last vote round of that lease.

use super::adopting_tests::adopt;
use super::*;
use crate::store::AdoptedLease;
use crate::store::diagnosis::{Facts, Report};

const RENEWED: Reply = Reply::Renewed { block: None };
const MISSING: Reply = Reply::NotHeld(Absence::Missing);

fn ttl() -> Ttl {
    Ttl::from_millis(10_000).expect("in range")
}

impl TestQuorum {
    /// Grants a lease at all five nodes.
    fn held_by_five(&mut self) -> Token {
        let token = Token::random();
        let ask = AcquireRequest::new("k".into(), token, ttl(), "h".into());
        self.submit(1, vec![Request::Acquire(ask)]);
        (0..5).for_each(|node| self.answer_one(node, got(20)));
        (3..5).for_each(|node| self.answer_one(node, Reply::Accepted));
        assert_eq!(self.settled_one(1), got(20));
        token
    }

    /// Begins a renewal of the lease, and passes on the first answers.
    fn renewing(&mut self, batch: u64, token: Token, answers: &[(usize, Reply)]) {
        self.submit(batch, vec![Request::Renew { key: "k".into(), token, ttl: ttl(), fences: 0 }]);
        for (node, answer) in answers {
            self.answer_one(*node, answer.clone());
        }
    }

    /// Returns the nodes that a diagnosis names, as their indexes.
    fn lacking(&mut self, batch: u64) -> Vec<usize> {
        let before = self.calls.len();
        self.submit(batch, vec![Request::Diagnose { ttl: ttl(), key: None }]);
        for call in self.calls.split_off(before) {
            let report = Report::new(self.coordinator.name(call.node), Facts::Process, ttl(), false);
            self.coordinator.answered(self.now, call.id, vec![Ok(Reply::Diagnosed(vec![report]))]);
        }
        self.gather();
        let Reply::Diagnosed(reports) = self.settled_one(batch) else { panic!("a diagnosis was asked for") };
        let lacks = |report: &Report| report.findings.iter().any(|found| found.code == "missing-leases");
        reports.iter().enumerate().filter(|(_, report)| lacks(report)).map(|(node, _)| node).collect()
    }
}

#[test]
fn a_node_that_lacks_a_lease_is_named_although_a_slower_node_has_not_answered_yet() {
    let mut quorum = TestQuorum::of(5);
    let token = quorum.held_by_five();
    assert!(quorum.lacking(2).is_empty());
    quorum.renewing(3, token, &[(3, MISSING), (0, RENEWED), (1, RENEWED), (2, RENEWED)]);
    assert_eq!(quorum.lacking(4), [3], "the fifth node may still have it");
    quorum.answer_one(4, MISSING);
    assert_eq!(quorum.lacking(5), [3, 4]);
}

#[test]
fn a_node_that_answers_late_is_named_if_it_lacks_the_lease() {
    let mut quorum = TestQuorum::of(5);
    let token = quorum.held_by_five();
    quorum.renewing(2, token, &[(0, RENEWED), (1, RENEWED), (2, RENEWED), (3, MISSING)]);
    assert_eq!(quorum.lacking(3), [3]);
    let error = StoreError::not_done(StoreErrorKind::Unreachable, "away");
    quorum.answer(4, vec![Err(error)]);
    assert_eq!(quorum.lacking(4), [3, 4]);
}

#[test]
fn a_node_that_lacked_the_lease_is_named_until_it_has_the_lease() {
    let mut quorum = TestQuorum::of(5);
    let token = quorum.held_by_five();
    quorum.renewing(2, token, &[(0, RENEWED), (1, RENEWED), (2, RENEWED), (3, RENEWED), (4, MISSING)]);
    // The node was asked to grant the lease again, and is slow.
    quorum.renewing(3, token, &[(0, RENEWED), (1, RENEWED), (2, RENEWED), (3, RENEWED)]);
    assert_eq!(quorum.lacking(4), [4]);
    quorum.answer(4, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    assert_eq!(quorum.lacking(5), [4], "only a renewal shows that it has the lease");
    quorum.answer_one(4, RENEWED);
    assert!(quorum.lacking(6).is_empty());
    // Its answer to one renewal counts even if it comes during the next one.
    quorum.renewing(7, token, &[(0, RENEWED), (1, RENEWED), (2, RENEWED), (3, RENEWED)]);
    quorum.renewing(8, token, &[(0, RENEWED), (1, RENEWED), (2, RENEWED), (3, RENEWED)]);
    quorum.answer_one(4, MISSING);
    assert_eq!(quorum.lacking(9), [4]);
}

#[test]
fn a_node_that_lacks_an_adopted_lease_is_named_although_a_slower_node_has_not_answered_yet() {
    let (mut quorum, [ticket, adopter]) = (TestQuorum::of(5), [Token::random(), Token::random()]);
    let (fence, mode) = (Fence(77), Mode::Exclusive);
    let lease =
        AdoptedLease { first: fence, last: fence, granted: fence, mode, ttl: Some(ttl()), remaining: None };
    quorum.submit(1, vec![adopt(ticket, adopter)]);
    quorum.answer_one(3, MISSING);
    for _ in 0..2 {
        (0..3).for_each(|node| quorum.answer_one(node, Reply::Adopted(lease)));
    }
    assert!(quorum.settled_one(1).is_adopted());
    assert_eq!(quorum.lacking(2), [3], "the fifth node may still have it");
    quorum.renewing(3, adopter, &[(0, RENEWED), (1, RENEWED), (2, RENEWED)]);
    assert_eq!(quorum.lacking(4), [3]);
    quorum.answer_one(4, MISSING);
    assert_eq!(quorum.lacking(5), [3, 4]);
}
