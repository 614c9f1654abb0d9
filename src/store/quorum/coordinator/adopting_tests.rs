//! Tests adoptions by several adopters over the same nodes.

#[path = "adopting_tests/test_network.rs"]
mod test_network;

pub(super) use self::test_network::*;
use super::*;
use crate::store::memory::LeaseTable;

#[test]
fn three_adopters_that_are_each_near_to_another_node_adopt_exactly_once() {
    for _ in 0..200 {
        let (mut network, ticket, adopters) = (TestNetwork::scattered(3, 3), Token::random(), tokens(3));
        network.grant(ticket, Mode::Exclusive);
        (0..3).for_each(|index| network.adopt(index, 1, ticket, adopters[index]));
        network.live(2_000);
        let winner = network.winner(3);
        let release = Request::Release { key: KEY.into(), token: adopters[winner], used: None };
        network.ask(winner, 2, release);
        network.live(10_000);
        assert_eq!(network.settled(winner, 2), Ok(Reply::Released));
        assert!(network.coordinators.iter().all(|coordinator| coordinator.concerns() == 0));
    }
}

#[test]
fn adopters_of_a_shared_lease_adopt_exactly_once() {
    let mode = Mode::Shared { most: u32::MAX };
    for _ in 0..100 {
        let (mut network, ticket, adopters) = (TestNetwork::scattered(3, 3), Token::random(), tokens(3));
        network.grant(Token::random(), mode);
        network.grant(ticket, mode);
        (0..3).for_each(|index| network.adopt(index, 1, ticket, adopters[index]));
        network.live(2_000);
        network.winner(3);
        network.live(10_000);
        assert!((0..3).filter(|node| network.held_by(*node).unwrap().leases.len() == 2).count() >= 2);
    }
}

#[test]
fn two_adopters_adopt_exactly_once_while_a_node_is_down_or_silent() {
    for silent in [false, true] {
        for _ in 0..100 {
            let (mut network, ticket, adopters) = (TestNetwork::scattered(2, 3), Token::random(), tokens(2));
            network.grant(ticket, Mode::Exclusive);
            if silent { &mut network.silent } else { &mut network.down }.push(2);
            (0..2).for_each(|index| network.adopt(index, 1, ticket, adopters[index]));
            network.live(2_000);
            network.winner(2);
        }
    }
}

#[test]
fn five_adopters_adopt_exactly_once_over_five_nodes_of_which_two_are_gone() {
    for _ in 0..50 {
        let mut network = TestNetwork::new(5, 5, |adopter, node| [300, 4_000, 30_000][(adopter + node) % 3]);
        let (ticket, adopters) = (Token::random(), tokens(5));
        network.grant(ticket, Mode::Exclusive);
        (network.down, network.silent) = (vec![1], vec![3]);
        (0..5).for_each(|index| network.adopt(index, 1, ticket, adopters[index]));
        network.live(2_000);
        network.winner(5);
    }
}

