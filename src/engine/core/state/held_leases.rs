//! Held leases: leases from the grant to the loss or the release. Touches its own map and the
//! states that it shares with JavaScript threads, reads the settings of the [`Clients`], and uses
//! the timers of the [`Context`].
//!
//! - this file: grants, ends and hand-offs;
//! - [`grant`]: how a lease comes to its holder;
//! - [`renewals`]: how leases are kept alive;
//! - [`prolongations`]: the requests that may let a lease outlive its ttl;
//! - [`losses`]: how leases are lost;
//! - [`lost_prolongations`]: lost leases that the engine has to release later.

mod grant;
mod losses;
mod lost_prolongations;
mod prolongations;
pub mod renewals;

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

pub use self::grant::{Grant, grant_ttl};
use self::lost_prolongations::LostProlongations;
pub use self::prolongations::Prolongation;
use self::prolongations::Prolongations;
use super::clean_ups::PossibleLease;
use super::clients::Clients;
use super::context::Context;
use super::waiters::Waiter;
use crate::engine::command::Outcome;
use crate::engine::ids::{ClientId, CohortId, OpId, StoreId};
use crate::engine::known_lease::KnownLease;
use crate::engine::stats::Stats;
use crate::lease::hand_off::HandOffBudget;
use crate::lease::{Fence, Instant, Key, Token, Ttl, validity};
use crate::mutants::{self, Mutant};
use crate::store::StoreError;

/// The shortest time in which a renewal may fail, however short the ttl is.
const SHORTEST_RENEWAL_TIMEOUT: Duration = Duration::from_millis(100);

/// A lease while it is held.
pub struct HeldLease {
    pub client: ClientId,
    pub store: StoreId,
    pub key: Key,
    pub token: Token,
    fence: Fence,
    state: Arc<KnownLease>,
    pub stats: Arc<Stats>,
    ttl: Ttl,
    /// When it ends because of `maxHold`, even if it is renewed.
    end: Option<Instant>,
    auto_renew: bool,
    report: bool,
    /// Whether a section runs under the lease.
    section: bool,
    /// Whether the thread was asked for a sign of life ahead of the next renewal.
    questioned: bool,
    /// The latest time at which the store lets the lease expire, unless a request in
    /// `prolongations` has prolonged it. Other renewals without an answer count.
    store_expiry: Instant,
    /// When its holder has to treat it as lost if it is not renewed. Ignores `maxHold`.
    deadline: Instant,
    /// When to renew next.
    renew_at: Instant,
    /// Whether it was taken up on a notice, and no renewal has succeeded since.
    taken_up: bool,
    /// The data for handing it on within the process, if it belongs to a cohort.
    hand_off: Option<HandOffBudget>,
    /// Whether an automatic renewal is on its way.
    renewing: bool,
    /// Whether more fences are on their way.
    reserving: bool,
    /// The detachments and the longer renewals that the store may have carried out without an
    /// answer in time.
    prolongations: Prolongations,
    /// True if the store is to remember the lease. Then the end of the client does not release it:
    /// the store may have detached the lease although the request failed here.
    outlives: bool,
    /// The token of the ticket, if the lease was [adopted](super::adoptions).
    from_ticket: Option<Token>,
    failures: u32,
    wake: Instant,
}

impl HeldLease {
    /// Returns the cohort of the lease's holder.
    pub fn cohort(&self) -> CohortId {
        (self.client, self.key.clone())
    }

    /// Returns the ttl that the lease has until the next renewal.
    fn current_ttl(&self) -> Ttl {
        if self.taken_up { self.ttl.min(grant_ttl()) } else { self.ttl }
    }

    /// Returns the last fence that a holder got under the lease's token, if that is known. Each
    /// hand-off gives a larger fence than the one before. For an adopted lease, that fence is not
    /// known: the ticket of an earlier version may contain a smaller fence than was used.
    pub fn last_used(&self) -> Option<Fence> {
        if mutants::is(Mutant::HandOffsForgotten) {
            return Some(Fence::NONE);
        }
        self.from_ticket.is_none().then_some(self.fence)
    }

    /// Returns the latest time at which the store lets the lease expire. Prolongations count.
    pub fn expiry(&self, now: Instant) -> Instant {
        self.store_expiry.max(now).max(self.prolongations.until().unwrap_or_default())
    }

