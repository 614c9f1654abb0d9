//! Early take-up: who waits has the lease that it was handed as soon as a notice tells the fence, without asking for it once
//! more.
//!
//! That is safe because the notice says after which look the lease was granted: one of that number, which the store has
//! answered. So it began after that look was sent, and lives for its ttl or [`GRANT_TTL`] from then at least, however late the notice
//! is. A renewal, sent in the same breath, lets it live as long as it was asked for.

use std::time::Duration;

use super::Core;
use super::holding::Grant;
use super::outgoing::Purpose;
use super::tickets::{Serves, Ticket};
use crate::lease::handoff::HandOff;
use crate::lease::{Fence, Mode, Ttl, validity};
use crate::mutants::{self, Mutant};
use crate::store::{GRANT_FENCES, GRANT_TTL};

/// What has to be left of the lease at least, for the renewal.
const ENOUGH: Duration = Duration::from_millis(250);

/// Of a lease that lives for so long: of [`GRANT_TTL`] enough for a store that writes to a busy disk just then. Half a second
/// of that was seen.
fn enough(term: Duration) -> Duration {
    ENOUGH.max(term * 2 / 5)
}

/// [`GRANT_TTL`] as a ttl.
pub(super) fn grant_ttl() -> Ttl {
    u32::try_from(GRANT_TTL.as_millis()).ok().and_then(Ttl::from_millis).expect("in range")
}

impl Core {
    /// Takes up the exclusive lease with `fence` that the place `number` of the ticket `id` was
    /// handed. Returns `false` if the engine has to ask the store.
    pub(super) fn take_up(&mut self, id: u64, number: u64, fence: Fence) -> bool {
        let now = self.now;
        let Some(ticket) = self.tickets.get(&id) else { return true };
        let Some((_, sent)) = ticket.place.filter(|(place, _)| *place == number) else { return false };
        let sent = if mutants::is(Mutant::GrantFromNotice) { now } else { sent };
        let term = ticket.wanted.ttl.min(grant_ttl());
        let deadline = validity::deadline(sent, term);
        if deadline.since(now) < enough(term.as_duration()) || !self.may_take_up(ticket) {
            return false;
        }
        let Some((ticket, Some(waiter))) = self.redeem(id) else { return true };
        let is_line = ticket.serves == Serves::Line;
        let most = self.clients.get(&ticket.wanted.client).map_or(0, |client| client.settings.hand_offs);
        // It is not known whether others wait.
        let hand_off = is_line.then(|| HandOff::new(most, Fence(fence.0 + 1), GRANT_FENCES - 1, true, now));
        let grant = Grant {
            token: ticket.wanted.token,
            fence,
            deadline,
            store_expiry: now + term.as_duration(),
            renew_at: now + deadline.since(now) / 2,
            early: true,
            renewing: false,
            reserving: false,
            hand_off,
        };
        let op = waiter.asked.op;
        self.begin_tenure(waiter, grant, true);
        if is_line {
            self.seat(&ticket.line(), op);
            self.refill(&ticket.line());
        }
        if self.tenures.get(&op).is_some_and(|tenure| !tenure.reserving) {
            self.send_renewal(op, Purpose::TakeUp, None);
        }
        true
    }

    /// Whether somebody waits by the ticket who wants an exclusive lease that is renewed.
    fn may_take_up(&self, ticket: &Ticket) -> bool {
        let somebody = match ticket.serves {
            Serves::One(op) => self.waiters.get(&op).is_some_and(|waiter| waiter.asked.auto_renew),
            Serves::Line => self.lines.get(&ticket.line()).is_some_and(|line| !line.queue.is_empty()),
        };
        somebody && ticket.wanted.mode == Mode::Exclusive
    }
}
