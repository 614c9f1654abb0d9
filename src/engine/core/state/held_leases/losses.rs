//! Ends leases that their holders have not released. Touches what its parent may touch.

use super::lost_prolongations::LostProlongation;
use super::{HeldLease, HeldLeases};
use crate::engine::command::Outcome;
use crate::engine::core::state::context::Context;
use crate::engine::ids::{OpId, StoreId};
use crate::lease::{Instant, LossReason, Phase};
use crate::mutants::{self, Mutant};

impl HeldLease {
    /// Returns what a prolongation may leave at the store, and when to release that. Even a short
    /// detachment counts: a node of a quorum keeps an adopted lease until the end of its ticket,
    /// and the quorum itself releases the lease only if no detachment was sent.
    fn left_by_prolongation(&self, now: Instant) -> Option<LostProlongation> {
        let early = mutants::is(Mutant::LostProlongationFreedEarly);
        let at = if early { now } else { self.store_expiry.max(now) };
        let may_be_prolonged = self.prolongations.until().is_some();
        if !may_be_prolonged || self.outlives || mutants::is(Mutant::LostProlongationForgotten) {
            return None;
        }
        Some(LostProlongation { lease: self.left_at_store(now), at, section: self.section })
    }
}

impl HeldLeases {
    /// Ends a lease whose holder has lost it, and tells the holder. If the store still has the
    /// lease, it ends by its ttl. This does not release it: the holder's work may still run, and
    /// the next holder would work at the same time. If a detachment or a longer renewal may have
    /// prolonged the lease, it is released later: see `lost_prolongations`.
    pub fn lose(&mut self, op: OpId, reason: LossReason, cx: &mut Context) -> Option<HeldLease> {
        let held = self.end_lost(op, reason, cx)?;
        if let Some(left) = held.left_by_prolongation(cx.now) {
            self.lost_prolongations.add(left, cx);
        }
        Some(held)
    }

    /// Ends a lease whose state is *lost*. If the holder has released the lease, that command is on
    /// its way here.
    pub fn lose_if_lost(&mut self, op: OpId, cx: &mut Context) -> Option<HeldLease> {
        match self.leases.get(&op)?.state.phase(cx.now) {
            Phase::Lost(reason) => self.lose(op, reason, cx),
            _ => None,
        }
    }

    /// Ends a lease because its client does, and tells the holder, unless the holder has released
    /// the lease itself: that command was given before this one. The caller has to clean up.
    pub fn close(&mut self, op: OpId, cx: &mut Context) -> Option<HeldLease> {
        let state = &self.leases.get(&op)?.state;
        let Phase::Lost(reason) = state.lose(cx.now, LossReason::Closed) else { return None };
        self.end_lost(op, reason, cx)
    }

    fn end_lost(&mut self, op: OpId, reason: LossReason, cx: &mut Context) -> Option<HeldLease> {
        let held = self.end(op)?;
        held.stats.lost.up();
        cx.settle(op, Outcome::Lost(reason));
        Some(held)
    }

    /// Marks all leases of a store as lost, and keeps them from being handed on. Returns them. All
    /// JavaScript threads can read the new states at once, before the engine tells them one after
    /// the other.
    pub fn mark_lost(&mut self, store: StoreId, now: Instant) -> Vec<OpId> {
        let mut lost: Vec<OpId> =
            self.leases.iter().filter(|(_, held)| held.store == store).map(|(op, _)| *op).collect();
        lost.sort_unstable();
        for op in &lost {
            if let Some(held) = self.leases.get_mut(op) {
                held.hand_off = None;
                held.state.lose(now, LossReason::Missing);
            }
        }
        lost
    }
}
