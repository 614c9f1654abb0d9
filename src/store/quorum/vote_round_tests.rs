use std::time::Duration;

use super::super::merged_views::merge_at_once;
use super::*;
use crate::lease::{Mode, Token, Ttl};
use crate::store::LockInfo;
use crate::store::diagnosis::{Facts, Report};
use crate::store::{LeaseInfo, NodeAnswer, Place, Servers, StoreError, StoreErrorKind};

fn nodes(count: usize) -> Nodes {
    Nodes { names: (0..count).map(|node| format!("n{node}").into()).collect() }
}

fn ask(place: Option<Place>) -> Request {
    let ask = AcquireRequest::new("k".into(), Token::random(), Ttl::MIN, "h".into());
    Request::Acquire(AcquireRequest { place, mode: Mode::Exclusive, ..ask })
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

fn queued(ahead: u32, notified: bool) -> Answer {
    Ok(Reply::Queued { remaining: Some(Duration::from_millis(9)), ahead, notified, by: None })
}

fn failed() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "too late"))
}

const MISSING: Answer = Ok(Reply::NotHeld(Absence::Missing));
const TAKEN: Answer = Ok(Reply::NotHeld(Absence::Taken));
const PLACE: Option<Place> = Some(Place { number: 1 });

/// Returns the decision on `request` when the first of `count` nodes have given these answers.
/// Fails if an answer before the last one decides the request.
fn after(count: usize, request: Request, answers: Vec<Answer>) -> Decision {
    let (nodes, mut last) = (nodes(count), Decision::Open);
    let mut vote_round = VoteRound::new(request, 0, &nodes);
    for (node, answer) in answers.into_iter().enumerate() {
        assert_eq!(last, Decision::Open, "before node {node}");
        last = vote_round.voted(node, answer, &nodes);
    }
    last
}

fn settled(reply: Reply) -> Decision {
    Decision::Settle(Ok(reply))
}

fn kind(decision: Decision) -> StoreErrorKind {
    match decision {
        Decision::Settle(Err(error)) => error.kind,
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
        assert_eq!(after(count, renew(0), yes(needed - 1)), Decision::Open);
        let veto = count - needed + 1;
        assert_eq!(after(count, renew(0), vec![TAKEN; veto]), settled(Reply::NotHeld(Absence::Taken)));
        assert_eq!(after(count, renew(0), vec![failed(); veto - 1]), Decision::Open);
        assert_eq!(kind(after(count, renew(0), vec![failed(); veto])), StoreErrorKind::Quorum);
    }
}

#[test]
fn what_is_in_the_way_is_told_when_nobody_said_yes() {
    // The reply says when most nodes will be free, not the first one.
    let free = |ms| settled(Reply::Busy { remaining: Some(Duration::from_millis(ms)) });
    assert_eq!(after(3, ask(None), vec![busy(30), busy(10)]), free(30));
    assert_eq!(after(5, ask(None), vec![busy(30), failed(), busy(10), busy(20)]), free(30));
    let never = Reply::Busy { remaining: None };
    let foreign = Ok(Reply::Busy { remaining: None });
    assert_eq!(after(3, ask(None), vec![foreign, busy(10)]), settled(never));
    // If one node has failed and one is busy, the third node decides.
    assert_eq!(after(3, ask(None), vec![failed(), busy(7), busy(8)]), free(8));
    assert_eq!(kind(after(3, ask(None), vec![failed(), busy(7), failed()])), StoreErrorKind::Quorum);
}

#[test]
fn a_notice_is_promised_if_most_nodes_send_one() {
    let queue = |notified| {
        settled(Reply::Queued { remaining: Some(Duration::from_millis(9)), ahead: 1, notified, by: None })
    };
    assert_eq!(after(3, ask(PLACE), vec![queued(1, true), queued(1, true)]), queue(true));
    assert_eq!(after(3, ask(PLACE), vec![queued(2, true), queued(1, false)]), queue(false));
    let answers = vec![queued(9, true), failed(), queued(1, true)];
    assert_eq!(after(3, ask(PLACE), answers), queue(true), "the place is that at most nodes");
}

