//! A circuit breaker: stops the requests to a server that has failed several times in a row. Pure:
//! the caller passes in what happened, and when.
//!
//! ```text
//!  Closed ──failures in a row──▶ Open ──pause over, a probe is sent──▶ HalfOpen
//!    ▲                            ▲                                      │
//!    │                            └───────────── it fails, too ──────────┤
//!    └──────────────────────────── the server answers anything ──────────┘
//!  Closed ──acquires in a row are refused──▶ Refusing ──one accepted, none refused for 1 s──▶ Closed
//!                                            Refusing ──failures in a row──▶ Open
//! ```
//!
//! A refusing server still gets requests, and callers get its own errors. In a quorum, no call
//! fails while the other servers are enough. Then only the breaker's state tells that this server
//! refuses.
//!
//! [`super::guarded`] puts a breaker around a store.

mod refusals;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::refusals::Kind;
use self::refusals::Refusals;
use super::{StoreError, StoreErrorKind};

/// The pause before the first probe, at most; it doubles with each probe that fails, up to [`LONGEST_PAUSE`].
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between two probes. With the pause of whoever asks again, service is back within a second of the server.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What a request is told besides that is not let through.
pub const NOT_ASKED: &str =
    " [not asked again yet: it has failed several times in a row, and is looked for by itself]";

/// What it takes to open a breaker.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many rounds of failures without an answer between them. Requests that were under way together are one round: a
    /// connection that breaks fails them all, and the next one may be well. At least 1.
    pub rounds: u32,
    /// Or two rounds, when the server has been silent for so long.
    pub silence: Duration,
    /// A request that was given less time than this says nothing about the server when its time is over: the hasty must not
    /// make others fail.
    pub patience: Duration,
}

impl Default for Limits {
    /// Three rounds; a second and a half; a tenth of a second.
    fn default() -> Self {
        Self { rounds: 3, silence: Duration::from_millis(1500), patience: Duration::from_millis(100) }
    }
}

/// What a breaker lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// Everything.
    Closed,
    /// Nothing.
    Open,
    /// One probe, which is under way.
    HalfOpen,
    /// Everything. The server answers, and what it answers to acquires is that it can't be used.
    Refusing,
}

impl BreakerState {
    /// Whether requests are let through.
    pub fn lets_through(self) -> bool {
        matches!(self, Self::Closed | Self::Refusing)
    }
}

/// The health of one server, as its breaker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Which server: its URL without a password.
    pub store: Arc<str>,
    /// What its breaker lets through.
    pub state: BreakerState,
    /// How many times in a row it has failed, or refused.
    pub failures: u32,
    /// When it was last found to be there, not to be (open and half-open are one), or to refuse, in ms since 1970.
    pub since: u64,
    /// How it failed last, unless the breaker is closed.
    pub reason: Option<StoreErrorKind>,
}

impl Health {
    /// That of a server of which nothing bad is known, at `since`, in ms since 1970.
    pub fn good(store: Arc<str>, since: u64) -> Self {
        Self { store, state: BreakerState::Closed, failures: 0, since, reason: None }
    }
}

/// A request that failed because the server is not there.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// When it was sent.
    pub began: Instant,
    /// Whether it was a probe.
    pub probe: bool,
    /// What went wrong.
    pub error: &'a StoreError,
}

/// Whether an error says that nobody answered, rather than what somebody answered.
pub fn is_silence(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Unreachable | StoreErrorKind::TimedOut)
}

/// Whether an error says that the server can't be used as it is, whatever lock is asked for.
fn is_refusal(error: &StoreError) -> bool {
    use StoreErrorKind::{Denied, Full, Loading, ReadOnly, Unreplicated, Unsupported, Untrusted};
    matches!(error.kind, Denied | Full | Loading | ReadOnly | Unreplicated | Unsupported | Untrusted)
}

/// A circuit breaker. See the module.
#[derive(Debug)]
pub struct Breaker {
    limits: Limits,
    state: BreakerState,
    /// Rounds of failures since the last answer, probes included.
    failures: u32,
    /// When the first of them began, and when the first request of the last round failed.
    first: Option<Instant>,
    round: Option<Instant>,
    error: Option<StoreError>,
    /// When the next probe is due.
    probe_at: Option<Instant>,
    /// Probes that have failed since it opened.
    probes: u32,
    refusals: Refusals,
}

