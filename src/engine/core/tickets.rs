//! Tickets: what stands in the queue at the store, and how it is found out that its turn has come.
//!
//! A ticket asks for the lock by a token. The same request, repeated, keeps its place, takes up a lease that it was handed,
//! and asks again after a failure. It is repeated when the store sends a notice, when a lease in the way is due to end,
//! and in any case now and then. A notice that tells the fence may spare that: then the lease is [taken up](super::early)
//! at once.

use std::sync::Arc;
use std::time::Duration;

use super::cleanup::Leftover;
use super::lines::Line;
use super::outgoing::{AcquireTag, Tag};
use super::waiting::Waiter;
use super::{Core, Wake};
use crate::engine::command::{ClientId, LineId, OpId, Outcome, StoreId};
use crate::engine::stats::Stats;
use crate::lease::handoff::{BLOCK, HandOff};
use crate::lease::queue::Queue;
use crate::lease::{self, Fence, Instant, Key, Mode, Token, Ttl, validity};
use crate::mutants::{self, Mutant};
use crate::store::{Answer, Ask, GRANT_TTL, Place, Reply, Request, StoreError, StoreErrorKind, WAITER_LIFE};

/// How often whoever is first looks at the store without a reason. Half of that it may be earlier, so that many do not look
/// together.
const HEARTBEAT: Duration = Duration::from_millis(500);
/// The same for those behind, who only keep their places; should they have been handed a lease without hearing of it, they
/// have to come before it is over, and the lock stands still until they do: with the store's time-out before it, for no second.
const SLOW_HEARTBEAT: Duration = Duration::from_millis(600);
/// By how much later than the one before it each waiter looks when a lease in the way is due to end: the first one has
/// taken it by then, unless it is gone.
const STAGGER: Duration = Duration::from_millis(3);
/// How many waiters are so set apart.
const MOST_STAGGERED: u32 = 10;

/// The pause before the second look at a held lock whose store sends no notices; it grows by half each time, up to
/// [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(3);
/// The longest pause between two such looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(30);
/// The pause after the store's first failure; it doubles each time, up to [`LONGEST_OUTAGE_PAUSE`].
const OUTAGE_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause between two attempts to reach a store that fails.
const LONGEST_OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// What a ticket asks for, and for whom.
#[derive(Clone)]
pub struct Wanted {
    pub client: ClientId,
    pub store: StoreId,
    pub key: Key,
    pub token: Token,
    pub ttl: Ttl,
    pub mode: Mode,
    pub outlives_process: bool,
    pub stats: Arc<Stats>,
}

/// How many numbers of its last looks a ticket remembers. If this is smaller, the engine more often
/// ignores a notice that names an earlier look, and the waiter looks again later. If it is larger,
/// waiters take more memory.
const NUMBERS: usize = 4;

/// See the module.
pub struct Ticket {
    /// Tickets ask in this order after an outage.
    pub(super) arrival: u64,
    pub(super) wanted: Wanted,
    pub(super) serves: Serves,
    /// Whether a look at the store is on its way.
    pub(super) looking: bool,
    /// How many looks there were.
    sent: usize,
    /// The numbers of the last looks after the first one, see [`Core::ticket_called`]. 0 means
    /// none.
    numbers: [u64; NUMBERS],
    /// What the place was called by the last look, and when that was sent, if the store has answered that it waits. The
    /// answer to one that is on its way would find the ticket gone, and give back a lease that was taken up meanwhile.
    pub(super) place: Option<(u64, Instant)>,
    /// Whether to look again at once when that look finds the lock held, because something happened meanwhile.
    look_again: bool,
    /// Whether it stands in the queue at the store, for all that is known.
    pub(super) queued: bool,
    /// Whether an earlier look may have got something although the store's answer didn't say so.
    tainted: bool,
    /// Looks in a row that found the lock held without a notice to come, or the store failing.
    looks: u32,
    /// What the last look said. It tells those who wait in vain why.
    pub(super) last: LastLook,
    pub(super) wake: Option<Instant>,
}