    /// Returns whether the lease may live on without its client.
    pub fn outlives(&self) -> bool {
        self.outlives
    }

    /// Returns what may be left at the store of a lease that its caller has given up and has never
    /// seen. If the lease was adopted, a quorum gives it back to its ticket.
    pub fn left_unseen(self, now: Instant) -> PossibleLease {
        let from_ticket = self.from_ticket;
        PossibleLease { from_ticket, ..self.left_at_store(now) }
    }

    /// Returns what may be left of the lease at the store after it has ended here.
    pub fn left_at_store(&self, now: Instant) -> PossibleLease {
        let until = self.expiry(now);
        let &Self { client, store, token, .. } = self;
        let key = self.key.clone();
        PossibleLease { client, store, key, token, from_ticket: None, until, straggler: false }
    }

    /// Returns until when waiters that want `ttl` may hand the lease on among themselves, as far as
    /// is known at `now`. Ignores the number of fences.
    fn keeps_until(&self, ttl: Ttl, now: Instant) -> Instant {
        // A lease that is being detached may belong to another process by now, and the store's
        // answer would end it for its holder. A lease that its holder has renewed for longer than
        // the others want is not handed on: they would hold it for as long.
        if self.prolongations.is_detaching() || self.expiry(now) > now + renewal_span(ttl) {
            return now;
        }
        // The next holder needs time for a renewal.
        self.deadline - self.current_ttl().as_duration() / 4
    }

    /// Returns the fence for handing the lease on at `now` to a waiter that wants `ttl`. Returns
    /// `None` if the lease has to go back to the store.
    pub fn take_fence(&mut self, ttl: Ttl, now: Instant) -> Option<Fence> {
        if self.keeps_until(ttl, now) <= now {
            return None;
        }
        self.take_promised_fence(now)
    }

    /// Returns the next fence of the hand-offs that were left to the JavaScript thread.
    pub fn take_promised_fence(&mut self, now: Instant) -> Option<Fence> {
        self.hand_off.as_mut()?.take(now)
    }

    /// Returns what the JavaScript thread needs to hand the lease on to waiters that want `ttl`:
    /// the fences, and until when. Returns `None` if the lease has an end of its own, which no
    /// other holder may share.
    pub fn hand_offs(&self, ttl: Ttl, now: Instant) -> Option<(HandOffBudget, Instant)> {
        if self.end.is_some() {
            return None;
        }
        let budget = self.hand_off.clone()?;
        let until = budget.ends().min(self.keeps_until(ttl, now));
        Some((budget, until))
    }

    /// Takes the lease from its holder at `now`, for the next one with `fence`.
    pub fn pass_on(&mut self, fence: Fence, now: Instant) -> Grant {
        Grant {
            token: self.token,
            fence,
            deadline: self.deadline,
            store_expiry: self.expiry(now),
            renew_at: self.renew_at,
            taken_up: self.taken_up,
            from_ticket: None,
            renewing: self.renewing,
            reserving: self.reserving,
            hand_off: self.hand_off.take(),
        }
    }
}

/// Returns how long a renewal may take.
fn renewal_timeout(ttl: Ttl) -> Duration {
    SHORTEST_RENEWAL_TIMEOUT.max(ttl.as_duration() / 3)
}

/// Returns how long the store may keep a lease after a renewal was sent.
fn renewal_span(ttl: Ttl) -> Duration {
    renewal_timeout(ttl) + validity::longest_life(ttl)
}

/// See the module.
#[derive(Default)]
pub struct HeldLeases {
    leases: FxHashMap<OpId, HeldLease>,
    /// The leases that were lost after a prolongation, and are to be released later.
    pub lost_prolongations: LostProlongations,
}

