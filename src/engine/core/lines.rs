//! Lines: the waiters of one client for one key, who are one waiter at the store, and hand the lease on among themselves
//! within the bounds of [`handoff`](crate::lease::handoff).

use super::Core;
use super::holding::{Grant, Tenure};
use super::outgoing::{Purpose, RenewTag};
use super::renewing::renewal_span;
use super::tickets::Serves;
use super::waiting::Waiter;
use crate::engine::command::{AcquireCommand, LineId, OpId};
use crate::lease::handoff::HandOff;
use crate::lease::queue::{Arrival, Queue};
use crate::lease::{Fence, Instant, Ttl};

/// See the module. It is there as long as somebody waits or holds.
pub struct Line {
    /// Their leases are one at the store, and so have one ttl.
    ttl: Ttl,
    pub(super) queue: Queue<OpId>,
    /// Their place at the store. While the lease is held it is kept for a while though nobody may be waiting: the next
    /// one will.
    pub(super) ticket: Option<u64>,
    /// The lease that they hand on.
    pub(super) tenure: Option<OpId>,
}

impl Line {
    /// Until when its lease may be handed on among its waiters, for all that is known at `now` and fences aside.
    pub(super) fn keeps_until(&self, tenure: &Tenure, now: Instant) -> Instant {
        // What is being detached may be another process's by now, and the answer would end it for whoever has it then. Nor
        // is handed on what its holder has renewed for longer than the others want: they would hold it for as long.
        if tenure.detaching || tenure.store_expiry > now + renewal_span(self.ttl) {
            return now;
        }
        // Whoever gets it shall have time to be renewed.
        tenure.deadline - tenure.term().as_duration() / 4
    }
}

impl Core {
    /// Puts a waiter into its line, if it can be served by that one. Says which it is, and whether nobody was there before.
    pub(super) fn line_up(&mut self, asked: &AcquireCommand, arrival: Arrival) -> Option<(LineId, bool)> {
        let (id, ttl) = ((asked.client, asked.key.clone()), asked.ttl);
        let new = || Line { ttl, queue: Queue::default(), ticket: None, tenure: None };
        let line = self.lines.entry(id.clone()).or_insert_with(new);
        if line.ttl != ttl {
            return None;
        }
        let is_first = line.queue.is_empty() && line.tenure.is_none();
        line.queue.join(arrival, asked.op);
        Some((id, is_first))
    }

    /// Somebody has left the line without a lease. A place that nobody stands at is given up, so that whoever comes next
    /// does not inherit it.
    pub(super) fn desert_line(&mut self, id: &LineId) {
        if let Some(line) = self.lines.get_mut(id)
            && line.queue.is_empty()
            && let Some(ticket) = line.ticket.take()
        {
            self.drop_ticket(ticket);
        }
        self.tend_line(id);
    }

    /// The same for whoever comes to a place that was kept while nobody waited: if others wait, it goes behind them.
    pub(super) fn renew_place(&mut self, id: &LineId) {
        let Some(line) = self.lines.get_mut(id).filter(|line| line.queue.len() == 1) else { return };
        let Some(tenure) = line.tenure.and_then(|op| self.tenures.get(&op)) else { return };
        if tenure.hand_off.as_ref().is_some_and(HandOff::others_wait)
            && let Some(ticket) = line.ticket.take()
        {
            self.drop_ticket(ticket);
        }
    }

    /// Sees to it that the line has a place at the store if it needs one, and gives it up if not.
    pub(super) fn tend_line(&mut self, id: &LineId) {
        let Some(line) = self.lines.get_mut(id) else { return };
        match line.queue.head() {
            None if line.tenure.is_none() => {
                let ticket = line.ticket;
                self.lines.remove(id);
                if let Some(ticket) = ticket {
                    self.drop_ticket(ticket);
                }
            }
            Some(head) if line.ticket.is_none() => {
                let Some(wanted) = self.waiters.get_mut(&head).map(Waiter::wanted) else { return };
                let ticket = self.open_ticket(wanted, Serves::Line);
                if let Some(line) = self.lines.get_mut(id) {
                    line.ticket = Some(ticket);
                }
                self.look(ticket);
            }
            _ => {}
        }
    }

