//! Simulates a chain of hand-overs: a lease is detached and adopted again and again, by one process
//! or by several, while a minority of the nodes is away for a time. Another node may stall while an
//! adopter asks. The adopter then begins again, and late requests of its first attempts may arrive
//! while the next process adopts the lease. Until the last adopter releases the lease, no other
//! client gets the lock. A while after the nodes are back, no node has a token of the chain.

use std::time::Duration;

use leasehold::engine::command::Wait;
use leasehold::lease::{Instant, Mode, Ttl};
use leasehold::store::{Reply, Request};

use super::super::node::Node;
use super::super::process::DetachedLease;
use super::{PROCESSES, World};

const KEY: &str = "chain";
/// How long each lease lives, in ms. No lease ends by itself within the schedule.
const TTL: u32 = 60_000;
/// How long the nodes may keep a lease that was released.
const RELEASE: Duration = Duration::from_secs(6);

impl World {
    /// See the module.
    pub(super) fn hand_over_in_a_chain(&mut self) {
        let ttl = Ttl::from_millis(TTL).expect("in range");
        let is_one = self.rng.bool();
        let first = self.rng.usize(..PROCESSES);
        let (slot, state) =
            self.processes[first].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true);
        self.after(first);
        self.live_while("the lease was not granted", |world| !state.is_held(world.now));
        self.pause(1_000);
        let leaves_early = self.rng.bool();
        let mut back = self.now;
        if leaves_early {
            back = self.take_a_minority_away();
        }
        let mut detached = self.detach_in_chain(first, slot);
        self.pause(1_000);
        if !leaves_early {
            back = self.take_a_minority_away();
        }
        let hand_overs = self.rng.usize(1..=4);
        for left in (0..hand_overs).rev() {
            let process = if is_one { first } else { self.rng.usize(..PROCESSES) };
            if self.rng.bool() {
                back = back.max(self.stall_a_node());
            }
            let slot = self.processes[process].adopt(self.now, &detached);
            self.after(process);
            let is_held = |world: &Self| {
                world.processes[process].asked.get(&slot).is_some_and(|asked| asked.state.is_held(world.now))
            };
            self.live_while("the adopter did not get the lease", |world| !is_held(world));
            self.pause(200);
            if self.rng.bool() {
                self.fail_as_a_stranger();
            }
            if left > 0 {
                detached = self.detach_in_chain(process, slot);
                // A late request is repeated after a second.
                let most = if self.rng.bool() { 200 } else { 1_500 };
                self.pause(most);
                if self.rng.bool() {
                    self.fail_as_a_stranger();
                }
            } else {
                self.processes[process].give_back(self.now, slot);
                self.after(process);
            }
        }
        self.live_until(back.max(self.now) + RELEASE);
        for node in 0..self.nodes.len() {
            let left = self.apply(0, node, self.lives[0], Request::Inspect { key: KEY.into() });
            assert_eq!(left, Ok(Reply::Inspected(None)), "a node keeps a token of a chain");
        }
    }

    /// Lets up to `most` milliseconds pass.
    pub(super) fn pause(&mut self, most: u64) {
        let pause = Duration::from_millis(self.rng.u64(0..most));
        self.live_until(self.now + pause);
    }

    /// Lets a minority of the nodes crash or freeze. Returns when the last one is back.
    pub(super) fn take_a_minority_away(&mut self) -> Instant {
        let minority = self.nodes.len() - self.nodes.len() / 2 - 1;
        let mut nodes: Vec<usize> = (0..self.nodes.len()).collect();
        self.rng.shuffle(&mut nodes);
        nodes.truncate(self.rng.usize(1..=minority));
        let mut last = self.now;
        for node in nodes {
            let back = self.now + Duration::from_millis(self.rng.u64(100..6_000));
            if self.rng.bool() {
                self.nodes[node].down_until = back;
            } else {
                self.nodes[node].frozen_until = back;
            }
            last = last.max(back);
        }
        last
    }

    /// Freezes one of the nodes that work, for a time. Meanwhile, an adopter may give its claims
    /// back and begin again. If it claims the other nodes, its claims stand there until the frozen
    /// node goes on. Returns when the node does.
    fn stall_a_node(&mut self) -> Instant {
        let now = self.now;
        let works = |node: &Node| node.down_until <= now && node.frozen_until <= now;
        let until = now + Duration::from_millis(self.rng.u64(1..1_500));
        let first = self.rng.usize(..self.nodes.len());
        let (before, after) = self.nodes.split_at_mut(first);
        if let Some(node) = after.iter_mut().chain(before).find(|node| works(node)) {
            node.frozen_until = until;
        }
        until
    }

    fn detach_in_chain(&mut self, process: usize, slot: u32) -> DetachedLease {
        self.detached_leases.clear();
        self.processes[process].detach(self.now, slot, None);
        self.after(process);
        self.live_while("the lease was not detached", |world| world.detached_leases.is_empty());
        let ttl = Ttl::from_millis(TTL).expect("in range");
        DetachedLease { ttl, ..self.detached_leases.remove(0) }
    }

    /// Asks for the lock with a new token, and waits for the answer. [`World::check_stranger`]
    /// fails if the lock is granted.
    fn fail_as_a_stranger(&mut self) {
        let (process, slot) = self.ask_as_a_stranger(KEY);
        self.live_while("a stranger was not told", |world| {
            world.processes[process].asked.get(&slot).is_some_and(|asked| !asked.ended)
        });
    }
}
