//! Tests what is left of a ticket after its adoption: the adopter gets the other nodes, and its
//! release frees them.

use super::adopting_tests::{KEY, TestNetwork, adopt, give_back, kill_between_rounds, tokens, ttl};
use super::*;
use crate::store::memory::LeaseTable;

/// No nodes.
pub(super) const NONE: [usize; 0] = [];

pub(super) fn renew(token: Token) -> Request {
    Request::Renew { key: KEY.into(), token, ttl: ttl(), fences: 0 }
}

pub(super) fn release(token: Token) -> Request {
    Request::Release { key: KEY.into(), token, used: None }
}

pub(super) fn detach(token: Token) -> Request {
    Request::Detach { key: KEY.into(), token, ttl: ttl(), fence: Fence(77), own_ttl: ttl() }
}

impl TestNetwork {
    /// Returns the nodes at which `token` has a lease. The question does not prolong the lease.
    pub(super) fn nodes_of(&mut self, token: Token) -> Vec<usize> {
        let (now, ttl) = (self.now, Ttl::MIN);
        let renew = || Request::Renew { key: KEY.into(), token, ttl, fences: 0 };
        let has = |node: &mut LeaseTable| matches!(node.apply(renew(), now, 1), Ok(Reply::Renewed { .. }));
        (0..self.nodes.len()).filter(|node| has(&mut self.nodes[*node])).collect()
    }

    /// Returns the nodes at which any token has a lease.
    pub(super) fn held(&mut self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.held_by(*node).is_some()).collect()
    }
}

#[test]
fn an_adopter_gets_the_nodes_of_the_adopters_that_lost() {
    for (adopters, nodes) in [(2, 3), (3, 3), (3, 5)] {
        for _ in 0..50 {
            let (mut network, ticket, tokens) =
                (TestNetwork::scattered(adopters, nodes), Token::random(), tokens(adopters));
            network.grant(ticket, Mode::Exclusive);
            (0..adopters).for_each(|index| network.adopt(index, 1, ticket, tokens[index]));
            network.live(2_000);
            let winner = network.winner(adopters);
            network.live(3_000);
            let all: Vec<usize> = (0..nodes).collect();
            assert_eq!(network.nodes_of(tokens[winner]), all, "no renewal was needed");
            network.ask(winner, 2, release(tokens[winner]));
            network.live(1_000);
            assert_eq!(network.held(), NONE);
            network.live(10_000);
            assert!(network.coordinators.iter().all(|coordinator| coordinator.concerns() == 0));
        }
    }
}

#[test]
fn a_lease_that_is_released_right_after_its_adoption_leaves_no_ticket_behind() {
    for after in [0, 10, 45, 60, 80, 200] {
        for _ in 0..50 {
            let (mut network, ticket, tokens) = (TestNetwork::scattered(2, 3), Token::random(), tokens(2));
            network.grant(ticket, Mode::Exclusive);
            (0..2).for_each(|index| network.adopt(index, 1, ticket, tokens[index]));
            let won = |network: &TestNetwork| (0..2).find(|index| network.has_adopted(*index));
            let winner = loop {
                network.live(1);
                if let Some(winner) = won(&network) {
                    break winner;
                }
            };
            network.live(after);
            network.ask(winner, 2, release(tokens[winner]));
            network.live(10_000);
            assert_eq!(network.held(), NONE, "released after {after} ms");
            assert!(network.coordinators.iter().all(|coordinator| coordinator.concerns() == 0));
        }
    }
}

