//! Lets requests wait for more nodes, and handles the notices of the nodes. An acquire waits while
//! it holds a minority of the nodes. An inspection or a listing waits after a majority has
//! answered.

use std::time::Duration;

use super::super::call_queue::CallTag;
use super::super::waiter_tracker::NoticeEffect;
use super::{Coordinator, SHORTEST_PATIENCE};
use crate::lease::Instant;
use crate::store::{AcquireRequest, Notice, Request};

/// If a lease in the way ends within this time, a request with too few nodes waits for the end:
/// leases do not end at all nodes at the same time, and no node sends a notice of the end. If this
/// is smaller, the request gives up nodes that it could keep. If it is larger, it keeps them from
/// other requests for longer.
const NEAR: Duration = Duration::from_millis(5);

/// How long an inspection or a listing waits for the other nodes after a majority has answered. If
/// this is smaller, nodes that are far away count as nodes that did not answer. If it is larger, a
/// silent node delays these requests for longer, until its breaker opens. Other requests do not
/// wait for these requests: see [`parts`](crate::store::Store::parts).
const POLL_PATIENCE: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Handles a notice of `node`.
    pub fn noticed(&mut self, now: Instant, node: usize, notice: Notice) {
        match notice {
            Notice::Granted { number, .. } => {
                let (enough, patience) = (self.nodes.majority(), self.patience());
                let heard = self.waiters.noticed(now, number, node, enough, patience);
                self.heard(now, node, heard);
            }
            Notice::Lost(acknowledgement) => self.lost(now, node, acknowledgement),
            Notice::Availability(told) => {
                let told = self.availability.changed(node, told, &self.nodes);
                self.effects.notices.extend(told.map(Notice::Availability));
            }
            other => self.effects.notices.push(other),
        }
    }

    pub(super) fn heard(&mut self, now: Instant, node: usize, heard: NoticeEffect) {
        match heard {
            NoticeEffect::Nothing => {}
            NoticeEffect::Call(number) => self.effects.notices.push(Notice::Granted { number, fence: None }),
            NoticeEffect::Poll(id) => {
                // The request holds a minority, and waits for this notice.
                let Some(pending) = self.pending_requests.get_mut(&id) else { return };
                let Some(until) = pending.vote_round.holds_until() else { return };
                pending.vote_round.awaited += 1;
                let request = pending.vote_round.request.clone();
                let left = until.since(now).max(SHORTEST_PATIENCE);
                self.call_queue.add(node, left, request, CallTag::Vote(id));
            }
        }
    }

    /// Lets a request hold its nodes for a while, because another request has the other nodes. The
    /// request with the fewest nodes usually backs off first. An inspection or a listing waits for
    /// the other nodes.
    pub(super) fn hold(&mut self, now: Instant, id: u64) {
        let share = 0.5 + self.rng.f64();
        let patience = self.patience();
        let Some(pending) = self.pending_requests.get_mut(&id) else { return };
        pending.held = true;
        self.holding.push(id);
        if pending.vote_round.counts_nodes() {
            return pending.vote_round.hold((now + POLL_PATIENCE).min(pending.asked + pending.timeout));
        }
        let granted = pending.vote_round.granted().count_ones();
        let until = now + (patience * granted.max(1)).mul_f64(share);
        // Wait one millisecond longer than the node said, because nodes count whole milliseconds.
        let near =
            pending.vote_round.ending(NEAR).map(|(_, left)| now + left + Duration::from_millis(1)).max();
        let until = near.map_or(until, |near| near.max(until));
        pending.vote_round.hold(until.min(pending.asked + pending.timeout));
        // Ask the nodes again that have handed the waiter the lock since they told it to wait.
        if let Request::Acquire(AcquireRequest { token, .. }) = pending.vote_round.request {
            let handed = self.waiters.handed_to(token);
            for node in (0..self.nodes.count()).filter(|node| handed & 1 << node != 0) {
                self.heard(now, node, NoticeEffect::Poll(id));
            }
        }
    }

    /// Before a request backs off, asks the nodes again at which a lease in its way was about to
    /// end. Returns false if there are none, or if the request has asked them before.
    pub(super) fn ask_again(&mut self, now: Instant, id: u64) -> bool {
        let patience = self.patience();
        let Some(pending) = self.pending_requests.get_mut(&id) else { return false };
        let until = (now + patience).min(pending.asked + pending.timeout);
        if std::mem::replace(&mut pending.asked_again, true) || until <= now {
            return false;
        }
        let ended: Vec<usize> = pending.vote_round.ending(NEAR).map(|(node, _)| node).collect();
        if ended.is_empty() {
            return false;
        }
        pending.vote_round.hold(until);
        self.holding.push(id);
        for node in ended {
            self.heard(now, node, NoticeEffect::Poll(id));
        }
        true
    }
}
