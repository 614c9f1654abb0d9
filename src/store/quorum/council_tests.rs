use super::super::debts::STRAGGLER_PAUSES;
use super::*;
use crate::lease::{Token, Ttl};
use crate::store::{Absence, Availability, LeaseInfo, LockInfo, Place, Servers};

const TIMEOUT: Duration = Duration::from_secs(1);

/// A council of which the test answers for the nodes.
struct Chamber {
    council: Council,
    now: Instant,
    /// What the nodes were asked and have not answered: the call, its node, and the requests.
    calls: Vec<Call>,
    answers: FxHashMap<u64, Vec<Answer>>,
    notices: Vec<Notice>,
}

impl Chamber {
    fn of(nodes: usize) -> Self {
        let names = (0..nodes).map(|node| format!("n{node}").into()).collect();
        Self {
            council: Council::new(names, 1),
            now: Instant::from_micros(1_000_000),
            calls: Vec::new(),
            answers: FxHashMap::default(),
            notices: Vec::new(),
        }
    }

    fn gather(&mut self) {
        let effects = self.council.take_effects();
        self.calls.extend(effects.calls);
        self.answers.extend(effects.answers);
        self.notices.extend(effects.notices);
    }

    fn submit(&mut self, batch: u64, requests: Vec<Request>) {
        self.council.submit(self.now, batch, requests, TIMEOUT);
        self.gather();
    }

    /// What `node` was asked first of all that it has not answered.
    fn asked(&self, node: usize) -> Option<&Call> {
        self.calls.iter().find(|call| call.node == node)
    }

    /// `node` answers its oldest call.
    fn answer(&mut self, node: usize, answers: Vec<Answer>) {
        let place = self.calls.iter().position(|call| call.node == node).expect("it was asked");
        let call = self.calls.remove(place);
        self.council.answered(self.now, call.id, answers);
        self.gather();
    }

    fn answer_one(&mut self, node: usize, reply: Reply) {
        self.answer(node, vec![Ok(reply)]);
    }

    /// Lets the time pass until something is due; `None` if nothing ever is.
    fn wait(&mut self) -> Option<Duration> {
        let next = self.council.next_wake()?;
        let waited = next.since(self.now);
        self.now = self.now.max(next);
        self.council.tick(self.now);
        self.gather();
        Some(waited)
    }

    /// `node` tells that it has handed the lock on.
    fn notice(&mut self, node: usize, number: u64) {
        let notice = Notice::Granted { number, fence: Some(Fence(number)) };
        self.council.noticed(self.now, node, notice);
        self.gather();
    }

    /// The answers to a batch, which is over.
    fn settled(&mut self, batch: u64) -> Vec<Answer> {
        self.answers.remove(&batch).expect("it is settled")
    }

    fn settled_one(&mut self, batch: u64) -> Reply {
        let mut answers = self.settled(batch);
        assert_eq!(answers.len(), 1);
        answers.remove(0).expect("no error")
    }
}

fn acquire(token: Token, number: Option<u64>) -> Request {
    let ask = Ask::new("k".into(), token, Ttl::MIN, "h".into());
    Request::Acquire(Ask { place: number.map(|number| Place { number }), ..ask })
}

fn got(fence: u64) -> Reply {
    Reply::Acquired { fence: Fence(fence), waiting: 0 }
}

fn queued() -> Reply {
    Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, told: true, by: None }
}

const BUSY: Reply = Reply::Busy { remaining: Some(TIMEOUT) };

/// Whether that is what one asks for whose lease is to go.
fn releases(call: Option<&Call>, whose: Token) -> bool {
    let is_it = |request: &Request| matches!(request, Request::Release { token, .. } if *token == whose);
    call.is_some_and(|call| call.requests.len() == 1 && is_it(&call.requests[0]))
}

fn accepts(call: Option<&Call>, wanted: u64) -> bool {
    let is_it = |request: &Request| matches!(request, Request::Accept { fence, .. } if fence.0 == wanted);
    call.is_some_and(|call| call.requests.len() == 1 && is_it(&call.requests[0]))
}

