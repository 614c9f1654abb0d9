//! Waiters: from asking for a lock to the lease, or to the reason why there is none. Each is served by a
//! [ticket](super::tickets), either one of its own or that of a [line](super::lines) of waiters.

use std::sync::Arc;
use std::time::Duration;

use super::tickets::{LastLook, Serves, Wanted};
use super::{Core, Wake};
use crate::engine::command::{AcquireCommand, ClientId, LineId, OpId, Outcome, StoreId, Wait};
use crate::engine::stats::Stats;
use crate::lease::queue::Arrival;
use crate::lease::{Instant, Key, Token};
use crate::store::{StoreError, StoreErrorKind};

/// Someone who asked for a lock.
pub struct Waiter {
    pub(super) asked: AcquireCommand,
    pub(super) store: StoreId,
    /// Where the client's doings are counted; here, so that they are also when the client is gone.
    pub(super) stats: Arc<Stats>,
    /// Its place among the waiters of this process.
    pub(super) arrival: Arrival,
    pub(super) since: Instant,
    /// When it stops waiting; `None` if never.
    give_up: Option<Instant>,
    /// The ticket of its own; `None` if it is in a line.
    ticket: Option<u64>,
    /// Whether its token has served a ticket.
    spent: bool,
    pub(super) wake: Option<Instant>,
}

impl Waiter {
    /// Somebody who comes at `since` and has not asked the store yet.
    pub(super) fn new(asked: AcquireCommand, store: StoreId, stats: Arc<Stats>, since: Instant) -> Self {
        Self { asked, store, stats, arrival: 0, since, give_up: None, ticket: None, spent: false, wake: None }
    }

    fn line(&self) -> LineId {
        (self.asked.client, self.asked.key.clone())
    }

    /// What a ticket for it asks for.
    pub(super) fn wanted(&mut self) -> Wanted {
        let AcquireCommand { client, token, ttl, mode, outlives_process, .. } = self.asked;
        // Its token may have served a ticket before; what cleans up after that must not meet the next.
        let token = if std::mem::replace(&mut self.spent, true) { Token::random() } else { token };
        let (store, key, stats) = (self.store, self.asked.key.clone(), self.stats.clone());
        Wanted { client, store, key, token, ttl, mode, outlives_process, stats }
    }

    /// Whether it looks once and takes what it sees.
    fn looks_once(&self) -> bool {
        looks_once(self.asked.wait)
    }
}

fn looks_once(wait: Wait) -> bool {
    matches!(wait, Wait::Never) || wait == Wait::For(Duration::ZERO)
}

impl Core {
    pub(super) fn acquire(&mut self, asked: AcquireCommand) {
        let op = asked.op;
        let Some(client) = self.asking_client(asked.client) else { return self.settle(op, Outcome::Closed) };
        let (store, stats) = (client.store, client.settings.stats.clone());
        let give_up = match asked.wait {
            Wait::For(span) if !span.is_zero() => Some(self.now + span),
            _ => None,
        };
        // The store answers within its time-out, and only then is there something to wait for; a timer for
        // every acquire that is granted at once would cost more than the acquire.
        let timer_now = give_up.filter(|at| at.since(self.now) < client.settings.store_timeout);
        // The ticket of a line may be in a pause, or wait for the answer of a silent server.
        let is_hasty = asked.fail_fast && self.is_unusable(store);
        // A lease that is handed on keeps the lifetime of the one before. So only leases that are
        // renewed and end with their process may line up.
        let may_line_up = client.settings.hand_offs > 0
            && !asked.mode.is_shared()
            && asked.auto_renew
            && !asked.outlives_process
            && !looks_once(asked.wait)
            && !is_hasty;
        stats.waiting.up();
        self.arrivals += 1;
        let arrival = self.arrivals;
        let waiter = Waiter { arrival, give_up, ..Waiter::new(asked, store, stats, self.now) };
        let lined_up = if may_line_up { self.line_up(&waiter.asked, arrival) } else { None };
        self.waiters.insert(op, waiter);
        match lined_up {
            Some((line, is_first)) => {
                self.renew_place(&line);
                self.tend_line(&line);
                self.refill(&line);
                if !is_first {
                    self.start_patience(op);
                }
            }
            None => self.serve_alone(op),
        }
        if let Some(at) = timer_now {
            self.schedule_waiter(op, at);
        }
    }

