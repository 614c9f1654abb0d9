//! Tests what is left of a ticket after its adoption: the heir gets the other nodes, and its
//! release frees them.

use super::adopting_tests::{KEY, Sites, adopt, give_back, kill_between_rounds, tokens, ttl};
use super::*;
use crate::store::memory::LeaseTable;

/// No nodes.
const NONE: [usize; 0] = [];

fn renew(token: Token) -> Request {
    Request::Renew { key: KEY.into(), token, ttl: ttl(), fences: 0 }
}

fn release(token: Token) -> Request {
    Request::Release { key: KEY.into(), token, used: None }
}

fn detach(token: Token) -> Request {
    Request::Detach { key: KEY.into(), token, ttl: ttl(), fence: Fence(77), own_ttl: ttl() }
}

impl Sites {
    /// Returns the nodes at which `token` has a lease. The question does not prolong the lease.
    fn nodes_of(&mut self, token: Token) -> Vec<usize> {
        let (now, ttl) = (self.now, Ttl::MIN);
        let renew = || Request::Renew { key: KEY.into(), token, ttl, fences: 0 };
        let has = |node: &mut LeaseTable| matches!(node.apply(renew(), now, 1), Ok(Reply::Renewed { .. }));
        (0..self.nodes.len()).filter(|node| has(&mut self.nodes[*node])).collect()
    }

    /// Returns the nodes at which any token has a lease.
    fn held(&mut self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.held_by(*node).is_some()).collect()
    }
}

#[test]
fn an_heir_gets_the_nodes_of_the_heirs_that_lost() {
    for (heirs, nodes) in [(2, 3), (3, 3), (3, 5)] {
        for _ in 0..50 {
            let (mut sites, ticket, tokens) =
                (Sites::scattered(heirs, nodes), Token::random(), tokens(heirs));
            sites.grant(ticket, Mode::Exclusive);
            (0..heirs).for_each(|who| sites.adopt(who, 1, ticket, tokens[who]));
            sites.live(2_000);
            let winner = sites.winner(heirs);
            sites.live(3_000);
            let all: Vec<usize> = (0..nodes).collect();
            assert_eq!(sites.nodes_of(tokens[winner]), all, "no renewal was needed");
            sites.ask(winner, 2, release(tokens[winner]));
            sites.live(1_000);
            assert_eq!(sites.held(), NONE);
            sites.live(10_000);
            assert!(sites.councils.iter().all(|council| council.concerns() == 0));
        }
    }
}

#[test]
fn a_lease_that_is_released_right_after_its_adoption_leaves_no_ticket_behind() {
    for after in [0, 10, 45, 60, 80, 200] {
        for _ in 0..50 {
            let (mut sites, ticket, tokens) = (Sites::scattered(2, 3), Token::random(), tokens(2));
            sites.grant(ticket, Mode::Exclusive);
            (0..2).for_each(|who| sites.adopt(who, 1, ticket, tokens[who]));
            let won = |sites: &Sites| (0..2).find(|who| sites.has_adopted(*who));
            let winner = loop {
                sites.live(1);
                if let Some(winner) = won(&sites) {
                    break winner;
                }
            };
            sites.live(after);
            sites.ask(winner, 2, release(tokens[winner]));
            sites.live(10_000);
            assert_eq!(sites.held(), NONE, "released after {after} ms");
            assert!(sites.councils.iter().all(|council| council.concerns() == 0));
        }
    }
}

