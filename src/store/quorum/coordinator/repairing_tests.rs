//! Tests repairs: which nodes are asked to grant a lease again, and what the quorum does with late
//! answers.

use super::*;

const MISSING: Reply = Reply::NotHeld(Absence::Missing);
const TAKEN: Reply = Reply::NotHeld(Absence::Taken);

fn ttl() -> Ttl {
    Ttl::from_millis(10_000).expect("in range")
}

fn renew(token: Token) -> Request {
    Request::Renew { key: "k".into(), token, ttl: ttl(), fences: 0 }
}

fn release(token: Token) -> Request {
    Request::Release { key: "k".into(), token, used: None }
}

fn late() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))
}

impl TestQuorum {
    /// Grants a shared lease with fence 20 at the first two of three nodes. The third node is away.
    fn held(&mut self) -> Token {
        self.held_in(Mode::Shared { most: u32::MAX })
    }

    /// Grants a lease in that mode, as [`TestQuorum::held`] does.
    fn held_in(&mut self, mode: Mode) -> Token {
        let token = Token::random();
        let ask = AcquireRequest::new("k".into(), token, ttl(), "h".into());
        self.submit(1, vec![Request::Acquire(AcquireRequest { mode, ..ask })]);
        (0..2).for_each(|node| self.answer_one(node, got(20)));
        self.answer(2, vec![late()]);
        assert_eq!(self.settled_one(1), got(20));
        token
    }

    /// Renews the lease. The three nodes give these answers, in that order.
    fn renewed(&mut self, batch: u64, token: Token, answers: [Reply; 3]) -> Answer {
        self.submit(batch, vec![renew(token)]);
        for (node, answer) in answers.into_iter().enumerate() {
            self.answer_one(node, answer);
        }
        self.settled(batch).remove(0)
    }

    /// Returns true if the node is asked to grant the lease again and to accept its fence.
    fn is_repaired(&self, node: usize, whose: Token) -> bool {
        let Some(call) = self.asked(node) else { return false };
        let asks = |ask: &AcquireRequest| ask.token == whose && ask.place.is_none() && ask.mode.is_shared();
        matches!(
            &call.requests[..],
            [Request::Acquire(ask), Request::Accept { token, fence: Fence(20), count: 1, .. }]
                if asks(ask) && *token == whose
        )
    }
}

const RENEWED: Reply = Reply::Renewed { block: None };

