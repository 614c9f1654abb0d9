//! Renewals: when a lease is renewed, what becomes of it then, and when the engine stops renewing.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::holding::Tenure;
use super::outgoing::{Purpose, RenewTag, Tag};
use super::{Client, Core, Wake};
use crate::engine::command::{ClientId, EnvId, OpId, Outcome};
use crate::lease::handoff::BLOCK;
use crate::lease::renewal;
use crate::lease::{Instant, LossReason, Phase, Ttl, validity};
use crate::store::{Absence, Answer, Reply, Request, StoreError, StoreErrorKind};

/// The shortest time in which a renewal may fail, however short the ttl is.
const SHORTEST_RENEWAL_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a thread that holds leases goes unasked for a sign of life, at most.
const LONGEST_WITHOUT_QUESTION: Duration = Duration::from_secs(1);
/// How much earlier than `maxStall` before a renewal the thread is asked, so that it is known by then.
const QUESTION_AHEAD: Duration = Duration::from_millis(2);

impl Tenure {
    /// Whether the engine is to renew it when the time has come.
    fn renews(&self) -> bool {
        self.auto_renew && !self.renewing && !self.detaching
    }

    /// When to ask the thread for a sign of life ahead of the next renewal.
    fn question_at(&self, max_stall: Duration) -> Instant {
        self.renew_at - max_stall.saturating_add(QUESTION_AHEAD)
    }
}

/// How long a renewal may take.
fn renewal_timeout(ttl: Ttl) -> Duration {
    SHORTEST_RENEWAL_TIMEOUT.max(ttl.as_duration() / 3)
}

/// How long the store may keep a lease after a renewal was sent.
pub(super) fn renewal_span(ttl: Ttl) -> Duration {
    renewal_timeout(ttl) + ttl.as_duration()
}

fn max_stall(clients: &FxHashMap<ClientId, Client>, client: ClientId) -> Duration {
    clients.get(&client).map_or(Duration::MAX, |client| client.settings.max_stall)
}

impl Core {
    pub(super) fn schedule_tenure(&mut self, op: OpId) {
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        let deadline = tenure.state.deadline();
        let renews = tenure.renews();
        let max_stall = max_stall(&self.clients, tenure.client);
        let wake = match tenure.question_at(max_stall) {
            _ if !renews => deadline,
            question if !tenure.questioned && question > self.now => question.min(deadline),
            _ => tenure.renew_at.min(deadline),
        };
        if tenure.wake != wake {
            tenure.wake = wake;
            self.timers.schedule(wake, Wake::Tenure(op));
        }
    }

    pub(super) fn wake_tenure(&mut self, op: OpId) {
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        tenure.wake = Instant::default();
        let (env, client) = (op.env, tenure.client);
        let max_stall = max_stall(&self.clients, client);
        match tenure.state.phase(self.now) {
            Phase::Lost(reason) => return self.lose(op, reason),
            // Its release is on the way here.
            Phase::Released | Phase::Pending => return,
            Phase::Held | Phase::Stalled => {}
        }
        if tenure.renews() && tenure.renew_at <= self.now {
            if self.is_stalled(env, client) {
                let jitter = self.jitter();
                let tenure = self.tenures.get_mut(&op).expect("found above");
                tenure.state.stall(self.now);
                tenure.renew_at = renewal::retry(self.now, tenure.ttl, u32::MAX, jitter);
            } else {
                self.send_renewal(op, Purpose::Keep, None);
            }
        } else if tenure.renews() && !tenure.questioned && tenure.question_at(max_stall) <= self.now {
            // A thread that hangs since before now shall be known to hang when the renewal is due.
            tenure.questioned = true;
            self.is_stalled(env, client);
        }
        self.schedule_tenure(op);
    }

    /// Whether the environment's thread is hung. If that is not known, asks it for a sign of life.
    fn is_stalled(&mut self, env: EnvId, client: ClientId) -> bool {
        let max_stall = max_stall(&self.clients, client);
        let Some(known) = self.envs.get_mut(&env) else { return true };
        let answered = known.pulse.last();
        if answered < known.asked {
            return renewal::is_stalled(known.asked, answered, self.now, max_stall);
        }
        // Often enough to notice a stall in time, seldom enough to leave an idle thread alone.
        if self.now.since(known.asked) >= LONGEST_WITHOUT_QUESTION.min(max_stall / 10) {
            known.asked = self.now;
            self.effects.pings.push(env);
        }
        false
    }

