//! A circuit breaker: stops the requests to a server that has failed several times in a row. Pure:
//! the caller passes in what happened, and when.
//!
//! ```text
//!  Closed ──failures in a row──▶ Open ──pause over, a probe is sent──▶ HalfOpen
//!    ▲                            ▲                                      │
//!    │                            └───────────── it fails, too ──────────┤
//!    └──────────────────────────── the server answers anything ──────────┘
//!  Closed ──acquires in a row are refused──▶ Refusing ──one accepted, no refusal for 1 s──▶ Closed
//!                                            Refusing ──failures in a row──▶ Open
//! ```
//!
//! [`Limits`] says how many failures: three waves, or two waves and 1.5 s of silence. The pause
//! before a probe grows from 200 ms to 500 ms.
//!
//! A refusing server still gets requests, and callers get its own errors. In a quorum, no call
//! fails while the other servers are enough. Then only the breaker's state tells that this server
//! refuses.
//!
//! [`super::breaker_store`] puts a breaker around a store.

mod refusals;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::refusals::Kind;
use self::refusals::Refusals;
use super::{StoreError, StoreErrorKind};

/// The longest pause before the first probe: the jitter shortens a pause by up to half. The pause
/// doubles with each probe that fails, up to [`LONGEST_PAUSE`]. If this is larger, a short outage
/// lasts longer for callers; if it is smaller, a server that is down gets more pings.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two probes. This pause and the pause of a caller that asks again take
/// less than a second together, so callers are served within a second after the server is back. If
/// this is larger, callers wait longer; if it is smaller, a server that is down gets more pings.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The end of the error message for a request that was not sent because the breaker is open.
pub const NOT_ASKED: &str =
    " [not asked now: it failed several times in a row; the client checks by itself when it is back]";

/// The limits at which a breaker opens.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Waves of failures without an answer between them. Requests that were under way together are
    /// one wave: a connection that breaks fails them all, and the next one may work. At least 1.
    pub waves: u32,
    /// The breaker also opens after two waves if the server has been silent for this long.
    pub silence: Duration,
    /// If a request times out and its time-out was shorter than this, it does not count as a
    /// failure: impatient callers must not make the requests of others fail.
    pub patience: Duration,
}

impl Default for Limits {
    /// Returns the defaults: three waves, 1.5 s of silence, and time-outs of at least 100 ms.
    fn default() -> Self {
        Self { waves: 3, silence: Duration::from_millis(1500), patience: Duration::from_millis(100) }
    }
}

/// The state of a breaker, which decides which requests it lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Lets all requests through.
    Closed,
    /// Lets no requests through.
    Open,
    /// Lets only one probe through, which is under way.
    HalfOpen,
    /// Lets all requests through. The server answers, but refuses acquires because it can't be used
    /// as it is.
    Refusing,
}

impl BreakerState {
    /// Returns true if the breaker lets requests through.
    pub fn lets_through(self) -> bool {
        matches!(self, Self::Closed | Self::Refusing)
    }
}

/// The health of one server, as its breaker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The server's URL without a password.
    pub store: Arc<str>,
    /// The state of its breaker.
    pub state: BreakerState,
    /// The number of times in a row that the server has failed, or refused.
    pub failures: u32,
    /// Since when the server is usable, away, or refusing, in ms since 1970. Open and half-open
    /// both count as away.
    pub since: u64,
    /// The reason of the last failure or refusal; `None` if the breaker is closed.
    pub reason: Option<StoreErrorKind>,
}

impl Health {
    /// Returns the health of a server that has had no failure, at `since`, in ms since 1970.
    pub fn good(store: Arc<str>, since: u64) -> Self {
        Self { store, state: BreakerState::Closed, failures: 0, since, reason: None }
    }
}

/// A request that failed because the server does not answer.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// When the request was sent.
    pub began: Instant,
    /// True for a probe.
    pub probe: bool,
    /// The error of the request.
    pub error: &'a StoreError,
}

/// Returns true if an error says that the server did not answer. Other errors are answers of the
/// server.
pub fn is_silence(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::TimedOut)
}

/// Returns true if an error says that the server can't be used as it is, for any lock.
fn is_refusal(error: &StoreError) -> bool {
    use StoreErrorKind::{Denied, Full, Loading, ReadOnly, Unreplicated, Unsupported, Untrusted};
    matches!(error.kind, Denied | Full | Loading | ReadOnly | Unreplicated | Unsupported | Untrusted)
}

/// A circuit breaker. See the module.
#[derive(Debug)]
pub struct Breaker {
    limits: Limits,
    state: BreakerState,
    /// The waves of failures since the last answer, probes included.
    failures: u32,
    /// When the first request of the first wave was sent.
    first: Option<Instant>,
    /// When the last wave ended: its first request failed then.
    wave_ended: Option<Instant>,
    error: Option<StoreError>,
    /// When the next probe is due.
    probe_at: Option<Instant>,
    /// The probes that have failed since the breaker opened.
    probes: u32,
    refusals: Refusals,
}