#[test]
fn all_nodes_are_asked_at_once_and_the_last_one_need_not_answer() {
    let mut chamber = Chamber::of(3);
    chamber.submit(1, vec![Request::Ping]);
    assert_eq!(chamber.calls.len(), 3);
    chamber.answer_one(2, Reply::Ready);
    assert!(chamber.answers.is_empty());
    chamber.answer_one(0, Reply::Ready);
    assert_eq!(chamber.settled_one(1), Reply::Ready);
    assert_eq!(chamber.council.concerns(), 1, "an answer is still to come");
    chamber.answer_one(1, Reply::Ready);
    assert_eq!((chamber.council.concerns(), chamber.wait()), (0, None));
}

#[test]
fn a_lease_takes_two_rounds_within_the_time_of_its_batch() {
    let mut chamber = Chamber::of(3);
    chamber.submit(1, vec![acquire(Token::random(), None)]);
    let first = chamber.asked(0).unwrap().timeout;
    chamber.answer_one(0, got(10));
    chamber.answer_one(1, got(20));
    assert!(accepts(chamber.asked(0), 20));
    assert!(first + chamber.asked(0).unwrap().timeout <= TIMEOUT);
    assert!(chamber.answers.is_empty(), "not before most have accepted it");
    chamber.answer_one(0, Reply::Accepted);
    assert_eq!(chamber.settled_one(1), got(20));
    // Whoever grants it late learns the fence.
    chamber.answer_one(2, got(30));
    assert!(accepts(chamber.asked(2), 20));
    chamber.answer_one(2, Reply::Accepted);
    assert_eq!((chamber.council.concerns(), chamber.wait()), (0, None));
}

#[test]
fn what_a_node_grants_after_all_was_refused_is_taken_back() {
    for late in [Ok(got(10)), Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))] {
        let (mut chamber, token) = (Chamber::of(3), Token::random());
        chamber.submit(1, vec![acquire(token, None)]);
        chamber.answer_one(0, BUSY);
        chamber.answer_one(1, BUSY);
        assert_eq!(chamber.settled_one(1), BUSY);
        let times = if late.is_err() { 3 } else { 1 };
        chamber.answer(2, vec![late]);
        // What is known to be there goes at once. One that may still come is released again and again.
        for _ in 0..times {
            if times > 1 {
                chamber.wait();
            }
            assert!(releases(chamber.asked(2), token), "{:?}", chamber.calls);
            chamber.answer_one(2, Reply::Released);
        }
        assert_eq!((chamber.council.concerns(), chamber.wait()), (0, None));
    }
}

#[test]
fn what_a_node_may_have_granted_before_all_was_refused_is_taken_back() {
    let (mut chamber, token) = (Chamber::of(3), Token::random());
    chamber.submit(1, vec![acquire(token, None)]);
    chamber.answer(0, vec![Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))]);
    chamber.answer_one(1, BUSY);
    chamber.answer_one(2, BUSY);
    assert_eq!(chamber.settled_one(1), BUSY);
    chamber.wait();
    assert!(releases(chamber.asked(0), token));
    assert_eq!(chamber.calls.len(), 1, "and nowhere else");
}

#[test]
fn what_some_nodes_have_of_an_acquire_that_failed_is_taken_back_from_them() {
    let away = || vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))];
    for has_queued in [false, true] {
        let (mut chamber, token) = (Chamber::of(5), Token::random());
        if has_queued {
            chamber.submit(1, vec![acquire(token, Some(7))]);
            (0..5).for_each(|node| chamber.answer_one(node, queued()));
            assert_eq!(chamber.settled_one(1), queued());
        }
        chamber.submit(2, vec![acquire(token, Some(8))]);
        chamber.answer_one(0, got(10));
        chamber.answer_one(1, queued());
        chamber.answer(2, away());
        chamber.answer(3, away());
        assert!(chamber.answers.is_empty(), "it depends on the last one");
        chamber.answer(4, away());
        assert_eq!(chamber.settled(2)[0].as_ref().unwrap_err().kind, StoreErrorKind::Quorum);
        // Those that could not be asked have nothing of it, but for a place that it had before.
        for node in 0..5 {
            let is_there = node < 2 || has_queued;
            assert_eq!(releases(chamber.asked(node), token), is_there, "{node}: {:?}", chamber.calls);
            if is_there {
                chamber.answer_one(node, Reply::Released);
            }
        }
        assert_eq!((chamber.council.concerns(), chamber.wait()), (0, None));
    }
}