impl HeldLeases {
    /// Adds a lease with its holder. Tells the holder if `tell`. If a JavaScript thread handed the
    /// lease on, it has already told the holder.
    pub fn start(&mut self, waiter: Waiter, grant: Grant, tell: bool, clients: &Clients, cx: &mut Context) {
        let Waiter { acquire, store, stats, .. } = waiter;
        let op = acquire.op;
        let end = acquire.max_hold.map(|span| cx.now + span);
        if tell {
            acquire.state.grant(end.map_or(grant.deadline, |end| end.min(grant.deadline)));
            stats.acquired.up();
            stats.held.up();
        }
        let (fence, token) = (grant.fence, grant.token);
        let mut held = HeldLease {
            client: acquire.client,
            store,
            key: acquire.key,
            token,
            fence,
            state: acquire.state,
            stats,
            ttl: acquire.ttl,
            end,
            auto_renew: acquire.auto_renew,
            report: acquire.report,
            section: acquire.section,
            questioned: false,
            store_expiry: grant.store_expiry,
            deadline: grant.deadline,
            renew_at: grant.renew_at,
            taken_up: grant.taken_up,
            hand_off: grant.hand_off,
            renewing: grant.renewing,
            reserving: grant.reserving,
            prolongations: Prolongations::default(),
            outlives: false,
            from_ticket: grant.from_ticket,
            failures: 0,
            wake: Instant::default(),
        };
        held.schedule(op, clients, cx);
        self.leases.insert(op, held);
        if tell {
            cx.settle(op, Outcome::Acquired(fence, token));
        }
    }

    pub fn get(&self, op: OpId) -> Option<&HeldLease> {
        self.leases.get(&op)
    }

    pub fn contains(&self, op: OpId) -> bool {
        self.leases.contains_key(&op)
    }

    /// Returns whether `op` holds a lease of `token`.
    pub fn has(&self, op: OpId, token: Token) -> bool {
        self.leases.get(&op).is_some_and(|held| held.token == token)
    }

    /// Removes a lease that its holder has released, or that is handed on.
    pub fn release(&mut self, op: OpId) -> Option<HeldLease> {
        let held = self.leases.remove(&op)?;
        held.stats.held.down();
        held.stats.released.up();
        Some(held)
    }

    /// Removes a lease that the JavaScript thread has handed on. Does not count it as gone: the
    /// next holder has the lease now.
    pub fn take_handed_on(&mut self, op: OpId) -> Option<HeldLease> {
        self.leases.remove(&op)
    }

    /// Ends a lease whose grant the caller will never see, because it cancelled.
    pub fn abort(&mut self, op: OpId, now: Instant) -> Option<HeldLease> {
        let held = self.end(op)?;
        held.state.release(now);
        held.stats.aborted.up();
        Some(held)
    }

    fn end(&mut self, op: OpId) -> Option<HeldLease> {
        let held = self.leases.remove(&op)?;
        held.stats.held.down();
        Some(held)
    }

    /// Returns the leases of the store, sorted by their ends.
    pub fn by_deadline(&self, store: StoreId) -> Vec<OpId> {
        let held = self.leases.iter().filter(|(_, held)| held.store == store);
        let mut held: Vec<(Instant, OpId)> = held.map(|(op, held)| (held.deadline, *op)).collect();
        held.sort_unstable();
        held.into_iter().map(|(_, op)| op).collect()
    }

    /// Returns the leases of the clients. Leaves out leases of sections unless `sections` is true.
    pub fn of_clients(&self, clients: &[ClientId], sections: bool) -> Vec<OpId> {
        let is_meant = |held: &HeldLease| clients.contains(&held.client) && (sections || !held.section);
        self.leases.iter().filter(|(_, held)| is_meant(held)).map(|(op, _)| *op).collect()
    }

    /// Returns whether waiters elsewhere are known to wait for the lease.
    pub fn others_wait(&self, op: OpId) -> bool {
        let budget = self.leases.get(&op).and_then(|held| held.hand_off.as_ref());
        budget.is_some_and(HandOffBudget::others_wait)
    }

    /// Renews the lease at once after a bug has interrupted an operation on it.
    pub fn resume(&mut self, op: OpId, error: StoreError, cx: &mut Context) {
        if let Some(held) = self.leases.get_mut(&op) {
            held.renewing = false;
            held.renew_at = cx.now;
            held.wake_now(op, cx);
        }
        cx.settle(op, Outcome::RenewFailed(error));
    }

    /// Returns when the lease is due.
    pub fn due_at(&self, op: OpId) -> Option<Instant> {
        self.leases.get(&op).map(|held| held.wake)
    }

    pub fn len(&self) -> usize {
        self.leases.len()
    }

    #[cfg(test)]
    pub fn ttl_of(&self, op: OpId) -> Ttl {
        self.leases[&op].ttl
    }
}
