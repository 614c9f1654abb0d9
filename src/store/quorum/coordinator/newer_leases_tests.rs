//! Tests adoptions that meet a node with a newer lease of the ticket's token. An acquire that was
//! sent before the lease was detached got this lease after the ticket was used.

use super::adopting_tests::{KEY, TestNetwork, adopt, give_back, kill_between_rounds, tokens, ttl};
use super::*;
use crate::lease::Token;
use crate::store::Absence;

/// The fence with which [`TestNetwork::grant`] grants the ticket's lease.
const FENCE: Fence = Fence(77);

fn acquire(token: Token) -> Request {
    Request::Acquire(AcquireRequest::new(KEY.into(), token, ttl(), "holder".into()))
}

fn renew(token: Token) -> Request {
    Request::Renew { key: KEY.into(), token, ttl: ttl(), fences: 0 }
}

fn release(token: Token) -> Request {
    Request::Release { key: KEY.into(), token, used: None }
}

fn detach(token: Token, fence: Fence) -> Request {
    Request::Detach { key: KEY.into(), token, ttl: ttl(), fence, own_ttl: ttl() }
}

fn fence(answer: &Answer) -> Fence {
    match answer {
        Ok(Reply::Acquired { fence, .. }) => *fence,
        other => panic!("{other:?}"),
    }
}

impl TestNetwork {
    /// Lets `client` send `request` as its batch `batch`, and returns the answer.
    fn answer(&mut self, client: usize, batch: u64, request: Request) -> Answer {
        self.ask(client, batch, request);
        self.live(1_200);
        self.settled(client, batch)
    }

    /// Applies a request at a node at once.
    fn at(&mut self, node: usize, request: Request) -> Answer {
        let now = self.now;
        self.nodes[node].apply(request, now, 1)
    }

    /// Detaches the lease of `ticket` at `node`, so that the node has a note.
    fn note(&mut self, node: usize, ticket: Token) {
        assert!(matches!(self.at(node, detach(ticket, FENCE)), Ok(Reply::Renewed { .. })));
    }

    /// Ends the lease of `ticket` at `node`, and grants a newer one to the same token.
    fn grant_newer(&mut self, node: usize, ticket: Token) {
        assert_eq!(self.at(node, release(ticket)), Ok(Reply::Released));
        let newer = self.at(node, acquire(ticket));
        assert!(fence(&newer) > FENCE, "{newer:?}");
    }

    /// Returns true if `token` has the lock at `node`.
    fn has(&mut self, node: usize, token: Token) -> bool {
        let held = self.held_by(node);
        held.is_some_and(|info| info.leases.iter().any(|lease| lease.mark == Some(token.mark())))
    }
}

#[test]
fn a_used_ticket_is_not_adopted_with_a_late_acquire_and_a_node_that_kept_it() {
    let mut network = TestNetwork::new(4, 3, |_, _| 1_000);
    let [a, b, d, c] = [0, 1, 2, 3];
    let tokens = tokens(4);
    // The acquire to n1 is held up. A renewal repairs the lease there.
    network.silent = vec![1];
    let ticket_fence = fence(&network.answer(a, 1, acquire(tokens[a])));
    network.silent.clear();
    assert_eq!(network.answer(a, 2, renew(tokens[a])), Ok(Reply::Renewed { block: None }));
    assert!((0..3).all(|node| network.has(node, tokens[a])));
    let detached = network.answer(a, 3, detach(tokens[a], ticket_fence));
    assert_eq!(detached, Ok(Reply::Renewed { block: None }));
    // n2 is away, so it keeps the ticket.
    network.down = vec![2];
    let ticket = |adopter| super::adopting_tests::adopt_with_fence(tokens[a], adopter, ticket_fence);
    assert!(network.answer(b, 1, ticket(tokens[b])).unwrap().is_adopted());
    assert_eq!(network.answer(b, 2, release(tokens[b])), Ok(Reply::Released));
    network.frozen = Some(b);
    let later = fence(&network.answer(d, 1, acquire(tokens[d])));
    assert!(later > ticket_fence);
    assert_eq!(network.answer(d, 2, release(tokens[d])), Ok(Reply::Released));
    // The acquire arrives.
    assert!(fence(&network.at(1, acquire(tokens[a]))) > later);
    network.down.clear();
    let again = network.answer(c, 1, ticket(tokens[c]));
    // n1 has released the newer lease when the adopter looks again.
    assert_eq!(again, Ok(Reply::NotHeld(Absence::Missing)), "a later lease has the fence {later:?}");
    network.frozen = None;
    network.live(5_000);
    assert!((0..3).all(|node| network.held_by(node).is_none()), "all nodes are free");
    assert!(network.coordinators.iter().all(|coordinator| coordinator.concerns() == 0));
}