/// Who gets the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// That waiter.
    One(OpId),
    /// Whoever is first in the client's line for that key.
    Line,
}

#[derive(Clone, Default)]
pub enum LastLook {
    #[default]
    Unanswered,
    Held,
    Failed(StoreError),
}

impl AcquireTag {
    /// What it may have left at the store.
    fn leftover(self, store: StoreId, now: Instant, straggler: bool) -> Leftover {
        let AcquireTag { client, key, token, ttl, .. } = self;
        let until = now + ttl.as_duration().max(WAITER_LIFE);
        Leftover { client, store, key, token, ticket: None, until, straggler }
    }
}

impl Ticket {
    /// A pause that is right beside [`GRANT_TTL`], beside what this one would be handed: it is an exclusive lease's ttl, if that
    /// is shorter.
    fn before_a_grant_ends(&self, pause: Duration) -> Duration {
        let ttl = self.wanted.ttl.as_duration();
        if self.wanted.mode.is_shared() || ttl >= GRANT_TTL {
            return pause;
        }
        pause.mul_f64(ttl.as_secs_f64() / GRANT_TTL.as_secs_f64()).max(LONGEST_PAUSE)
    }

    pub(super) fn line(&self) -> LineId {
        (self.wanted.client, self.wanted.key.clone())
    }
}

impl Core {
    /// A new ticket. It does not look yet.
    pub(super) fn open_ticket(&mut self, wanted: Wanted, serves: Serves) -> u64 {
        let number = self.unused_number();
        let ticket = Ticket {
            arrival: self.next_serial(),
            wanted,
            serves,
            looking: false,
            sent: 0,
            numbers: [0; NUMBERS],
            place: None,
            look_again: false,
            queued: false,
            tainted: false,
            looks: 0,
            last: LastLook::Unanswered,
            wake: None,
        };
        self.tickets.insert(number, ticket);
        number
    }

    /// Returns a number for a ticket. It is random: a user of the store who may only publish, or who also sees the notices of
    /// others, must not guess which notice makes a waiter take up a lease.
    fn unused_number(&self) -> u64 {
        loop {
            let number = lease::random_number();
            if number != 0 && self.ticket_called(number).is_none() {
                return number;
            }
        }
    }

    /// Returns the ticket whose place a notice calls `number`. Each look has a random number of its
    /// own: a user of the store who hears the number of one look must not guess that of the next. A
    /// notice with the number of the last look makes its waiter take up a lease. The first look has
    /// the number of its ticket.
    pub(super) fn ticket_called(&self, number: u64) -> Option<u64> {
        if self.tickets.contains_key(&number) { Some(number) } else { self.numbers.get(&number).copied() }
    }

    fn remove_ticket(&mut self, number: u64) -> Option<Ticket> {
        let ticket = self.tickets.remove(&number)?;
        for called in ticket.numbers {
            self.numbers.remove(&called);
        }
        Some(ticket)
    }

    /// It is time for the ticket to look again. A line in which nobody waits any more does not keep its place by that.
    pub(super) fn wake_ticket(&mut self, number: u64) {
        let Some(ticket) = self.tickets.get(&number) else { return };
        let idle = |line: &&mut Line| line.queue.is_empty() && line.ticket == Some(number);
        match self.lines.get_mut(&ticket.line()).filter(idle) {
            Some(line) => {
                line.ticket = None;
                self.drop_ticket(number);
            }
            None => self.look(number),
        }
    }