impl Breaker {
    /// A closed one.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: BreakerState::Closed,
            failures: 0,
            first: None,
            round: None,
            error: None,
            probe_at: None,
            probes: 0,
            refusals: Refusals::default(),
        }
    }

    /// What it lets through.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Returns the number of rounds of failures since the last answer, or of refusals.
    pub fn failures(&self) -> u32 {
        if self.state == BreakerState::Refusing { self.refusals.rounds() } else { self.failures }
    }

    /// How the server failed last, or why it refused; `None` if it has not since its last answer.
    pub fn reason(&self) -> Option<StoreErrorKind> {
        if self.state == BreakerState::Refusing {
            return self.refusals.reason;
        }
        self.error.as_ref().map(|error| error.kind)
    }

    /// When the next probe is due; `None` if none is, because the breaker is closed or one is under way.
    pub fn probe_at(&self) -> Option<Instant> {
        self.probe_at
    }

    /// The server answered something: it is there. Says whether that changed the state.
    pub fn answered(&mut self) -> bool {
        if self.failures == 0 {
            return false;
        }
        let refusals = std::mem::take(&mut self.refusals);
        let before = std::mem::replace(self, Self::new(self.limits)).state;
        self.refusals = refusals;
        if before == BreakerState::Refusing {
            // It may do all else.
            self.state = before;
        }
        !before.lets_through()
    }

    /// Notes that an acquire of that `kind`, sent at `began`, failed with `error` at `now`. Returns
    /// whether that changed the state or its reason.
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
            BreakerState::Closed if self.refusals.rounds() >= self.limits.rounds => {
                self.state = BreakerState::Refusing
            }
            BreakerState::Refusing if is_news => {}
            _ => return false,
        }
        true
    }

    /// Notes that the server accepted an acquire of that `kind` at `now`, and wrote it down.
    /// `granted` tells whether the server granted the lease: only grants have to reach the
    /// replicas. Returns whether that changed the state.
    pub fn accepted(&mut self, kind: Kind, granted: bool, now: Instant) -> bool {
        if !granted && self.refusals.reason == Some(StoreErrorKind::Unreplicated) {
            return false;
        }
        if self.state != BreakerState::Refusing {
            self.refusals.forget(kind);
            return false;
        }
        self.refusals.accept(kind);
        self.calm_down(now)
    }

    /// Returns when the breaker closes if the server refuses no more acquires until then. Returns
    /// `None` if the server does not refuse, or has not yet accepted an acquire of each kind that
    /// it refused.
    pub fn calm_at(&self) -> Option<Instant> {
        (self.state == BreakerState::Refusing).then(|| self.refusals.end(self.limits.rounds)).flatten()
    }

    /// Closes the breaker if it is time to do so. Returns whether that changed the state.
    pub fn calm_down(&mut self, now: Instant) -> bool {
        let is_over = self.calm_at().is_some_and(|at| at <= now);
        if is_over {
            self.refusals = Refusals::default();
            self.state = BreakerState::Closed;
        }
        is_over
    }

    /// A request that had `timeout` failed at `now`. `jitter` is a random number in 0 … 1. Says whether that changed the state.
    pub fn failed(&mut self, failure: Failure<'_>, timeout: Duration, now: Instant, jitter: f64) -> bool {
        let Failure { began, probe, error } = failure;
        if error.kind == StoreErrorKind::TimedOut && timeout < self.limits.patience && !probe {
            return false;
        }
        // Those that were under way when the round ended belong to it, and don't make it longer: else requests that
        // overlap would be one round for ever.
        if probe || self.round.is_none_or(|ended| began >= ended) {
            self.failures = self.failures.saturating_add(1);
            self.round = Some(now);
        }
        let first = *self.first.get_or_insert(began);
        self.error = Some(error.clone());
        let enough = self.failures >= self.limits.rounds
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

    /// A probe is being sent, whether it is due or not. Says whether that changed the state; if not, the breaker is closed or
    /// another probe is under way.
    pub fn probe(&mut self) -> bool {
        if self.state != BreakerState::Open {
            return false;
        }
        self.state = BreakerState::HalfOpen;
        self.probe_at = None;
        true
    }

    /// What a request is told that is not let through: the same words each time, so that logs can count them. Since when it is
    /// so, and how often it has failed, is in the server's health.
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