/// The ways in which an attempt ends while node n1 has a newer lease.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Won,
    Lost,
    BackedOff,
    GaveUp,
    Released,
}

#[test]
fn a_newer_lease_is_released_however_the_attempt_ends() {
    use Fate::*;
    for (fate, is_late) in
        [Won, Lost, BackedOff, GaveUp, Released].into_iter().flat_map(|fate| [(fate, false), (fate, true)])
    {
        // If n1 is far, it answers the claim after the attempt has ended.
        let mut network =
            TestNetwork::new(1, 3, move |_, node| if node == 1 && is_late { 300_000 } else { 1_000 });
        let (ticket, adopter) = (Token::random(), Token::random());
        network.grant(ticket, Mode::Exclusive);
        network.grant_newer(1, ticket);
        match fate {
            Won => [0, 2].into_iter().for_each(|node| network.note(node, ticket)),
            Lost => [0, 2].into_iter().for_each(|node| drop(network.at(node, release(ticket)))),
            BackedOff => network.down = vec![0, 2],
            // The attempt waits for n2.
            GaveUp | Released => {
                network.note(0, ticket);
                network.silent = vec![2];
            }
        }
        network.adopt(0, 1, ticket, adopter);
        network.live(10);
        match fate {
            GaveUp => network.ask(0, 2, give_back(adopter, ticket)),
            Released => network.ask(0, 2, release(adopter)),
            Won | Lost | BackedOff => {}
        }
        network.silent.clear();
        network.live(1);
        let answer = network.settled(0, 1);
        let is_as_expected = match &answer {
            Ok(Reply::Adopted(lease)) => fate == Won && lease.first == FENCE,
            Ok(_) => fate == Lost,
            Err(_) => matches!(fate, BackedOff | GaveUp | Released),
        };
        assert!(is_as_expected, "{fate:?}: {answer:?}");
        network.live(11_000);
        let context = format!("{fate:?}, late: {is_late}");
        assert_eq!(network.held_by(1), None, "{context}: n1 is free");
        for node in [0, 2] {
            let has = [adopter, ticket].map(|token| network.has(node, token));
            let expected = match fate {
                Won => [true, false],
                Lost => [false, false],
                BackedOff | GaveUp => [false, true],
                // n2 never heard of the adopter. It has the ticket until the ticket ends.
                Released => [false, node == 2],
            };
            assert_eq!(has, expected, "{context}: n{node}");
        }
        network.down.clear();
        network.live(1_000);
        assert_eq!(network.coordinators[0].concerns(), 0, "{context}");
    }
}

