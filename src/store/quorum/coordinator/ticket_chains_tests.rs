//! Tests chains of hand-overs: a lease is adopted and detached again and again while a node is
//! away. The node has an old token of the chain, which no client uses any more.

use super::adopting_tests::{Message, TestNetwork, kill_between_rounds, tokens};
use super::used_tickets_tests::{NONE, detach, release, renew};
use super::*;
use crate::lease::Token;

/// Returns a client for each adopter of a chain. If `is_one` is true, all of them are the first
/// one.
fn clients(adopters: usize, is_one: bool) -> Vec<usize> {
    (0..adopters).map(|adopter| if is_one { 0 } else { adopter }).collect()
}

impl TestNetwork {
    /// Lets the client adopt `ticket`, and detach the lease after `pause` ms.
    fn hand_over(&mut self, (client, batch): (usize, u64), ticket: Token, adopter: Token, pause: u64) {
        self.adopt_now((client, batch), ticket, adopter);
        self.live(pause);
        self.ask(client, batch + 1, detach(adopter));
        self.live_until_settled(client, batch + 1);
        let reply = self.settled(client, batch + 1);
        assert!(matches!(reply, Ok(Reply::Renewed { .. })), "{reply:?}");
    }

    fn adopt_now(&mut self, (client, batch): (usize, u64), ticket: Token, adopter: Token) {
        self.adopt(client, batch, ticket, adopter);
        self.live_until_settled(client, batch);
        let reply = self.settled(client, batch);
        assert!(reply.as_ref().is_ok_and(Reply::is_adopted), "{reply:?}");
    }

    fn live_until_settled(&mut self, client: usize, batch: u64) {
        while !self.answers.contains_key(&(client, batch)) {
            self.live(1);
        }
    }

    /// Lets the adopters adopt one after the other. The last one releases the lease, and the others
    /// detach it `pause` ms after their adoption.
    fn run_chain(&mut self, clients: &[usize], ticket: Token, pause: u64) {
        let mut tickets = vec![ticket];
        tickets.extend(tokens(clients.len()));
        for (index, client) in clients.iter().enumerate() {
            let (of_chain, ticket, adopter) =
                ((*client, 10 * (index as u64 + 1)), tickets[index], tickets[index + 1]);
            if index + 1 < clients.len() {
                self.hand_over(of_chain, ticket, adopter, pause);
            } else {
                self.adopt_now(of_chain, ticket, adopter);
                self.ask(*client, 1, release(adopter));
                self.live_until_settled(*client, 1);
                assert_eq!(self.settled(*client, 1), Ok(Reply::Released));
            }
        }
    }

    fn check_nothing_is_left(&mut self, context: &str) {
        assert_eq!(self.held(), NONE, "{context}");
        self.live(60_000);
        assert!(self.coordinators.iter().all(|coordinator| coordinator.concerns() == 0), "{context}");
    }
}

#[test]
fn a_node_that_was_away_during_a_chain_of_adoptions_keeps_no_token_of_it() {
    for is_one in [true, false] {
        for adopters in 2..=4 {
            for claimed in [false, true] {
                let (mut network, ticket) = (TestNetwork::scattered(adopters, 3), Token::random());
                network.grant(ticket, Mode::Exclusive);
                if claimed {
                    kill_between_rounds(&mut network, ticket, Token::random(), &[2], &[]);
                }
                network.down = vec![2];
                network.run_chain(&clients(adopters, is_one), ticket, 100);
                network.live(1_000);
                network.down.clear();
                network.live(2_000);
                let context = format!("one client: {is_one}, {adopters} adopters, claimed: {claimed}");
                network.check_nothing_is_left(&context);
            }
        }
    }
}

#[test]
fn a_node_that_is_back_within_a_chain_of_adoptions_keeps_no_token_of_it() {
    for is_one in [true, false] {
        for back_after in 1..=3 {
            let (mut network, tokens) = (TestNetwork::scattered(4, 3), tokens(5));
            let clients = clients(4, is_one);
            network.grant(tokens[0], Mode::Exclusive);
            network.down = vec![2];
            for index in 0..3 {
                let of_chain = (clients[index], 10 * (index as u64 + 1));
                network.hand_over(of_chain, tokens[index], tokens[index + 1], 100);
                if index + 1 == back_after {
                    network.down.clear();
                }
            }
            network.adopt_now((clients[3], 40), tokens[3], tokens[4]);
            network.live(5_000);
            network.ask(clients[3], 41, renew(tokens[4]));
            network.live(1_000);
            assert_eq!(network.nodes_of(tokens[4]), [0, 1, 2], "one client: {is_one}, {back_after}");
            network.ask(clients[3], 42, release(tokens[4]));
            network.live(1_000);
            network.check_nothing_is_left(&format!("one client: {is_one}, back after {back_after}"));
        }
    }
}