    /// Renews the lease after `pause`, unless it is due sooner. Does nothing if the holder renews
    /// the lease itself.
    pub(super) fn renew_soon(&mut self, op: OpId, pause: Duration) {
        let at = self.now + pause;
        if let Some(tenure) = self.tenures.get_mut(&op).filter(|tenure| tenure.auto_renew) {
            tenure.renew_at = tenure.renew_at.min(at);
            self.schedule_tenure(op);
        }
    }

    /// The holder wants its lease renewed now, or detached.
    pub(super) fn renew_now(&mut self, op: OpId, purpose: Purpose, ttl: Option<Ttl>) {
        // A lease that is gone has said so, or its release is about to.
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        match tenure.state.phase(self.now) {
            Phase::Held | Phase::Stalled => {
                tenure.detaching |= purpose == Purpose::Detach;
                tenure.outlives |= purpose == Purpose::Detach;
                self.send_renewal(op, purpose, ttl);
            }
            Phase::Lost(reason) => self.lose(op, reason),
            Phase::Released | Phase::Pending => {}
        }
    }

    /// Stops renewing the lease and handing it on, so that it runs out.
    pub(super) fn stop_renewing(&mut self, op: OpId) {
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        tenure.auto_renew = false;
        tenure.hand_off = None;
        self.schedule_tenure(op);
    }

    /// Asks the store to renew, for the lease's own ttl unless another is asked for.
    pub(super) fn send_renewal(&mut self, op: OpId, purpose: Purpose, asked: Option<Ttl>) {
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        let (key, token) = (tenure.key.clone(), tenure.token);
        let ttl = match (asked, tenure.end, purpose) {
            // The store should not keep the lease much longer than the holder may: nothing releases
            // it at its `end`.
            (None, Some(end), Purpose::Keep | Purpose::TakeUp | Purpose::Reserve) => {
                tenure.ttl.min(validity::ttl_until(self.now, end))
            }
            _ => asked.unwrap_or(tenure.ttl),
        };
        let (fence, own_ttl) = (tenure.fence, tenure.ttl);
        tenure.renewing |= matches!(purpose, Purpose::Keep | Purpose::TakeUp);
        let left = tenure.early.then(|| tenure.deadline.since(self.now));
        let (store, client) = (tenure.store, tenure.client);
        // Nobody knows when the store carries it out, but not later than its time-out.
        tenure.store_expiry = tenure.store_expiry.max(self.now + renewal_span(ttl));
        let mut timeout = self.store_timeout(client).min(renewal_timeout(ttl));
        if let Some(left) = left {
            // Of a lease that may end before the usual time is over: should it fail, there is to be time for another.
            timeout = timeout.min(SHORTEST_RENEWAL_TIMEOUT.max(left / 2));
        }
        let request = match purpose {
            Purpose::Detach => Request::Detach { key: key.clone(), token, ttl, fence, own_ttl },
            Purpose::Reserve => Request::Renew { key: key.clone(), token, ttl, fences: BLOCK },
            Purpose::Keep | Purpose::TakeUp | Purpose::Asked => {
                Request::Renew { key: key.clone(), token, ttl, fences: 0 }
            }
        };
        self.send(
            store,
            request,
            Tag::Renew(RenewTag { op, fence, client, key, token, ttl, purpose }),
            timeout,
        );
    }

