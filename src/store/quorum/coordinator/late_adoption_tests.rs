//! Tests the error of an adopter that did not get most nodes by its deadline.

use super::adopting_tests::{Message, TestNetwork, kill_between_rounds};
use super::*;
use crate::lease::Token;
use crate::store::memory::LeaseTable;

/// Returns the nodes of another network, at which `token` holds the lock.
fn nodes_of(token: Token, now: Instant) -> Vec<LeaseTable> {
    let mut network = TestNetwork { now, ..TestNetwork::new(1, 3, |_, _| 1_000) };
    network.grant(token, Mode::Exclusive);
    network.nodes
}

#[test]
fn an_adopter_that_meets_its_own_earlier_claim_does_not_hear_of_several_clients() {
    let (mut network, ticket, adopter) =
        (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    kill_between_rounds(&mut network, ticket, adopter, &[1, 2], &[]);
    network.adopt(0, 1, ticket, adopter);
    network.live(3_000);
    let error = network.settled(0, 1).unwrap_err();
    assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, true));
    assert!(error.message.contains("an earlier request of this adoption"), "{}", error.message);
}

#[test]
fn an_adopter_alone_that_began_again_hears_which_servers_did_not_answer() {
    let (mut network, ticket, adopter) =
        (TestNetwork::new(1, 3, |_, _| 1_000), Token::random(), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.adopt(0, 1, ticket, adopter);
    network.live(2);
    // When the second round arrives, another client has the lock at two nodes.
    network.nodes.splice(1.., nodes_of(Token::random(), network.now).into_iter().skip(1));
    network.live(2);
    network.nodes.splice(1.., nodes_of(ticket, network.now).into_iter().skip(1));
    // The adopter begins again. The answers to its second round come too late.
    let confirms = |message: &Message| match message {
        Message::Request(_, call) => {
            call.requests.iter().any(|request| matches!(request, Request::Adopt { .. }))
        }
        Message::Answer(..) => false,
    };
    while !network.messages.values().any(confirms) {
        network.live(1);
    }
    network.distance = Box::new(|_, _| 10_000_000);
    network.live(3_000);
    let error = network.settled(0, 1).unwrap_err();
    assert!(error.message.contains("n1 had not answered; n2 had not answered"), "{}", error.message);
}

#[test]
fn an_adopter_that_gets_no_answer_to_its_second_round_hears_which_servers_did_not_answer() {
    let (mut network, ticket) = (TestNetwork::new(1, 3, |_, _| 1_000), Token::random());
    network.grant(ticket, Mode::Exclusive);
    network.adopt(0, 1, ticket, Token::random());
    network.live(2);
    network.distance = Box::new(|_, _| 10_000_000);
    network.live(3_000);
    let error = network.settled(0, 1).unwrap_err();
    assert!(error.message.contains("n1 had not answered; n2 had not answered"), "{}", error.message);
}