    /// Asks the store for the lock; again at once if it is being asked already.
    pub(super) fn look(&mut self, number: u64) {
        let Some(ticket) = self.tickets.get(&number) else { return };
        let (waits, crowd, first) = match ticket.serves {
            Serves::One(op) => (self.waits(op), false, Some(op)),
            Serves::Line => {
                let queue = self.lines.get(&ticket.line()).map(|line| &line.queue);
                (true, queue.is_some_and(|queue| queue.len() > 1), queue.and_then(Queue::head))
            }
        };
        // In a line whoever is first by now, not whoever was when it got its place.
        let shown = first.and_then(|op| self.waiters.get(&op)).and_then(|waiter| waiter.asked.holder.clone());
        let is_first = self.tickets.get(&number).is_some_and(|ticket| ticket.sent == 0);
        let called = if is_first { number } else { self.unused_number() };
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        if ticket.looking {
            ticket.look_again = true;
            return;
        }
        let Wanted { client, store, token, ttl, mode, outlives_process, .. } = ticket.wanted;
        let Some(known) = self.clients.get_mut(&client) else { return };
        (ticket.looking, ticket.look_again, ticket.wake) = (true, false, None);
        ticket.sent += 1;
        ticket.place = None;
        if !is_first {
            let forgotten = std::mem::replace(&mut ticket.numbers[ticket.sent % NUMBERS], called);
            self.numbers.remove(&forgotten);
            self.numbers.insert(called, number);
        }
        known.outstanding += 1;
        let holder = shown.unwrap_or_else(|| known.settings.name.clone());
        let timeout = known.settings.store_timeout;
        let key = ticket.wanted.key.clone();
        let fences = if crowd { BLOCK } else { 1 };
        let place = waits.then_some(Place { number: called });
        let ask = Ask {
            key: key.clone(),
            token,
            ttl,
            holder,
            mode,
            fences,
            place,
            outlives_process,
            repairs: false,
        };
        let tag = AcquireTag { ticket: number, number: called, client, key, token, ttl, fences };
        self.send(store, Request::Acquire(ask), Tag::Acquire(tag), timeout);
    }

    /// The store answered a look that was sent at `sent`.
    pub(super) fn looked(&mut self, store: StoreId, sent: Instant, tag: AcquireTag, answer: Answer) {
        let client = tag.client;
        self.take_look(store, sent, tag, answer);
        self.answered_one(client);
    }

    fn take_look(&mut self, store: StoreId, sent: Instant, tag: AcquireTag, answer: Answer) {
        let now = self.now;
        let outdated = self.is_outdated(store, sent);
        let Some(ticket) = self.tickets.get_mut(&tag.ticket) else {
            // Nobody waits by it any more; what it may have got is to be given back.
            let straggler = match &answer {
                Ok(Reply::Acquired { .. } | Reply::Queued { .. } | Reply::Split) => false,
                Err(error) if error.maybe_done => true,
                _ => return,
            };
            if mutants::is(Mutant::FailedFastKept) && self.is_unusable(store) {
                return;
            }
            return self.clean_up(tag.leftover(store, now, straggler));
        };
        ticket.looking = false;
        if matches!(answer, Ok(Reply::Acquired { .. })) && outdated {
            // The store may have lost the lease before this answer came. The same request again
            // finds that out.
            return self.look(tag.ticket);
        }
        match answer {
            Ok(Reply::Acquired { fence, waiting }) if now < validity::deadline(sent, tag.ttl) => {
                self.granted(tag, sent, fence, waiting);
            }
            Ok(Reply::Acquired { .. }) => {
                // The answer took longer than the lease lives: as good as none.
                ticket.tainted = true;
                let message =
                    format!("the store's answer took longer than the ttl of {} ms", tag.ttl.as_millis());
                self.look_failed(tag.ticket, StoreError::maybe_done(StoreErrorKind::TimedOut, message));
            }
            Ok(Reply::Busy { remaining }) => match ticket.serves {
                Serves::One(op) => {
                    ticket.wanted.stats.contended.up();
                    self.found_busy(op);
                }
                // No store should; then looking again is all there is.
                Serves::Line => self.look_later(tag.ticket, remaining, 0, false),
            },
            Ok(Reply::Split) => self.give_way(store, tag),
            Ok(Reply::Queued { remaining, ahead, told, .. }) => {
                ticket.place = Some((tag.number, sent));
                self.look_later(tag.ticket, remaining, ahead, told)
            }
            Ok(other) => {
                let message = format!("the store answered {other:?} to an acquire");
                self.look_failed(tag.ticket, StoreError::maybe_done(StoreErrorKind::Internal, message));
            }
            Err(error) => {
                let number = tag.ticket;
                if error.kind == StoreErrorKind::Quorum {
                    self.renew_token(number);
                }
                self.look_failed(number, error);
            }
        }
    }