#[test]
fn an_adopter_alone_takes_two_round_trips_and_keeps_the_fence() {
    let (mut network, ticket, adopter) =
        (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.adopt(0, 1, ticket, adopter);
    network.live(4);
    assert!(network.settled(0, 1).unwrap().is_adopted());
    for node in 0..3 {
        let lease = &network.held_by(node).unwrap().leases[0];
        assert_eq!((lease.holder.as_deref(), lease.fence), (Some("adopter"), Some(Fence(77))));
    }
    assert_eq!(network.coordinators[0].concerns(), 0);
    let rests_until = network.now + Duration::from_secs(15);
    let wake = network.coordinators[0].next_wake();
    assert!(wake > Some(rests_until), "only the end of the lease is due: {wake:?}");
}

#[test]
fn a_node_that_answers_the_claim_late_gets_the_name_and_the_ttl_of_the_adopter() {
    let far = |_, node| if node == 2 { 20_000 } else { 500 };
    let (mut network, ticket, adopter) = (TestNetwork::new(1, 3, far), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.live(5_000);
    network.adopt(0, 1, ticket, adopter);
    network.live(3);
    assert!(network.settled(0, 1).unwrap().is_adopted(), "two nodes are enough");
    network.live(197);
    for node in 0..3 {
        let lease = &network.held_by(node).unwrap().leases[0];
        assert_eq!((lease.holder.as_deref(), lease.mark), (Some("adopter"), Some(adopter.mark())));
        assert!(lease.remaining > Some(ttl().as_duration() - Duration::from_millis(200)), "{lease:?}");
    }
    assert_eq!(network.coordinators[0].concerns(), 0);
}

#[test]
fn a_node_that_answers_the_claim_late_is_released_or_given_back_like_the_others() {
    let far = |_, node| if node == 2 { 20_000 } else { 500 };
    // n2 answers the claim after 40 ms, and carries the second round out after 60 ms.
    for after in [0, 30, 45, 70, 90] {
        for released in [false, true] {
            let (mut network, ticket, adopter) =
                (TestNetwork::new(1, 3, far), Token::random(), Token::random());
            network.grant(ticket, Mode::Exclusive);
            network.adopt(0, 1, ticket, adopter);
            network.live(3);
            assert!(network.settled(0, 1).unwrap().is_adopted());
            network.live(after);
            let release = Request::Release { key: KEY.into(), token: adopter, used: None };
            network.ask(0, 2, if released { release } else { give_back(adopter, ticket) });
            network.live(10_000);
            let mark = (!released).then(|| ticket.mark());
            for node in 0..3 {
                let held = network.held_by(node).and_then(|info| info.leases[0].mark);
                assert_eq!(held, mark, "n{node}, released: {released}, after {after} ms");
            }
            assert_eq!(network.coordinators[0].concerns(), 0);
        }
    }
}

#[test]
fn an_adopter_gives_the_fence_to_a_node_that_lacks_it() {
    let (mut network, ticket, adopter) =
        (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    // This node got the lease back for the ticket, and has not accepted its fence.
    let (ask, now) = (AcquireRequest::new(KEY.into(), ticket, ttl(), "first".into()), network.now);
    network.nodes[2] = LeaseTable::default();
    assert_eq!(
        network.nodes[2].apply(Request::Acquire(ask), now, 1),
        Ok(Reply::Acquired { fence: Fence(1), waiting: 0 })
    );
    network.ask(0, 1, adopt_with_fence(ticket, adopter, Fence(77)));
    network.live(10);
    assert!(network.settled(0, 1).unwrap().is_adopted());
    network.ask(0, 2, Request::Renew { key: KEY.into(), token: adopter, ttl: ttl(), fences: 0 });
    network.live(10);
    assert_eq!(network.settled(0, 2), Ok(Reply::Renewed { block: None }));
    assert_eq!(network.held_by(2).unwrap().leases[0].fence, Some(Fence(77)));
    assert_eq!(network.coordinators[0].concerns(), 0);
    let rests_until = network.now + Duration::from_secs(15);
    let wake = network.coordinators[0].next_wake();
    assert!(wake > Some(rests_until), "only the end of the lease is due: {wake:?}");
}

#[test]
fn what_is_left_of_a_dead_claimant_does_not_stop_the_others() {
    // The dead adopter has the smallest mark, so the other two back off to it again and again.
    let dead = Token::parse("00000000-1234-4321-8123-123456789012").unwrap();
    for _ in 0..20 {
        let (mut network, ticket, adopters) = (TestNetwork::scattered(2, 3), Token::random(), tokens(2));
        network.grant(ticket, Mode::Exclusive);
        kill_between_rounds(&mut network, ticket, dead, &[2], &[]);
        (0..2).for_each(|index| network.adopt(index, 1, ticket, adopters[index]));
        network.live(2_000);
        network.winner(2);
    }
}

/// Creates an adopter that was killed between its two rounds: it has claimed `claimed` of the nodes
/// and confirmed `confirmed` of them.
pub(super) fn kill_between_rounds(
    network: &mut TestNetwork,
    ticket: Token,
    dead: Token,
    claimed: &[usize],
    confirmed: &[usize],
) {
    let (now, to) = (network.now, Token::claim(ticket, dead));
    for node in claimed {
        let claim = Request::Move { key: KEY.into(), token: ticket, to, adopter: dead, most: None };
        assert!(network.nodes[*node].apply(claim, now, 1).unwrap().is_adopted());
    }
    for node in confirmed {
        assert!(network.nodes[*node].apply(adopt(to, dead), now, 1).unwrap().is_adopted());
    }
}

#[test]
fn an_adopter_that_was_killed_between_its_rounds_does_not_block_the_ticket() {
    let smallest = Token::parse("00000000-1234-4321-8123-123456789012").unwrap();
    let largest = Token::parse("ffffffff-1234-4321-8123-123456789012").unwrap();
    for dead in [smallest, largest] {
        for (claimed, confirmed) in [(&[0, 1, 2][..], &[][..]), (&[0, 1], &[]), (&[0, 1, 2], &[1])] {
            for adopters in 1..=3 {
                let (mut network, ticket) = (TestNetwork::scattered(adopters, 3), Token::random());
                network.grant(ticket, Mode::Exclusive);
                kill_between_rounds(&mut network, ticket, dead, claimed, confirmed);
                let answers = network.adopt_until_told(0..adopters, ticket, &tokens(adopters));
                let adopted = answers.iter().filter(|answer| answer.is_adopted()).count();
                assert_eq!(adopted, 1, "{answers:?}");
            }
        }
    }
}

#[test]
fn a_claim_that_was_taken_over_can_not_be_confirmed_any_more() {
    // The first adopter is frozen between its rounds, and goes on when the second one has adopted.
    let (mut network, ticket, adopters) = (TestNetwork::scattered(2, 3), Token::random(), tokens(2));
    network.grant(ticket, Mode::Exclusive);
    network.adopt(0, 1, ticket, adopters[0]);
    let claim = network.messages.values().find_map(|message| match message {
        Message::Request(_, Call { requests, .. }) => match requests[0] {
            Request::Move { to, .. } => Some(to),
            _ => None,
        },
        Message::Answer(..) => None,
    });
    network.frozen = Some(0);
    assert!(network.adopt_until_told(1..2, ticket, &adopters)[0].is_adopted());
    let now = network.now;
    let late = network.nodes[0].apply(adopt(claim.unwrap(), adopters[0]), now, 1);
    assert_eq!(late, Ok(Reply::NotHeld(Absence::Taken)));
    network.frozen = None;
    network.live(2_000);
    assert!(!network.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
}

#[test]
fn an_adopter_that_gives_up_leaves_the_ticket_to_others() {
    for after in [0, 1, 30, 50, 70, 90, 200] {
        let (mut network, ticket, adopters) = (TestNetwork::scattered(2, 3), Token::random(), tokens(2));
        network.grant(ticket, Mode::Exclusive);
        network.adopt(0, 1, ticket, adopters[0]);
        network.live(after);
        network.ask(0, 2, give_back(adopters[0], ticket));
        network.live(500);
        assert!(network.settled(0, 2).is_ok());
        network.live(6_000);
        let info = network.held_by(1).expect("the ticket still holds the lock");
        assert!(info.leases[0].remaining <= Some(ttl().as_duration()));
        network.adopt(1, 1, ticket, adopters[1]);
        network.live(2_000);
        assert!(network.settled(1, 1).unwrap().is_adopted(), "given up after {after} ms");
        assert_eq!(network.coordinators[0].concerns(), 0);
    }
}

#[test]
fn an_adopter_that_is_about_to_give_the_lease_back_does_not_make_another_one_lose() {
    // The first adopter's second round reaches the nodes after 3 ms, and the answers after 4 ms.
    for after in 1..=8 {
        let (mut network, ticket, adopters) =
            (TestNetwork::new(2, 5, |_, _| 1_000), Token::random(), tokens(2));
        network.grant(ticket, Mode::Exclusive);
        network.adopt(0, 1, ticket, adopters[0]);
        network.live(after);
        network.adopt(1, 1, ticket, adopters[1]);
        network.live(1);
        network.ask(0, 2, give_back(adopters[0], ticket));
        network.live(2_000);
        let answer = network.settled(1, 1);
        assert!(answer.as_ref().is_ok_and(Reply::is_adopted), "after {after} ms: {answer:?}");
    }
}

#[test]
fn an_adopter_that_loses_gives_its_nodes_back_to_the_ticket() {
    // Another adopter has nodes 1 and 2. It may still give them back to the ticket, so nodes 0 and
    // 3 have to go back to the ticket, too.
    let (mut network, ticket) = (TestNetwork::new(1, 4, |_, _| 1_000), Token::random());
    network.grant(ticket, Mode::Exclusive);
    let now = network.now;
    for node in [1, 2] {
        assert!(network.nodes[node].apply(adopt(ticket, Token::random()), now, 1).unwrap().is_adopted());
    }
    network.adopt(0, 1, ticket, Token::random());
    network.live(1_000);
    assert_eq!(network.settled(0, 1), Ok(Reply::NotHeld(Absence::Taken)));
    for node in [0, 3] {
        let renew = Request::Renew { key: KEY.into(), token: ticket, ttl: ttl(), fences: 0 };
        let (now, renewed) = (network.now, Ok(Reply::Renewed { block: None }));
        assert_eq!(network.nodes[node].apply(renew, now, 1), renewed, "node {node} may go to a stranger");
    }
}

#[test]
fn an_adopter_that_loses_does_not_prolong_the_ticket() {
    let (mut network, ticket) = (TestNetwork::scattered(1, 3), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.down = vec![0, 2];
    network.live(15_000);
    network.adopt(0, 1, ticket, Token::random());
    network.live(2_000);
    assert_eq!(network.settled(0, 1).unwrap_err().kind, StoreErrorKind::Quorum);
    let left = network.held_by(1).unwrap().leases[0].remaining.unwrap();
    assert_eq!(left, Duration::from_millis(u64::from(TTL) - 17_000));
}

#[test]
fn an_adopter_that_gives_up_does_not_prolong_the_ticket() {
    for after in [0, 1, 30, 45, 50, 70, 90, 200] {
        for down in [vec![], vec![2], vec![0, 2]] {
            let (mut network, ticket, adopter) =
                (TestNetwork::scattered(1, 3), Token::random(), Token::random());
            network.grant(ticket, Mode::Exclusive);
            network.down = down;
            let Request::Adopt { key, token, adopter: to, holder, outlives_process, source, .. } =
                adopt(ticket, adopter)
            else {
                unreachable!()
            };
            let ttl = Ttl::from_millis(20 * TTL).unwrap();
            network.ask(
                0,
                1,
                Request::Adopt { key, token, adopter: to, ttl, holder, outlives_process, source },
            );
            network.live(after);
            network.ask(0, 2, give_back(adopter, ticket));
            // Node 1 refuses all further requests for a second.
            network.down.push(1);
            network.live(1_000);
            network.down.clear();
            network.live(9_000);
            for node in 0..3 {
                let left = network.held_by(node).unwrap().leases[0].remaining.unwrap();
                let ticket_left = Duration::from_millis(u64::from(TTL) - 10_000 - after);
                // A claim is answered within 40 ms.
                assert!(
                    left <= ticket_left + Duration::from_millis(40) && left >= ticket_left,
                    "node {node}, given up after {after} ms: {left:?} is left, of the ticket {ticket_left:?}"
                );
            }
        }
    }
}

#[test]
fn the_same_adopter_may_try_again_when_its_second_round_got_no_answer() {
    for after in [21, 41, 42, 61] {
        let (mut network, ticket, adopter) = (TestNetwork::scattered(1, 3), Token::random(), Token::random());
        network.grant(ticket, Mode::Exclusive);
        network.adopt(0, 1, ticket, adopter);
        network.live(after);
        // The requests of the adopter arrive, but the answers that are on their way are lost.
        let lost: Vec<u64> =
            network.messages.iter().filter(|(_, p)| matches!(p, Message::Answer(..))).map(|p| *p.0).collect();
        for serial in lost {
            let Some(Message::Answer(index, id, answers)) = network.messages.remove(&serial) else {
                unreachable!()
            };
            let late = StoreError::maybe_done(StoreErrorKind::TimedOut, "late");
            network.messages.insert(serial, Message::Answer(index, id, vec![Err(late); answers.len()]));
        }
        network.live(2_500);
        let first = network.settled(0, 1);
        network.adopt(0, 2, ticket, adopter);
        network.live(2_500);
        assert!(network.settled(0, 2).unwrap().is_adopted(), "after {after} ms, and {first:?}");
    }
}

#[test]
fn a_ticket_that_most_nodes_do_not_know_is_told_at_once() {
    let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
    network.adopt(0, 1, ticket, Token::random());
    network.live(3);
    assert_eq!(network.settled(0, 1), Ok(Reply::NotHeld(Absence::Missing)));
    network.grant(Token::random(), Mode::Exclusive);
    network.adopt(0, 2, ticket, Token::random());
    // Two more looks, after 3 to 6 and 6 to 12 times the round trip of 2 ms.
    network.live(50);
    assert_eq!(network.settled(0, 2), Ok(Reply::NotHeld(Absence::Taken)));
    network.live(5_000);
    assert_eq!((network.coordinators[0].concerns(), network.coordinators[0].next_wake()), (0, None));
}

#[test]
fn an_adopter_that_meets_others_until_its_time_is_over_gets_a_time_out() {
    let (mut network, ticket) = (TestNetwork::scattered(1, 3), Token::random());
    network.grant(ticket, Mode::Exclusive);
    kill_between_rounds(&mut network, ticket, Token::random(), &[1, 2], &[]);
    network.adopt(0, 1, ticket, Token::random());
    network.live(3_000);
    let error = network.settled(0, 1).unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, true));
    assert!(error.message.contains("adopt the ticket again"), "{}", error.message);
}
