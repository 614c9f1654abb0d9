//! Renewals: when a lease is renewed, and what the result means for it. Touches what its parent may
//! touch, and asks the threads of the [`Envs`] for signs of life.

use std::time::Duration;

use super::{HeldLease, HeldLeases, Prolongation, SHORTEST_RENEWAL_TIMEOUT, renewal_span, renewal_timeout};
use crate::engine::command::Outcome;
use crate::engine::core::state::clients::Clients;
use crate::engine::core::state::context::{Context, Wake};
use crate::engine::core::state::envs::Envs;
use crate::engine::core::state::outgoing::Outgoing;
use crate::engine::core::state::tags::{Purpose, RenewTag, Tag};
use crate::engine::ids::OpId;
use crate::lease::hand_off::{BLOCK, HandOffBudget};
use crate::lease::renewal as lease_renewal;
use crate::lease::{Instant, LossReason, Phase, Ttl, validity};
use crate::mutants::{self, Mutant};
use crate::store::{Absence, Answer, Reply, Request, StoreError, StoreErrorKind};

/// How much earlier than `maxStall` before a renewal the engine asks the thread for a sign of life.
/// Without this margin, it would not know of a stall when the renewal is due.
const QUESTION_AHEAD: Duration = Duration::from_millis(2);

/// What a timer or the answer to a renewal means for a lease.
pub enum Due {
    Nothing,
    /// Sends a renewal.
    Renewal(Outgoing),
    /// The lease has ended here, and its holder was told.
    Ended(HeldLease),
}

impl Due {
    fn ended(held: Option<HeldLease>) -> Self {
        held.map_or(Due::Nothing, Due::Ended)
    }
}

/// What the answer to a renewal means for a lease.
pub enum RenewalEffect {
    Nothing,
    /// The lease is lost, and its holder was told.
    Lost(HeldLease),
    /// The lease was detached, and its holder was told.
    Detached(HeldLease),
}

/// The store's answer to a renewal that was sent at `sent`.
pub struct RenewalReply {
    pub sent: Instant,
    pub tag: RenewTag,
    pub answer: Answer,
    /// How many of the store's waiters belong to this process.
    pub own_places: u32,
    pub jitter: f64,
}

/// A renewal that was answered.
struct Renewal {
    op: OpId,
    sent: Instant,
    ttl: Ttl,
    /// The lease's ttl from now on, if the holder has changed it.
    new_ttl: Option<Ttl>,
    purpose: Purpose,
    prolongs: Option<Prolongation>,
    /// Whether the holder asked for the renewal, and still has the lease.
    asked: bool,
    jitter: f64,
}

impl HeldLease {
    /// Returns whether the engine has to renew the lease at the usual time.
    fn renews(&self) -> bool {
        self.auto_renew && !self.renewing && !self.prolongations.is_detaching()
    }

    /// Returns when to ask the thread for a sign of life ahead of the next renewal.
    fn question_at(&self, max_stall: Duration) -> Instant {
        self.renew_at - max_stall.saturating_add(QUESTION_AHEAD)
    }

    /// Schedules when the lease is due: for a question, a renewal, or its loss.
    pub fn schedule(&mut self, op: OpId, clients: &Clients, cx: &mut Context) {
        let deadline = self.state.deadline();
        let wake = match self.question_at(clients.max_stall(self.client)) {
            _ if !self.renews() => deadline,
            question if !self.questioned && question > cx.now => question.min(deadline),
            _ => self.renew_at.min(deadline),
        };
        if self.wake != wake {
            self.wake = wake;
            cx.timers.schedule(wake, Wake::HeldLease(op));
        }
    }

    pub fn wake_now(&mut self, op: OpId, cx: &mut Context) {
        self.wake = cx.now;
        cx.timers.schedule(cx.now, Wake::HeldLease(op));
    }