#[test]
fn a_release_that_a_node_did_not_hear_is_repeated_there() {
    let (mut chamber, token) = (Chamber::of(3), Token::random());
    chamber.submit(1, vec![Request::Release { key: "k".into(), token, used: None }]);
    chamber.answer_one(0, Reply::Released);
    chamber.answer_one(1, Reply::Released);
    assert_eq!(chamber.settled_one(1), Reply::Released);
    chamber.answer(2, vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))]);
    for _ in 0..3 {
        chamber.wait();
        assert!(releases(chamber.asked(2), token));
        chamber.answer(2, vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))]);
    }
    chamber.wait();
    chamber.answer_one(2, Reply::NotHeld(Absence::Missing));
    assert_eq!((chamber.council.concerns(), chamber.wait()), (0, None));
}

#[test]
fn who_has_a_minority_gives_way_after_a_while() {
    let mut chamber = Chamber::of(3);
    chamber.submit(1, vec![acquire(Token::random(), Some(7))]);
    chamber.answer_one(0, got(10));
    chamber.answer_one(1, queued());
    chamber.answer_one(2, queued());
    assert!(chamber.answers.is_empty(), "it may still come");
    let waited = chamber.wait().expect("not for ever");
    assert!(!waited.is_zero() && waited <= 2 * LONGEST_PATIENCE, "{waited:?}");
    assert_eq!(chamber.settled_one(1), Reply::Split);
    assert_eq!(chamber.council.concerns(), 0);
    // Who does not wait gives way at once.
    chamber.submit(2, vec![acquire(Token::random(), None)]);
    chamber.answer_one(0, got(10));
    chamber.answer_one(1, BUSY);
    chamber.answer_one(2, BUSY);
    assert_eq!(chamber.settled_one(2), Reply::Split);
}

#[test]
fn who_has_given_way_often_waits_no_longer_than_at_first() {
    let mut chamber = Chamber::of(3);
    let longest = chamber.council.patience().mul_f64(1.5);
    for batch in 1..=100 {
        chamber.submit(batch, vec![acquire(Token::random(), Some(batch))]);
        chamber.answer_one(0, got(1));
        chamber.answer_one(1, queued());
        chamber.answer_one(2, queued());
        let waited = chamber.wait().expect("it holds what it has");
        assert!(waited <= longest, "in round {batch}: {waited:?}");
        assert_eq!(chamber.settled_one(batch), Reply::Split);
    }
}

#[test]
fn who_has_a_minority_takes_the_nodes_that_are_handed_to_it_meanwhile() {
    // The notice comes while it holds a minority, or before the last node has answered.
    for early in [false, true] {
        let mut chamber = Chamber::of(3);
        chamber.submit(1, vec![acquire(Token::random(), Some(7))]);
        chamber.answer_one(0, got(10));
        chamber.answer_one(1, queued());
        if early {
            chamber.notice(1, 7);
            chamber.answer_one(2, queued());
        } else {
            chamber.answer_one(2, queued());
            chamber.notice(1, 7);
        }
        let Some(Call { requests, .. }) = chamber.asked(1) else { panic!("it is asked again") };
        assert!(matches!(&requests[..], [Request::Acquire(_)]), "{requests:?}");
        chamber.answer_one(1, got(20));
        assert!(accepts(chamber.asked(0), 20));
        chamber.answer_one(0, Reply::Accepted);
        assert_eq!(chamber.settled_one(1), got(20));
        assert_eq!((chamber.council.concerns(), chamber.notices.len()), (0, 0));
        assert_eq!(chamber.wait(), None);
    }
}

