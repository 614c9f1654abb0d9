//! Tests repairs after the trouble. A process holds one lease, or two processes read together,
//! while all nodes restart, a minority at a time, with or without their data. Other processes wait
//! for the lock: for a long time, or repeatedly for a short time. Each node that is back gets each
//! lease back soon, so the processes hold the leases to the end. The next lease has a larger fence,
//! although the clocks of nodes that lost their data stand still. Two kinds of leases must not come
//! back: a lease that is broken at most nodes, and a lease that is released while a node is about
//! to get it back.

use std::time::Duration;

use leasehold::engine::command::{Command, Wait};
use leasehold::engine::ids::OpId;
use leasehold::lease::{Instant, Key, Mode, Token, Ttl};
use leasehold::store::{Reply, Request};

use super::super::process::ENV;
use super::{PROCESSES, World};

const KEY: &str = "carried";
const READER: Mode = Mode::Shared { most: u32::MAX };
/// The ttl of the lease, and of the waiters' leases, in ms.
const TTL: u32 = 1_000;
/// The ttl of a lease that is broken or released, in ms. It is longer than all waits.
const LONG_TTL: u32 = 20_000;
/// How long a node that is back may take to get the lease. Each waiter may have the node for a
/// while before that.
const PATIENCE: Duration = Duration::from_secs(15);

impl World {
    /// Restarts all nodes while the first process holds a lease. Then tests a broken lease, and a
    /// lease that is released during a repair.
    pub(super) fn restart_under_a_lease(&mut self) {
        while let Some(node) = self.nodes.iter().find(|node| node.down_until > self.now) {
            self.live_until(node.down_until);
        }
        let held = if self.rng.bool() {
            vec![(0, self.hold(0, TTL))]
        } else {
            // Readers share the lock. Each of them has to get each node back.
            (0..2).map(|process| (process, self.hold_in(READER, process, TTL))).collect()
        };
        // A node does not tell a waiting writer who reads. So a writer that was handed the lock by
        // a node that is back would not leave that node to the readers.
        let waiters = if held.len() > 1 { 0 } else { self.rng.usize(..PROCESSES) };
        if waiters > 0 && self.rng.bool() {
            self.stream = waiters;
        } else {
            for process in 1..=waiters {
                self.want(process, TTL, Wait::Forever);
            }
        }
        let minority = self.nodes.len() - self.nodes.len() / 2 - 1;
        let mut left: Vec<usize> = (0..self.nodes.len()).collect();
        self.rng.shuffle(&mut left);
        while !left.is_empty() {
            let away = left.split_off(left.len() - self.rng.usize(1..=minority.min(left.len())));
            let span = Duration::from_millis(self.rng.u64(100..3_000));
            for &node in &away {
                let forgets = self.rng.bool();
                self.crash(node, span, forgets);
                if forgets {
                    self.nodes[node].distrust_clock();
                }
            }
            self.until_repaired(&held, &away);
        }
        for &(process, slot) in &held {
            let asked = &self.processes[process].asked[&slot];
            assert!(
                asked.state.is_held(self.now),
                "the lease is lost, although only a minority was away at a time"
            );
        }
        self.stream = 0;
        // `World::check_grant` compares the fence of this lease with that of the next one.
        self.give_all_back();
        if waiters == 0 {
            self.hold(1, TTL);
            self.give_all_back();
        }
        self.break_a_lease();
        self.release_during_a_repair();
    }

    /// Breaks a lease at one node and renews it, so that the node is asked to grant it again.
    /// Releases the lease during that repair, and checks that no node keeps it.
    fn release_during_a_repair(&mut self) {
        let slot = self.hold(0, LONG_TTL);
        self.live_until(self.now + Duration::from_secs(1));
        let token = self.processes[0].asked[&slot].token.expect("it is held");
        let node = self.rng.usize(..self.nodes.len());
        self.apply(0, node, self.lives[0], Request::Break { key: KEY.into(), bars_repairs: false })
            .expect("it works");
        self.renew(slot);
        if self.rng.bool() {
            self.mute.push(node);
        }
        let pause = Duration::from_micros(self.rng.u64(0..60_000)) / self.pace;
        self.live_until(self.now + pause);
        self.processes[0].give_back(self.now, slot);
        self.after(0);
        self.live_until(self.now + Duration::from_secs(1));
        self.mute.clear();
        self.live_until(self.now + PATIENCE);
        for node in 0..self.nodes.len() {
            assert!(!self.knows(node, token), "a node keeps a released lease after a repair");
        }
    }

    /// Breaks a lease at most nodes, and checks that the lease is lost and does not come back.
    /// Either all these nodes lose it at once, or they hear of the break one after the other and
    /// the holder renews the lease in between.
    fn break_a_lease(&mut self) {
        let slot = self.hold(0, LONG_TTL);
        // Wait until all nodes have answered.
        self.live_until(self.now + Duration::from_secs(1));
        let state = self.processes[0].asked[&slot].state.clone();
        let mut nodes: Vec<usize> = (0..self.nodes.len()).collect();
        self.rng.shuffle(&mut nodes);
        let one_by_one = self.rng.bool();
        for node in nodes.into_iter().take(self.nodes.len() / 2 + 1) {
            let request = Request::Break { key: KEY.into(), bars_repairs: one_by_one };
            self.apply(0, node, self.lives[0], request).expect("it works");
            if one_by_one {
                self.renew(slot);
                let pause = Duration::from_millis(self.rng.u64(0..200));
                self.live_until(self.now + pause);
            }
        }
        if state.is_held(self.now) {
            self.renew(slot);
        }
        self.live_until(self.now + Duration::from_secs(1));
        assert!(!state.is_held(self.now), "a lease that most nodes have broken is renewed");
        self.hold(1, LONG_TTL);
        self.give_all_back();
        // The other nodes keep the broken lease until it ends.
        self.live_until(self.now + Duration::from_millis(u64::from(LONG_TTL)));
    }