#[test]
fn the_largest_fence_is_accepted_by_the_others_before_the_lease_is_granted() {
    let nodes = nodes(5);
    let mut vote_round = VoteRound::new(ask(None), 0, &nodes);
    assert_eq!(vote_round.voted(0, got(10), &nodes), Decision::Open);
    assert_eq!(vote_round.voted(1, got(30), &nodes), Decision::Open);
    let accept = Decision::Accept { nodes: vec![0, 2], fence: Fence(30), count: 1 };
    assert_eq!(vote_round.voted(2, got(20), &nodes), accept);
    assert_eq!(vote_round.accepted(0, Ok(Reply::Accepted), &nodes), Decision::Open);
    let granted = settled(Reply::Acquired { fence: Fence(30), waiting: 0 });
    assert_eq!(vote_round.accepted(2, Ok(Reply::Accepted), &nodes), granted);
    assert!(vote_round.is_settled());
    // A node that grants the lease later has to know the fence as well.
    let late = Decision::Accept { nodes: vec![3], fence: Fence(30), count: 1 };
    assert_eq!(vote_round.voted(3, got(99), &nodes), late);
    assert_eq!(vote_round.voted(4, busy(5), &nodes), Decision::Open);
}

#[test]
fn nodes_that_have_given_the_same_fence_away_need_not_be_asked() {
    let granted = settled(Reply::Acquired { fence: Fence(7), waiting: 0 });
    assert_eq!(after(3, ask(None), vec![got(7), got(7)]), granted);
}

#[test]
fn a_node_that_grants_late_may_complete_the_majority_whatever_its_own_fence() {
    let nodes = nodes(3);
    for late in [15, 30] {
        let mut vote_round = VoteRound::new(ask(None), 0, &nodes);
        vote_round.voted(0, got(10), &nodes);
        vote_round.voted(1, got(20), &nodes);
        assert_eq!(vote_round.accepted(0, MISSING, &nodes), Decision::Open, "the third may still");
        let accept = Decision::Accept { nodes: vec![2], fence: Fence(20), count: 1 };
        assert_eq!(vote_round.voted(2, got(late), &nodes), accept);
        let granted = settled(Reply::Acquired { fence: Fence(20), waiting: 0 });
        assert_eq!(vote_round.accepted(2, Ok(Reply::Accepted), &nodes), granted);
    }
}

#[test]
fn the_second_round_ends_when_the_last_who_could_help_does_not() {
    let nodes = nodes(3);
    // A node refuses the fence, because the lease has ended there. Then the last node says no, or
    // fails.
    for last in [busy(5), failed()] {
        let mut vote_round = VoteRound::new(ask(None), 0, &nodes);
        vote_round.voted(0, got(10), &nodes);
        vote_round.voted(1, got(20), &nodes);
        assert_eq!(vote_round.accepted(0, MISSING, &nodes), Decision::Open);
        let decision = vote_round.voted(2, last.clone(), &nodes);
        let Decision::Settle(Err(error)) = decision else { panic!("{last:?} leaves it at {decision:?}") };
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Quorum, true));
        let yes = error.votes.iter().filter(|vote| vote.said == NodeAnswer::Granted).count();
        assert_eq!(yes, 1, "{error}");
        assert!(vote_round.is_settled());
    }
    // The last node says no first, and then the other node fails.
    let mut vote_round = VoteRound::new(ask(None), 0, &nodes);
    vote_round.voted(0, got(10), &nodes);
    vote_round.voted(1, got(20), &nodes);
    assert_eq!(vote_round.voted(2, busy(5), &nodes), Decision::Open);
    let decision = vote_round.accepted(0, failed(), &nodes);
    assert_eq!(kind(decision), StoreErrorKind::Quorum);
}

#[test]
fn a_node_that_was_not_waited_for_is_not_called_slow() {
    let Decision::Settle(Err(error)) = after(3, ask(None), vec![failed(), failed()]) else {
        panic!("without two of three there is no quorum");
    };
    let NodeAnswer::Failed(..) = error.votes[0].said else { panic!("{:?}", error.votes) };
    assert_eq!(error.votes[2].said, NodeAnswer::Unheard);
}

#[test]
fn more_fences_of_a_lease_are_accepted_like_those_of_a_new_one() {
    let nodes = nodes(3);
    let mut vote_round = VoteRound::new(renew(64), 0, &nodes);
    let block = |first, waiting| Ok(Reply::Renewed { block: Some((Fence(first), waiting)) });
    vote_round.voted(2, block(200, 1), &nodes);
    let accept = Decision::Accept { nodes: vec![0], fence: Fence(200), count: 64 };
    assert_eq!(vote_round.voted(0, block(100, 3), &nodes), accept);
    let renewed = settled(Reply::Renewed { block: Some((Fence(200), 3)) });
    assert_eq!(vote_round.accepted(0, Ok(Reply::Accepted), &nodes), renewed);
}

