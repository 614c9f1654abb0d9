use std::time::Duration;

use super::*;
use crate::lease::{Mode, Token, Ttl};
use crate::store::LockInfo;
use crate::store::diagnosis::{Facts, Report};
use crate::store::{LeaseInfo, Place, Said, Servers, StoreError, StoreErrorKind};

fn nodes(count: usize) -> Nodes {
    Nodes { names: (0..count).map(|node| format!("n{node}").into()).collect() }
}

fn ask(place: Option<Place>) -> Request {
    let ask = Ask::new("k".into(), Token::random(), Ttl::MIN, "h".into());
    Request::Acquire(Ask { place, mode: Mode::Exclusive, ..ask })
}

fn renew(fences: u32) -> Request {
    Request::Renew { key: "k".into(), token: Token::random(), ttl: Ttl::MIN, fences }
}

fn release() -> Request {
    Request::Release { key: "k".into(), token: Token::random(), used: None }
}

fn got(fence: u64) -> Answer {
    Ok(Reply::Acquired { fence: Fence(fence), waiting: 0 })
}

fn busy(ms: u64) -> Answer {
    Ok(Reply::Busy { remaining: Some(Duration::from_millis(ms)) })
}

fn queued(ahead: u32, told: bool) -> Answer {
    Ok(Reply::Queued { remaining: Some(Duration::from_millis(9)), ahead, told, by: None })
}

fn failed() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "too late"))
}

const MISSING: Answer = Ok(Reply::NotHeld(Absence::Missing));
const TAKEN: Answer = Ok(Reply::NotHeld(Absence::Taken));
const PLACE: Option<Place> = Some(Place { number: 1 });

/// What is decided of `request` once those nodes have answered, of so many; every answer before the last leaves it open.
fn after(count: usize, request: Request, answers: Vec<Answer>) -> Verdict {
    let (nodes, mut last) = (nodes(count), Verdict::Open);
    let mut ballot = Ballot::new(request, 0, &nodes);
    for (node, answer) in answers.into_iter().enumerate() {
        assert_eq!(last, Verdict::Open, "before node {node}");
        last = ballot.voted(node, answer, &nodes);
    }
    last
}

fn settled(reply: Reply) -> Verdict {
    Verdict::Settle(Ok(reply))
}

fn kind(verdict: Verdict) -> StoreErrorKind {
    match verdict {
        Verdict::Settle(Err(error)) => error.kind,
        other => panic!("expected an error, got {other:?}"),
    }
}

#[test]
fn two_majorities_share_a_node_and_a_veto_leaves_none() {
    for (count, majority, veto) in [(3, 2, 2), (4, 3, 2), (5, 3, 3), (63, 32, 32)] {
        let nodes = nodes(count);
        assert_eq!((nodes.majority(), nodes.veto()), (majority, veto), "of {count}");
        assert!(2 * nodes.majority() > count && count - nodes.veto() < nodes.majority());
        assert!(count - nodes.veto() + 1 >= nodes.majority(), "one less is no veto");
    }
}

#[test]
fn the_majority_settles_it_and_not_before() {
    for (count, needed) in [(3, 2), (4, 3), (5, 3)] {
        let renewed = Reply::Renewed { block: None };
        let yes = |n: usize| vec![Ok(renewed.clone()); n];
        assert_eq!(after(count, renew(0), yes(needed)), settled(renewed.clone()), "of {count}");
        assert_eq!(after(count, renew(0), yes(needed - 1)), Verdict::Open);
        let veto = count - needed + 1;
        assert_eq!(after(count, renew(0), vec![TAKEN; veto]), settled(Reply::NotHeld(Absence::Taken)));
        assert_eq!(after(count, renew(0), vec![failed(); veto - 1]), Verdict::Open);
        assert_eq!(kind(after(count, renew(0), vec![failed(); veto])), StoreErrorKind::Quorum);
    }
}

#[test]
fn what_is_in_the_way_is_told_when_nobody_said_yes() {
    // When most nodes will be free, and not the first one.
    let free = |ms| settled(Reply::Busy { remaining: Some(Duration::from_millis(ms)) });
    assert_eq!(after(3, ask(None), vec![busy(30), busy(10)]), free(30));
    assert_eq!(after(5, ask(None), vec![busy(30), failed(), busy(10), busy(20)]), free(30));
    let never = Reply::Busy { remaining: None };
    let foreign = Ok(Reply::Busy { remaining: None });
    assert_eq!(after(3, ask(None), vec![foreign, busy(10)]), settled(never));
    // One that failed and one that is busy leave it to the third.
    assert_eq!(after(3, ask(None), vec![failed(), busy(7), busy(8)]), free(8));
    assert_eq!(kind(after(3, ask(None), vec![failed(), busy(7), failed()])), StoreErrorKind::Quorum);
}

#[test]
fn a_notice_is_promised_if_most_nodes_send_one() {
    let queue =
        |told| settled(Reply::Queued { remaining: Some(Duration::from_millis(9)), ahead: 1, told, by: None });
    assert_eq!(after(3, ask(PLACE), vec![queued(1, true), queued(1, true)]), queue(true));
    assert_eq!(after(3, ask(PLACE), vec![queued(2, true), queued(1, false)]), queue(false));
    let answers = vec![queued(9, true), failed(), queued(1, true)];
    assert_eq!(after(3, ask(PLACE), answers), queue(true), "the place is that at most nodes");
}

