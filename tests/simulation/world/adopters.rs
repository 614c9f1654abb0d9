//! Simulates adopters in several processes that try to adopt one ticket at the same time, after the
//! trouble has ended. Each process has its own distances to the nodes, and a minority of the nodes
//! may be gone. Exactly one adopter gets the lease. If adopters give up, at most one gets it. If an
//! adopter dies, the others get the lease, or are told that the dead one had it. When all nodes are
//! back, the adopter gets all of them, and its release leaves nothing behind.
//!
//! A minority of the nodes may have missed the detachment. These nodes do not have the ticket, or a
//! late acquire gives them a lease that is newer than the ticket. If so many other nodes are gone
//! that no majority with the ticket is left, the adopters go on asking until the nodes are back.

use std::time::Duration;

use leasehold::engine::command::{Command, Outcome, Wait};
use leasehold::engine::ids::OpId;
use leasehold::lease::{Instant, LossReason, Mode, Token, Ttl};
use leasehold::store::{Reply, Request};

use super::super::node::Node;
use super::super::process::{DetachedLease, ENV};
use super::{PROCESSES, World};

const KEY: &str = "ticket";
/// How long the leases of adopters and strangers live, and how long adopters try to adopt the
/// ticket, in ms.
const TTL: u32 = 20_000;
/// How long the ticket lives, in ms. The ticket outlives the schedule, so that no node drops it
/// because it has ended.
const TICKET_TTL: u32 = 60_000;
/// How long strangers ask for the lock, and adopters may give up, before the outcome counts. A
/// lease must also be acquired and detached within this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much later the outcome counts if an adopter dies. In this time, the other adopters take its
/// claims over, and ask again after a pause.
const MOURNING: Duration = Duration::from_secs(5);
/// How late a frozen node may carry out the acquire and the detachment of the ticket.
const LATENESS: Duration = Duration::from_secs(1);
/// How long the adopter may take to get the nodes that are back. It renews its lease in this time.
const RETURN: Duration = Duration::from_secs(9);
/// How long the nodes may keep a lease that was released.
const RELEASE: Duration = Duration::from_secs(5);

impl World {
    /// Lets the adopters adopt one ticket, and checks what each of them was told.
    pub(super) fn adopt_at_once(&mut self) {
        // A node that is still frozen would miss the detachment.
        let back = |node: &Node| node.down_until.max(node.frozen_until);
        while let Some(until) = self.nodes.iter().map(back).find(|until| *until > self.now) {
            self.live_until(until);
        }
        // An acquire may use half of the store timeout (at least 75 ms) for a round trip. A longer
        // distance would make acquires fail.
        let farthest = [1, 5_000, 15_000][self.rng.usize(..3)];
        for process in 0..PROCESSES {
            for node in 0..self.nodes.len() {
                let distance = Duration::from_micros(self.rng.u64(0..farthest));
                self.distances.insert((process, node), distance);
            }
        }
        let late = if self.rng.u8(..3) == 0 { self.choose_minority() } else { Vec::new() };
        let lateness = Duration::from_micros(self.rng.u64(0..LATENESS.as_micros() as u64));
        self.let_go_away(&late, self.now + lateness);
        let detached = self.detach_one();
        for &node in &late {
            (self.nodes[node].down_until, self.nodes[node].frozen_until) = (self.now, self.now);
        }
        let gone = self.choose_minority();
        let back = self.now + PATIENCE * 5;
        self.let_go_away(&gone, back);
        let count = self.nodes.len();
        let with_ticket = (0..count).filter(|node| !late.contains(node) && !gone.contains(node)).count();
        // A node that missed the detachment does not count for the adopters.
        let blocked = with_ticket <= count / 2;
        let quitters = self.rng.u8(..4) == 0;
        let mut adopters = Vec::new();
        for process in 0..PROCESSES {
            for _ in 0..self.rng.usize(1..3) {
                adopters.push((process, self.processes[process].adopt(self.now, &detached)));
                self.after(process);
                let pause = Duration::from_micros(self.rng.u64(0..farthest));
                self.live_until(self.now + pause);
            }
        }
        let dies = !self.tidy && self.rng.u8(..3) == 0;
        if dies {
            let pause = Duration::from_micros(self.rng.u64(0..4 * farthest + 2_000));
            self.live_until(self.now + pause);
            let dead = self.rng.usize(..PROCESSES);
            self.kill(dead);
            adopters.retain(|(process, _)| *process != dead);
            self.strangers.retain(|(process, _)| *process != dead);
        }
        let begin = if blocked { back } else { self.now };
        let end = begin + PATIENCE + if dies { MOURNING } else { Duration::ZERO };
        while self.now < end {
            let pause = Duration::from_millis(self.rng.u64(1..300));
            self.live_until(self.now + pause);
            self.ask_as_a_stranger(KEY);
            if quitters && self.rng.u8(..3) == 0 {
                let (process, slot) = adopters[self.rng.usize(..adopters.len())];
                let op = OpId { env: ENV, slot };
                if self.processes[process].asked.get_mut(&slot).is_some_and(|asked| {
                    let quits = !asked.granted && !asked.cancelled;
                    asked.cancelled |= quits;
                    quits
                }) {
                    self.processes[process].core.command(self.now, Command::Cancel { op });
                    self.after(process);
                }
            }
        }
        // The last acquires and adoptions are answered in this time, and the lease has not ended
        // yet.
        self.live_until(self.now + Duration::from_secs(3));
        let has = |(process, slot): &(usize, u32)| {
            let asked = self.processes[*process].asked.get(slot);
            asked.is_some_and(|asked| asked.state.is_held(self.now))
        };
        let holders = adopters.iter().filter(|adopter| has(adopter)).count();
        let winner = adopters.iter().find(|adopter| has(adopter)).copied();
        let told: Vec<&Outcome> =
            self.processes.iter().flat_map(|process| process.adoption_outcomes.values()).collect();
        assert!(
            holders == 1 || (quitters || dies) && holders == 0,
            "{holders} of {} adopted: {told:?}",
            adopters.len()
        );
        for (process, slot) in adopters.iter().filter(|adopter| !has(adopter)) {
            let told = self.processes[*process].adoption_outcomes.get(slot);
            let fair = matches!(told, Some(Outcome::Lost(LossReason::Taken)))
                || quitters && matches!(told, Some(Outcome::Cancelled | Outcome::Lost(_)));
            assert!(fair, "an adopter that lost was told {told:?}");
        }
        self.distances.clear();
        let back = back.max(self.now);
        if let Some(winner) = winner
            && self.rng.bool()
        {
            self.live_until(back + RETURN);
            self.check_nodes(winner, detached.token, dies);
        }
        for process in 0..PROCESSES {
            self.processes[process].let_go(self.now);
            self.after(process);
        }
        self.live_until(back.max(self.now) + RELEASE);
        if winner.is_some() {
            self.check_free(detached.token, dies);
        }
    }

