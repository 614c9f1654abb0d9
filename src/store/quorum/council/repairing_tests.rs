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

impl Chamber {
    /// Grants a shared lease with fence 20 at the first two of three nodes. The third node is away.
    fn held(&mut self) -> Token {
        self.held_in(Mode::Shared { most: u32::MAX })
    }

    /// Grants a lease in that mode, as [`Chamber::held`] does.
    fn held_in(&mut self, mode: Mode) -> Token {
        let token = Token::random();
        let ask = Ask::new("k".into(), token, ttl(), "h".into());
        self.submit(1, vec![Request::Acquire(Ask { mode, ..ask })]);
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
        let asks = |ask: &Ask| ask.token == whose && ask.place.is_none() && ask.mode.is_shared();
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
    let mut chamber = Chamber::of(3);
    let token = chamber.held();
    assert_eq!(chamber.renewed(2, token, [RENEWED, RENEWED, MISSING]), Ok(RENEWED));
    assert!(chamber.is_repaired(2, token), "it answered last: {:?}", chamber.calls);
    chamber.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    assert_eq!(chamber.renewed(3, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(chamber.calls.is_empty(), "all nodes know the lease: {:?}", chamber.calls);
    // The third node counts now, so another node may forget the lease.
    assert_eq!(chamber.renewed(4, token, [MISSING, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(chamber.is_repaired(0, token), "it answered first");
    chamber.answer(0, vec![Ok(BUSY), Ok(Reply::NotHeld(Absence::Taken))]);
    assert_eq!(chamber.renewed(5, token, [MISSING, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(chamber.is_repaired(0, token), "each renewal asks again");
}

#[test]
fn each_of_several_readers_is_repaired_at_a_node_that_knows_one_of_them() {
    let mut chamber = Chamber::of(3);
    let [first, second] = [chamber.held(), chamber.held()];
    chamber.renewed(2, first, [RENEWED, RENEWED, MISSING]).unwrap();
    assert!(chamber.is_repaired(2, first), "{:?}", chamber.calls);
    chamber.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    // The first reader has the lock at the third node, so the node calls the lock taken.
    chamber.renewed(3, second, [RENEWED, RENEWED, TAKEN]).unwrap();
    assert!(chamber.is_repaired(2, second), "the node answered last: {:?}", chamber.calls);
    chamber.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    chamber.renewed(4, second, [TAKEN, RENEWED, RENEWED]).unwrap();
    assert!(chamber.is_repaired(0, second), "the node answered first: {:?}", chamber.calls);
}

#[test]
fn an_exclusive_lease_is_repaired_where_another_client_has_the_lock_as_soon_as_the_node_is_free() {
    let mut chamber = Chamber::of(3);
    let token = chamber.held_in(Mode::Exclusive);
    let queued = Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, told: true, by: Some(9) };
    for batch in 2..4 {
        chamber.renewed(batch, token, [RENEWED, RENEWED, TAKEN]).unwrap();
        let asks = |ask: &Ask| ask.token == token && ask.repairs && ask.place.is_none();
        let requests = &chamber.asked(2).expect("each renewal keeps the place").requests;
        assert!(matches!(&requests[..], [Request::Acquire(ask), Request::Accept { .. }] if asks(ask)));
        chamber.answer(2, vec![Ok(queued.clone()), Ok(TAKEN)]);
    }
    // The node has handed the lease to the place. It counts, but does not have the fence yet.
    assert_eq!(chamber.renewed(4, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(accepts(chamber.asked(2), 20), "{:?}", chamber.calls);
}

#[test]
fn a_place_that_a_repair_takes_after_the_release_is_released() {
    let mut chamber = Chamber::of(3);
    let token = chamber.held_in(Mode::Exclusive);
    chamber.renewed(2, token, [RENEWED, RENEWED, TAKEN]).unwrap();
    let repair = chamber.calls.pop().expect("the third node is asked");
    chamber.submit(3, vec![release(token)]);
    (0..2).for_each(|node| chamber.answer_one(node, Reply::Released));
    chamber.answer_one(2, TAKEN);
    for _ in STRAGGLER_PAUSES {
        chamber.wait();
        chamber.answer_one(2, TAKEN);
    }
    let queued = Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, told: true, by: Some(9) };
    chamber.council.answered(chamber.now, repair.id, vec![Ok(queued), Ok(TAKEN)]);
    chamber.gather();
    assert!(releases(chamber.asked(2), token), "{:?}", chamber.calls);
}

#[test]
fn nothing_is_repaired_without_a_majority() {
    let mut chamber = Chamber::of(3);
    let token = chamber.held();
    assert_eq!(chamber.renewed(2, token, [RENEWED, MISSING, MISSING]), Ok(MISSING));
    for node in 0..2 {
        assert!(releases(chamber.asked(node), token), "{:?}", chamber.calls);
        chamber.answer_one(node, MISSING);
    }
    // The acquire was not answered by the third node, so it is released there a little later.
    assert!(chamber.calls.is_empty(), "{:?}", chamber.calls);
    assert_eq!(chamber.renewed(3, token, [RENEWED, RENEWED, MISSING]), Ok(RENEWED));
    assert!(chamber.calls.is_empty(), "a lease that is gone does not come back: {:?}", chamber.calls);
}

#[test]
fn a_renewal_that_comes_too_late_for_the_holder_repairs_nothing() {
    let mut chamber = Chamber::of(3);
    let token = chamber.held();
    chamber.submit(2, vec![renew(token)]);
    chamber.now = chamber.now + ttl().as_duration();
    chamber.answer_one(0, RENEWED);
    chamber.answer_one(1, RENEWED);
    chamber.answer_one(2, MISSING);
    assert!(chamber.calls.is_empty(), "{:?}", chamber.calls);
}

#[test]
fn what_a_repair_brings_after_the_release_is_released() {
    for (answer, pauses) in [(Ok(got(7)), &[][..]), (late(), STRAGGLER_PAUSES)] {
        let mut chamber = Chamber::of(3);
        let token = chamber.held();
        chamber.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
        let repair = chamber.calls.pop().expect("the third node is asked");
        chamber.submit(3, vec![release(token)]);
        (0..2).for_each(|node| chamber.answer_one(node, Reply::Released));
        chamber.answer_one(2, MISSING);
        // The third node did not answer the acquire. So it gets this many releases anyway.
        for _ in STRAGGLER_PAUSES {
            chamber.wait();
            assert!(releases(chamber.asked(2), token));
            chamber.answer_one(2, MISSING);
        }
        chamber.council.answered(chamber.now, repair.id, vec![answer, Ok(MISSING)]);
        chamber.gather();
        let again = pauses.len().max(1);
        for _ in 0..again {
            if chamber.asked(2).is_none() {
                chamber.wait();
            }
            assert!(releases(chamber.asked(2), token), "{:?}", chamber.calls);
            chamber.answer_one(2, Reply::Released);
        }
        assert_eq!((chamber.council.concerns(), chamber.wait()), (0, None));
    }
}

#[test]
fn a_repair_that_was_not_answered_is_not_undone_while_the_lease_is_held() {
    let mut chamber = Chamber::of(3);
    let token = chamber.held();
    chamber.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
    chamber.answer(2, vec![late(), late()]);
    assert_eq!((&chamber.calls[..].len(), chamber.wait()), (&0, None), "a renewal may have counted the node");
    // The node has the lease, but it may not have the fence.
    assert_eq!(chamber.renewed(3, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(accepts(chamber.asked(2), 20), "{:?}", chamber.calls);
    chamber.answer_one(2, Reply::Accepted);
    assert_eq!(chamber.renewed(4, token, [RENEWED, RENEWED, RENEWED]), Ok(RENEWED));
    assert!(chamber.calls.is_empty());
}

#[test]
fn a_lease_is_released_at_all_nodes_when_most_of_them_say_that_it_is_gone() {
    let mut chamber = Chamber::of(3);
    let token = chamber.held();
    chamber.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
    chamber.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    // The first node granted the lease. The third node was repaired.
    assert_eq!(chamber.renewed(3, token, [RENEWED, MISSING, MISSING]), Ok(MISSING));
    chamber.wait();
    for node in 0..3 {
        assert!(releases(chamber.asked(node), token), "the engine does not release it: {:?}", chamber.calls);
    }
}

#[test]
fn a_waiter_leaves_alone_what_it_has_while_most_nodes_are_held_by_another() {
    let held_by = |by| Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, told: true, by: Some(by) };
    let holder = Token::random();
    let mut chamber = Chamber::of(3);
    let token = Token::random();
    chamber.submit(1, vec![acquire(token, Some(7))]);
    chamber.answer_one(0, held_by(holder.mark()));
    chamber.answer_one(1, held_by(holder.mark()));
    chamber.answer_one(2, got(5));
    chamber.submit(2, vec![acquire(token, Some(8))]);
    assert!(chamber.asked(2).is_none(), "{:?}", chamber.calls);
    (0..2).for_each(|node| chamber.answer_one(node, held_by(holder.mark())));
    // The waiter's own lease at the third node has ended.
    chamber.now = chamber.now + Ttl::MIN.as_duration();
    for (batch, mark) in [(3, Token::random().mark()), (4, holder.mark())] {
        chamber.submit(batch, vec![acquire(token, Some(6 + batch))]);
        let lease = LeaseInfo { mark: Some(mark), holder: None, fence: None, remaining: None, servers: None };
        let info = LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() };
        assert!(matches!(chamber.asked(2).unwrap().requests[..], [Request::Inspect { .. }]));
        chamber.answer_one(2, Reply::Inspected(Some(info)));
        (0..2).for_each(|node| chamber.answer_one(node, held_by(holder.mark())));
    }
    chamber.submit(5, vec![acquire(token, Some(11))]);
    assert!(
        matches!(chamber.asked(2).unwrap().requests[..], [Request::Acquire(_)]),
        "the holder has that node"
    );
}

#[test]
fn a_waiter_asks_all_nodes_when_more_of_them_hand_it_the_lock() {
    let held = Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, told: true, by: Some(9) };
    let mut chamber = Chamber::of(3);
    let token = Token::random();
    chamber.submit(1, vec![acquire(token, Some(7))]);
    (0..2).for_each(|node| chamber.answer_one(node, held.clone()));
    chamber.answer_one(2, got(5));
    chamber.notice(0, 7);
    assert!(
        matches!(chamber.notices[..], [Notice::Granted { number: 7, .. }]),
        "the notice and the third node make a majority"
    );
    chamber.submit(2, vec![acquire(token, Some(8))]);
    assert_eq!(chamber.calls.len(), 3);
}

#[test]
fn a_break_keeps_all_nodes_from_repairs_and_a_repair_says_what_it_is() {
    let mut chamber = Chamber::of(3);
    let token = chamber.held();
    chamber.renewed(2, token, [RENEWED, RENEWED, MISSING]).unwrap();
    let repairs = |request: &Request| matches!(request, Request::Acquire(ask) if ask.repairs);
    assert!(repairs(&chamber.asked(2).expect("it is repaired").requests[0]));
    chamber.answer(2, vec![Ok(got(7)), Ok(Reply::Accepted)]);
    chamber.submit(3, vec![Request::Break { key: "k".into(), bars_repairs: false }]);
    for node in 0..3 {
        let call = chamber.asked(node).expect("all nodes break the lock");
        assert!(matches!(call.requests[..], [Request::Break { bars_repairs: true, .. }]));
    }
}
