//! Requests that hold a minority of the nodes and wait for more, and what the nodes tell meanwhile.

use std::time::Duration;

use super::super::places::Heard;
use super::super::post::Tag;
use super::{Council, SHORTEST_PATIENCE};
use crate::lease::Instant;
use crate::store::{Ask, Notice, Request};

/// Who has too few nodes waits for the end of a lease in its way, should that be so near: it does not end at all of them at
/// once, and nobody is told of it.
const NEAR: Duration = Duration::from_millis(5);

impl Council {
    /// A node says something by itself.
    pub fn noticed(&mut self, now: Instant, node: usize, notice: Notice) {
        match notice {
            Notice::Granted { number, .. } => {
                let (enough, patience) = (self.nodes.majority(), self.patience());
                let heard = self.places.noticed(now, number, node, enough, patience);
                self.heard(now, node, heard);
            }
            Notice::Lost(acknowledgement) => self.lost(now, node, acknowledgement),
            other => self.effects.notices.push(other),
        }
    }

    pub(super) fn heard(&mut self, now: Instant, node: usize, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Call(number) => self.effects.notices.push(Notice::Granted { number, fence: None }),
            Heard::Look(id) => {
                // It holds a minority, and waits for just this.
                let Some(motion) = self.motions.get_mut(&id) else { return };
                let Some(until) = motion.ballot.holds_until() else { return };
                motion.ballot.awaited += 1;
                let request = motion.ballot.request.clone();
                let left = until.since(now).max(SHORTEST_PATIENCE);
                self.post.draft(node, left, request, Tag::Vote(id));
            }
        }
    }

    /// Somebody else has the other nodes. Whoever has the fewest gives way first, by and large.
    pub(super) fn hold(&mut self, now: Instant, id: u64) {
        let share = 0.5 + self.rng.f64();
        let patience = self.patience();
        let Some(motion) = self.motions.get_mut(&id) else { return };
        let granted = motion.ballot.granted().count_ones();
        let until = now + (patience * granted.max(1)).mul_f64(share);
        // A millisecond more than the node said, because it counts in whole ones.
        let near = motion.ballot.ending(NEAR).map(|(_, left)| now + left + Duration::from_millis(1)).max();
        let until = near.map_or(until, |near| near.max(until));
        motion.ballot.hold(until.min(motion.asked + motion.timeout));
        motion.held = true;
        self.holding.push(id);
        // Those that have handed it the lock since they said that it has to wait.
        if let Request::Acquire(Ask { token, .. }) = motion.ballot.request {
            let handed = self.places.handed_to(token);
            for node in (0..self.nodes.count()).filter(|node| handed & 1 << node != 0) {
                self.heard(now, node, Heard::Look(id));
            }
        }
    }

    /// Before it gives way: once more those nodes at which a lease in the way has ended since they were asked. Whether there
    /// are any.
    pub(super) fn ask_again(&mut self, now: Instant, id: u64) -> bool {
        let patience = self.patience();
        let Some(motion) = self.motions.get_mut(&id) else { return false };
        let until = (now + patience).min(motion.asked + motion.timeout);
        if std::mem::replace(&mut motion.asked_again, true) || until <= now {
            return false;
        }
        let ended: Vec<usize> = motion.ballot.ending(NEAR).map(|(node, _)| node).collect();
        if ended.is_empty() {
            return false;
        }
        motion.ballot.hold(until);
        self.holding.push(id);
        for node in ended {
            self.heard(now, node, Heard::Look(id));
        }
        true
    }
}