#[test]
fn the_largest_fence_is_accepted_by_the_others_before_the_lease_is_granted() {
    let nodes = nodes(5);
    let mut ballot = Ballot::new(ask(None), 0, &nodes);
    assert_eq!(ballot.voted(0, got(10), &nodes), Verdict::Open);
    assert_eq!(ballot.voted(1, got(30), &nodes), Verdict::Open);
    let accept = Verdict::Accept { nodes: vec![0, 2], fence: Fence(30), count: 1 };
    assert_eq!(ballot.voted(2, got(20), &nodes), accept);
    assert_eq!(ballot.accepted(0, Ok(Reply::Accepted), &nodes), Verdict::Open);
    let granted = settled(Reply::Acquired { fence: Fence(30), waiting: 0 });
    assert_eq!(ballot.accepted(2, Ok(Reply::Accepted), &nodes), granted);
    assert!(ballot.is_settled());
    // Whoever grants it later is to know the fence as well.
    let late = Verdict::Accept { nodes: vec![3], fence: Fence(30), count: 1 };
    assert_eq!(ballot.voted(3, got(99), &nodes), late);
    assert_eq!(ballot.voted(4, busy(5), &nodes), Verdict::Open);
}

#[test]
fn nodes_that_have_given_the_same_fence_away_need_not_be_asked() {
    let granted = settled(Reply::Acquired { fence: Fence(7), waiting: 0 });
    assert_eq!(after(3, ask(None), vec![got(7), got(7)]), granted);
}

#[test]
fn who_grants_late_may_be_the_one_that_was_missing_whatever_its_own_fence() {
    let nodes = nodes(3);
    for late in [15, 30] {
        let mut ballot = Ballot::new(ask(None), 0, &nodes);
        ballot.voted(0, got(10), &nodes);
        ballot.voted(1, got(20), &nodes);
        assert_eq!(ballot.accepted(0, MISSING, &nodes), Verdict::Open, "the third may still");
        let accept = Verdict::Accept { nodes: vec![2], fence: Fence(20), count: 1 };
        assert_eq!(ballot.voted(2, got(late), &nodes), accept);
        let granted = settled(Reply::Acquired { fence: Fence(20), waiting: 0 });
        assert_eq!(ballot.accepted(2, Ok(Reply::Accepted), &nodes), granted);
    }
}

#[test]
fn the_second_round_ends_when_the_last_who_could_help_does_not() {
    let nodes = nodes(3);
    // Refused after the first round, as by a node where the lease has run out; then the last node says no, or fails.
    for last in [busy(5), failed()] {
        let mut ballot = Ballot::new(ask(None), 0, &nodes);
        ballot.voted(0, got(10), &nodes);
        ballot.voted(1, got(20), &nodes);
        assert_eq!(ballot.accepted(0, MISSING, &nodes), Verdict::Open);
        let verdict = ballot.voted(2, last.clone(), &nodes);
        let Verdict::Settle(Err(error)) = verdict else { panic!("{last:?} leaves it at {verdict:?}") };
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Quorum, true));
        let yes = error.votes.iter().filter(|vote| vote.said == Said::Granted).count();
        assert_eq!(yes, 1, "{error}");
        assert!(ballot.is_settled());
    }
    // The other way round.
    let mut ballot = Ballot::new(ask(None), 0, &nodes);
    ballot.voted(0, got(10), &nodes);
    ballot.voted(1, got(20), &nodes);
    assert_eq!(ballot.voted(2, busy(5), &nodes), Verdict::Open);
    let verdict = ballot.accepted(0, failed(), &nodes);
    assert_eq!(kind(verdict), StoreErrorKind::Quorum);
}

#[test]
fn a_node_that_was_not_waited_for_is_not_called_slow() {
    let Verdict::Settle(Err(error)) = after(3, ask(None), vec![failed(), failed()]) else {
        panic!("without two of three there is no quorum");
    };
    let Said::Failed(..) = error.votes[0].said else { panic!("{:?}", error.votes) };
    assert_eq!(error.votes[2].said, Said::Unheard);
}

#[test]
fn more_fences_of_a_lease_are_accepted_like_those_of_a_new_one() {
    let nodes = nodes(3);
    let mut ballot = Ballot::new(renew(64), 0, &nodes);
    let block = |first, waiting| Ok(Reply::Renewed { block: Some((Fence(first), waiting)) });
    ballot.voted(2, block(200, 1), &nodes);
    let accept = Verdict::Accept { nodes: vec![0], fence: Fence(200), count: 64 };
    assert_eq!(ballot.voted(0, block(100, 3), &nodes), accept);
    let renewed = settled(Reply::Renewed { block: Some((Fence(200), 3)) });
    assert_eq!(ballot.accepted(0, Ok(Reply::Accepted), &nodes), renewed);
}