#[test]
fn a_node_that_answers_late_during_a_chain_of_adoptions_keeps_no_token_of_it() {
    for distance in [5_000, 50_000, 200_000, 400_000, 800_000, 1_500_000] {
        for is_one in [true, false] {
            for pause in [0, 1, 30] {
                let far = move |_, node| if node == 2 { distance } else { 500 };
                let (mut network, ticket) = (TestNetwork::new(3, 3, far), Token::random());
                network.grant(ticket, Mode::Exclusive);
                network.run_chain(&clients(3, is_one), ticket, pause);
                network.live(12_000);
                let context = format!("{distance} µs away, one client: {is_one}, pause: {pause} ms");
                network.check_nothing_is_left(&context);
            }
        }
    }
}

#[test]
fn a_node_that_stalls_during_a_chain_of_adoptions_keeps_no_token_of_it() {
    for stall in [300, 1_000, 1_500, 2_500, 6_000] {
        for is_one in [true, false] {
            for pause in [0, 1, 30, 1_000] {
                let (mut network, ticket) = (TestNetwork::scattered(3, 3), Token::random());
                network.grant(ticket, Mode::Exclusive);
                let back = network.now + Duration::from_millis(stall);
                network.stalled = Some((2, back));
                network.run_chain(&clients(3, is_one), ticket, pause);
                network.live(back.since(network.now).as_millis() as u64 + 7_000);
                let context = format!("stalls for {stall} ms, one client: {is_one}, pause: {pause} ms");
                network.check_nothing_is_left(&context);
            }
        }
    }
}

#[test]
fn a_detached_lease_keeps_a_node_whose_answer_to_the_adopter_was_lost() {
    let (mut network, tokens) = (TestNetwork::new(2, 3, |_, _| 1_000), tokens(3));
    network.grant(tokens[0], Mode::Exclusive);
    network.adopt(0, 1, tokens[0], tokens[1]);
    // n2 confirms the adopter after 3 ms, but its answer is lost.
    network.live(3);
    let answers_of_n2 = |network: &TestNetwork| {
        let all = network.messages.iter();
        all.filter(|(_, message)| matches!(message, Message::Answer(..))).map(|(serial, _)| *serial).max()
    };
    let serial = answers_of_n2(&network).expect("an answer is on its way");
    let Some(Message::Answer(client, id, answers)) = network.messages.remove(&serial) else { unreachable!() };
    let late = StoreError::maybe_done(StoreErrorKind::TimedOut, "late");
    network.messages.insert(serial, Message::Answer(client, id, vec![Err(late); answers.len()]));
    network.live(100);
    assert!(network.settled(0, 1).is_ok_and(|reply| reply.is_adopted()));
    network.ask(0, 2, detach(tokens[1]));
    network.live(10_000);
    assert_eq!(network.nodes_of(tokens[1]), [0, 1, 2]);
    assert_eq!(network.coordinators[0].concerns(), 0);
    network.down = vec![0];
    network.adopt_now((1, 1), tokens[1], tokens[2]);
}

#[test]
fn a_detachment_right_after_an_adoption_reaches_the_nodes_that_answer_late() {
    let far = |_, node| if node == 2 { 20_000 } else { 500 };
    let (mut network, tokens) = (TestNetwork::new(2, 3, far), tokens(3));
    network.grant(tokens[0], Mode::Exclusive);
    network.hand_over((0, 1), tokens[0], tokens[1], 0);
    network.live(100);
    assert_eq!(network.nodes_of(tokens[1]), [0, 1, 2]);
    let notes: Vec<_> = (0..3).map(|node| network.held_by(node).unwrap().leases[0].fence).collect();
    assert_eq!(notes, [Some(Fence(77)); 3]);
    network.down = vec![0];
    network.adopt_now((1, 1), tokens[1], tokens[2]);
}

#[test]
fn a_chain_of_readers_leaves_nothing_at_a_node_that_was_away() {
    let (mut network, ticket) = (TestNetwork::scattered(3, 3), Token::random());
    network.grant(ticket, Mode::Shared { most: u32::MAX });
    network.down = vec![2];
    network.run_chain(&clients(3, false), ticket, 100);
    network.down.clear();
    network.live(2_000);
    network.check_nothing_is_left("readers");
}

#[test]
fn an_adopter_that_has_begun_again_frees_no_node_of_the_next_adopter() {
    for distance in [50_000, 150_000, 300_000] {
        for pause in [0, 300, 700] {
            let far = move |adopter, _| if adopter == 1 { distance } else { 500 };
            let (mut network, tokens) = (TestNetwork::new(2, 3, far), tokens(3));
            network.grant(tokens[0], Mode::Exclusive);
            // The first attempt fails, so it gives the node that it has claimed back to the ticket.
            // A request of the attempt may be late, so this move is repeated.
            (network.down, network.silent) = (vec![0], vec![1]);
            network.adopt(0, 1, tokens[0], tokens[1]);
            network.live_until_settled(0, 1);
            assert!(network.settled(0, 1).is_err());
            network.silent.clear();
            network.hand_over((0, 2), tokens[0], tokens[1], pause);
            network.adopt(1, 1, tokens[1], tokens[2]);
            network.live(10_000);
            let reply = network.settled(1, 1);
            let context = format!("{distance} µs away, detached after {pause} ms");
            assert!(reply.as_ref().is_ok_and(Reply::is_adopted), "{context}: {reply:?}");
            assert_eq!(network.nodes_of(tokens[2]), [1, 2], "{context}");
        }
    }
}