#[test]
fn an_adopter_that_won_gets_the_node_of_a_newer_lease_by_a_renewal() {
    let (mut network, ticket, adopter) =
        (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.grant_newer(1, ticket);
    [0, 2].into_iter().for_each(|node| network.note(node, ticket));
    assert!(network.answer(0, 1, adopt(ticket, adopter)).unwrap().is_adopted());
    assert_eq!([0, 1, 2].map(|node| network.has(node, adopter)), [true, false, true]);
    assert_eq!(network.answer(0, 2, renew(adopter)), Ok(Reply::Renewed { block: None }));
    assert_eq!([0, 1, 2].map(|node| network.has(node, adopter)), [true; 3]);
    let lease = &network.held_by(1).unwrap().leases[0];
    assert_eq!(lease.fence, Some(FENCE), "the node accepted the fence of the adopter's lease");
}

#[test]
fn a_newer_lease_that_a_dead_adopter_claims_is_refused_too() {
    let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.grant_newer(1, ticket);
    network.note(2, ticket);
    assert_eq!(network.at(0, release(ticket)), Ok(Reply::Released));
    kill_between_rounds(&mut network, ticket, Token::random(), &[1], &[]);
    let answers = network.adopt_until_told(0..1, ticket, &tokens(1));
    // n1 has released the newer lease when the adopter asks it for the ticket again.
    assert_eq!(answers, [Reply::NotHeld(Absence::Missing)]);
    network.live(5_000);
    assert_eq!(network.held_by(1), None);
}

#[test]
fn a_newer_lease_is_refused_although_no_node_has_a_note() {
    let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.grant_newer(1, ticket);
    assert_eq!(network.at(0, release(ticket)), Ok(Reply::Released));
    let answer = network.answer(0, 1, adopt(ticket, Token::random()));
    // n1 has released the newer lease when the adopter looks again.
    assert_eq!(answer, Ok(Reply::NotHeld(Absence::Missing)));
}

#[test]
fn nodes_that_the_detachment_did_not_reach_count_for_an_adoption() {
    for noted in [&[][..], &[0], &[1], &[0, 1]] {
        let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
        network.grant(ticket, Mode::Exclusive);
        noted.iter().for_each(|node| network.note(*node, ticket));
        network.down = vec![2];
        let answer = network.answer(0, 1, adopt(ticket, Token::random()));
        assert!(
            matches!(&answer, Ok(Reply::Adopted(lease)) if lease.first == FENCE),
            "notes at {noted:?}: {answer:?}"
        );
    }
}

#[test]
fn an_adopter_counts_a_node_that_it_claims_before_the_detachment_arrives() {
    let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
    // n1 granted the lease with a larger fence, and accepted the fence of the lease.
    network.grant(ticket, Mode::Exclusive);
    network.grant_newer(1, ticket);
    let accept = Request::Accept { key: KEY.into(), token: ticket, fence: FENCE, count: 1 };
    assert_eq!(network.at(1, accept), Ok(Reply::Accepted));
    [0, 2].into_iter().for_each(|node| network.note(node, ticket));
    network.down = vec![2];
    assert!(network.answer(0, 1, adopt(ticket, Token::random())).unwrap().is_adopted());
}

#[test]
fn an_adopter_counts_a_node_whose_lease_got_more_fences_before_the_detachment_arrives() {
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
        network.grant(ticket, mode);
        // The process has a waiter of its own, so it reserved fences for the next holders.
        let block = |fence| Request::Accept { key: KEY.into(), token: ticket, fence, count: 64 };
        for (node, fence) in [(0, FENCE.0 + 100), (1, FENCE.0 + 200), (1, FENCE.0 + 300)] {
            assert_eq!(network.at(node, block(Fence(fence))), Ok(Reply::Accepted));
        }
        network.note(0, ticket);
        network.note(2, ticket);
        network.down = vec![2];
        let answer = network.answer(0, 1, adopt(ticket, Token::random()));
        assert!(matches!(&answer, Ok(Reply::Adopted(lease)) if lease.first == FENCE), "{mode:?}: {answer:?}");
    }
}

#[test]
fn a_node_with_a_newer_lease_is_refused_even_if_that_lease_got_more_fences() {
    let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.grant_newer(1, ticket);
    let block = Request::Accept { key: KEY.into(), token: ticket, fence: Fence(FENCE.0 + 500), count: 64 };
    assert_eq!(network.at(1, block), Ok(Reply::Accepted));
    assert_eq!(network.at(0, release(ticket)), Ok(Reply::Released));
    let answer = network.answer(0, 1, adopt(ticket, Token::random()));
    assert_eq!(answer, Ok(Reply::NotHeld(Absence::Missing)));
}

#[test]
fn a_node_with_a_newer_lease_leaves_the_ticket_to_the_nodes_that_have_it() {
    // The detachment reached most nodes, and one of them is away. n3 was repaired with a larger
    // fence, so its lease looks newer than the ticket.
    let (mut network, ticket) = (TestNetwork::new(1, 5, |_, _| 1_000), Token::random());
    network.grant(ticket, Mode::Exclusive);
    [0, 1, 2].into_iter().for_each(|node| network.note(node, ticket));
    network.grant_newer(3, ticket);
    network.down = vec![2];
    assert!(network.answer(0, 1, adopt(ticket, Token::random())).unwrap().is_adopted());
}