    /// Renews the lease of `slot`, which the first process holds.
    fn renew(&mut self, slot: u32) {
        let renew = Command::Renew { op: OpId { env: ENV, slot }, ttl: None };
        self.processes[0].core.command(self.now, renew);
        self.after(0);
    }

    /// Acquires the lock for `process`, and returns the slot of the lease.
    fn hold(&mut self, process: usize, ttl: u32) -> u32 {
        self.hold_in(Mode::Exclusive, process, ttl)
    }

    /// Acquires the lock in that mode for `process`, and returns the slot of the lease.
    fn hold_in(&mut self, mode: Mode, process: usize, ttl: u32) -> u32 {
        let slot = self.want_in(mode, process, ttl, Wait::Forever);
        let state = self.processes[process].asked[&slot].state.clone();
        let end = self.now + PATIENCE;
        while !state.is_held(self.now) {
            assert!(self.now < end, "the lock is free, but the process does not get it");
            self.live_until(self.now + Duration::from_millis(10));
        }
        slot
    }

    /// Lets `process` ask for the lock.
    fn want(&mut self, process: usize, ttl: u32, wait: Wait) -> u32 {
        self.want_in(Mode::Exclusive, process, ttl, wait)
    }

    /// Lets `process` ask for the lock in that mode.
    fn want_in(&mut self, mode: Mode, process: usize, ttl: u32, wait: Wait) -> u32 {
        let ttl = Ttl::from_millis(ttl).expect("in range");
        let (slot, _) = self.processes[process].ask(self.now, KEY, mode, ttl, wait, None, true);
        self.after(process);
        slot
    }

    /// Waits until all of `nodes` are back and have all `leases`. Each lease is given by its
    /// process and its slot.
    fn until_repaired(&mut self, leases: &[(usize, u32)], nodes: &[usize]) {
        let back = nodes.iter().map(|node| self.nodes[*node].down_until).max().expect("some are away");
        // Wait for a renewal: until then, a node may still have the lease from before its absence.
        self.mute = nodes.to_vec();
        self.wait_briefly_until(back + Duration::from_millis(u64::from(TTL)) / 2);
        let token_of = |&(process, slot): &(usize, u32)| {
            let asked = self.processes[process].asked.get(&slot);
            asked.and_then(|asked| asked.token).expect("the lease is held")
        };
        let tokens: Vec<Token> = leases.iter().map(token_of).collect();
        let end = self.now + PATIENCE;
        loop {
            self.mute = nodes.to_vec();
            while !self.all_know(nodes, &tokens) {
                assert!(self.now < end, "a node that is back does not get the lease back");
                self.wait_briefly_until(self.now + Duration::from_millis(100));
            }
            self.mute.clear();
            // Wait until all renewals that are on their way have arrived. A node may have handed
            // the lock to the place of a repair, and that lease may end before the next renewal.
            self.wait_briefly_until(self.now + Duration::from_millis(u64::from(TTL)) / 2);
            if self.all_know(nodes, &tokens) {
                return;
            }
        }
    }

    /// Returns true if each of `nodes` has all leases of `tokens`.
    fn all_know(&mut self, nodes: &[usize], tokens: &[Token]) -> bool {
        nodes.iter().all(|&node| tokens.iter().all(|&token| self.knows(node, token)))
    }

    /// Lives until `end`. Each process of the stream waits briefly for the lock, and then waits
    /// again at once. So a node that the holder does not have is never free.
    fn wait_briefly_until(&mut self, end: Instant) {
        while self.now < end {
            for process in 1..=self.stream {
                if self.processes[process].asked.is_empty() {
                    let wait = Duration::from_millis(self.rng.u64(100..u64::from(TTL)));
                    self.want(process, TTL, Wait::For(wait));
                }
            }
            self.live_until(end.min(self.now + Duration::from_millis(10)));
        }
    }

    /// Returns true if `node` has a lease of `token`. The question does not prolong the lease.
    fn knows(&mut self, node: usize, token: Token) -> bool {
        let (key, ttl) = (Key::from(KEY), Ttl::MIN);
        let renew = Request::Renew { key, token, ttl, fences: 0 };
        matches!(self.apply(0, node, self.lives[0], renew), Ok(Reply::Renewed { .. }))
    }

    /// Releases all leases that are held or will be granted, until no process wants one.
    fn give_all_back(&mut self) {
        let end = self.now + PATIENCE * 4;
        while self.processes.iter().any(|process| process.asked.values().any(|asked| !asked.ended)) {
            assert!(self.now < end, "a process waits for a lock that is free");
            for process in 0..PROCESSES {
                self.processes[process].let_go(self.now);
                self.after(process);
            }
            self.live_until(self.now + Duration::from_millis(50));
        }
    }
}
