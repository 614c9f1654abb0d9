use super::*;

const TTL: Duration = Duration::from_secs(10);

fn at(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn terms() -> LeaseTerms {
    let (mode, fences) = (Mode::Exclusive, (Fence(5), 1));
    LeaseTerms { key: "k".into(), mode, holder: "h".into(), outlives_process: false, fences, ticket: None }
}

/// Returns the agreement of `nodes`, which answer at the instant at which they are asked.
fn agreement(asked: Instant, vote_round: u64, nodes: u64) -> Agreement {
    Agreement { vote_round, nodes, answered: nodes, undone: 0b100, fenced: Some(nodes), asked, ttl: TTL }
}

fn grant(lease_nodes: &mut LeaseNodes, ms: u64, token: Token, nodes: u64) {
    lease_nodes.granted(at(ms), token, agreement(at(ms), 1, nodes), terms());
}

#[test]
fn a_lease_is_lost_with_the_node_that_its_majority_needs() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    grant(&mut lease_nodes, 0, token, 0b011);
    lease_nodes.joined(token, 2, 2);
    assert!(!lease_nodes.lost(at(1), 2, 2), "that node was of another vote round");
    lease_nodes.joined(token, 1, 2);
    assert!(!lease_nodes.lost(at(1), 0, 2), "two nodes are left");
    assert!(lease_nodes.lost(at(1), 1, 2));
    assert!(!lease_nodes.lost(at(1), 2, 2), "it was lost before");
}

#[test]
fn only_the_last_renewal_counts() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    grant(&mut lease_nodes, 0, token, 0b111);
    assert!(lease_nodes.renewed(at(1), token, agreement(at(1), 2, 0b101), None));
    lease_nodes.joined(token, 1, 1);
    assert!(lease_nodes.lost(at(2), 0, 2), "the lease may end sooner at the second node");
}

#[test]
fn a_lease_that_ended_or_ran_out_can_not_be_lost() {
    let (mut lease_nodes, [one, other]) = (LeaseNodes::default(), [Token::random(), Token::random()]);
    grant(&mut lease_nodes, 0, one, 0b011);
    grant(&mut lease_nodes, 0, other, 0b011);
    assert_eq!(
        lease_nodes.forget(one),
        Some(EndedLease {
            key: "k".into(),
            token: one,
            repaired: 0,
            ticket: None,
            nodes: 0b011,
            valid_until: at(10_000),
            may_have: !0b100,
            may_live_until: at(10_000),
        })
    );
    assert!(!lease_nodes.lost(at(10_000), 0, 2));
}

#[test]
fn leases_that_nobody_released_do_not_pile_up() {
    let mut lease_nodes = LeaseNodes::default();
    for i in 0..100_000 {
        let brief = Agreement { ttl: Duration::from_millis(100), ..agreement(at(i), i, 0b011) };
        lease_nodes.granted(at(i), Token::random(), brief, terms());
        assert!(lease_nodes.leases.len() <= PRUNE_FROM, "{}", lease_nodes.leases.len());
    }
}

#[test]
fn a_renewal_that_comes_after_the_end_brings_nothing_back() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    grant(&mut lease_nodes, 0, token, 0b011);
    assert!(lease_nodes.renewed(at(9_999), token, agreement(at(9_000), 2, 0b011), None));
    assert!(lease_nodes.terms(at(18_999), token).is_some());
    assert!(lease_nodes.terms(at(19_000), token).is_none(), "the ttl counts from the request");
    assert!(!lease_nodes.renewed(at(19_000), token, agreement(at(18_000), 3, 0b111), None));
    assert!(!lease_nodes.renewed(at(19_000), token, agreement(at(18_000), 4, 0b111), None));
    assert!(lease_nodes.terms(at(19_000), token).is_none());
}

#[test]
fn what_nodes_may_keep_is_known_longer_than_the_holder_may_use_the_lease() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    grant(&mut lease_nodes, 0, token, 0b011);
    lease_nodes.may_live(token, at(60_000));
    assert!(lease_nodes.terms(at(10_000), token).is_none(), "the holder has no answer");
    assert!(!lease_nodes.renewed(at(11_000), token, agreement(at(9_000), 2, 0b011), None), "it is too late");
    assert!(!lease_nodes.lost(at(30_000), 0, 2));
    for ms in 30_000..31_000 {
        grant(&mut lease_nodes, ms, Token::random(), 0b011);
    }
    let ended = lease_nodes.forget(token).expect("it may live at its nodes");
    assert_eq!((ended.may_have, ended.may_live_until), (!0b100, at(60_000)));
}

