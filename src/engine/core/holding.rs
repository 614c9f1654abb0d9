//! Tenures: leases that are held, from the grant to the loss.

use std::sync::Arc;

use super::Core;
use super::early::grant_ttl;
use super::waiting::Waiter;
use crate::engine::command::{ClientId, OpId, Outcome, StoreId};
use crate::engine::known::KnownLease;
use crate::engine::stats::Stats;
use crate::lease::handoff::HandOff;
use crate::lease::renewal;
use crate::lease::{Fence, Instant, Key, LossReason, Token, Ttl, validity};
use crate::mutants::{self, Mutant};
use crate::store::StoreError;

/// A lease while it is held.
pub struct Tenure {
    pub(super) client: ClientId,
    pub(super) store: StoreId,
    pub(super) key: Key,
    pub(super) token: Token,
    pub(super) fence: Fence,
    pub(super) state: Arc<KnownLease>,
    pub(super) stats: Arc<Stats>,
    pub(super) ttl: Ttl,
    /// When it ends whatever is renewed, because of `maxHold`.
    pub(super) end: Option<Instant>,
    pub(super) auto_renew: bool,
    pub(super) report: bool,
    /// Whether a section runs under the lease.
    pub(super) section: bool,
    /// Whether the thread was asked for a sign of life ahead of the next renewal.
    pub(super) questioned: bool,
    /// When the store lets the lease expire at the latest, renewals without an answer included.
    pub(super) store_expiry: Instant,
    /// When its holder has to take it for lost unless it is renewed, `maxHold` aside.
    pub(super) deadline: Instant,
    /// When to renew next.
    pub(super) renew_at: Instant,
    /// Whether it was [taken up](super::early) on a notice, and no renewal has been answered since.
    pub(super) early: bool,
    /// What it takes to hand it on within the process, if it is a line's.
    pub(super) hand_off: Option<HandOff>,
    /// Whether an automatic renewal is on its way.
    pub(super) renewing: bool,
    /// Whether more fences are on their way.
    pub(super) reserving: bool,
    /// Whether it is being detached: whatever renewed it meanwhile would take it back.
    pub(super) detaching: bool,
    /// True if the holder has asked to detach the lease. Then the end of the client does not
    /// release it: the store may have detached the lease although the request failed here.
    pub(super) outlives: bool,
    /// Whether the lease was [adopted](super::adopting).
    pub(super) adopted: bool,
    pub(super) failures: u32,
    pub(super) wake: Instant,
}

impl Tenure {
    /// How long it lives without another renewal.
    pub(super) fn term(&self) -> Ttl {
        if self.early { self.ttl.min(grant_ttl()) } else { self.ttl }
    }

    /// Returns the last fence that a holder got under the lease's token, if that is known. Each
    /// hand-off gives a larger fence than the one before. For an adopted lease, that fence is not
    /// known: the ticket of an earlier version may contain a smaller fence than was used.
    pub(super) fn last_used(&self) -> Option<Fence> {
        if mutants::is(Mutant::HandOffsForgotten) {
            return Some(Fence::NONE);
        }
        (!self.adopted).then_some(self.fence)
    }
}

/// A lease as it comes to its holder: from the store, or from who held it before.
pub struct Grant {
    pub token: Token,
    pub fence: Fence,
    pub deadline: Instant,
    pub store_expiry: Instant,
    pub renew_at: Instant,
    pub early: bool,
    pub renewing: bool,
    pub reserving: bool,
    pub hand_off: Option<HandOff>,
}

impl Core {
    /// The store granted a lease, by a request that was sent at `sent`.
    pub(super) fn hold(
        &mut self,
        waiter: Waiter,
        token: Token,
        sent: Instant,
        fence: Fence,
        hand_off: Option<HandOff>,
    ) {
        let ttl = waiter.asked.ttl;
        let jitter = self.jitter();
        let grant = Grant {
            token,
            fence,
            deadline: validity::deadline(sent, ttl),
            store_expiry: self.now + ttl.as_duration(),
            renew_at: renewal::next(sent, ttl, jitter),
            early: false,
            renewing: false,
            reserving: false,
            hand_off,
        };
        self.begin_tenure(waiter, grant, true);
    }

    /// A lease has a new holder, who is to be told so unless its thread has seen to all that.
    pub(super) fn begin_tenure(&mut self, waiter: Waiter, grant: Grant, tell: bool) {
        let Waiter { asked, store, stats, .. } = waiter;
        let end = asked.max_hold.map(|span| self.now + span);
        if tell {
            asked.state.grant(end.map_or(grant.deadline, |end| end.min(grant.deadline)));
            stats.acquired.up();
            stats.held.up();
        }
        let tenure = Tenure {
            client: asked.client,
            store,
            key: asked.key,
            token: grant.token,
            fence: grant.fence,
            state: asked.state,
            stats,
            ttl: asked.ttl,
            end,
            auto_renew: asked.auto_renew,
            report: asked.report,
            section: asked.section,
            questioned: false,
            store_expiry: grant.store_expiry,
            deadline: grant.deadline,
            renew_at: grant.renew_at,
            early: grant.early,
            hand_off: grant.hand_off,
            renewing: grant.renewing,
            reserving: grant.reserving,
            detaching: false,
            outlives: false,
            adopted: false,
            failures: 0,
            wake: Instant::default(),
        };
        self.tenures.insert(asked.op, tenure);
        self.schedule_tenure(asked.op);
        if tell {
            self.settle(asked.op, Outcome::Acquired(grant.fence, grant.token));
        }
    }

    /// Tells the holder that its lease is lost. If the store still has the lease, it ends by its
    /// ttl. This does not release it: the holder's work may still run, and the next holder would
    /// work at the same time.
    pub(super) fn lose(&mut self, op: OpId, reason: LossReason) {
        let Some(tenure) = self.end_tenure(op) else { return };
        tenure.stats.lost.up();
        self.settle(op, Outcome::Lost(reason));
        self.leave_line(op, &tenure);
    }

    /// Takes a tenure out of the books.
    pub(super) fn end_tenure(&mut self, op: OpId) -> Option<Tenure> {
        let tenure = self.tenures.remove(&op)?;
        tenure.stats.held.down();
        Some(tenure)
    }

    /// After a bug cut short what was being done with the lease: looks at it afresh.
    pub(super) fn revive_tenure(&mut self, op: OpId, error: StoreError) {
        if let Some(tenure) = self.tenures.get_mut(&op) {
            tenure.renewing = false;
            tenure.renew_at = self.now;
        }
        self.schedule_now(op);
        self.settle(op, Outcome::RenewFailed(error));
    }
}
