//! Simulates a ticket that was used while some nodes were away. These nodes still have it. After
//! the adopter has released the lease, and another client has held the lock, copies of the acquire
//! arrive at nodes of the adopter. These nodes grant a newer lease to the ticket's token. Copies of
//! the detachment may follow. Together with the nodes that kept the ticket, these nodes are often a
//! majority, but no other client may adopt the ticket. An adopter that tries it releases the newer
//! leases.

use std::time::Duration;

use leasehold::engine::command::{Command, Outcome, Wait};
use leasehold::engine::ids::OpId;
use leasehold::lease::{Mode, Ttl};
use leasehold::store::{Reply, Request};

use super::super::process::{DetachedLease, ENV};
use super::World;

const KEY: &str = "half used";
/// How long each lease lives, in ms. No lease ends by itself within the schedule.
const TTL: u32 = 30_000;
/// How long the messages of a step may take.
const STEP: Duration = Duration::from_millis(700);
/// How long the nodes may keep a lease that was released.
const RELEASE: Duration = Duration::from_secs(5);
/// How long nodes and processes are away. This is longer than the schedule takes.
const AWAY: Duration = Duration::from_secs(60);

impl World {
    /// See the module.
    pub(super) fn adopt_a_half_used_ticket(&mut self) {
        let ttl = Ttl::from_millis(TTL).expect("in range");
        let count = self.nodes.len();
        let minority = count - count / 2 - 1;
        let mut nodes: Vec<usize> = (0..count).collect();
        self.rng.shuffle(&mut nodes);
        let keepers = nodes.split_off(count - self.rng.usize(1..=minority));
        let late = nodes[..self.rng.usize(1..=nodes.len())].to_vec();
        // Some of these nodes get the lease only by a repair.
        let repaired = late[..self.rng.usize(..=minority.min(late.len()))].to_vec();

        self.copies = Some(Vec::new());
        let detached = self.detach_after_repair(&repaired, ttl);
        self.set_away(&keepers, true);
        self.adopt_and_release(&detached);
        self.live_until(self.now + STEP);
        match self.rng.u8(..4) {
            // The adopter's process asks the other nodes to release the ticket as soon as they are
            // back.
            0 => {}
            1 if !self.tidy => self.kill(1),
            _ => self.processes[1].frozen_until = self.now + AWAY,
        }
        let (_, state) =
            self.processes[2].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true);
        self.after(2);
        self.live_while("the next client was not granted the lock", |world| !state.is_held(world.now));
        // The copies wait in the queue until the lock is free.
        let waits = self.rng.u8(..4) == 0;
        if waits {
            self.apply_late_acquires(&late);
        }
        self.processes[2].let_go(self.now);
        self.after(2);
        self.live_until(self.now + Duration::from_millis(200));
        if !waits {
            self.apply_late_acquires(&late);
        }
        if self.rng.bool() {
            self.apply_copies(KEY, |node, request| {
                late.contains(&node) && matches!(request, Request::Detach { .. })
            });
        }
        self.copies = None;
        self.set_away(&keepers, false);
        self.adopt_again(&detached, &late);
        self.processes[1].frozen_until = self.now;
    }

    /// Acquires and detaches a lease of the first process. The acquire does not reach `repaired`,
    /// but a renewal repairs the lease there.
    fn detach_after_repair(&mut self, repaired: &[usize], ttl: Ttl) -> DetachedLease {
        self.set_away(repaired, true);
        let (slot, state) =
            self.processes[0].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true);
        self.after(0);
        self.live_while("the lease was not granted", |world| !state.is_held(world.now));
        self.set_away(repaired, false);
        if !repaired.is_empty() {
            self.processes[0]
                .core
                .command(self.now, Command::Renew { op: OpId { env: ENV, slot }, ttl: None });
            self.after(0);
            self.live_until(self.now + STEP);
        }
        self.detach_repeatedly(slot);
        DetachedLease { ttl, ..self.detached_leases.remove(0) }
    }

    fn set_away(&mut self, nodes: &[usize], is_away: bool) {
        let until = if is_away { self.now + AWAY } else { self.now };
        for &node in nodes {
            self.nodes[node].down_until = until;
        }
    }

    fn apply_late_acquires(&mut self, late: &[usize]) {
        self.apply_copies(KEY, |node, request| {
            late.contains(&node) && matches!(request, Request::Acquire(_))
        });
    }

    /// Lets a client try to adopt the used ticket. Checks that the client is told that the lease is
    /// lost, and that the nodes `late` release the newer leases of the ticket's token.
    fn adopt_again(&mut self, detached: &DetachedLease, late: &[usize]) {
        let process = if self.rng.bool() { 0 } else { 2 };
        // If the adopter gets the lease, `after` fails, because the ticket was adopted before.
        let slot = self.processes[process].adopt(self.now, detached);
        self.after(process);
        self.live_while("an adopter was not told", |world| {
            !world.processes[process].adoption_outcomes.contains_key(&slot)
        });
        let told = &self.processes[process].adoption_outcomes[&slot];
        assert!(matches!(told, Outcome::Lost(_)), "the adopter of a used ticket was told {told:?}");
        self.live_until(self.now + RELEASE);
        for &node in late {
            let left = self.apply(0, node, self.lives[0], Request::Inspect { key: KEY.into() });
            assert_eq!(left, Ok(Reply::Inspected(None)), "a node keeps a lease that no client has");
        }
    }
}