#[test]
fn a_node_may_have_the_lease_unless_it_certainly_never_granted_it() {
    let (mut lease_nodes, [one, other]) = (LeaseNodes::default(), [Token::random(), Token::random()]);
    let asked = Agreement { undone: 0, ..agreement(at(0), 1, 0b011) };
    for token in [one, other] {
        lease_nodes.granted(at(0), token, asked, terms());
        lease_nodes.not_granted(token, 2, 3);
        lease_nodes.not_granted(token, 1, 1);
        lease_nodes.not_granted(token, 1, 2);
    }
    lease_nodes.repairing(other, 2);
    let may_have = [one, other].map(|token| lease_nodes.forget(token).map(|ended| ended.may_have));
    assert_eq!(may_have, [Some(!0b100), Some(!0)]);
}

#[test]
fn an_adopted_lease_ends_when_its_last_renewal_does() {
    let (mut lease_nodes, [token, other]) = (LeaseNodes::default(), [Token::random(), Token::random()]);
    let adopted = || LeaseTerms { ticket: Some(Token::random()), ..terms() };
    lease_nodes.granted(at(1), token, agreement(at(0), 1, 0b011), adopted());
    grant(&mut lease_nodes, 0, other, 0b011);
    assert_eq!(lease_nodes.next_end(), Some(at(10_001)));
    assert!(lease_nodes.renewed(at(5_000), token, agreement(at(5_000), 2, 0b011), None));
    let brief = Agreement { ttl: Duration::from_millis(10), ..agreement(at(6_000), 3, 0b011) };
    assert!(lease_nodes.renewed(at(6_000), token, brief, None));
    assert_eq!(lease_nodes.next_end(), Some(at(15_000)), "a shorter ttl does not shorten the lease");
    // A renewal that is answered too late keeps the lease at the nodes.
    assert!(!lease_nodes.renewed(at(16_000), token, agreement(at(14_000), 4, 0b011), None));
    assert_eq!((lease_nodes.ended(at(25_999)), lease_nodes.ended(at(26_000))), (vec![], vec![token]));
    assert!(lease_nodes.forget(token).is_some_and(|ended| ended.ticket.is_some()));
    assert_eq!((lease_nodes.next_end(), lease_nodes.ended(at(99_000))), (None, vec![]));
}

#[test]
fn a_repeated_adoption_does_not_shorten_the_lease() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    let adopted = LeaseTerms { ticket: Some(Token::random()), ..terms() };
    lease_nodes.granted(at(0), token, agreement(at(0), 1, 0b011), adopted.clone());
    let brief = Agreement { ttl: Duration::from_millis(10), ..agreement(at(1), 2, 0b011) };
    lease_nodes.granted(at(1), token, brief, adopted);
    assert_eq!(lease_nodes.next_end(), Some(at(10_000)));
}

#[test]
fn an_adopted_lease_that_was_lost_with_a_node_still_ends() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    let adopted = LeaseTerms { ticket: Some(Token::random()), ..terms() };
    lease_nodes.granted(at(0), token, agreement(at(0), 1, 0b011), adopted);
    assert!(lease_nodes.lost(at(1), 0, 2));
    assert!(!lease_nodes.lost(at(2), 1, 2), "it was lost before");
    assert!(lease_nodes.terms(at(2), token).is_none());
    assert_eq!(lease_nodes.ended(at(10_000)), [token]);
}

#[test]
fn a_lease_that_may_be_detached_is_not_ended() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    let adopted = LeaseTerms { ticket: Some(Token::random()), ..terms() };
    lease_nodes.granted(at(0), token, agreement(at(0), 1, 0b011), adopted);
    lease_nodes.detaching(token);
    assert_eq!((lease_nodes.next_end(), lease_nodes.ended(at(99_000))), (None, vec![]));
}