    /// Nobody, or somebody else, has most nodes of a quorum. Whoever gives way for a while, by chance longer or shorter than
    /// the others, lets one of them have them (Ongaro and Ousterhout, "In search of an understandable consensus
    /// algorithm", 2014, on split votes).
    fn give_way(&mut self, store: StoreId, tag: AcquireTag) {
        let number = tag.ticket;
        self.renew_token(number);
        self.clean_up(tag.leftover(store, self.now, false));
        let Some(ticket) = self.tickets.get(&number) else { return };
        match ticket.serves {
            Serves::One(op) if !self.waits(op) => {
                ticket.wanted.stats.contended.up();
                self.found_busy(op);
            }
            _ => self.look_later(number, None, 0, false),
        }
    }

    /// The ticket goes on with another token: what that of its last look may have got is released, and for a quorum, whose
    /// nodes are asked and told at different times, that must never meet a later look by the same token.
    fn renew_token(&mut self, number: u64) {
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        if !mutants::is(Mutant::TokenUsedAgain) {
            ticket.wanted.token = Token::random();
        }
        (ticket.tainted, ticket.place) = (false, None);
    }

    /// The lease is the ticket's: whoever it serves has it now.
    fn granted(&mut self, tag: AcquireTag, sent: Instant, fence: Fence, waiting: u32) {
        let Some((ticket, waiter)) = self.redeem(tag.ticket) else { return };
        let Some(waiter) = waiter else {
            // Everybody has left while the line's own lease was still held.
            self.clean_up(tag.leftover(ticket.wanted.store, self.now, false));
            return self.tend_line(&ticket.line());
        };
        let most = self.clients.get(&tag.client).map_or(0, |client| client.settings.hand_offs);
        let hand_off = (ticket.serves == Serves::Line)
            .then(|| HandOff::new(most, Fence(fence.0 + 1), tag.fences - 1, waiting > 0, sent));
        let op = waiter.asked.op;
        self.hold(waiter, tag.token, sent, fence, hand_off);
        if ticket.serves == Serves::Line {
            self.seat(&ticket.line(), op);
        }
    }

    /// Takes out a ticket whose turn has come, and the waiter whom it serves; none if everybody has left.
    pub(super) fn redeem(&mut self, number: u64) -> Option<(Ticket, Option<Waiter>)> {
        let ticket = self.remove_ticket(number)?;
        let op = match ticket.serves {
            Serves::One(op) => Some(op),
            Serves::Line => self.lines.get_mut(&ticket.line()).and_then(|line| {
                line.ticket = None;
                line.queue.head()
            }),
        };
        let waiter = op.and_then(|op| self.take_waiter(op));
        if let Some(waiter) = waiter.as_ref().filter(|_| ticket.queued) {
            waiter.stats.waited_for(self.now.since(waiter.since));
            ticket.wanted.stats.remote_hand_offs.up();
        }
        Some((ticket, waiter))
    }

    /// The lock is held: look again when there may be news.
    fn look_later(&mut self, number: u64, remaining: Option<Duration>, ahead: u32, told: bool) {
        let jitter = 0.5 + 0.5 * self.jitter();
        let now = self.now;
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        if !ticket.queued {
            ticket.queued = true;
            ticket.wanted.stats.contended.up();
        }
        ticket.last = LastLook::Held;
        let pause = if told {
            ticket.looks = 0;
            let pause = if ahead == 0 { HEARTBEAT } else { SLOW_HEARTBEAT };
            ticket.before_a_grant_ends(pause)
        } else {
            let growth = 1.5f64.powi(ticket.looks.min(20) as i32);
            ticket.looks += 1;
            SHORTEST_PAUSE.mul_f64(growth).min(LONGEST_PAUSE)
        };
        // A millisecond more than the store said, because it counts in whole ones.
        let ends =
            remaining.map(|left| left + Duration::from_millis(1) + STAGGER * ahead.min(MOST_STAGGERED));
        let pause = ends.unwrap_or(Duration::MAX).min(pause.mul_f64(jitter));
        let (again, serves) = (ticket.look_again, ticket.serves);
        if again {
            self.look(number);
        } else {
            self.schedule_ticket(number, now + pause);
        }
        self.start_patience_of(number, serves);
    }