    /// The store answered a renewal that was sent at `sent`.
    pub(super) fn renewed(&mut self, sent: Instant, tag: RenewTag, answer: Answer) {
        let jitter = self.jitter();
        let now = self.now;
        let Some(op) = self.bearer(tag.op, &tag) else { return };
        let own_ticket =
            self.line_of(op).and_then(|line| line.ticket).and_then(|ticket| self.tickets.get(&ticket));
        let own_place = u32::from(own_ticket.is_some_and(|ticket| ticket.queued));
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        // What somebody asked for who has given the lease back since is told to nobody.
        let asked = tag.purpose == Purpose::Asked && op == tag.op && tenure.fence == tag.fence;
        match tag.purpose {
            Purpose::Keep | Purpose::TakeUp => tenure.renewing = false,
            Purpose::Reserve => tenure.reserving = false,
            Purpose::Asked => {}
            Purpose::Detach => tenure.detaching = false,
        }
        match answer {
            // The fences of a lease only grow, so this reply belongs to another request.
            Ok(Reply::Renewed { block: Some((first, _)) }) if first <= tenure.fence => {
                let message = format!(
                    "the store answered the renewal of \"{}\" with the old fence {}, so the reply is to another \
                     request; if this happens again, look for a proxy that mixes up replies",
                    tenure.key, first.0
                );
                let error = StoreError::maybe_done(StoreErrorKind::Internal, message);
                self.renewal_failed(op, tag.purpose, asked, error, jitter);
            }
            Ok(Reply::Renewed { block }) => {
                if tag.purpose == Purpose::Detach {
                    return self.detached(op);
                }
                if let (Some((first, waiting)), Some(turn)) = (block, &mut tenure.hand_off) {
                    turn.refill(first, waiting > own_place, sent);
                }
                (tenure.failures, tenure.early) = (0, false);
                tenure.deadline = tenure.deadline.max(validity::deadline(sent, tag.ttl));
                let deadline = tenure.end.map_or(tenure.deadline, |end| end.min(tenure.deadline));
                if !tenure.state.extend(now, deadline) {
                    return self.schedule_now(op);
                }
                tenure.state.renewed();
                if asked {
                    tenure.ttl = tag.ttl;
                }
                tenure.renew_at = renewal::next(sent, tenure.ttl, jitter);
                tenure.questioned = false;
                if !matches!(tag.purpose, Purpose::Reserve | Purpose::TakeUp) {
                    tenure.stats.renewals.up();
                }
                let report = tenure.report;
                if asked {
                    self.settle(op, Outcome::Renewed);
                } else if report && tag.purpose == Purpose::Keep {
                    self.settle(op, Outcome::AutoRenewed);
                }
                self.schedule_tenure(op);
            }
            Ok(Reply::NotHeld(absence)) => {
                let reason = match absence {
                    Absence::Missing => LossReason::Missing,
                    Absence::Taken => LossReason::Taken,
                };
                match tenure.state.lose(now, reason) {
                    Phase::Lost(reason) => self.lose(op, reason),
                    // Its release is on the way here, but the lease is not to be handed on.
                    _ => tenure.hand_off = None,
                }
            }
            Ok(other) => {
                let message = format!("the store answered {other:?} to a renewal");
                self.renewal_failed(
                    op,
                    tag.purpose,
                    asked,
                    StoreError::maybe_done(StoreErrorKind::Internal, message),
                    jitter,
                );
            }
            Err(error) => self.renewal_failed(op, tag.purpose, asked, error, jitter),
        }
    }

    /// The lease is somebody else's business now.
    fn detached(&mut self, op: OpId) {
        let Some(tenure) = self.tenures.get(&op) else { return };
        if !tenure.state.release(self.now) {
            // Lost or released meanwhile: that is told by whoever found it.
            return self.schedule_now(op);
        }
        let Some(tenure) = self.end_tenure(op) else { return };
        tenure.stats.detached.up();
        self.settle(op, Outcome::Detached);
        self.leave_line(op, &tenure);
    }

    /// The lease lives on until its deadline; until then the renewal is tried again, whatever the error, because
    /// nobody knows better what an administrator is just mending.
    fn renewal_failed(&mut self, op: OpId, purpose: Purpose, asked: bool, error: StoreError, jitter: f64) {
        let now = self.now;
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        tenure.stats.errors.up();
        tenure.state.renewal_failed(now, error.clone());
        if asked || purpose == Purpose::Detach {
            self.settle(op, Outcome::RenewFailed(error));
        } else if matches!(purpose, Purpose::Keep | Purpose::TakeUp) {
            tenure.failures += 1;
            tenure.renew_at = renewal::retry(now, tenure.term(), tenure.failures, jitter);
        }
        self.schedule_tenure(op);
    }

    pub(super) fn schedule_now(&mut self, op: OpId) {
        if let Some(tenure) = self.tenures.get_mut(&op) {
            tenure.wake = self.now;
            self.timers.schedule(self.now, Wake::Tenure(op));
        }
    }
}