    /// Returns the request that renews the lease, for its own ttl unless another is `asked` for.
    /// The ttl of the request is shorter if the lease has an earlier `end`.
    fn renewal(
        &mut self,
        op: OpId,
        purpose: Purpose,
        asked: Option<Ttl>,
        clients: &Clients,
        now: Instant,
    ) -> Outgoing {
        let mut ttl = asked.unwrap_or(self.ttl);
        // The store should not keep the lease much longer than the holder may: nothing releases it
        // at its `end`. An adopter has no such end.
        if let Some(end) = self.end.filter(|_| purpose != Purpose::Detach) {
            ttl = ttl.min(validity::ttl_until(now, end));
        }
        self.renewing |= matches!(purpose, Purpose::Keep | Purpose::TakeUp);
        // The store may carry the renewal out until its time-out.
        let expiry = now + renewal_span(ttl);
        let detaches = purpose == Purpose::Detach;
        let prolongs = (detaches || ttl > self.ttl).then_some(Prolongation { detaches, until: expiry });
        match prolongs {
            Some(prolongation) => self.prolongations.begin(prolongation),
            None => self.store_expiry = self.store_expiry.max(expiry),
        }
        let mut timeout = clients.store_timeout(self.client).min(renewal_timeout(ttl));
        if self.taken_up {
            // The lease may end before the usual time is over. If this renewal fails, there must be
            // time for another.
            timeout = timeout.min(SHORTEST_RENEWAL_TIMEOUT.max(self.deadline.since(now) / 2));
        }
        let (client, key, token, fence) = (self.client, self.key.clone(), self.token, self.fence);
        let request = match purpose {
            Purpose::Detach => Request::Detach { key: key.clone(), token, ttl, fence, own_ttl: self.ttl },
            Purpose::Reserve => Request::Renew { key: key.clone(), token, ttl, fences: BLOCK },
            Purpose::Keep | Purpose::TakeUp | Purpose::Requested => {
                Request::Renew { key: key.clone(), token, ttl, fences: 0 }
            }
        };
        let tag = Tag::Renew(RenewTag { op, fence, client, key, token, ttl, asked, purpose, prolongs });
        Outgoing { store: self.store, request, tag, timeout }
    }

    /// Handles a renewal that failed. The lease lives on until its deadline. Until then, the engine
    /// tries the renewal again, whatever the error is: an administrator may remove its cause.
    fn renewal_failed(&mut self, renewal: &Renewal, error: StoreError, clients: &Clients, cx: &mut Context) {
        let Renewal { op, purpose, .. } = *renewal;
        if let Some(prolongation) = renewal.prolongs {
            self.prolongations.failed(prolongation, error.maybe_done);
        }
        self.stats.errors.up();
        self.state.renewal_failed(cx.now, error.clone());
        if renewal.asked || purpose == Purpose::Detach {
            cx.settle(op, Outcome::RenewFailed(error));
        } else if matches!(purpose, Purpose::Keep | Purpose::TakeUp) {
            self.failures += 1;
            self.renew_at = lease_renewal::retry(cx.now, self.current_ttl(), self.failures, renewal.jitter);
        }
        self.schedule(op, clients, cx);
    }
}

impl HeldLeases {
    /// Handles the timer of the lease when it is due.
    pub fn wake(&mut self, op: OpId, clients: &Clients, envs: &mut Envs, cx: &mut Context) -> Due {
        let Some(held) = self.leases.get_mut(&op) else { return Due::Nothing };
        held.wake = Instant::default();
        let max_stall = clients.max_stall(held.client);
        match held.state.phase(cx.now) {
            Phase::Lost(reason) => return Due::ended(self.lose(op, reason, cx)),
            // Its release is on the way here.
            Phase::Released | Phase::Pending => return Due::Nothing,
            Phase::Held | Phase::Stalled => {}
        }
        let mut due = Due::Nothing;
        if held.renews() && held.renew_at <= cx.now {
            if envs.check_stalled(op.env, max_stall, cx) {
                let jitter = cx.jitter();
                held.state.stall(cx.now);
                held.renew_at = lease_renewal::retry(cx.now, held.ttl, u32::MAX, jitter);
            } else {
                due = Due::Renewal(held.renewal(op, Purpose::Keep, None, clients, cx.now));
            }
        } else if held.renews() && !held.questioned && held.question_at(max_stall) <= cx.now {
            // If the thread already hangs, the engine must know that when the renewal is due.
            held.questioned = true;
            envs.check_stalled(op.env, max_stall, cx);
        }
        held.schedule(op, clients, cx);
        due
    }

