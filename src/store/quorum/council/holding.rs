//! Requests that hold a minority of the nodes and wait for more, and the notices of the nodes.

use std::time::Duration;

use super::super::places::Heard;
use super::super::post::Tag;
use super::{Council, SHORTEST_PATIENCE};
use crate::lease::Instant;
use crate::store::{Ask, Notice, Request};

/// If a lease in the way ends within this time, a request with too few nodes waits for the end:
/// leases do not end at all nodes at the same time, and no node sends a notice of it. If this is
/// smaller, the request gives up nodes that it could keep. If it is larger, it keeps them from
/// other requests for longer.
const NEAR: Duration = Duration::from_millis(5);

/// How long an inspection or a listing waits for the other nodes after a majority has answered. If
/// this is smaller, nodes that are far away count as nodes that did not answer. If it is larger, a
/// silent node delays these requests for longer, until its breaker opens. Other requests do not
/// wait for these requests: see [`parts`](crate::store::Store::parts).
const LOOK_PATIENCE: Duration = Duration::from_secs(1);

impl Council {
    /// Handles a notice of `node`.
    pub fn noticed(&mut self, now: Instant, node: usize, notice: Notice) {
        match notice {
            Notice::Granted { number, .. } => {
                let (enough, patience) = (self.nodes.majority(), self.patience());
                let heard = self.places.noticed(now, number, node, enough, patience);
                self.heard(now, node, heard);
            }
            Notice::Lost(acknowledgement) => self.lost(now, node, acknowledgement),
            Notice::Availability(told) => {
                let told = self.reach.changed(node, told, &self.nodes);
                self.effects.notices.extend(told.map(Notice::Availability));
            }
            other => self.effects.notices.push(other),
        }
    }

    pub(super) fn heard(&mut self, now: Instant, node: usize, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Call(number) => self.effects.notices.push(Notice::Granted { number, fence: None }),
            Heard::Look(id) => {
                // The request holds a minority, and waits for this notice.
                let Some(motion) = self.motions.get_mut(&id) else { return };
                let Some(until) = motion.ballot.holds_until() else { return };
                motion.ballot.awaited += 1;
                let request = motion.ballot.request.clone();
                let left = until.since(now).max(SHORTEST_PATIENCE);
                self.post.draft(node, left, request, Tag::Vote(id));
            }
        }
    }

    /// Lets a request hold its nodes for a while, because another request has the other nodes. The
    /// request with the fewest nodes mostly gives way first. An inspection or a listing waits for
    /// the other nodes.
    pub(super) fn hold(&mut self, now: Instant, id: u64) {
        let share = 0.5 + self.rng.f64();
        let patience = self.patience();
        let Some(motion) = self.motions.get_mut(&id) else { return };
        motion.held = true;
        self.holding.push(id);
        if motion.ballot.counts_nodes() {
            return motion.ballot.hold((now + LOOK_PATIENCE).min(motion.asked + motion.timeout));
        }
        let granted = motion.ballot.granted().count_ones();
        let until = now + (patience * granted.max(1)).mul_f64(share);
        // One millisecond more than the node said: nodes count whole milliseconds.
        let near = motion.ballot.ending(NEAR).map(|(_, left)| now + left + Duration::from_millis(1)).max();
        let until = near.map_or(until, |near| near.max(until));
        motion.ballot.hold(until.min(motion.asked + motion.timeout));
        // Ask the nodes again that have handed it the lock since they said that it has to wait.
        if let Request::Acquire(Ask { token, .. }) = motion.ballot.request {
            let handed = self.places.handed_to(token);
            for node in (0..self.nodes.count()).filter(|node| handed & 1 << node != 0) {
                self.heard(now, node, Heard::Look(id));
            }
        }
    }

    /// Asks once more, before the request gives way: the nodes at which a lease in the way has
    /// ended since the last answer. Returns whether there are any.
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