#[test]
fn an_adopter_gets_the_nodes_that_a_dead_adopter_claims() {
    let (mut network, ticket, adopter) = (TestNetwork::scattered(1, 5), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    kill_between_rounds(&mut network, ticket, Token::random(), &[3, 4], &[]);
    network.adopt(0, 1, ticket, adopter);
    network.live(1_000);
    assert!(network.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
    assert_eq!(network.nodes_of(adopter), [0, 1, 2, 3, 4]);
}

#[test]
fn a_renewal_gives_the_adopter_a_node_that_was_away_during_the_adoption() {
    for claimed in [false, true] {
        let (mut network, ticket, adopter) = (TestNetwork::scattered(1, 3), Token::random(), Token::random());
        network.grant(ticket, Mode::Exclusive);
        if claimed {
            kill_between_rounds(&mut network, ticket, Token::random(), &[2], &[]);
        }
        network.down = vec![2];
        network.adopt(0, 1, ticket, adopter);
        network.live(1_000);
        assert!(network.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
        network.down.clear();
        network.ask(0, 2, renew(adopter));
        network.live(1_000);
        assert_eq!(network.nodes_of(adopter), [0, 1, 2]);
    }
}

#[test]
fn a_release_frees_a_node_that_was_away_since_before_the_adoption() {
    let (mut network, ticket, adopter) = (TestNetwork::scattered(1, 3), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.down = vec![2];
    network.adopt(0, 1, ticket, adopter);
    network.live(1_000);
    network.ask(0, 2, release(adopter));
    network.live(1_000);
    assert_eq!(network.settled(0, 2), Ok(Reply::Released));
    network.down.clear();
    network.live(1_000);
    assert_eq!(network.held(), NONE);
}

/// Lets `adopter` adopt with a ttl that is a tenth of the ticket's.
fn adopt_briefly(network: &mut TestNetwork, ticket: Token, adopter: Token) -> Ttl {
    let brief = Ttl::from_millis(ttl().as_millis() / 10).unwrap();
    let mut request = adopt(ticket, adopter);
    if let Request::Adopt { ttl, .. } = &mut request {
        *ttl = brief;
    }
    network.ask(0, 1, request);
    network.live(100);
    assert!(network.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
    brief
}

#[test]
fn an_adopted_lease_that_ends_without_a_release_does_not_keep_the_lock_for_the_time_of_the_ticket() {
    for away in [&[][..], &[2]] {
        for renewals in 0..3 {
            let (mut network, ticket, adopter) =
                (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
            network.grant(ticket, Mode::Exclusive);
            network.down = away.into();
            let brief = adopt_briefly(&mut network, ticket, adopter);
            network.down.clear();
            for batch in 2..2 + renewals {
                network.live(1_000);
                network.ask(
                    0,
                    batch,
                    Request::Renew { key: KEY.into(), token: adopter, ttl: brief, fences: 0 },
                );
                network.live(100);
            }
            // All further renewals fail.
            network.live(u64::from(brief.as_millis()) - 150);
            assert!(network.held().len() >= 2, "the holder may still use the lease");
            network.live(200);
            assert_eq!(network.held(), NONE, "away: {away:?}, {renewals} renewals");
            network.live(10_000);
            assert_eq!((network.coordinators[0].concerns(), network.coordinators[0].next_wake()), (0, None));
        }
    }
}

#[test]
fn a_repeated_adoption_is_not_cut_off_by_the_end_of_the_first_lease() {
    let (mut network, ticket, adopter) =
        (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    let brief = adopt_briefly(&mut network, ticket, adopter);
    network.distance = Box::new(|_, _| 400_000);
    network.live(u64::from(brief.as_millis()) - 300);
    network.ask(0, 2, adopt(ticket, adopter));
    network.live(3_000);
    let reply = network.settled(0, 2);
    assert!(reply.as_ref().is_ok_and(Reply::is_adopted), "{reply:?}");
    network.live(u64::from(ttl().as_millis()) - 5_000);
    assert_eq!(network.nodes_of(adopter), [0, 1, 2]);
}

#[test]
fn an_adopted_lease_that_ends_while_the_nodes_refuse_is_released_when_they_allow_it() {
    for refused in [1, 700, 3_000] {
        let (mut network, ticket, adopter) =
            (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
        network.grant(ticket, Mode::Exclusive);
        network.down = vec![2];
        let brief = adopt_briefly(&mut network, ticket, adopter);
        network.down.clear();
        network.denying = vec![0, 1, 2];
        network.live(u64::from(brief.as_millis()) + refused);
        assert_eq!(network.held(), [0, 1, 2]);
        network.denying.clear();
        network.live(1_000);
        assert_eq!(network.held(), NONE, "refused for {refused} ms");
        network.live(10_000);
        assert_eq!((network.coordinators[0].concerns(), network.coordinators[0].next_wake()), (0, None));
    }
}

#[test]
fn an_adopted_lease_whose_detachment_failed_does_not_keep_the_lock_for_the_time_of_the_ticket() {
    // A failure that is not certain counts only after a renewal.
    for (is_certain, renews) in [(true, false), (true, true), (false, true)] {
        let (mut network, ticket, adopter) =
            (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
        network.grant(ticket, Mode::Exclusive);
        let brief = adopt_briefly(&mut network, ticket, adopter);
        let all = vec![0, 1, 2];
        (network.down, network.silent) = if is_certain { (all, Vec::new()) } else { (Vec::new(), all) };
        network.ask(0, 2, detach(adopter));
        // A silent node answers after the time-out, which the lease must outlive.
        let mut batch = 3;
        if !is_certain {
            network.silent.clear();
            for _ in 0..3 {
                network.ask(0, batch, brief_renewal(adopter, brief));
                network.live(700);
                batch += 1;
            }
        }
        network.live(100);
        assert!(network.settled(0, 2).is_err());
        network.down.clear();
        if renews {
            network.ask(0, batch, brief_renewal(adopter, brief));
        }
        network.live(u64::from(brief.as_millis()) + 300);
        assert_eq!(network.held(), NONE, "certain: {is_certain}, renewed: {renews}");
    }
}

fn brief_renewal(token: Token, ttl: Ttl) -> Request {
    Request::Renew { key: KEY.into(), token, ttl, fences: 0 }
}

#[test]
fn an_adopted_lease_that_may_be_detached_or_given_back_keeps_the_time_of_the_ticket() {
    let next = |token| [detach(token), give_back(token, Token::random())];
    for index in 0..2 {
        let (mut network, ticket, adopter) =
            (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
        network.grant(ticket, Mode::Exclusive);
        let brief = adopt_briefly(&mut network, ticket, adopter);
        // No answer arrives.
        network.silent = vec![0, 1, 2];
        network.ask(0, 2, next(adopter)[index].clone());
        network.live(2_000);
        assert!(network.settled(0, 2).is_err());
        network.live(2 * u64::from(brief.as_millis()));
        network.silent.clear();
        network.live(10_000);
        assert_eq!(network.held(), [0, 1, 2]);
    }
}

#[test]
fn nothing_is_moved_at_a_node_that_another_client_has() {
    let (mut network, ticket, [adopter, other]) =
        (TestNetwork::scattered(1, 3), Token::random(), [Token::random(), Token::random()]);
    network.grant(ticket, Mode::Exclusive);
    network.down = vec![2];
    network.adopt(0, 1, ticket, adopter);
    network.live(1_000);
    // The node lost its data, and granted the lock again.
    network.nodes[2] = LeaseTable::default();
    let ask = AcquireRequest::new(KEY.into(), other, ttl(), "other".into());
    let now = network.now;
    assert!(matches!(network.nodes[2].apply(Request::Acquire(ask), now, 1), Ok(Reply::Acquired { .. })));
    network.down.clear();
    for batch in 2..5 {
        network.ask(0, batch, renew(adopter));
        network.live(1_000);
    }
    assert_eq!((network.nodes_of(adopter), network.nodes_of(other)), (vec![0, 1], vec![2]));
    network.ask(0, 5, release(adopter));
    network.live(10_000);
    assert_eq!(network.held(), [2]);
    assert_eq!(network.coordinators[0].concerns(), 0);
}

#[test]
fn an_adopter_that_gives_the_lease_back_right_after_its_adoption_keeps_no_node() {
    for after in [0, 10, 45, 60, 80, 200, 1_010] {
        let (mut network, ticket, adopters) = (TestNetwork::scattered(2, 3), Token::random(), tokens(2));
        network.grant(ticket, Mode::Exclusive);
        kill_between_rounds(&mut network, ticket, Token::random(), &[2], &[]);
        network.adopt(0, 1, ticket, adopters[0]);
        while !network.has_adopted(0) {
            network.live(1);
        }
        network.live(after);
        network.ask(0, 2, give_back(adopters[0], ticket));
        network.live(6_000);
        assert_eq!(network.nodes_of(adopters[0]), NONE, "given back after {after} ms");
        network.adopt(1, 1, ticket, adopters[1]);
        network.live(2_000);
        assert!(network.settled(1, 1).is_ok_and(|reply| reply.is_adopted()));
        assert_eq!(network.nodes_of(adopters[1]), [0, 1, 2]);
        assert_eq!(network.coordinators[0].concerns(), 0);
    }
}

#[test]
fn the_next_adoption_is_not_disturbed_by_what_is_left_of_the_first_ticket() {
    for after in [0, 10, 60, 200, 1_010] {
        let (mut network, ticket, adopters) = (TestNetwork::scattered(3, 3), Token::random(), tokens(3));
        network.grant(ticket, Mode::Exclusive);
        (0..2).for_each(|index| network.adopt(index, 1, ticket, adopters[index]));
        while !(0..2).any(|index| network.has_adopted(index)) {
            network.live(1);
        }
        let winner = usize::from(network.has_adopted(1));
        network.live(after);
        // The adopter's own token is the next ticket.
        network.ask(winner, 2, detach(adopters[winner]));
        network.live(100);
        assert!(matches!(network.settled(winner, 2), Ok(Reply::Renewed { .. })));
        network.adopt(2, 1, adopters[winner], adopters[2]);
        network.live(2_000);
        assert!(network.settled(2, 1).is_ok_and(|reply| reply.is_adopted()), "detached after {after} ms");
        network.live(4_000);
        network.ask(2, 2, renew(adopters[2]));
        network.live(1_000);
        assert_eq!(network.nodes_of(adopters[2]), [0, 1, 2], "detached after {after} ms");
    }
}

#[test]
fn readers_leave_no_ticket_behind() {
    let mode = Mode::Shared { most: u32::MAX };
    for _ in 0..50 {
        let (mut network, ticket, adopters) = (TestNetwork::scattered(2, 3), Token::random(), tokens(2));
        network.grant(ticket, mode);
        for (index, adopter) in adopters.iter().enumerate() {
            // The nodes tell that the lease is shared.
            network.ask(index, 1, adopt(ticket, *adopter));
        }
        network.live(2_000);
        let winner = network.winner(2);
        network.ask(winner, 2, renew(adopters[winner]));
        network.live(1_000);
        assert_eq!(network.nodes_of(adopters[winner]), [0, 1, 2]);
        network.ask(winner, 3, release(adopters[winner]));
        network.live(10_000);
        assert_eq!(network.held(), NONE);
    }
}