#[test]
fn a_node_that_does_not_know_the_lease_gets_it_back_after_a_renewal_by_most() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held();
    assert_eq!(quorum.renewed(2, token, [RENEWED, RENEWED, MISSING]), Ok(RENEWED));
    assert!(quorum.is_repaired(2, token), "it answered last: {:?}", quorum.calls);
    quorum.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    assert_eq!(quorum.renewed(3, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(quorum.calls.is_empty(), "all nodes know the lease: {:?}", quorum.calls);
    // The third node counts now, so another node may forget the lease.
    assert_eq!(quorum.renewed(4, token, [MISSING, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(quorum.is_repaired(0, token), "it answered first");
    quorum.answer(0, vec![Ok(BUSY), Ok(Reply::NotHeld(Absence::Taken))]);
    assert_eq!(quorum.renewed(5, token, [MISSING, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(quorum.is_repaired(0, token), "each renewal asks again");
}

#[test]
fn each_of_several_readers_is_repaired_at_a_node_that_knows_one_of_them() {
    let mut quorum = TestQuorum::of(3);
    let [first, second] = [quorum.held(), quorum.held()];
    quorum.renewed(2, first, [RENEWED, RENEWED, MISSING]).unwrap();
    assert!(quorum.is_repaired(2, first), "{:?}", quorum.calls);
    quorum.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    // The first reader has the lock at the third node, so the node calls the lock taken.
    quorum.renewed(3, second, [RENEWED, RENEWED, TAKEN]).unwrap();
    assert!(quorum.is_repaired(2, second), "the node answered last: {:?}", quorum.calls);
    quorum.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    quorum.renewed(4, second, [TAKEN, RENEWED, RENEWED]).unwrap();
    assert!(quorum.is_repaired(0, second), "the node answered first: {:?}", quorum.calls);
}

#[test]
fn an_exclusive_lease_is_repaired_where_another_client_has_the_lock_as_soon_as_the_node_is_free() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held_in(Mode::Exclusive);
    let queued = Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, notified: true, by: Some(9) };
    for batch in 2..4 {
        quorum.renewed(batch, token, [RENEWED, RENEWED, TAKEN]).unwrap();
        let asks = |ask: &AcquireRequest| ask.token == token && ask.repairs && ask.place.is_none();
        let requests = &quorum.asked(2).expect("each renewal keeps the place").requests;
        assert!(matches!(&requests[..], [Request::Acquire(ask), Request::Accept { .. }] if asks(ask)));
        quorum.answer(2, vec![Ok(queued.clone()), Ok(TAKEN)]);
    }
    // The node has handed the lease to the place. It counts, but does not have the fence yet.
    assert_eq!(quorum.renewed(4, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(accepts(quorum.asked(2), 20), "{:?}", quorum.calls);
}

#[test]
fn a_place_that_a_repair_takes_after_the_release_is_released() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held_in(Mode::Exclusive);
    quorum.renewed(2, token, [RENEWED, RENEWED, TAKEN]).unwrap();
    let repair = quorum.calls.pop().expect("the third node is asked");
    quorum.submit(3, vec![release(token)]);
    (0..2).for_each(|node| quorum.answer_one(node, Reply::Released));
    quorum.answer_one(2, TAKEN);
    for _ in STRAGGLER_PAUSES {
        quorum.wait();
        quorum.answer_one(2, TAKEN);
    }
    let queued = Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, notified: true, by: Some(9) };
    quorum.coordinator.answered(quorum.now, repair.id, vec![Ok(queued), Ok(TAKEN)]);
    quorum.gather();
    assert!(releases(quorum.asked(2), token), "{:?}", quorum.calls);
}

#[test]
fn nothing_is_repaired_without_a_majority() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held();
    assert_eq!(quorum.renewed(2, token, [RENEWED, MISSING, MISSING]), Ok(MISSING));
    for node in 0..2 {
        assert!(releases(quorum.asked(node), token), "{:?}", quorum.calls);
        quorum.answer_one(node, MISSING);
    }
    // The acquire was not answered by the third node, so it is released there a little later.
    assert!(quorum.calls.is_empty(), "{:?}", quorum.calls);
    assert_eq!(quorum.renewed(3, token, [RENEWED, RENEWED, MISSING]), Ok(RENEWED));
    assert!(quorum.calls.is_empty(), "a lease that is gone does not come back: {:?}", quorum.calls);
}

#[test]
fn a_renewal_that_comes_too_late_for_the_holder_repairs_nothing() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held();
    quorum.submit(2, vec![renew(token)]);
    quorum.now = quorum.now + ttl().as_duration();
    quorum.answer_one(0, RENEWED);
    quorum.answer_one(1, RENEWED);
    quorum.answer_one(2, MISSING);
    assert!(quorum.calls.is_empty(), "{:?}", quorum.calls);
}

#[test]
fn what_a_repair_brings_after_the_release_is_released() {
    for (answer, pauses) in [(Ok(got(7)), &[][..]), (late(), STRAGGLER_PAUSES)] {
        let mut quorum = TestQuorum::of(3);
        let token = quorum.held();
        quorum.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
        let repair = quorum.calls.pop().expect("the third node is asked");
        quorum.submit(3, vec![release(token)]);
        (0..2).for_each(|node| quorum.answer_one(node, Reply::Released));
        quorum.answer_one(2, MISSING);
        // The third node did not answer the acquire. So it gets this many releases anyway.
        for _ in STRAGGLER_PAUSES {
            quorum.wait();
            assert!(releases(quorum.asked(2), token));
            quorum.answer_one(2, MISSING);
        }
        quorum.coordinator.answered(quorum.now, repair.id, vec![answer, Ok(MISSING)]);
        quorum.gather();
        let again = pauses.len().max(1);
        for _ in 0..again {
            if quorum.asked(2).is_none() {
                quorum.wait();
            }
            assert!(releases(quorum.asked(2), token), "{:?}", quorum.calls);
            quorum.answer_one(2, Reply::Released);
        }
        assert_eq!((quorum.coordinator.concerns(), quorum.wait()), (0, None));
    }
}

#[test]
fn a_node_that_denies_the_release_of_what_a_late_repair_brought_is_asked_again() {
    for answer in [Ok(got(7)), late()] {
        let mut quorum = TestQuorum::of(3);
        let token = quorum.held();
        quorum.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
        quorum.submit(3, vec![release(token)]);
        (0..2).for_each(|node| quorum.answer_one(node, Reply::Released));
        quorum.answer(2, vec![answer, Ok(MISSING)]);
        quorum.answer_one(2, MISSING);
        let end = quorum.now + ttl().as_duration();
        let denied = StoreError::not_done(StoreErrorKind::Denied, "NOPERM");
        let mut asked = 0;
        while quorum.asked(2).is_some() || quorum.wait().is_some() {
            if quorum.asked(2).is_some() {
                assert!(releases(quorum.asked(2), token), "{:?}", quorum.calls);
                asked += 1;
                quorum.answer(2, vec![Err(denied.clone())]);
            }
        }
        assert!(asked > 19 && quorum.now >= end, "asked {asked} times");
        assert_eq!(quorum.coordinator.concerns(), 0);
    }
}

#[test]
fn a_repair_that_was_not_answered_is_not_undone_while_the_lease_is_held() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held();
    quorum.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
    quorum.answer(2, vec![late(), late()]);
    assert_eq!((&quorum.calls[..].len(), quorum.wait()), (&0, None), "a renewal may have counted the node");
    // The node has the lease, but it may not have the fence.
    assert_eq!(quorum.renewed(3, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(accepts(quorum.asked(2), 20), "{:?}", quorum.calls);
    quorum.answer_one(2, Reply::Accepted);
    assert_eq!(quorum.renewed(4, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(quorum.calls.is_empty());
}

#[test]
fn a_lease_is_released_at_all_nodes_when_most_of_them_say_that_it_is_gone() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held();
    quorum.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
    quorum.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    // The first node granted the lease. The third node was repaired.
    assert_eq!(quorum.renewed(3, token, [RENEWED, MISSING, MISSING]), Ok(MISSING));
    quorum.wait();
    for node in 0..3 {
        assert!(releases(quorum.asked(node), token), "the engine does not release it: {:?}", quorum.calls);
    }
}

#[test]
fn a_waiter_leaves_alone_what_it_has_while_most_nodes_are_held_by_another() {
    let held_by = |by| Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, notified: true, by: Some(by) };
    let holder = Token::random();
    let mut quorum = TestQuorum::of(3);
    let token = Token::random();
    quorum.submit(1, vec![acquire(token, Some(7))]);
    quorum.answer_one(0, held_by(holder.mark()));
    quorum.answer_one(1, held_by(holder.mark()));
    quorum.answer_one(2, got(5));
    quorum.submit(2, vec![acquire(token, Some(8))]);
    assert!(quorum.asked(2).is_none(), "{:?}", quorum.calls);
    (0..2).for_each(|node| quorum.answer_one(node, held_by(holder.mark())));
    // The waiter's own lease at the third node has ended.
    quorum.now = quorum.now + Ttl::MIN.as_duration();
    for (batch, mark) in [(3, Token::random().mark()), (4, holder.mark())] {
        quorum.submit(batch, vec![acquire(token, Some(6 + batch))]);
        let lease = LeaseInfo { mark: Some(mark), holder: None, fence: None, remaining: None, servers: None };
        let info = LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() };
        assert!(matches!(quorum.asked(2).unwrap().requests[..], [Request::Inspect { .. }]));
        quorum.answer_one(2, Reply::Inspected(Some(info)));
        (0..2).for_each(|node| quorum.answer_one(node, held_by(holder.mark())));
    }
    quorum.submit(5, vec![acquire(token, Some(11))]);
    assert!(
        matches!(quorum.asked(2).unwrap().requests[..], [Request::Acquire(_)]),
        "the holder has that node"
    );
}

#[test]
fn a_waiter_asks_all_nodes_when_more_of_them_hand_it_the_lock() {
    let held = Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, notified: true, by: Some(9) };
    let mut quorum = TestQuorum::of(3);
    let token = Token::random();
    quorum.submit(1, vec![acquire(token, Some(7))]);
    (0..2).for_each(|node| quorum.answer_one(node, held.clone()));
    quorum.answer_one(2, got(5));
    quorum.notice(0, 7);
    assert!(
        matches!(quorum.notices[..], [Notice::Granted { number: 7, .. }]),
        "the notice and the third node make a majority"
    );
    quorum.submit(2, vec![acquire(token, Some(8))]);
    assert_eq!(quorum.calls.len(), 3);
}

#[test]
fn a_break_keeps_all_nodes_from_repairs_and_a_repair_says_what_it_is() {
    let mut quorum = TestQuorum::of(3);
    let token = quorum.held();
    quorum.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
    let repairs = |request: &Request| matches!(request, Request::Acquire(ask) if ask.repairs);
    assert!(repairs(&quorum.asked(2).expect("it is repaired").requests[0]));
    quorum.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    quorum.submit(3, vec![Request::Break { key: "k".into(), bars_repairs: false }]);
    for node in 0..3 {
        let call = quorum.asked(node).expect("all nodes break the lock");
        assert!(matches!(call.requests[..], [Request::Break { bars_repairs: true, .. }]));
    }
}