    /// The store failed: try again later if that may help and somebody waits, else say so.
    fn look_failed(&mut self, number: u64, error: StoreError) {
        let jitter = 0.5 + 0.5 * self.jitter();
        let now = self.now;
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        ticket.wanted.stats.errors.up();
        // What a quorum's error leaves is its token's, which the ticket has given up.
        if error.maybe_done && error.kind != StoreErrorKind::Quorum {
            ticket.tainted = true;
            self.doubts.add(now, ticket.wanted.token);
        }
        let serves = ticket.serves;
        let once = matches!(serves, Serves::One(op) if !self.waits(op));
        if once || !error.kind.is_transient() {
            return self.fail_ticket(number, &error);
        }
        self.fail_fast(number, &error);
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        let pause = OUTAGE_PAUSE.saturating_mul(1 << ticket.looks.min(10)).min(LONGEST_OUTAGE_PAUSE);
        ticket.looks += 1;
        ticket.last = LastLook::Failed(error);
        self.schedule_ticket(number, now + pause.mul_f64(jitter));
        self.start_patience_of(number, serves);
    }

    /// Whoever waits by the ticket has to wait, as is now known, and its patience counts. In a line that is the first;
    /// those behind it knew when they came.
    fn start_patience_of(&mut self, number: u64, serves: Serves) {
        let op = match serves {
            Serves::One(op) => Some(op),
            Serves::Line => {
                let ticket = self.tickets.get(&number);
                ticket.and_then(|ticket| self.lines.get(&ticket.line())).and_then(|line| line.queue.head())
            }
        };
        if let Some(op) = op {
            self.start_patience(op);
        }
    }

    fn schedule_ticket(&mut self, number: u64, at: Instant) {
        if let Some(ticket) = self.tickets.get_mut(&number) {
            ticket.wake = Some(at);
            self.timers.schedule(at, Wake::Ticket(number));
        }
    }

    /// Whoever waits by the ticket gets nothing.
    fn fail_ticket(&mut self, number: u64, error: &StoreError) {
        let Some(ticket) = self.tickets.get(&number) else { return };
        match ticket.serves {
            Serves::One(op) => self.end_waiter(op, Outcome::Failed(error.clone())),
            Serves::Line => {
                let line = ticket.line();
                let waiting = self.lines.get(&line).map(|line| line.queue.ids().collect::<Vec<_>>());
                for op in waiting.unwrap_or_default() {
                    self.end_waiter(op, Outcome::Failed(error.clone()));
                }
                // There may be nobody in the line any more, but a lease.
                if let Some(line) = self.lines.get_mut(&line).filter(|line| line.ticket == Some(number)) {
                    line.ticket = None;
                    self.drop_ticket(number);
                }
            }
        }
    }

    /// Gives a place up, and what the ticket may have got without knowing.
    pub(super) fn drop_ticket(&mut self, number: u64) {
        let Some(ticket) = self.remove_ticket(number) else { return };
        // A look that is still on its way is cleaned up after by its own answer, but that knows nothing of those before.
        if ticket.queued || ticket.tainted {
            let Wanted { client, store, key, token, ttl, .. } = ticket.wanted;
            let until = self.now + ttl.as_duration().max(WAITER_LIFE);
            let straggler = ticket.tainted;
            self.clean_up(Leftover { client, store, key, token, ticket: None, until, straggler });
        }
    }
}
