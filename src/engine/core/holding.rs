//! Tenures: leases that are held, how they are renewed, and how they are lost.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::acquiring::Waiter;
use super::outgoing::{RenewTag, Tag};
use super::{Client, Core, Lock, Wake};
use crate::engine::command::{ClientId, EnvId, OpId, Outcome, StoreId};
use crate::engine::stats::Stats;
use crate::lease::renewal;
use crate::lease::{Fence, Instant, Key, LeaseState, LossReason, Phase, Token, Ttl, validity};
use crate::store::{Absence, Answer, Reply, Request, StoreError, StoreErrorKind};

/// The shortest time in which a renewal may fail, however short the ttl is.
const SHORTEST_RENEWAL_TIMEOUT: Duration = Duration::from_millis(100);

/// How long a thread that holds leases goes unasked for a sign of life, at most.
const LONGEST_WITHOUT_QUESTION: Duration = Duration::from_secs(1);

/// How much earlier than `maxStall` before a renewal the thread is asked, so that it is known by then.
const QUESTION_AHEAD: Duration = Duration::from_millis(2);

/// A lease while it is held.
pub struct Tenure {
    pub(super) client: ClientId,
    pub(super) store: StoreId,
    pub(super) key: Key,
    pub(super) token: Token,
    pub(super) state: Arc<LeaseState>,
    pub(super) stats: Arc<Stats>,
    pub(super) ttl: Ttl,
    /// When it ends whatever is renewed, because of `maxHold`.
    end: Option<Instant>,
    auto_renew: bool,
    report: bool,
    /// Whether the thread was asked for a sign of life ahead of the next renewal.
    questioned: bool,
    /// When the store lets the lease expire at the latest, renewals without an answer included.
    pub(super) store_expiry: Instant,
    /// When to renew next.
    renew_at: Instant,
    /// Whether an automatic renewal is on its way.
    renewing: bool,
    failures: u32,
    pub(super) wake: Instant,
}

impl Tenure {
    pub(super) fn lock(&self) -> Lock {
        (self.store, self.key.clone())
    }

    /// When to ask the thread for a sign of life ahead of the next renewal.
    fn question_at(&self, max_stall: Duration) -> Instant {
        self.renew_at - max_stall.saturating_add(QUESTION_AHEAD)
    }
}

fn max_stall(clients: &FxHashMap<ClientId, Client>, client: ClientId) -> Duration {
    clients.get(&client).map_or(Duration::MAX, |client| client.settings.max_stall)
}

impl Core {
    /// The store granted a waiter its lease, by a request that was sent at `sent`.
    pub(super) fn hold(&mut self, waiter: Waiter, sent: Instant, fence: Fence) {
        let jitter = self.jitter();
        let Waiter { asked, store, stats, .. } = waiter;
        let end = asked.max_hold.map(|span| sent + span);
        let deadline = end
            .map_or(validity::deadline(sent, asked.ttl), |end| end.min(validity::deadline(sent, asked.ttl)));
        asked.state.grant(deadline);
        stats.acquired.up();
        stats.held.up();
        let tenure = Tenure {
            client: asked.client,
            store,
            key: asked.key,
            token: asked.token,
            state: asked.state,
            stats,
            ttl: asked.ttl,
            end,
            auto_renew: asked.auto_renew,
            report: asked.report,
            questioned: false,
            store_expiry: self.now + asked.ttl.as_duration(),
            renew_at: renewal::next(sent, asked.ttl, jitter),
            renewing: false,
            failures: 0,
            wake: Instant::default(),
        };
        self.tenures.insert(asked.op, tenure);
        self.schedule_tenure(asked.op);
        self.settle(asked.op, Outcome::Acquired(fence));
    }

