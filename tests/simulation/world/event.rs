//! Plans the events of a world, and lets them happen in order.

use std::cmp::Reverse;
use std::time::Duration;

use leasehold::lease::Instant;
use leasehold::store::{Answer, Notice, Request};

use super::super::process::{Message, ReplyTo};
use super::World;

/// Something that happens at an instant.
pub(super) enum Event {
    /// Requests reach a node. The process waits for the answers until that instant.
    Arrive { process: usize, message: Message, until: Instant, reply_lost: bool },
    /// A request reaches a node, and no caller waits for its answer.
    Stray { process: usize, node: usize, request: Request },
    /// The answers, or the errors in their place, reach the process.
    Answer { process: usize, reply_to: ReplyTo, answers: Vec<Answer> },
    /// The code of a process does something.
    Act { process: usize },
    /// A notice of a node reaches the process of a waiter.
    Notice { process: usize, node: usize, notice: Notice },
    /// A node fails, or the network to it.
    Mishap,
    /// A process looks at its timers.
    Wake { process: usize },
    /// The breaker before a node changes its state in a process.
    Breaker { process: usize },
}

impl World {
    /// Plans an event of the current life of `process`.
    pub(super) fn plan(&mut self, process: usize, after: Duration, event: Event) {
        self.serial += 1;
        self.queue.push(Reverse((self.now + after, self.serial)));
        self.events.insert(self.serial, (self.lives[process], event));
    }

    /// Lets all events until `end` happen.
    pub(super) fn live_until(&mut self, end: Instant) {
        while let Some(Reverse((at, serial))) = self.queue.peek().copied() {
            if at > end {
                break;
            }
            self.queue.pop();
            let (life, event) = self.events.remove(&serial).expect("planned once");
            self.now = self.now.max(at);
            self.happen(life, event);
        }
        self.now = self.now.max(end);
    }

    /// Lets an event happen. `life` is the life of the process in which it was planned.
    fn happen(&mut self, life: u64, event: Event) {
        match event {
            // A node also carries out the requests of a dead process.
            Event::Arrive { process, message, until, reply_lost } => {
                self.arrive(life, process, message, until, reply_lost)
            }
            Event::Stray { process, node, request } if self.nodes[node].down_until <= self.now => {
                let _nobody_hears = self.apply(process, node, life, request);
            }
            Event::Stray { .. } => {}
            Event::Mishap => self.mishap(),
            Event::Breaker { process } => self.switch_breaker(process),
            Event::Answer { process, .. }
            | Event::Act { process }
            | Event::Notice { process, .. }
            | Event::Wake { process }
                if life != self.lives[process] => {}
            Event::Answer { process, .. }
            | Event::Act { process }
            | Event::Notice { process, .. }
            | Event::Wake { process }
                if self.processes[process].frozen_until > self.now =>
            {
                let wait = self.processes[process].frozen_until.since(self.now);
                self.plan(process, wait, event);
            }
            Event::Answer { process, reply_to, answers } => {
                self.history.record(self.now, process, &answers);
                self.processes[process].answered(self.now, reply_to, answers);
                self.after(process);
            }
            Event::Notice { process, node, notice } => {
                self.history.record(self.now, process, std::slice::from_ref(&notice));
                self.processes[process].noticed(self.now, node, notice);
                // Leases that are granted now are granted by the notice alone.
                self.on_notice += self.after(process);
            }
            // An earlier wake was planned after this one, and has planned the next.
            Event::Wake { process } if self.wakes[process].is_none_or(|at| at > self.now) => {}
            Event::Wake { process } => {
                self.wakes[process] = None;
                self.after(process);
            }
            Event::Act { process } => self.act(process),
        }
    }
}
