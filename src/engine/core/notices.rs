//! Notices: what a store says by itself, and whom it concerns.

use super::Core;
use crate::engine::command::StoreId;
use crate::lease::Instant;
use crate::store::Notice;

/// How many of the lowest bits of a place's number count the looks of its ticket, so that each look has a number of its own:
/// a million of them take the better part of an hour, and no notice is as old as that.
const LOOK_BITS: u32 = 20;

/// What a ticket's place is called by its look of that rank.
pub(super) fn number_of(ticket: u64, look: u64) -> u64 {
    ticket << LOOK_BITS | look & ((1 << LOOK_BITS) - 1)
}

/// Whose place is called so.
pub(super) fn ticket_of(number: u64) -> u64 {
    number >> LOOK_BITS
}

impl Core {
    /// A store says something by itself.
    pub fn noticed(&mut self, now: Instant, store: StoreId, notice: Notice) {
        self.begin(now);
        match notice {
            Notice::Granted { number, fence } => self.guarded(None, |core| {
                if !fence.is_some_and(|fence| core.take_up(number, fence)) {
                    core.look(ticket_of(number));
                }
            }),
            Notice::Breaker(health) => self.health_changed(store, health),
            Notice::Missed => {
                let mut numbers: Vec<u64> = self
                    .tickets
                    .iter()
                    // One whose look is on its way may be queued since before.
                    .filter(|(_, ticket)| ticket.wanted.store == store && (ticket.queued || ticket.looking))
                    .map(|(number, _)| *number)
                    .collect();
                // In the order in which they came: should the queue be lost, it is made anew in that order.
                numbers.sort_unstable();
                for number in numbers {
                    self.guarded(None, |core| core.look(number));
                }
            }
        }
    }
}
