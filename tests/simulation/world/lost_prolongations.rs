//! Simulates a lease that is lost after its process has asked to detach it or to renew it for a
//! long time. If the caller got no ticket, another process gets the lock soon after the lease would
//! have ended without that request, and earlier only if the holder releases it.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::engine::command::{Command, Wait};
use leasehold::engine::ids::OpId;
use leasehold::lease::{Instant, Mode, Ttl};
use leasehold::store::{Answer, Reply, Request};

use super::super::process::ENV;
use super::World;

const KEY: &str = "lost";
/// How long each lease lives, in ms.
const TTL: u32 = 3_000;
/// How long the ticket or the renewed lease would live, in ms. The scene waits for a shorter time.
const LONG: u32 = 120_000;
/// How long the holder may hold its lease, if there is a limit.
const MAX_HOLD: Duration = Duration::from_secs(1);
/// How much longer a message takes on a slow network. Then the nodes carry out all requests, but
/// every request times out.
const SLOW: Duration = Duration::from_millis(700);
/// The process that waits for the lock. Another scene may have frozen process 1.
const WAITER: usize = 2;

/// How the lease is lost.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// It has a `maxHold`, and the store may answer the detachment in time, late, or never.
    MaxHold,
    /// The engine does not renew it, and the request gets no answer.
    NoRenewal,
    /// No request gets an answer until the lease is lost.
    Outage,
}

impl World {
    /// See the module.
    pub(super) fn lose_while_prolonging(&mut self) {
        let way = [Way::MaxHold, Way::NoRenewal, Way::Outage][self.rng.usize(..3)];
        self.lease_ends = Some(BTreeMap::new());
        let ttl = Ttl::from_millis(TTL).expect("in range");
        let max_hold = (way == Way::MaxHold).then_some(MAX_HOLD);
        let renews = way != Way::NoRenewal;
        let (slot, state) =
            self.processes[0].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, max_hold, renews);
        self.after(0);
        self.live_while("the lease was not granted", |world| !state.is_held(world.now));
        let token = self.processes[0].asked[&slot].token.expect("it was granted");
        self.pause(if way == Way::MaxHold { 950 } else { 2_000 });
        let slow = way != Way::MaxHold || self.rng.bool();
        if slow {
            self.distances = (0..self.nodes.len()).map(|node| ((0, node), SLOW)).collect();
        }
        self.detached_leases.clear();
        // A renewal does not prolong a lease beyond its `maxHold`.
        if way == Way::MaxHold || self.rng.bool() {
            self.processes[0].detach(self.now, slot, Ttl::from_millis(LONG));
        } else {
            self.processes[0].renew(self.now, slot, Ttl::from_millis(LONG));
        }
        self.after(0);
        let (waiting, waits) =
            self.processes[WAITER].ask(self.now, KEY, Mode::Exclusive, ttl, Wait::Forever, None, true);
        self.after(WAITER);
        if way != Way::Outage {
            self.live_until(self.now + 2 * SLOW);
            self.distances.clear();
        }
        self.live_while("the lease was not lost", |world| world.processes[0].asked.contains_key(&slot));
        self.distances.clear();
        if let Some(detached) = self.detached_leases.pop() {
            self.adopt_and_give_back(&detached);
            self.lease_ends = None;
        } else if self.rng.u8(..3) == 0 {
            self.pause(1_000);
            // The holder's work has ended.
            self.lease_ends = None;
            let op = OpId { env: ENV, slot };
            self.processes[0].core.command(self.now, Command::ReleaseLost { op, token });
            self.after(0);
        }
        self.live_while("a lease that was lost keeps the lock", |world| !waits.is_held(world.now));
        if let Some(ends) = self.lease_ends.take() {
            let ended =
                |node: &usize| ends.get(node).is_none_or(|end| *end <= self.nodes[*node].clock(self.now));
            let free = (0..self.nodes.len()).filter(ended).count();
            assert!(free > self.nodes.len() / 2, "a lost lease was released while its holder may work");
        }
        self.processes[WAITER].give_back(self.now, waiting);
        self.after(WAITER);
    }

    /// Notes when the lease of the first process ends at a node that has carried out its request,
    /// by the clock of the node. Ignores requests that prolong it beyond its ttl.
    pub(super) fn note_lease_end(&mut self, process: usize, node: usize, request: &Request, answer: &Answer) {
        let is_granted = matches!(answer, Ok(Reply::Acquired { .. } | Reply::Renewed { .. }));
        let is_meant = process == 0 && request.key().is_some_and(|key| &**key == KEY);
        let Some((_, ttl)) = request.lease() else { return };
        let prolongs = matches!(request, Request::Detach { .. }) || ttl.as_millis() == LONG;
        let Some(ends) = self.lease_ends.as_mut().filter(|_| is_granted && is_meant && !prolongs) else {
            return;
        };
        let end: Instant = self.nodes[node].clock(self.now) + ttl.as_duration();
        let known = ends.entry(node).or_insert(end);
        *known = end.max(*known);
    }
}
