//! Simulates a client that closes soon after it has asked to detach its lease, while a minority of
//! the nodes is away for a time. If its user got a ticket, another process adopts and releases the
//! lease. If not, nobody can adopt it. A while after the nodes are back, no node has the lease.

use std::time::Duration;

use leasehold::engine::command::{Command, Wait};
use leasehold::lease::{Mode, Ttl};
use leasehold::store::{Reply, Request};

use super::super::process::{CLIENT, DetachedLease};
use super::World;

const KEY: &str = "closed";
/// How long each lease lives, in ms. No lease ends by itself within the schedule.
const TTL: u32 = 60_000;
/// How long the nodes may keep a lease that was released.
const RELEASE: Duration = Duration::from_secs(6);

impl World {
    /// See the module.
    pub(super) fn close_while_detaching(&mut self) {
        let ttl = Ttl::from_millis(TTL).expect("in range");
        let (slot, state) =
            self.processes[0].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true);
        self.after(0);
        self.live_while("the lease was not granted", |world| !state.is_held(world.now));
        let mut back = self.now;
        let leaves_early = self.rng.bool();
        if leaves_early {
            back = self.take_a_minority_away();
            self.pause(1_000);
        }
        self.detached_leases.clear();
        self.processes[0].detach(self.now, slot, None);
        self.after(0);
        // A request and its answer take a few ms.
        let most = [1, 20, 2_000][self.rng.usize(..3)];
        self.pause(most);
        if !leaves_early {
            back = self.take_a_minority_away();
        }
        self.processes[0].core.command(self.now, Command::DrainClient { client: CLIENT });
        self.after(0);
        self.live_while("the detachment was not answered", |world| {
            world.processes[0].asked.contains_key(&slot)
        });
        if let Some(detached) = self.detached_leases.pop() {
            self.adopt_and_give_back(&detached);
        }
        self.live_until(back.max(self.now) + RELEASE);
        for node in 0..self.nodes.len() {
            let left = self.apply(0, node, self.lives[0], Request::Inspect { key: KEY.into() });
            assert_eq!(
                left,
                Ok(Reply::Inspected(None)),
                "a node keeps the lease of a client that has closed"
            );
        }
    }

    /// Lets another process adopt the lease and release it.
    pub(super) fn adopt_and_give_back(&mut self, detached: &DetachedLease) {
        // Another scene may have frozen process 1.
        let slot = self.processes[2].adopt(self.now, detached);
        self.after(2);
        let is_held = |world: &Self| {
            world.processes[2].asked.get(&slot).is_some_and(|asked| asked.state.is_held(world.now))
        };
        self.live_while("the adopter did not get the lease", |world| !is_held(world));
        self.processes[2].give_back(self.now, slot);
        self.after(2);
    }
}
