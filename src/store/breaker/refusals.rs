//! Counts the acquires that a server refuses although it is there. Decides when the breaker reports
//! the server as refusing, and when the refusals are over.
//!
//! Each kind of acquire is counted separately. A full Redis refuses exclusive leases and grants
//! shared ones: once a script has written, Redis lets it go on, and the script for shared leases
//! begins with a write that needs no memory. So only an accepted acquire of the refused kind shows
//! that the server is usable again.
//!
//! A server at the edge of its memory refuses most acquires and grants some. So an accepted acquire
//! ends the refusals only if the server has refused none for [`STABLE_AFTER`].

use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Mode;
use crate::store::StoreErrorKind;

/// How long after its last refusal a server is reported as usable again. If this is smaller, a
/// server at the edge of its memory is reported as refusing and as usable in turn, several times a
/// second. If it is larger, a server that works again is reported later.
pub const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The kind of lease that an acquire asks for. A server may refuse one kind and grant the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An exclusive lease.
    Exclusive,
    /// A shared lease.
    Shared,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 2] = [Kind::Exclusive, Kind::Shared];
}

impl From<Mode> for Kind {
    fn from(mode: Mode) -> Self {
        if mode.is_shared() { Self::Shared } else { Self::Exclusive }
    }
}

/// The refusals since the server was last usable.
#[derive(Debug, Default)]
pub struct Refusals {
    of: [Refused; 2],
    /// The reason of the last refusal.
    pub reason: Option<StoreErrorKind>,
}

/// The refusals of one kind since the server last accepted an acquire of it while it was usable.
#[derive(Debug, Default)]
struct Refused {
    waves: u32,
    /// When the last wave ended: its first acquire was refused then.
    wave_ended: Option<Instant>,
    /// When the last acquire was refused.
    last: Option<Instant>,
    /// True if an acquire was accepted since the last refusal.
    accepted: bool,
}

impl Refusals {
    /// Notes that an acquire that was sent at `began` was refused at `now`. Returns true if the
    /// last refusal had another reason.
    pub fn add(&mut self, kind: Kind, began: Instant, reason: StoreErrorKind, now: Instant) -> bool {
        let refused = &mut self.of[kind as usize];
        if refused.wave_ended.is_none_or(|ended| began >= ended) {
            refused.waves = refused.waves.saturating_add(1);
            refused.wave_ended = Some(now);
        }
        (refused.last, refused.accepted) = (Some(now), false);
        self.reason.replace(reason) != Some(reason)
    }

    /// Notes that a usable server accepted an acquire.
    pub fn forget(&mut self, kind: Kind) {
        self.of[kind as usize] = Refused::default();
        if self.waves() == 0 {
            self.reason = None;
        }
    }

    /// Notes that a refusing server accepted an acquire.
    pub fn accept(&mut self, kind: Kind) {
        self.of[kind as usize].accepted = true;
    }

    /// Returns the number of waves of refusals in a row, of the kind that has more of them.
    pub fn waves(&self) -> u32 {
        self.of.iter().map(|refused| refused.waves).max().unwrap_or(0)
    }

    /// Returns when the refusals are over if no other acquire is refused until then. A kind that
    /// was refused in fewer than `waves` waves does not matter. Returns `None` until the server
    /// has accepted an acquire of each other kind since its last refusal.
    pub fn end(&self, waves: u32) -> Option<Instant> {
        let refused = || self.of.iter().filter(|refused| refused.waves >= waves);
        let last = self.of.iter().filter_map(|refused| refused.last).max()?;
        refused().all(|refused| refused.accepted).then_some(last + STABLE_AFTER)
    }
}