impl Breaker {
    /// Returns a closed breaker.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: BreakerState::Closed,
            failures: 0,
            first: None,
            wave_ended: None,
            error: None,
            probe_at: None,
            probes: 0,
            refusals: Refusals::default(),
        }
    }

    /// Returns the state.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns the number of waves of failures since the last answer, or of refusals.
    pub fn failures(&self) -> u32 {
        if self.state == BreakerState::Refusing { self.refusals.waves() } else { self.failures }
    }

    /// Returns how the server failed last, or why it refused; `None` if it has not failed since its
    /// last answer.
    pub fn reason(&self) -> Option<StoreErrorKind> {
        if self.state == BreakerState::Refusing {
            return self.refusals.reason;
        }
        self.error.as_ref().map(|error| error.kind)
    }

    /// Returns when the next probe is due; `None` if the breaker is closed or a probe is under way.
    pub fn probe_at(&self) -> Option<Instant> {
        self.probe_at
    }

    /// Notes that the server answered something, so it is there. Returns true if that changed the
    /// state.
    pub fn answered(&mut self) -> bool {
        if self.failures == 0 {
            return false;
        }
        let refusals = std::mem::take(&mut self.refusals);
        let before = std::mem::replace(self, Self::new(self.limits)).state;
        self.refusals = refusals;
        if before == BreakerState::Refusing {
            // The answer does not show that the server accepts acquires again.
            self.state = before;
        }
        !before.lets_through()
    }

    /// Notes that an acquire of that `kind`, sent at `began`, failed with `error` at `now`. Returns
    /// true if that changed the state or its reason.
    pub fn refused(&mut self, kind: Kind, began: Instant, error: &StoreError, now: Instant) -> bool {
        let reason = match error.kind {
            // A request that waits for replicas blocks the requests behind it until they time out.
            StoreErrorKind::TimedOut if self.refusals.reason == Some(StoreErrorKind::Unreplicated) => {
                StoreErrorKind::Unreplicated
            }
            reason if is_refusal(error) => reason,
            _ => return false,
        };
        let is_news = self.refusals.add(kind, began, reason, now);
        match self.state {
            BreakerState::Closed if self.refusals.waves() >= self.limits.waves => {
                self.state = BreakerState::Refusing
            }
            BreakerState::Refusing if is_news => {}
            _ => return false,
        }
        true
    }

    /// Notes that the server accepted an acquire of that `kind` at `now`, and wrote it down.
    /// `granted` is true if the server granted the lease: only grants have to reach the replicas.
    /// Returns true if that changed the state.
    pub fn accepted(&mut self, kind: Kind, granted: bool, now: Instant) -> bool {
        if !granted && self.refusals.reason == Some(StoreErrorKind::Unreplicated) {
            return false;
        }
        if self.state != BreakerState::Refusing {
            self.refusals.forget(kind);
            return false;
        }
        self.refusals.accept(kind);
        self.become_stable(now)
    }

    /// Returns when the breaker closes if the server refuses no more acquires until then. Returns
    /// `None` if the server does not refuse, or has not yet accepted an acquire of each kind that
    /// it refused.
    pub fn stable_at(&self) -> Option<Instant> {
        (self.state == BreakerState::Refusing).then(|| self.refusals.end(self.limits.waves)).flatten()
    }

    /// Closes the breaker if it is time to do so. Returns true if that changed the state.
    pub fn become_stable(&mut self, now: Instant) -> bool {
        let is_over = self.stable_at().is_some_and(|at| at <= now);
        if is_over {
            self.refusals = Refusals::default();
            self.state = BreakerState::Closed;
        }
        is_over
    }

    /// Notes that a request with a time-out of `timeout` failed at `now`. `jitter` is a random
    /// number in 0 … 1. Returns true if that changed the state.
    pub fn failed(&mut self, failure: Failure<'_>, timeout: Duration, now: Instant, jitter: f64) -> bool {
        let Failure { began, probe, error } = failure;
        if error.kind == StoreErrorKind::TimedOut && timeout < self.limits.patience && !probe {
            return false;
        }
        // A wave ends when its first request fails. The other requests that are under way then
        // belong to it. Their failures do not prolong it: otherwise, requests that overlap would be
        // one wave for ever.
        if probe || self.wave_ended.is_none_or(|ended| began >= ended) {
            self.failures = self.failures.saturating_add(1);
            self.wave_ended = Some(now);
        }
        let first = *self.first.get_or_insert(began);
        self.error = Some(error.clone());
        let enough = self.failures >= self.limits.waves
            || self.failures >= 2 && now.duration_since(first) >= self.limits.silence;
        match self.state {
            BreakerState::Closed | BreakerState::Refusing if enough => self.refusals = Refusals::default(),
            BreakerState::HalfOpen if probe => self.probes = self.probes.saturating_add(1),
            _ => return false,
        }
        self.state = BreakerState::Open;
        let pause = SHORTEST_PAUSE.saturating_mul(1 << self.probes.min(8)).min(LONGEST_PAUSE);
        self.probe_at = Some(now + pause.mul_f64(0.5 + 0.5 * jitter));
        true
    }

    /// Notes that a probe is being sent, due or not. Returns true if that changed the state. If
    /// not, the breaker is closed or another probe is under way.
    pub fn probe(&mut self) -> bool {
        if self.state != BreakerState::Open {
            return false;
        }
        self.state = BreakerState::HalfOpen;
        self.probe_at = None;
        true
    }

    /// Returns the error of a request that is not let through. Its text is the same each time, so
    /// that logs can count it. The server's health has the number of failures, and since when the
    /// server fails.
    pub fn refusal(&self) -> StoreError {
        let (kind, last) = match &self.error {
            Some(error) => (error.kind, &*error.message),
            None => (StoreErrorKind::Unreachable, "the store failed"),
        };
        StoreError::not_done(kind, format!("{last}{NOT_ASKED}"))
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
