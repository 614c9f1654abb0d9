//! Simulates circuit breakers that open and close independently of their nodes.

use std::time::Duration;

use leasehold::store::{Availability, Notice, StoreError, StoreErrorKind};

use super::{Event, World};

impl World {
    /// Makes a breaker say that its node is away, refuses, or is usable. After the trouble, all
    /// nodes are usable.
    pub(super) fn switch_breaker(&mut self, process: usize) {
        if !self.is_trouble() {
            (0..self.nodes.len()).for_each(|node| self.say(process, node, Availability::Usable));
            return;
        }
        let node = self.breakers.usize(..self.nodes.len());
        let told = match self.breakers.u8(..4) {
            0 => Availability::Refusing,
            1 => Availability::Usable,
            _ => Availability::Away(StoreError::not_done(StoreErrorKind::Unreachable, "the breaker is open")),
        };
        self.say(process, node, told);
        let pause = Duration::from_micros(self.breakers.u64(1_000..200_000)) / self.haste;
        self.plan(process, pause, Event::Breaker { process });
    }

    fn say(&mut self, process: usize, node: usize, told: Availability) {
        self.processes[process].noticed(self.now, node, Notice::Availability(told));
        self.after(process);
    }
}