    fn schedule_tenure(&mut self, op: OpId) {
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        let deadline = tenure.state.deadline();
        let renews = tenure.auto_renew && !tenure.renewing;
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
        if tenure.auto_renew && !tenure.renewing && tenure.renew_at <= self.now {
            if self.is_stalled(env, client) {
                let jitter = self.jitter();
                let tenure = self.tenures.get_mut(&op).expect("found above");
                tenure.state.stall(self.now);
                tenure.renew_at = renewal::retry(self.now, tenure.ttl, u32::MAX, jitter);
            } else {
                self.send_renewal(op, None);
            }
        } else if tenure.auto_renew && !tenure.questioned && tenure.question_at(max_stall) <= self.now {
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

    /// The holder wants its lease renewed now.
    pub(super) fn renew_now(&mut self, op: OpId, ttl: Option<Ttl>) {
        // A lease that is gone has said so, or its release is about to.
        let Some(tenure) = self.tenures.get(&op) else { return };
        match tenure.state.phase(self.now) {
            Phase::Held | Phase::Stalled => self.send_renewal(op, Some(ttl.unwrap_or(tenure.ttl))),
            Phase::Lost(reason) => self.lose(op, reason),
            Phase::Released | Phase::Pending => {}
        }
    }

    /// Asks the store to renew: for the ttl that the holder asks for, else for the lease's own.
    fn send_renewal(&mut self, op: OpId, asked: Option<Ttl>) {
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        let explicit = asked.is_some();
        let (key, token, ttl) = (tenure.key.clone(), tenure.token, asked.unwrap_or(tenure.ttl));
        tenure.renewing |= !explicit;
        let (store, client) = (tenure.store, tenure.client);
        let third = SHORTEST_RENEWAL_TIMEOUT.max(ttl.as_duration() / 3);
        // Nobody knows when the store carries it out, but not later than its time-out.
        tenure.store_expiry = tenure.store_expiry.max(self.now + third + ttl.as_duration());
        let timeout = self.store_timeout(client).min(third);
        self.send(
            store,
            Request::Renew { key, token, ttl, fences: 0 },
            Tag::Renew(RenewTag { op, token, ttl, explicit }),
            timeout,
        );
    }

    /// The store answered a renewal that was sent at `sent`.
    pub(super) fn renewed(&mut self, sent: Instant, tag: RenewTag, answer: Answer) {
        let jitter = self.jitter();
        let now = self.now;
        let op = tag.op;
        let Some(tenure) = self.tenures.get_mut(&op).filter(|t| t.token == tag.token) else { return };
        tenure.renewing &= tag.explicit;
        match answer {
            Ok(Reply::Renewed { .. }) => {
                tenure.failures = 0;
                let deadline = validity::deadline(sent, tag.ttl);
                let deadline = tenure.end.map_or(deadline, |end| end.min(deadline));
                if !tenure.state.extend(now, deadline) {
                    return self.schedule_now(op);
                }
                if tag.explicit {
                    tenure.ttl = tag.ttl;
                }
                tenure.renew_at = renewal::next(sent, tenure.ttl, jitter);
                tenure.questioned = false;
                tenure.stats.renewals.up();
                let report = tenure.report;
                if tag.explicit {
                    self.settle(op, Outcome::Renewed);
                } else if report {
                    self.settle(op, Outcome::AutoRenewed);
                }
                self.schedule_tenure(op);
            }
            Ok(Reply::NotHeld(absence)) => {
                let reason = match absence {
                    Absence::Missing => LossReason::Missing,
                    Absence::Taken => LossReason::Taken,
                };
                if let Phase::Lost(reason) = tenure.state.lose(now, reason) {
                    self.lose(op, reason);
                }
            }
            Ok(other) => {
                let message = format!("the store answered {other:?} to a renewal");
                self.renewal_failed(
                    op,
                    tag.explicit,
                    StoreError::maybe_done(StoreErrorKind::Internal, message),
                    jitter,
                );
            }
            Err(error) => self.renewal_failed(op, tag.explicit, error, jitter),
        }
    }

    /// The lease lives on until its deadline; until then the renewal is tried again, whatever the error, because
    /// nobody knows better what an administrator is just mending.
    fn renewal_failed(&mut self, op: OpId, explicit: bool, error: StoreError, jitter: f64) {
        let now = self.now;
        let Some(tenure) = self.tenures.get_mut(&op) else { return };
        tenure.stats.errors.up();
        if explicit {
            self.settle(op, Outcome::RenewFailed(error));
        } else {
            tenure.failures += 1;
            tenure.renew_at = renewal::retry(now, tenure.ttl, tenure.failures, jitter);
        }
        self.schedule_tenure(op);
    }

    /// The lease is lost: tells its holder, and gives back what the store may still keep of it.
    pub(super) fn lose(&mut self, op: OpId, reason: LossReason) {
        let Some(tenure) = self.end_tenure(op) else { return };
        tenure.stats.lost.up();
        let lock = tenure.lock();
        if matches!(reason, LossReason::Expired | LossReason::Stalled) {
            self.clean_up_after(tenure);
        }
        self.settle(op, Outcome::Lost(reason));
        self.promote(&lock, self.now);
    }

    /// Takes a tenure out of the books.
    pub(super) fn end_tenure(&mut self, op: OpId) -> Option<Tenure> {
        let tenure = self.tenures.remove(&op)?;
        tenure.stats.held.down();
        Some(tenure)
    }

    fn schedule_now(&mut self, op: OpId) {
        if let Some(tenure) = self.tenures.get_mut(&op) {
            tenure.wake = self.now;
            self.timers.schedule(self.now, Wake::Tenure(op));
        }
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