    /// Checks that all nodes have the lease of the adopter that adopted. If an adopter `dies`, a
    /// minority may have the dead adopter's token.
    fn check_nodes(&mut self, (process, slot): (usize, u32), ticket: Token, dies: bool) {
        let asked = self.processes[process].asked.get(&slot).expect("the adopter holds the lease");
        let adopter = asked.token.expect("the adopter holds the lease");
        for node in 0..self.nodes.len() {
            assert!(!self.has_ticket(node, ticket), "a node keeps a used ticket");
            let renew = Request::Renew { key: KEY.into(), token: adopter, ttl: Ttl::MIN, fences: 0 };
            let renewed = self.apply(0, node, self.lives[0], renew);
            assert!(
                dies || matches!(renewed, Ok(Reply::Renewed { .. })),
                "the adopter lacks a node: {renewed:?}"
            );
        }
    }

    /// Checks that the released lease is at no node, not even as its ticket.
    fn check_free(&mut self, ticket: Token, dies: bool) {
        for node in 0..self.nodes.len() {
            assert!(!self.has_ticket(node, ticket), "a node keeps the ticket of a released lease");
            let left = self.apply(0, node, self.lives[0], Request::Inspect { key: KEY.into() });
            assert!(dies || left == Ok(Reply::Inspected(None)), "a node keeps a released lease: {left:?}");
        }
    }

    /// Returns true if `node` has the ticket, or a claim to it.
    fn has_ticket(&mut self, node: usize, ticket: Token) -> bool {
        let to = Token::random();
        let claim = Request::Move { key: KEY.into(), token: ticket, to, adopter: to, most: None };
        let claimed = self.apply(0, node, self.lives[0], claim);
        matches!(claimed, Ok(Reply::Adopted(_) | Reply::Claimed { .. }))
    }

    /// Returns fewer than half of the nodes, or none.
    fn choose_minority(&mut self) -> Vec<usize> {
        let count = self.nodes.len();
        let mut nodes: Vec<usize> = (0..count).collect();
        self.rng.shuffle(&mut nodes);
        nodes.truncate(self.rng.usize(..=count - count / 2 - 1));
        nodes
    }

    /// Makes each of these nodes down or frozen until that instant.
    fn let_go_away(&mut self, nodes: &[usize], until: Instant) {
        for &node in nodes {
            if self.rng.bool() {
                self.nodes[node].down_until = until;
            } else {
                self.nodes[node].frozen_until = until;
            }
        }
    }

    /// Acquires and detaches a lease that lives for [`TICKET_TTL`]. Returns its ticket.
    fn detach_one(&mut self) -> DetachedLease {
        let ttl = Ttl::from_millis(TICKET_TTL).expect("in range");
        let (slot, state) =
            self.processes[0].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true);
        self.after(0);
        let end = self.now + PATIENCE;
        while !state.is_held(self.now) {
            assert!(self.now < end, "no other process wants the lock, but it was not granted");
            self.live_until(self.now + Duration::from_millis(10));
        }
        self.detached_leases.clear();
        self.processes[0].detach(self.now, slot, None);
        self.after(0);
        while self.detached_leases.is_empty() {
            assert!(self.now < end, "the lease was not detached in time");
            self.live_until(self.now + Duration::from_millis(10));
        }
        let detached = self.detached_leases.remove(0);
        DetachedLease { ttl: Ttl::from_millis(TTL).expect("in range"), ..detached }
    }

    /// Asks for the lock `key` with a new token. [`World::check_stranger`] fails if the lock is
    /// granted. Returns the process and the slot of the request.
    pub(super) fn ask_as_a_stranger(&mut self, key: &str) -> (usize, u32) {
        let process = self.rng.usize(..PROCESSES);
        let ttl = Ttl::from_millis(TTL).expect("in range");
        let (slot, _) =
            self.processes[process].ask(self.now, key, Mode::Exclusive, ttl, Wait::Never, None, true);
        self.strangers.insert((process, slot));
        self.after(process);
        (process, slot)
    }

    /// Fails if this grant went to a stranger.
    pub(super) fn check_stranger(&self, process: usize, slot: u32) {
        assert!(!self.strangers.contains(&(process, slot)), "a stranger was given the lock of a live ticket");
    }
}
