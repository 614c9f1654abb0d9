//! The small numbers by which JavaScript and the engine name an operation, and after its grant a lease.

use std::sync::Arc;

use slab::Slab;

use crate::lease::{LeaseState, Token};

/// What a slot stands for.
pub struct Slot {
    /// The lease, if the operation is an acquire.
    pub lease: Option<(Arc<LeaseState>, Token)>,
    /// How many promises of JavaScript wait for a word about it.
    pub pending: u32,
    /// Whether one of them waits for a renewal.
    pub renewing: bool,
}

/// The slots of one environment. A slot whose last word was drained stays until the next drain: until then JavaScript
/// may still be acting on that word.
#[derive(Default)]
pub struct Slots {
    slots: Slab<Slot>,
    finished: Vec<usize>,
    /// Promises of JavaScript that wait for the engine.
    pub pending: u32,
}

impl Slots {
    /// A slot for an operation that a promise waits for.
    pub fn open(&mut self, lease: Option<(Arc<LeaseState>, Token)>) -> u32 {
        self.pending += 1;
        self.slots.insert(Slot { lease, pending: 1, renewing: false }) as u32
    }

    /// What `slot` stands for.
    pub fn get(&self, slot: u32) -> Option<&Slot> {
        self.slots.get(slot as usize)
    }

    /// The lease in `slot`.
    pub fn lease(&self, slot: u32) -> Option<&(Arc<LeaseState>, Token)> {
        self.get(slot)?.lease.as_ref()
    }

    /// One more promise waits for a word about `slot`.
    pub fn wait(&mut self, slot: u32, renewing: bool) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.pending += 1;
            slot.renewing |= renewing;
            self.pending += 1;
        }
    }

    /// The acquire in `slot` was granted: its promise waits no longer.
    pub fn granted(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.pending -= 1;
            self.pending -= 1;
        }
    }

    /// A renewal was answered. Says whether a promise waited for that.
    pub fn renewed(&mut self, slot: u32) -> bool {
        let Some(slot) = self.slots.get_mut(slot as usize).filter(|slot| slot.renewing) else { return false };
        slot.renewing = false;
        slot.pending -= 1;
        self.pending -= 1;
        true
    }

    /// The last word about `slot` was drained.
    pub fn finish(&mut self, slot: u32) {
        if let Some(known) = self.slots.get_mut(slot as usize) {
            self.pending -= std::mem::take(&mut known.pending);
            self.finished.push(slot as usize);
        }
    }

    /// JavaScript has acted on everything drained so far: finished slots may be used again.
    pub fn reuse_finished(&mut self) {
        for slot in self.finished.drain(..) {
            self.slots.try_remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_slot_is_not_used_again_before_the_next_drain() {
        let mut slots = Slots::default();
        let first = slots.open(None);
        slots.finish(first);
        assert_eq!(slots.pending, 0);
        assert_ne!(slots.open(None), first);
        slots.reuse_finished();
        assert_eq!(slots.open(None), first);
    }

    #[test]
    fn every_promise_is_counted_once() {
        let mut slots = Slots::default();
        let slot = slots.open(None);
        slots.granted(slot);
        slots.wait(slot, true);
        assert_eq!(slots.pending, 1);
        assert!(slots.renewed(slot));
        assert!(!slots.renewed(slot), "nobody waited for that one");
        slots.wait(slot, true);
        slots.wait(slot, false);
        slots.finish(slot);
        assert_eq!(slots.pending, 0);
    }
}
