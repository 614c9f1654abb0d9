//! Hand-offs that are left to JavaScript threads; see [`relay`](crate::engine::relay).

use std::collections::VecDeque;
use std::mem::take;

use super::Core;
use crate::engine::command::LineId;
use crate::engine::relay::{Chain, HandedOn, LONGEST, Leg};
use crate::lease::Instant;

/// Of so many locks hand-offs are left to JavaScript threads at a time. Where more than that are handed on, each crossing
/// between the threads carries many words anyway.
const MOST_LINES: usize = 16;

impl Core {
    /// Before anything else is done at `now`: takes in what JavaScript threads have handed on by themselves, and leaves
    /// nothing to them any more.
    pub(super) fn begin(&mut self, now: Instant) {
        if !self.left.is_empty() {
            self.recall(now);
        }
        self.now = now;
    }

    fn recall(&mut self, now: Instant) {
        let mut done = Vec::new();
        for env in self.envs.values() {
            env.relay.recall(&mut done);
        }
        for handed in done {
            self.now = handed.at;
            self.guarded(Some(handed.to), |core| core.handed_on(handed));
        }
        self.now = now;
        let mut lines = take(&mut self.left);
        for line in &lines {
            self.guarded(None, |core| core.refill(line));
        }
        self.relaying.append(&mut lines);
    }

    /// Leaves it to JavaScript threads to hand on those leases that may well be handed on next. After everything else is
    /// done, and what was settled lies where they take it from: they may have heard of nothing that comes later.
    pub fn relay(&mut self, now: Instant) {
        let mut lines = take(&mut self.relaying);
        lines.sort_unstable();
        lines.dedup();
        lines.truncate(MOST_LINES);
        lines.retain(|id| {
            let mut left = false;
            self.guarded(None, |core| left = core.leave(id, now).is_some());
            left
        });
        self.left = lines;
    }

    fn leave(&self, id: &LineId, now: Instant) -> Option<()> {
        let line = self.lines.get(id)?;
        let holder = line.tenure?;
        let tenure = self.tenures.get(&holder)?;
        // What has an end of its own shares it with nobody.
        if tenure.end.is_some() {
            return None;
        }
        let mut turn = tenure.hand_off.clone()?;
        let until = turn.ends().min(line.keeps_until(tenure, now));
        let mut legs = VecDeque::new();
        for op in line.queue.ids().take(LONGEST) {
            let waiter = self.waiters.get(&op)?;
            if waiter.asked.max_hold.is_some() {
                break;
            }
            let Some(fence) = turn.take(now) else { break };
            legs.push_back(Leg { op, fence, state: waiter.asked.state.clone(), since: waiter.since });
        }
        if legs.is_empty() || now >= until {
            return None;
        }
        let (line, stats) = (id.clone(), tenure.stats.clone());
        self.envs
            .get(&holder.env)?
            .relay
            .leave(holder, Chain { legs, token: tenure.token, until, line, stats });
        Some(())
    }

    fn handed_on(&mut self, handed: HandedOn) {
        let HandedOn { from, to, fence, .. } = handed;
        let Some(mut tenure) = self.tenures.remove(&from) else { return };
        // The thread has counted all of that: one lease is held as before, and the waiter waits no longer.
        tenure.stats.waiting.up();
        let taken = tenure.hand_off.as_mut().and_then(|turn| turn.take(self.now));
        debug_assert_eq!(taken, Some(fence), "as it was left");
        if !self.pass_on(&mut tenure, to, fence, false) {
            tenure.stats.held.down();
        }
    }

    /// The lease of that line may well be handed on soon.
    pub(super) fn relay_soon(&mut self, id: LineId) {
        self.relaying.push(id);
    }
}
