//! Simulates a ticket whose acquire and detachment were sent several times, because answers were
//! lost. Copies of the acquire arrive while the lease lives. The holder must still be able to
//! detach the lease. Copies of both arrive after the ticket was adopted and the lease was released.
//! No client may adopt the ticket again.

use std::time::Duration;

use leasehold::engine::command::{Command, Outcome, Wait};
use leasehold::engine::ids::OpId;
use leasehold::lease::{Mode, Ttl};
use leasehold::store::Request;

use super::super::process::{DetachedLease, ENV, Message};
use super::{PROCESSES, World};

const KEY: &str = "copies";
/// How long each lease lives, in ms. No lease ends by itself within the schedule.
const TTL: u32 = 30_000;
/// The [`World::pace`] of a quick network.
const QUICK: u32 = 50;
/// The first attempt to detach the lease at which answers no longer get lost.
const ATTEMPTS: u32 = 4;
/// A little more than the longest store timeout of a process.
const STORE_TIMEOUT: Duration = Duration::from_millis(600);
/// How long each step may take, although answers are lost.
const PATIENCE: Duration = Duration::from_secs(10);

impl World {
    /// Keeps the acquires and detachments of `message`, if copies are kept.
    pub(super) fn keep_copies(&mut self, message: &Message) {
        if let Some(copies) = &mut self.copies {
            let is_kept =
                |request: &&Request| matches!(request, Request::Acquire(_) | Request::Detach { .. });
            let kept = message.requests.iter().filter(is_kept).cloned();
            copies.extend(kept.map(|request| (message.node, request)));
        }
    }

    /// See the module.
    pub(super) fn deliver_late_copies(&mut self) {
        while let Some(node) = self.nodes.iter().find(|node| node.down_until > self.now) {
            self.live_until(node.down_until);
        }
        // Over a slow network, a process with a short store timeout gets hardly any answer.
        self.pace = QUICK;
        let ttl = Ttl::from_millis(TTL).expect("in range");
        self.copies = Some(Vec::new());
        self.mute = (0..self.nodes.len()).collect();
        // While two callers wait, a repeated acquire asks for more fences.
        let callers = [(); 2]
            .map(|()| self.processes[0].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true));
        self.after(0);
        self.live_until(self.now + STORE_TIMEOUT);
        self.mute.clear();
        let holder = |world: &Self| callers.iter().position(|(_, state)| state.is_held(world.now));
        self.live_while("the lease was not granted", |world| holder(world).is_none());
        let holder = holder(self).expect("just granted");
        let (slot, second) = (callers[holder].0, callers[1 - holder].0);
        self.mute = (0..self.nodes.len()).collect();
        self.processes[0].asked.get_mut(&second).expect("it waits").cancelled = true;
        self.processes[0].core.command(self.now, Command::Cancel { op: OpId { env: ENV, slot: second } });
        self.after(0);
        if self.rng.bool() {
            self.apply_copies(KEY, |_, request| matches!(request, Request::Acquire(_)));
        }
        self.detach_repeatedly(slot);
        let detached = DetachedLease { ttl, ..self.detached_leases.remove(0) };
        self.adopt_and_release(&detached);
        let (_, state) =
            self.processes[2].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true);
        self.after(2);
        self.live_while("a stranger was not granted the lock", |world| !state.is_held(world.now));
        let is_early = self.rng.u8(..4) == 0;
        if is_early {
            self.apply_copies(KEY, |_, request| matches!(request, Request::Acquire(_)));
        }
        self.processes[2].let_go(self.now);
        self.after(2);
        self.live_until(self.now + Duration::from_millis(200));
        if !is_early {
            self.apply_copies(KEY, |_, request| matches!(request, Request::Acquire(_)));
        }
        self.apply_copies(KEY, |_, request| matches!(request, Request::Detach { .. }));
        self.copies = None;
        let process = self.rng.usize(..PROCESSES);
        // If the adopter gets the lease, `after` fails, because the ticket was adopted before.
        let again = self.processes[process].adopt(self.now, &detached);
        self.after(process);
        self.live_while("an adopter was not told", |world| {
            !world.processes[process].adoption_outcomes.contains_key(&again)
        });
        let told = &self.processes[process].adoption_outcomes[&again];
        assert!(matches!(told, Outcome::Lost(_)), "the adopter of a used ticket was told {told:?}");
    }

    /// Detaches the lease. If that fails because the answer is lost, the holder tries again.
    pub(super) fn detach_repeatedly(&mut self, slot: u32) {
        self.detached_leases.clear();
        let mut attempts = 0;
        while self.detached_leases.is_empty() {
            attempts += 1;
            if attempts == ATTEMPTS {
                self.mute.clear();
            }
            assert!(attempts < 2 * ATTEMPTS, "the holder could not detach its lease");
            assert!(
                self.processes[0].asked.contains_key(&slot),
                "the holder was told that its lease is lost"
            );
            self.processes[0].detach(self.now, slot, None);
            self.after(0);
            self.live_until(self.now + STORE_TIMEOUT);
        }
        self.mute.clear();
    }

    pub(super) fn adopt_and_release(&mut self, detached: &DetachedLease) {
        let slot = self.processes[1].adopt(self.now, detached);
        self.after(1);
        let is_held = |world: &Self| {
            world.processes[1].asked.get(&slot).is_some_and(|asked| asked.state.is_held(world.now))
        };
        self.live_while("the adopter did not get the lease", |world| !is_held(world));
        self.processes[1].let_go(self.now);
        self.after(1);
        self.live_until(self.now + Duration::from_millis(200));
    }

    pub(super) fn live_while(&mut self, failure: &str, goes_on: impl Fn(&Self) -> bool) {
        let end = self.now + PATIENCE;
        while goes_on(self) {
            assert!(self.now < end, "{failure}");
            self.live_until(self.now + Duration::from_millis(10));
        }
    }

    /// Applies the kept copies for `key` that are wanted, in a random order. `is_wanted` gets the
    /// node and the request of each copy.
    pub(super) fn apply_copies(&mut self, key: &str, is_wanted: impl Fn(usize, &Request) -> bool) {
        let mut copies = self.copies.clone().expect("copies are kept");
        copies.retain(|(node, request)| {
            request.key().is_some_and(|of| &**of == key) && is_wanted(*node, request)
        });
        self.rng.shuffle(&mut copies);
        for (node, request) in copies {
            let _nobody_hears = self.apply(0, node, self.lives[0], request);
        }
    }
}