#[test]
fn who_is_next_at_a_node_where_the_lease_is_about_to_end_asks_it_again_before_it_gives_way() {
    let soon =
        || Reply::Queued { remaining: Some(Duration::from_millis(2)), ahead: 0, told: true, by: Some(1) };
    let gone = || vec![Err(StoreError::not_done(StoreErrorKind::Unreachable, "away"))];
    for ended in [true, false] {
        let mut chamber = Chamber::of(3);
        chamber.submit(1, vec![acquire(Token::random(), Some(7))]);
        chamber.answer(2, gone());
        chamber.answer_one(0, got(10));
        chamber.answer_one(1, soon());
        let waited = chamber.wait().expect("not for ever");
        assert!(waited >= Duration::from_millis(3), "it has ended by then: {waited:?}");
        assert_eq!(chamber.calls.len(), 1, "{:?}", chamber.calls);
        assert!(matches!(chamber.asked(1).unwrap().requests[..], [Request::Acquire(_)]));
        if ended {
            chamber.answer_one(1, got(20));
            chamber.answer_one(0, Reply::Accepted);
            assert_eq!(chamber.settled_one(1), got(20));
        } else {
            chamber.answer_one(1, soon());
            assert!(chamber.wait().expect("once, and not again") <= LONGEST_PATIENCE);
            assert_eq!(chamber.settled_one(1), Reply::Split);
        }
        assert_eq!((chamber.council.concerns(), chamber.calls.len()), (0, 0));
    }
}

#[test]
fn notices_are_gathered_until_most_nodes_have_sent_one() {
    let mut chamber = Chamber::of(3);
    chamber.submit(1, vec![acquire(Token::random(), Some(7))]);
    for node in 0..3 {
        chamber.answer_one(node, queued());
    }
    assert_eq!(chamber.settled_one(1), queued());
    chamber.notice(0, 7);
    assert_eq!(chamber.notices, []);
    chamber.notice(2, 7);
    let called = [Notice::Granted { number: 7, fence: None }];
    assert_eq!(chamber.notices, called, "and tells no fence: every node has another");
    chamber.notice(1, 7);
    assert_eq!((chamber.wait(), &chamber.notices[..]), (None, &called[..]));
    // Who may have missed one looks again.
    chamber.council.noticed(chamber.now, 1, Notice::Missed);
    chamber.gather();
    assert_eq!(chamber.notices[1..], [Notice::Missed]);
}

#[test]
fn a_node_that_answers_late_that_it_has_granted_the_lock_is_as_good_as_a_notice() {
    let mut chamber = Chamber::of(3);
    chamber.submit(1, vec![acquire(Token::random(), Some(7))]);
    chamber.answer_one(0, queued());
    chamber.answer_one(1, queued());
    assert_eq!(chamber.settled_one(1), queued());
    chamber.answer_one(2, got(10));
    chamber.notice(0, 7);
    assert_eq!(chamber.notices, [Notice::Granted { number: 7, fence: None }]);
}

#[test]
fn an_inspection_waits_for_a_node_that_is_farther_away() {
    let lease = |servers| {
        let fence = Some(Fence(5));
        let lease = LeaseInfo { mark: Some(7), holder: None, fence, remaining: None, servers };
        Reply::Inspected(Some(LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() }))
    };
    for heard in [true, false] {
        let mut chamber = Chamber::of(3);
        chamber.submit(1, vec![Request::Inspect { key: "k".into() }]);
        [0, 1].into_iter().for_each(|node| chamber.answer_one(node, lease(None)));
        assert!(chamber.answers.is_empty());
        let waited = chamber.council.next_wake().expect("it does not wait for ever").since(chamber.now);
        assert_eq!(waited, TIMEOUT);
        let (held, unheard) = if heard { (3, 0) } else { (2, 1) };
        if heard {
            chamber.now = chamber.now + TIMEOUT / 2;
            chamber.answer_one(2, lease(None));
        } else {
            chamber.wait();
        }
        assert_eq!(chamber.settled_one(1), lease(Some(Servers { held, total: 3, unheard })));
    }
}