#[test]
fn the_ticket_of_a_lease_that_may_be_detached_is_known_until_the_lease_is_released() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    let ticket = Token::random();
    let adopted = LeaseTerms { ticket: Some(ticket), ..terms() };
    lease_nodes.granted(at(0), token, agreement(at(0), 1, 0b011), adopted);
    lease_nodes.detaching(token);
    assert!(!lease_nodes.renewed(at(11_000), token, agreement(at(9_000), 2, 0b011), None), "it is too late");
    assert!(!lease_nodes.lost(at(30_000), 0, 2));
    for ms in 30_000..31_000 {
        grant(&mut lease_nodes, ms, Token::random(), 0b011);
    }
    let ended = lease_nodes.forget(token).expect("its nodes may have the ticket");
    assert_eq!((ended.ticket, ended.may_live_until), (Some((ticket, !0b011)), at(21_000)));
}

#[test]
fn a_node_has_the_fence_when_it_has_accepted_the_last_one() {
    let (mut lease_nodes, token) = (LeaseNodes::default(), Token::random());
    grant(&mut lease_nodes, 0, token, 0b011);
    lease_nodes.joined(token, 1, 2);
    assert_eq!(lease_nodes.unfenced(token), 0b100, "the node granted the lease after the decision");
    lease_nodes.fenced(token, 2, Fence(5));
    assert_eq!(lease_nodes.unfenced(token), 0);
    let more = Agreement { fenced: Some(0b101), ..agreement(at(1), 2, 0b111) };
    assert!(lease_nodes.renewed(at(1), token, more, Some((Fence(9), 64))));
    lease_nodes.fenced(token, 1, Fence(5));
    assert_eq!(lease_nodes.unfenced(token), 0b010, "the node accepted an older fence");
    assert_eq!(lease_nodes.terms(at(1), token).map(|terms| terms.fences), Some((Fence(9), 64)));
    lease_nodes.repairing(token, 0);
    assert_eq!(lease_nodes.unfenced(token), 0b011);
}

#[test]
fn a_ticket_may_be_left_at_the_nodes_that_have_not_said_that_the_adopter_has_them() {
    let readers = Mode::Shared { most: u32::MAX };
    for (mode, left) in [(Mode::Exclusive, !0b1111), (readers, !0b0011)] {
        let (mut lease_nodes, [ticket, adopter]) =
            (LeaseNodes::default(), [Token::random(), Token::random()]);
        let adopted = LeaseTerms { mode, ticket: Some(ticket), ..terms() };
        lease_nodes.granted(at(0), adopter, agreement(at(0), 1, 0b0011), adopted);
        lease_nodes.joined(adopter, 1, 2);
        assert!(lease_nodes.renewed(at(1), adopter, agreement(at(1), 2, 0b1011), None));
        assert_eq!(lease_nodes.forget(adopter).and_then(|lease| lease.ticket), Some((ticket, left)));
    }
}

#[test]
fn what_a_node_lacks_is_counted_once_its_answer_is_in() {
    let (mut lease_nodes, [one, other]) = (LeaseNodes::default(), [Token::random(), Token::random()]);
    grant(&mut lease_nodes, 0, one, 0b011);
    lease_nodes.granted(at(0), other, agreement(at(0), 2, 0b111), terms());
    assert_eq!(lease_nodes.missing(at(1), 3, |_| false), (vec![0, 0, 1], 2));
    assert_eq!(lease_nodes.missing(at(1), 3, |vote_round| vote_round == 1), (vec![0, 0, 0], 2));
    lease_nodes.refused(one, 2);
    assert_eq!(lease_nodes.missing(at(1), 3, |_| true), (vec![0, 0, 1], 2));
    let next = Agreement { answered: 0b011, ..agreement(at(1), 3, 0b010) };
    assert!(lease_nodes.renewed(at(1), one, next, None));
    assert_eq!(lease_nodes.missing(at(1), 3, |_| true), (vec![1, 0, 1], 2));
    lease_nodes.joined(one, 1, 2);
    assert_eq!(lease_nodes.missing(at(1), 3, |_| true), (vec![1, 0, 0], 2), "the node has answered again");
    assert_eq!(lease_nodes.missing(at(10_001), 3, |_| false), (vec![0, 0, 0], 0));
}