    /// The lease of `op` is the line's now, to be handed on; and whoever is next gets a place.
    pub(super) fn seat(&mut self, id: &LineId, op: OpId) {
        if let Some(line) = self.lines.get_mut(id) {
            line.tenure = Some(op);
        }
        self.tend_line(id);
    }

    /// Hands the lease that `op` has just given back to the next in its line, if there is one and the bounds allow it.
    pub(super) fn hand_on(&mut self, op: OpId, tenure: &mut Tenure) -> bool {
        let now = self.now;
        let id = (tenure.client, tenure.key.clone());
        let Some(line) = self.lines.get_mut(&id).filter(|line| line.tenure == Some(op)) else { return false };
        let Some(next) = line.queue.head() else { return false };
        if line.keeps_until(tenure, now) <= now {
            return false;
        }
        let Some(fence) = tenure.hand_off.as_mut().and_then(|turn| turn.take(now)) else { return false };
        if !self.pass_on(tenure, next, fence, true) {
            return false;
        }
        self.relay_soon(id.clone());
        self.refill(&id);
        true
    }

    /// The lease is `next`'s from now on. Whether it is there, and is told so, unless its thread knows already.
    pub(super) fn pass_on(&mut self, tenure: &mut Tenure, next: OpId, fence: Fence, tell: bool) -> bool {
        if let Some(line) = self.lines.get_mut(&(tenure.client, tenure.key.clone())) {
            line.tenure = Some(next);
        }
        let Some(waiter) = self.take_waiter(next) else { return false };
        if tell {
            waiter.stats.handed_on(self.now.since(waiter.since));
        }
        let grant = Grant {
            token: tenure.token,
            fence,
            deadline: tenure.deadline,
            store_expiry: tenure.store_expiry,
            renew_at: tenure.renew_at,
            early: tenure.early,
            renewing: tenure.renewing,
            reserving: tenure.reserving,
            hand_off: tenure.hand_off.take(),
        };
        self.begin_tenure(waiter, grant, tell);
        true
    }

    /// Asks the store for more fences, and whether others wait, if the line will need to know.
    pub(super) fn refill(&mut self, id: &LineId) {
        let Some(line) = self.lines.get(id) else { return };
        let (Some(op), false) = (line.tenure, line.queue.is_empty()) else { return };
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        // A renewal would take back what is being detached.
        if tenure.reserving
            || tenure.detaching
            || !tenure.hand_off.as_ref().is_some_and(|turn| turn.wants_more())
        {
            return;
        }
        tenure.reserving = true;
        self.send_renewal(op, Purpose::Reserve, None);
    }

    /// The lease that `op` had is not the line's any more: whoever is next looks at the store.
    pub(super) fn leave_line(&mut self, op: OpId, tenure: &Tenure) {
        let id = (tenure.client, tenure.key.clone());
        let Some(line) = self.lines.get_mut(&id) else { return };
        if line.tenure == Some(op) {
            line.tenure = None;
        }
        self.tend_line(&id);
        let Some(line) = self.lines.get(&id).filter(|line| !line.queue.is_empty()) else { return };
        if let Some(ticket) = line.ticket {
            self.look(ticket);
        }
    }

    /// The line whose lease `op` has.
    pub(super) fn line_of(&self, op: OpId) -> Option<&Line> {
        let tenure = self.tenures.get(&op)?;
        self.lines.get(&(tenure.client, tenure.key.clone())).filter(|line| line.tenure == Some(op))
    }

    /// Who has the lease by now that `op` had when a request for it was sent.
    pub(super) fn bearer(&self, op: OpId, tag: &RenewTag) -> Option<OpId> {
        let has_it = |op: &OpId| self.tenures.get(op).is_some_and(|tenure| tenure.token == tag.token);
        if has_it(&op) {
            return Some(op);
        }
        let line = self.lines.get(&(tag.client, tag.key.clone()))?;
        line.tenure.filter(has_it)
    }
}