#[test]
fn requests_on_one_key_wait_for_the_one_before() {
    let (mut chamber, token) = (Chamber::of(3), Token::random());
    let release = Request::Release { key: "k".into(), token, used: None };
    let other = Request::Inspect { key: "other".into() };
    chamber.submit(1, vec![acquire(token, None), release, other, Request::Inspect { key: "k".into() }]);
    for node in 0..3 {
        let kinds: usize = chamber.calls.iter().filter(|c| c.node == node).map(|c| c.requests.len()).sum();
        assert_eq!(kinds, 2, "the first of each key");
    }
    let nobody = || Reply::Inspected(None);
    // The acquire has less time than the rest, so it is sent by itself.
    for node in 0..3 {
        chamber.answer_one(node, got(10));
        chamber.answer_one(node, nobody());
    }
    for node in 0..3 {
        assert!(releases(chamber.asked(node), token), "after the second round: {:?}", chamber.calls);
        chamber.answer_one(node, Reply::Released);
    }
    // The last node granted it when it was decided, and was asked to accept the fence, too. That was heard when the release
    // was on its way, which may have come first.
    assert!(releases(chamber.asked(2), token), "{:?}", chamber.calls);
    chamber.answer_one(2, Reply::NotHeld(Absence::Missing));
    assert!(accepts(chamber.asked(2), 10), "{:?}", chamber.calls);
    chamber.answer_one(2, Reply::NotHeld(Absence::Missing));
    for node in 0..3 {
        assert!(matches!(chamber.asked(node).unwrap().requests[..], [Request::Inspect { .. }]));
        chamber.answer_one(node, nobody());
    }
    assert_eq!(chamber.settled(1), [got(10), Reply::Released, nobody(), nobody()].map(Ok));
    assert_eq!(chamber.council.concerns(), 0);
}

#[test]
fn counted_permits_are_refused_without_asking_anybody() {
    let mut chamber = Chamber::of(3);
    let Request::Acquire(ask) = acquire(Token::random(), None) else { unreachable!() };
    let permit = Request::Acquire(Ask { mode: Mode::Shared { most: 3 }, ..ask.clone() });
    let reader = Request::Acquire(Ask { mode: Mode::Shared { most: u32::MAX }, ..ask });
    chamber.submit(1, vec![permit, reader]);
    for node in 0..2 {
        chamber.answer_one(node, got(10));
    }
    let answers = chamber.settled(1);
    let error = answers[0].as_ref().unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unsupported, false));
    assert_eq!(answers[1], Ok(got(10)));
}

#[test]
fn what_a_node_may_get_of_a_look_that_was_still_open_at_the_release_is_released_there_again() {
    let (mut chamber, token) = (Chamber::of(3), Token::random());
    chamber.submit(1, vec![acquire(token, Some(7))]);
    chamber.answer_one(0, queued());
    chamber.answer_one(1, queued());
    assert_eq!(chamber.settled_one(1), queued());
    chamber.submit(2, vec![Request::Release { key: "k".into(), token, used: None }]);
    chamber.answer(2, vec![Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "late"))]);
    (0..3).for_each(|node| chamber.answer_one(node, Reply::NotHeld(Absence::Missing)));
    assert_eq!(chamber.settled_one(2), Reply::NotHeld(Absence::Missing));
    for pause in STRAGGLER_PAUSES {
        assert_eq!(chamber.wait().as_ref(), Some(pause));
        assert!(releases(chamber.asked(2), token), "{:?}", chamber.calls);
        chamber.answer_one(2, Reply::NotHeld(Absence::Missing));
    }
    assert_eq!((chamber.council.concerns(), chamber.council.asking.len(), chamber.wait()), (0, 0, None));
}

#[path = "council/adopting_tests.rs"]
mod adopting_tests;
#[path = "council/lost_tests.rs"]
mod lost_tests;
#[path = "council/repairing_tests.rs"]
mod repairing_tests;
#[path = "council/used_tickets_tests.rs"]
mod used_tickets_tests;

#[test]
fn the_quorum_tells_that_it_is_away_once_and_passes_on_what_breakers_say() {
    let mut chamber = Chamber::of(3);
    let away = |node: usize| {
        Availability::Away(StoreError::not_done(StoreErrorKind::Unreachable, format!("n{node} is gone")))
    };
    for (node, told) in
        [(0, away(0)), (2, away(2)), (1, away(1)), (1, Availability::Usable), (0, Availability::Usable)]
    {
        chamber.council.noticed(chamber.now, node, Notice::Availability(told));
    }
    chamber.gather();
    let [Notice::Availability(Availability::Away(error)), Notice::Availability(Availability::Usable)] =
        &chamber.notices[..]
    else {
        panic!("{:?}", chamber.notices)
    };
    assert_eq!((error.kind, error.votes.len()), (StoreErrorKind::Quorum, 3));
}