#[test]
fn a_waiter_with_a_minority_waits_for_the_rest() {
    assert_eq!(after(3, ask(None), vec![got(1), busy(5), busy(5)]), settled(Reply::Split));
    assert_eq!(after(3, ask(PLACE), vec![got(1), queued(0, true), queued(0, true)]), Decision::Hold);
    let nodes = nodes(3);
    let mut vote_round = VoteRound::new(ask(PLACE), 0, &nodes);
    vote_round.voted(0, queued(0, true), &nodes);
    vote_round.voted(1, got(5), &nodes);
    assert_eq!(vote_round.voted(2, queued(1, true), &nodes), Decision::Hold);
    vote_round.hold(Instant::from_micros(9));
    assert_eq!((vote_round.granted(), vote_round.holds_until()), (0b10, Some(Instant::from_micros(9))));
    // The lease in the way has ended, so the waiter gets that node, too.
    assert!(matches!(vote_round.voted(0, got(5), &nodes), Decision::Settle(Ok(Reply::Acquired { .. }))));
    // Otherwise, the waiter backs off.
    let mut vote_round = VoteRound::new(ask(PLACE), 0, &nodes);
    vote_round.hold(Instant::from_micros(9));
    assert_eq!(vote_round.back_off(&nodes), settled(Reply::Split));
    assert!(vote_round.is_settled());
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
    let notified = |fence: u64, servers: Option<Servers>| {
        let fence = Some(Fence(fence));
        let lease = LeaseInfo { mark: Some(7), holder: None, fence, remaining: None, servers };
        Ok(Reply::Inspected(Some(LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() })))
    };
    let shows = |fence: u64| notified(fence, None);
    let nobody = || Ok(Reply::Inspected(None));
    let inspect = || Request::Inspect { key: "k".into() };
    let nodes = nodes(3);
    let begun = |answers: [Answer; 2]| {
        let mut vote_round = VoteRound::new(inspect(), 0, &nodes);
        let [one, other] = answers;
        assert_eq!(vote_round.voted(0, one, &nodes), Decision::Open);
        assert_eq!(vote_round.voted(1, other, &nodes), Decision::Hold, "the third may know better");
        vote_round.hold(Instant::from_micros(9));
        vote_round
    };
    let notified = |fence, held, unheard| notified(fence, Some(Servers { held, total: 3, unheard }));
    let merged = |decision: Decision| match decision {
        Decision::Settle(answer) => merge_at_once(answer),
        other => panic!("{other:?}"),
    };
    let most = begun([shows(50), shows(40)]).voted(2, shows(40), &nodes);
    assert_eq!(merged(most), notified(40, 3, 0), "most");
    let larger = begun([shows(40), shows(50)]).voted(2, failed(), &nodes);
    assert_eq!(merged(larger), notified(50, 2, 1), "the larger of as many");
    let without_the_last = begun([shows(40), shows(50)]).back_off(&nodes);
    assert_eq!(merged(without_the_last), notified(50, 2, 1), "the node did not answer");
    let without_a_lease = begun([shows(40), shows(50)]).voted(2, nobody(), &nodes);
    assert_eq!(merged(without_a_lease), notified(50, 2, 0));
    assert_eq!(after(3, inspect(), vec![nobody(), shows(4), nobody()]), Decision::Settle(nobody()));
    assert_eq!(after(3, inspect(), vec![nobody(), nobody()]), Decision::Settle(nobody()));
    assert_eq!(kind(after(3, inspect(), vec![failed(), failed()])), StoreErrorKind::Quorum);
}

#[test]
fn nodes_that_may_have_granted_the_lease_without_an_answer_are_known() {
    let nodes = nodes(3);
    let mut vote_round = VoteRound::new(ask(None), 0, &nodes);
    vote_round.voted(0, failed(), &nodes);
    vote_round.voted(1, Err(StoreError::not_done(StoreErrorKind::Unreachable, "gone")), &nodes);
    assert_eq!(vote_round.possibly_granted().collect::<Vec<_>>(), [0]);
}

#[test]
fn a_diagnosis_is_settled_when_every_node_was_heard() {
    let sound = || Ok(Reply::Diagnosed(vec![Report::new("memory:", Facts::Process, Ttl::MAX, false)]));
    let decision = after(3, Request::Diagnose { ttl: Ttl::MAX, key: None }, vec![sound(), sound(), failed()]);
    let Decision::Settle(Ok(Reply::Diagnosed(reports))) = decision else { panic!("{decision:?}") };
    let stores: Vec<&str> = reports.iter().map(|report| &*report.store).collect();
    assert_eq!(stores, ["memory:", "memory:", "n2"]);
}