#[test]
fn who_has_a_minority_may_wait_for_the_rest_if_it_waits_at_all() {
    assert_eq!(after(3, ask(None), vec![got(1), busy(5), busy(5)]), settled(Reply::Split));
    assert_eq!(after(3, ask(PLACE), vec![got(1), queued(0, true), queued(0, true)]), Verdict::Hold);
    let nodes = nodes(3);
    let mut ballot = Ballot::new(ask(PLACE), 0, &nodes);
    ballot.voted(0, queued(0, true), &nodes);
    ballot.voted(1, got(5), &nodes);
    assert_eq!(ballot.voted(2, queued(1, true), &nodes), Verdict::Hold);
    ballot.hold(Instant::from_micros(9));
    assert_eq!((ballot.granted(), ballot.holds_until()), (0b10, Some(Instant::from_micros(9))));
    // One that was in the way has ended: it takes that node, too.
    assert!(matches!(ballot.voted(0, got(5), &nodes), Verdict::Settle(Ok(Reply::Acquired { .. }))));
    // Or it gives way.
    let mut ballot = Ballot::new(ask(PLACE), 0, &nodes);
    ballot.hold(Instant::from_micros(9));
    assert_eq!(ballot.give_way(&nodes), settled(Reply::Split));
    assert!(ballot.is_settled());
}

#[test]
fn a_release_is_done_when_most_have_done_it_or_more_than_have_not() {
    let done = || Ok(Reply::Released);
    assert_eq!(after(3, release(), vec![done(), done()]), settled(Reply::Released));
    assert_eq!(after(3, release(), vec![MISSING, TAKEN]), settled(Reply::NotHeld(Absence::Taken)));
    assert_eq!(
        after(3, release(), vec![MISSING, done(), MISSING]),
        settled(Reply::NotHeld(Absence::Missing))
    );
    assert_eq!(
        after(5, release(), vec![done(), done(), failed(), MISSING, failed()]),
        settled(Reply::Released)
    );
    assert_eq!(kind(after(3, release(), vec![done(), failed(), failed()])), StoreErrorKind::Quorum);
}

#[test]
fn an_inspection_waits_for_all_nodes_and_says_how_many_did_not_answer() {
    let told = |fence: u64, servers: Option<Servers>| {
        let fence = Some(Fence(fence));
        let lease = LeaseInfo { mark: Some(7), holder: None, fence, remaining: None, servers };
        Ok(Reply::Inspected(Some(LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() })))
    };
    let shows = |fence: u64| told(fence, None);
    let nobody = || Ok(Reply::Inspected(None));
    let inspect = || Request::Inspect { key: "k".into() };
    let nodes = nodes(3);
    let begun = |answers: [Answer; 2]| {
        let mut ballot = Ballot::new(inspect(), 0, &nodes);
        let [one, other] = answers;
        assert_eq!(ballot.voted(0, one, &nodes), Verdict::Open);
        assert_eq!(ballot.voted(1, other, &nodes), Verdict::Hold, "the third may know better");
        ballot.hold(Instant::from_micros(9));
        ballot
    };
    let told = |fence, held, unheard| Verdict::Settle(told(fence, Some(Servers { held, total: 3, unheard })));
    assert_eq!(begun([shows(50), shows(40)]).voted(2, shows(40), &nodes), told(40, 3, 0), "most");
    let larger = begun([shows(40), shows(50)]).voted(2, failed(), &nodes);
    assert_eq!(larger, told(50, 2, 1), "the larger of as many");
    assert_eq!(begun([shows(40), shows(50)]).give_way(&nodes), told(50, 2, 1), "the node did not answer");
    assert_eq!(begun([shows(40), shows(50)]).voted(2, nobody(), &nodes), told(50, 2, 0));
    assert_eq!(after(3, inspect(), vec![nobody(), shows(4), nobody()]), Verdict::Settle(nobody()));
    assert_eq!(after(3, inspect(), vec![nobody(), nobody()]), Verdict::Settle(nobody()));
    assert_eq!(kind(after(3, inspect(), vec![failed(), failed()])), StoreErrorKind::Quorum);
}

#[test]
fn those_who_may_have_granted_it_without_saying_so_are_known() {
    let nodes = nodes(3);
    let mut ballot = Ballot::new(ask(None), 0, &nodes);
    ballot.voted(0, failed(), &nodes);
    ballot.voted(1, Err(StoreError::not_done(StoreErrorKind::Unreachable, "gone")), &nodes);
    assert_eq!(ballot.doubtful().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_diagnosis_is_settled_when_every_node_was_heard() {
    let sound = || Ok(Reply::Diagnosed(vec![Report::new("memory:", Facts::Process, Ttl::MAX, false)]));
    let verdict = after(3, Request::Diagnose { ttl: Ttl::MAX, key: None }, vec![sound(), sound(), failed()]);
    let Verdict::Settle(Ok(Reply::Diagnosed(reports))) = verdict else { panic!("{verdict:?}") };
    let stores: Vec<&str> = reports.iter().map(|report| &*report.store).collect();
    assert_eq!(stores, ["memory:", "memory:", "n2"]);
}
