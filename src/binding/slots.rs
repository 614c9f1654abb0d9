//! Keeps the slots: the small numbers by which JavaScript and the engine name an operation, and
//! after its grant a lease.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::engine::known_lease::KnownLease;
use crate::lease::Token;

/// The operation or lease that a slot names.
pub struct Slot {
    /// The lease, if the operation is an acquire.
    pub lease: Option<(Arc<KnownLease>, Token)>,
    /// How many promises of JavaScript wait for a record of the slot.
    pub pending: u32,
    /// Whether one of them waits for a renewal.
    pub renewing: bool,
}

/// The slots of one environment. JavaScript chooses their numbers, and reuses a number only after
/// the last event of the slot. Any number is allowed: only open slots take memory.
#[derive(Default)]
pub struct Slots {
    slots: FxHashMap<u32, Slot>,
    /// How many promises of JavaScript wait for the engine, over all slots.
    pub pending: u32,
}

impl Slots {
    /// Opens `slot` for a new operation, for which a promise waits.
    pub fn open(&mut self, slot: u32, lease: Option<(Arc<KnownLease>, Token)>) {
        self.finish(slot);
        self.slots.insert(slot, Slot { lease, pending: 1, renewing: false });
        self.pending += 1;
    }

    /// Returns the lease in `slot`.
    pub fn lease(&self, slot: u32) -> Option<&(Arc<KnownLease>, Token)> {
        self.slots.get(&slot)?.lease.as_ref()
    }

    /// Notes that one more promise waits for a record of `slot`.
    pub fn wait(&mut self, slot: u32, renewing: bool) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            slot.pending += 1;
            slot.renewing |= renewing;
            self.pending += 1;
        }
    }

    /// Notes that the acquire in `slot` was granted a lease of `token`, so its promise is settled.
    pub fn granted(&mut self, slot: u32, token: Token) {
        if let Some(slot) = self.slots.get_mut(&slot) {
            if let Some((_, known)) = &mut slot.lease {
                *known = token;
            }
            let settled = slot.pending.min(1);
            slot.pending -= settled;
            self.pending -= settled;
        }
    }

    /// Notes that a renewal was answered. Returns whether a promise waited for that.
    pub fn renewed(&mut self, slot: u32) -> bool {
        let Some(slot) = self.slots.get_mut(&slot).filter(|slot| slot.renewing) else { return false };
        slot.renewing = false;
        let settled = slot.pending.min(1);
        slot.pending -= settled;
        self.pending -= settled;
        true
    }

    /// Closes `slot`, because its last record was drained.
    pub fn finish(&mut self, slot: u32) {
        if let Some(known) = self.slots.remove(&slot) {
            self.pending -= known.pending;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_slot_may_be_opened_and_opened_again() {
        let mut slots = Slots::default();
        for slot in [u32::MAX, 0, u32::MAX, 1 << 31, 0] {
            slots.open(slot, None);
            slots.granted(slot, Token::random());
            slots.granted(slot, Token::random());
        }
        assert_eq!((slots.pending, slots.slots.len()), (0, 3));
        slots.open(7, None);
        slots.open(7, None);
        slots.wait(7, true);
        assert_eq!(slots.pending, 2);
        assert!(slots.slots.capacity() < 64);
    }

    #[test]
    fn every_promise_is_counted_once() {
        let mut slots = Slots::default();
        let slot = 3;
        slots.open(slot, None);
        slots.granted(slot, Token::random());
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