    /// Renews the lease after `pause`, unless it is due sooner. Does nothing if the holder renews
    /// the lease itself.
    pub fn renew_soon(&mut self, op: OpId, pause: Duration, clients: &Clients, cx: &mut Context) {
        let at = cx.now + pause;
        if let Some(held) = self.leases.get_mut(&op).filter(|held| held.auto_renew) {
            held.renew_at = held.renew_at.min(at);
            held.schedule(op, clients, cx);
        }
    }

    /// Renews or detaches a lease for its holder. If the lease is gone, its holder already knows or
    /// will hear of it from the release.
    pub fn renew_now(
        &mut self,
        op: OpId,
        purpose: Purpose,
        ttl: Option<Ttl>,
        clients: &Clients,
        cx: &mut Context,
    ) -> Due {
        let Some(held) = self.leases.get_mut(&op) else { return Due::Nothing };
        match held.state.phase(cx.now) {
            Phase::Held | Phase::Stalled => {
                held.outlives |= purpose == Purpose::Detach && mutants::is(Mutant::LeaseKeptAtEnd);
                Due::Renewal(held.renewal(op, purpose, ttl, clients, cx.now))
            }
            Phase::Lost(reason) => Due::ended(self.lose(op, reason, cx)),
            Phase::Released | Phase::Pending => Due::Nothing,
        }
    }

    /// Notes that the end of the client must not release the lease.
    pub fn remember(&mut self, op: OpId) {
        if let Some(held) = self.leases.get_mut(&op) {
            held.outlives = true;
        }
    }

    /// Stops renewing the lease and handing it on, so that it runs out.
    pub fn stop_renewing(&mut self, op: OpId, clients: &Clients, cx: &mut Context) {
        let Some(held) = self.leases.get_mut(&op) else { return };
        held.auto_renew = false;
        held.hand_off = None;
        held.schedule(op, clients, cx);
    }

    /// Returns a renewal that asks for more fences, and whether others wait, if it is time to ask.
    pub fn refill(&mut self, op: OpId, clients: &Clients, now: Instant) -> Option<Outgoing> {
        let held = self.leases.get_mut(&op)?;
        // A renewal would take back a lease that is being detached.
        let may_ask = !held.reserving && !held.prolongations.is_detaching();
        if !may_ask || !held.hand_off.as_ref().is_some_and(HandOffBudget::wants_more) {
            return None;
        }
        held.reserving = true;
        Some(held.renewal(op, Purpose::Reserve, None, clients, now))
    }

    /// Returns a renewal of a lease that was taken up on a notice, unless one is on its way.
    pub fn confirm(&mut self, op: OpId, clients: &Clients, now: Instant) -> Option<Outgoing> {
        let held = self.leases.get_mut(&op).filter(|held| !held.reserving)?;
        Some(held.renewal(op, Purpose::TakeUp, None, clients, now))
    }

