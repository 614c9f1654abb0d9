//! Acquires that a server refuses although it is there: when that is worth telling, and when it is over.
//!
//! Each kind of acquire counts by itself. A full Redis refuses exclusive leases and grants shared ones: it lets a script
//! go on that has begun to write, and the script for shared leases begins with a write that needs no memory. So only an
//! acquire of the kind that was refused shows that the server can be used again.
//!
//! At the edge of its memory a server refuses most acquires and grants some. So one that it takes in ends nothing unless
//! [`CALM`] passes without a refusal.

use std::time::Duration;

use tokio::time::Instant;

use crate::lease::Mode;
use crate::store::StoreErrorKind;

/// How long after the last refusal a server is said to be usable again. If it is shorter, a server at the edge of its
/// memory is told as refusing and usable in turn, several times a second. If it is longer, it is told later.
pub const CALM: Duration = Duration::from_secs(1);

/// What an acquire asks for, as far as a server may refuse one and grant the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An exclusive lease.
    Exclusive,
    /// A shared lease.
    Shared,
}

impl Kind {
    /// Both.
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
    /// Why it refused last.
    pub reason: Option<StoreErrorKind>,
}

/// Acquires of one kind that were refused since one was not.
#[derive(Debug, Default)]
struct Refused {
    rounds: u32,
    /// When the first of the last round was refused.
    round: Option<Instant>,
    /// When the last one was refused.
    last: Option<Instant>,
    /// Whether one was taken in since.
    accepted: bool,
}

impl Refusals {
    /// An acquire that was sent at `began` was refused at `now`. Returns true if the server gave another reason before.
    pub fn add(&mut self, kind: Kind, began: Instant, reason: StoreErrorKind, now: Instant) -> bool {
        let refused = &mut self.of[kind as usize];
        if refused.round.is_none_or(|ended| began >= ended) {
            refused.rounds = refused.rounds.saturating_add(1);
            refused.round = Some(now);
        }
        (refused.last, refused.accepted) = (Some(now), false);
        self.reason.replace(reason) != Some(reason)
    }

    /// An acquire was taken in, by a server that is usable.
    pub fn forget(&mut self, kind: Kind) {
        self.of[kind as usize] = Refused::default();
        if self.rounds() == 0 {
            self.reason = None;
        }
    }

    /// An acquire was taken in, by a server that refuses.
    pub fn accept(&mut self, kind: Kind) {
        self.of[kind as usize].accepted = true;
    }

    /// Returns how many acquires in a row, of the kind with more of them, were refused.
    pub fn rounds(&self) -> u32 {
        self.of.iter().map(|refused| refused.rounds).max().unwrap_or(0)
    }

    /// Returns when they are over, unless there are more; `None` as long as no acquire was taken in of a kind that was
    /// refused at least `rounds` times.
    pub fn end(&self, rounds: u32) -> Option<Instant> {
        let refused = || self.of.iter().filter(|refused| refused.rounds >= rounds);
        let last = self.of.iter().filter_map(|refused| refused.last).max()?;
        refused().all(|refused| refused.accepted).then_some(last + CALM)
    }
}