#[test]
fn an_heir_gets_the_nodes_that_a_dead_heir_claims() {
    let (mut sites, ticket, heir) = (Sites::scattered(1, 5), Token::random(), Token::random());
    sites.grant(ticket, Mode::Exclusive);
    kill_between_rounds(&mut sites, ticket, Token::random(), &[3, 4], &[]);
    sites.adopt(0, 1, ticket, heir);
    sites.live(1_000);
    assert!(sites.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
    assert_eq!(sites.nodes_of(heir), [0, 1, 2, 3, 4]);
}

#[test]
fn a_renewal_gives_the_heir_a_node_that_was_away_during_the_adoption() {
    for claimed in [false, true] {
        let (mut sites, ticket, heir) = (Sites::scattered(1, 3), Token::random(), Token::random());
        sites.grant(ticket, Mode::Exclusive);
        if claimed {
            kill_between_rounds(&mut sites, ticket, Token::random(), &[2], &[]);
        }
        sites.down = vec![2];
        sites.adopt(0, 1, ticket, heir);
        sites.live(1_000);
        assert!(sites.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
        sites.down.clear();
        sites.ask(0, 2, renew(heir));
        sites.live(1_000);
        assert_eq!(sites.nodes_of(heir), [0, 1, 2]);
    }
}

#[test]
fn a_release_frees_a_node_that_was_away_since_before_the_adoption() {
    let (mut sites, ticket, heir) = (Sites::scattered(1, 3), Token::random(), Token::random());
    sites.grant(ticket, Mode::Exclusive);
    sites.down = vec![2];
    sites.adopt(0, 1, ticket, heir);
    sites.live(1_000);
    sites.ask(0, 2, release(heir));
    sites.live(1_000);
    assert_eq!(sites.settled(0, 2), Ok(Reply::Released));
    sites.down.clear();
    sites.live(1_000);
    assert_eq!(sites.held(), NONE);
}

#[test]
fn nothing_is_moved_at_a_node_that_another_client_has() {
    let (mut sites, ticket, [heir, other]) =
        (Sites::scattered(1, 3), Token::random(), [Token::random(), Token::random()]);
    sites.grant(ticket, Mode::Exclusive);
    sites.down = vec![2];
    sites.adopt(0, 1, ticket, heir);
    sites.live(1_000);
    // The node lost its data, and granted the lock again.
    sites.nodes[2] = LeaseTable::default();
    let ask = Ask::new(KEY.into(), other, ttl(), "other".into());
    let now = sites.now;
    assert!(matches!(sites.nodes[2].apply(Request::Acquire(ask), now, 1), Ok(Reply::Acquired { .. })));
    sites.down.clear();
    for batch in 2..5 {
        sites.ask(0, batch, renew(heir));
        sites.live(1_000);
    }
    assert_eq!((sites.nodes_of(heir), sites.nodes_of(other)), (vec![0, 1], vec![2]));
    sites.ask(0, 5, release(heir));
    sites.live(10_000);
    assert_eq!(sites.held(), [2]);
    assert_eq!(sites.councils[0].concerns(), 0);
}

#[test]
fn an_heir_that_gives_the_lease_back_right_after_its_adoption_keeps_no_node() {
    for after in [0, 10, 45, 60, 80, 200, 1_010] {
        let (mut sites, ticket, heirs) = (Sites::scattered(2, 3), Token::random(), tokens(2));
        sites.grant(ticket, Mode::Exclusive);
        kill_between_rounds(&mut sites, ticket, Token::random(), &[2], &[]);
        sites.adopt(0, 1, ticket, heirs[0]);
        while !sites.has_adopted(0) {
            sites.live(1);
        }
        sites.live(after);
        sites.ask(0, 2, give_back(heirs[0], ticket));
        sites.live(6_000);
        assert_eq!(sites.nodes_of(heirs[0]), NONE, "given back after {after} ms");
        sites.adopt(1, 1, ticket, heirs[1]);
        sites.live(2_000);
        assert!(sites.settled(1, 1).is_ok_and(|reply| reply.is_adopted()));
        assert_eq!(sites.nodes_of(heirs[1]), [0, 1, 2]);
        assert_eq!(sites.councils[0].concerns(), 0);
    }
}

#[test]
fn the_next_adoption_is_not_disturbed_by_what_is_left_of_the_first_ticket() {
    for after in [0, 10, 60, 200, 1_010] {
        let (mut sites, ticket, heirs) = (Sites::scattered(3, 3), Token::random(), tokens(3));
        sites.grant(ticket, Mode::Exclusive);
        (0..2).for_each(|who| sites.adopt(who, 1, ticket, heirs[who]));
        while !(0..2).any(|who| sites.has_adopted(who)) {
            sites.live(1);
        }
        let winner = usize::from(sites.has_adopted(1));
        sites.live(after);
        // The heir's own token is the next ticket.
        sites.ask(winner, 2, detach(heirs[winner]));
        sites.live(100);
        assert!(matches!(sites.settled(winner, 2), Ok(Reply::Renewed { .. })));
        sites.adopt(2, 1, heirs[winner], heirs[2]);
        sites.live(2_000);
        assert!(sites.settled(2, 1).is_ok_and(|reply| reply.is_adopted()), "detached after {after} ms");
        sites.live(4_000);
        sites.ask(2, 2, renew(heirs[2]));
        sites.live(1_000);
        assert_eq!(sites.nodes_of(heirs[2]), [0, 1, 2], "detached after {after} ms");
    }
}

#[test]
fn readers_leave_no_ticket_behind() {
    let mode = Mode::Shared { most: u32::MAX };
    for _ in 0..50 {
        let (mut sites, ticket, heirs) = (Sites::scattered(2, 3), Token::random(), tokens(2));
        sites.grant(ticket, mode);
        for (who, heir) in heirs.iter().enumerate() {
            // The nodes tell that the lease is shared.
            sites.ask(who, 1, adopt(ticket, *heir));
        }
        sites.live(2_000);
        let winner = sites.winner(2);
        sites.ask(winner, 2, renew(heirs[winner]));
        sites.live(1_000);
        assert_eq!(sites.nodes_of(heirs[winner]), [0, 1, 2]);
        sites.ask(winner, 3, release(heirs[winner]));
        sites.live(10_000);
        assert_eq!(sites.held(), NONE);
    }
}