    /// Handles the store's answer to a renewal, for the current holder `op` of the lease.
    pub fn renewed(
        &mut self,
        op: OpId,
        reply: RenewalReply,
        clients: &Clients,
        cx: &mut Context,
    ) -> RenewalEffect {
        let Some(held) = self.leases.get_mut(&op) else { return RenewalEffect::Nothing };
        let RenewalReply { sent, tag, answer, own_places, jitter } = reply;
        // If the lease was released since its holder asked for the renewal, the answer is not
        // reported.
        let asked = tag.purpose == Purpose::Requested && op == tag.op && held.fence == tag.fence;
        let new_ttl = tag.asked.filter(|_| asked);
        let (ttl, purpose, prolongs) = (tag.ttl, tag.purpose, tag.prolongs);
        let renewal = Renewal { op, sent, ttl, new_ttl, purpose, prolongs, asked, jitter };
        match tag.purpose {
            Purpose::Keep | Purpose::TakeUp => held.renewing = false,
            Purpose::Reserve => held.reserving = false,
            Purpose::Requested | Purpose::Detach => {}
        }
        let error = match answer {
            // The fences of a lease only grow, so this reply belongs to another request.
            Ok(Reply::Renewed { block: Some((first, _)) }) if first <= held.fence => {
                StoreError::maybe_done(StoreErrorKind::Internal, old_fence(held, first.0))
            }
            Ok(Reply::Renewed { .. }) if tag.purpose == Purpose::Detach => {
                return self.detached(op, cx).map_or(RenewalEffect::Nothing, RenewalEffect::Detached);
            }
            Ok(Reply::Renewed { block }) => {
                if let (Some((first, waiting)), Some(budget)) = (block, &mut held.hand_off) {
                    budget.refill(first, waiting > own_places, sent);
                }
                held.extend(&renewal, clients, cx);
                return RenewalEffect::Nothing;
            }
            Ok(Reply::NotHeld(absence)) => {
                if let Some(prolongation) = prolongs {
                    held.prolongations.failed(prolongation, false);
                }
                let reason = match absence {
                    Absence::Missing => LossReason::Missing,
                    Absence::Taken => LossReason::Taken,
                };
                return match held.state.lose(cx.now, reason) {
                    Phase::Lost(reason) => {
                        self.lose(op, reason, cx).map_or(RenewalEffect::Nothing, RenewalEffect::Lost)
                    }
                    // Its release is on the way here, but the lease is not to be handed on.
                    _ => {
                        held.hand_off = None;
                        RenewalEffect::Nothing
                    }
                };
            }
            Ok(other) => {
                let message = format!("the store answered {other:?} to a renewal");
                StoreError::maybe_done(StoreErrorKind::Internal, message)
            }
            Err(error) => error,
        };
        held.renewal_failed(&renewal, error, clients, cx);
        RenewalEffect::Nothing
    }

    /// Forgets a lease that the store has detached.
    fn detached(&mut self, op: OpId, cx: &mut Context) -> Option<HeldLease> {
        let held = self.leases.get_mut(&op)?;
        if !held.state.release(cx.now) {
            // The lease was lost or released meanwhile. That command or timer tells its holder.
            held.wake_now(op, cx);
            return None;
        }
        let held = self.end(op)?;
        held.stats.detached.up();
        cx.settle(op, Outcome::Detached);
        Some(held)
    }
}

impl HeldLease {
    /// Handles a renewal that succeeded.
    fn extend(&mut self, renewal: &Renewal, clients: &Clients, cx: &mut Context) {
        let Renewal { op, sent, ttl, new_ttl, purpose, prolongs, asked, jitter } = *renewal;
        (self.failures, self.taken_up) = (0, false);
        self.deadline = self.deadline.max(validity::deadline(sent, ttl));
        let deadline = self.end.map_or(self.deadline, |end| end.min(self.deadline));
        if !self.state.extend(cx.now, deadline) {
            return self.wake_now(op, cx);
        }
        if let Some(prolongation) = prolongs {
            self.prolongations.succeeded(prolongation);
            self.store_expiry = self.store_expiry.max(prolongation.until);
        }
        self.state.renewed();
        self.ttl = new_ttl.unwrap_or(self.ttl);
        self.renew_at = lease_renewal::next(sent, self.ttl, jitter);
        self.questioned = false;
        if !matches!(purpose, Purpose::Reserve | Purpose::TakeUp) {
            self.stats.renewals.up();
        }
        if asked {
            cx.settle(op, Outcome::Renewed);
        } else if self.report && purpose == Purpose::Keep {
            cx.settle(op, Outcome::AutoRenewed);
        }
        self.schedule(op, clients, cx);
    }
}

fn old_fence(held: &HeldLease, fence: u64) -> String {
    format!(
        "the store answered the renewal of \"{}\" with the old fence {fence}, so the reply is to another request; if this \
         happens again, look for a proxy that mixes up replies",
        held.key
    )
}
