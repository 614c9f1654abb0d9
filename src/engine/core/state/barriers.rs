//! Barriers: operations and threads that wait until clients have no outstanding requests, or until
//! a time limit. Touches its own map, and tells these operations and threads through the
//! [`Context`].

use std::sync::mpsc::SyncSender;

use rustc_hash::FxHashMap;

use super::context::{Context, Wake};
use crate::engine::command::Outcome;
use crate::engine::ids::{ClientId, OpId};
use crate::lease::Instant;

struct Barrier {
    clients: Vec<ClientId>,
    until: Instant,
    waits: Waits,
}

/// What waits at a barrier.
pub enum Waits {
    Operation(OpId),
    Thread(SyncSender<()>),
}

/// See the module.
#[derive(Default)]
pub struct Barriers {
    barriers: FxHashMap<u64, Barrier>,
}

impl Barriers {
    /// Lets `waits` wait for the outstanding requests of `clients`, at most until `until`.
    pub fn add(&mut self, clients: Vec<ClientId>, until: Instant, waits: Waits, cx: &mut Context) {
        let id = cx.next_serial();
        self.barriers.insert(id, Barrier { clients, until, waits });
        cx.timers.schedule(until, Wake::Barrier(id));
    }

    /// Lifts the barriers whose clients are all idle.
    pub fn lift_idle(&mut self, is_idle: impl Fn(&ClientId) -> bool, cx: &mut Context) {
        let done = self.barriers.iter().filter(|(_, barrier)| barrier.clients.iter().all(&is_idle));
        let done: Vec<u64> = done.map(|(id, _)| *id).collect();
        for id in done {
            self.lift(id, cx);
        }
    }

    /// Tells the operation or thread at a barrier to continue.
    pub fn lift(&mut self, id: u64, cx: &mut Context) {
        match self.barriers.remove(&id).map(|barrier| barrier.waits) {
            Some(Waits::Operation(op)) => cx.settle(op, Outcome::Done),
            Some(Waits::Thread(done)) => cx.effects.unblocked.push(done),
            None => {}
        }
    }

    /// Returns when the barrier is lifted at the latest.
    pub fn until(&self, id: u64) -> Option<Instant> {
        self.barriers.get(&id).map(|barrier| barrier.until)
    }

    pub fn len(&self) -> usize {
        self.barriers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.barriers.is_empty()
    }
}
