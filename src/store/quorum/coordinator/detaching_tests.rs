//! Tests detachments that follow right after the grant of the lease.

use super::adopting_tests::{KEY, TestNetwork, adopt_with_fence, ttl};
use super::*;
use crate::lease::Token;

fn acquire(token: Token) -> Request {
    Request::Acquire(AcquireRequest::new(KEY.into(), token, ttl(), "holder".into()))
}

fn detach(token: Token, fence: Fence) -> Request {
    Request::Detach { key: KEY.into(), token, ttl: ttl(), fence, own_ttl: ttl() }
}

/// Lets the first client acquire a lease in a network with a far node n2. Returns the lease's
/// fence.
fn acquire_without_far_node(network: &mut TestNetwork, token: Token) -> Fence {
    network.ask(0, 1, acquire(token));
    network.live(3);
    match network.settled(0, 1) {
        Ok(Reply::Acquired { fence, .. }) => fence,
        other => panic!("{other:?}"),
    }
}

fn far_node() -> TestNetwork {
    TestNetwork::new(2, 3, |_, node| if node == 2 { 20_000 } else { 500 })
}

#[test]
fn a_node_that_grants_late_with_a_larger_fence_gets_a_note() {
    let (mut network, token, other) = (far_node(), Token::random(), Token::random());
    // The next fence of n2 is larger than those of the other nodes.
    let now = network.now;
    let accept = Request::Accept { key: KEY.into(), token: other, fence: Fence(500), count: 1 };
    let release = Request::Release { key: KEY.into(), token: other, used: None };
    for request in [acquire(other), accept, release] {
        network.nodes[2].apply(request, now, 1).unwrap();
    }
    let fence = acquire_without_far_node(&mut network, token);
    assert!(fence < Fence(500));
    network.ask(0, 2, detach(token, fence));
    network.live(200);
    assert_eq!(network.settled(0, 2), Ok(Reply::Renewed { block: None }));
    network.down = vec![1];
    network.ask(1, 1, adopt_with_fence(token, Token::random(), fence));
    network.live(1_000);
    let answer = network.settled(1, 1);
    assert!(
        matches!(&answer, Ok(Reply::Adopted(lease)) if lease.first == fence),
        "the ticket is adopted with n0 and n2: {answer:?}"
    );
    network.down.clear();
    network.live(9_000);
    assert_eq!(network.coordinators[0].concerns(), 0);
}

#[test]
fn a_ticket_that_a_node_has_missed_waits_for_the_others() {
    let (mut network, token) = (TestNetwork::new(2, 3, |_, _| 500), Token::random());
    network.down = vec![2];
    let fence = acquire_without_far_node(&mut network, token);
    network.ask(0, 2, detach(token, fence));
    network.live(1_000);
    assert_eq!(network.settled(0, 2), Ok(Reply::Renewed { block: None }));
    // Two of three nodes are up, but only n0 has the ticket. The engine asks again after this
    // error.
    network.down = vec![1];
    network.ask(1, 1, adopt_with_fence(token, Token::random(), fence));
    network.live(2_000);
    let error = network.settled(1, 1).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Quorum);
    assert!(error.message.contains("n2 knows nothing of the lease"), "{}", error.message);
    network.down.clear();
    network.ask(1, 2, adopt_with_fence(token, Token::random(), fence));
    network.live(2_000);
    assert!(network.settled(1, 2).unwrap().is_adopted());
}

#[test]
fn a_silent_node_delays_a_detachment_by_half_of_its_time_at_most() {
    let (mut network, token) = (far_node(), Token::random());
    network.silent = vec![2];
    let fence = acquire_without_far_node(&mut network, token);
    network.ask(0, 2, detach(token, fence));
    assert!(network.coordinators[0].is_busy());
    // The whole batch has 2 s.
    network.live(1_002);
    assert_eq!(network.settled(0, 2), Ok(Reply::Renewed { block: None }));
}

#[test]
fn a_detachment_does_not_wait_if_all_nodes_have_answered() {
    let (mut network, token) = (TestNetwork::new(1, 3, |_, _| 500), Token::random());
    let fence = acquire_without_far_node(&mut network, token);
    network.ask(0, 2, detach(token, fence));
    network.live(1);
    assert_eq!(network.settled(0, 2), Ok(Reply::Renewed { block: None }));
}

#[test]
fn thousands_of_detachments_can_wait_and_are_sent_in_order() {
    const LEASES: usize = 2_000;
    let (mut quorum, tokens) = (TestQuorum::of(3), (0..LEASES).map(|_| Token::random()).collect::<Vec<_>>());
    let key = |index: usize| format!("k{index}").into();
    let acquire = |(index, token): (usize, &Token)| {
        Request::Acquire(AcquireRequest::new(key(index), *token, ttl(), "h".into()))
    };
    let started = std::time::Instant::now();
    quorum.submit(1, tokens.iter().enumerate().map(acquire).collect());
    for node in [0, 1] {
        quorum.answer(node, vec![Ok(got(10)); LEASES]);
    }
    let to_acquire = started.elapsed();
    assert_eq!(quorum.settled(1).len(), LEASES);
    let detach = |(index, token): (usize, &Token)| {
        let (key, token, fence) = (key(index), *token, Fence(10));
        Request::Detach { key, token, ttl: ttl(), fence, own_ttl: ttl() }
    };
    quorum.submit(2, tokens.iter().enumerate().map(detach).collect());
    assert!(quorum.asked(0).is_none(), "they wait for n2");
    // A detachment is not compared with all requests whenever something happens.
    let started = std::time::Instant::now();
    for _ in 0..20 {
        quorum.coordinator.tick(quorum.now);
    }
    let to_tick = started.elapsed();
    assert!(to_tick < to_acquire, "{to_tick:?} and {to_acquire:?}");
    quorum.answer(2, vec![Ok(got(10)); LEASES]);
    assert!(quorum.asked(0).is_none(), "n2 has to accept the fences");
    quorum.answer(2, vec![Ok(Reply::Accepted); LEASES]);
    let sent = quorum.asked(0).expect("they are sent").requests.iter();
    assert!(sent.map(|request| request.lease().unwrap().0).eq(tokens.iter().copied()));
}