    /// A ticket for one waiter.
    fn serve_alone(&mut self, op: OpId) {
        let Some(wanted) = self.waiters.get_mut(&op).map(Waiter::wanted) else { return };
        let ticket = self.open_ticket(wanted, Serves::One(op));
        if let Some(waiter) = self.waiters.get_mut(&op) {
            waiter.ticket = Some(ticket);
        }
        self.look(ticket);
    }

    /// It is known that this one has to wait: from now on its patience counts.
    pub(super) fn start_patience(&mut self, op: OpId) {
        if let Some(at) = self.waiters.get(&op).and_then(|waiter| waiter.give_up) {
            self.schedule_waiter(op, at);
        }
    }

    pub(super) fn wake_waiter(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        waiter.wake = None;
        match waiter.give_up {
            Some(at) if at <= self.now => self.give_up(op),
            Some(at) => self.schedule_waiter(op, at),
            None => {}
        }
    }

    fn schedule_waiter(&mut self, op: OpId, at: Instant) {
        let Some(waiter) = self.waiters.get_mut(&op) else { return };
        if waiter.wake.is_none_or(|wake| at < wake) {
            waiter.wake = Some(at);
            self.timers.schedule(at, Wake::Waiter(op));
        }
    }

    /// The caller's patience is over.
    fn give_up(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get(&op) else { return };
        let in_line = || self.lines.get(&waiter.line());
        let ticket = waiter.ticket.or_else(|| in_line().and_then(|line| line.ticket));
        let held_here = in_line().is_some_and(|line| line.tenure.is_some());
        let last = ticket.and_then(|number| self.tickets.get(&number)).map(|ticket| ticket.last.clone());
        match last {
            Some(LastLook::Failed(error)) => self.end_waiter(op, Outcome::Failed(error)),
            Some(LastLook::Unanswered) | None if !held_here => {
                let message = "the store did not answer within the time that the acquire would wait";
                let error = StoreError::maybe_done(StoreErrorKind::TimedOut, message);
                self.end_waiter(op, Outcome::Failed(error));
            }
            _ => self.time_out(op),
        }
    }

    fn time_out(&mut self, op: OpId) {
        let Some(waiter) = self.waiters.get(&op) else { return };
        waiter.stats.timeouts.up();
        let by_itself = self.lines.get(&waiter.line()).is_some_and(|line| line.tenure.is_some());
        self.end_waiter(op, Outcome::TimedOut { by_itself });
    }

    /// The lock is held, and the waiter wanted to look only once.
    pub(super) fn found_busy(&mut self, op: OpId) {
        match self.waiters.get(&op).map(|waiter| waiter.asked.wait) {
            Some(Wait::Never) => self.end_waiter(op, Outcome::Busy),
            _ => self.time_out(op),
        }
    }

    /// Ends an acquire that got nothing, and gives back what it may have got without knowing.
    pub(super) fn end_waiter(&mut self, op: OpId, outcome: Outcome) {
        let Some(waiter) = self.take_waiter(op) else { return };
        match waiter.ticket {
            Some(ticket) => self.drop_ticket(ticket),
            None => self.desert_line(&waiter.line()),
        }
        self.settle(op, outcome);
    }

    /// Takes a waiter out, whatever becomes of its ticket.
    pub(super) fn take_waiter(&mut self, op: OpId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&op)?;
        waiter.stats.waiting.down();
        if waiter.ticket.is_none()
            && let Some(line) = self.lines.get_mut(&waiter.line())
        {
            line.queue.leave(waiter.arrival);
        }
        Some(waiter)
    }

    pub(super) fn cancel(&mut self, op: OpId) {
        if let Some(waiter) = self.waiters.get(&op) {
            waiter.stats.aborted.up();
            self.end_waiter(op, Outcome::Cancelled);
        } else if self.adoptions.contains_key(&op) {
            self.end_adoption(op, Outcome::Cancelled);
        } else if self.tenures.contains_key(&op) {
            self.give_back_unseen(op);
            self.settle(op, Outcome::Cancelled);
        }
        // Else its last word is on the way to the caller already.
    }

    /// Whether the waiter of that operation looks only once.
    pub(super) fn waits(&self, op: OpId) -> bool {
        self.waiters.get(&op).is_some_and(|waiter| !waiter.looks_once())
    }

    /// How many wait for the lock in this process.
    pub(super) fn waiting_for(&self, client: ClientId, key: &Key) -> usize {
        let Some(store) = self.clients.get(&client).map(|client| client.store) else { return 0 };
        self.waiters.values().filter(|w| w.store == store && w.asked.key == *key && !w.looks_once()).count()
    }
}
