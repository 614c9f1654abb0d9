//! The domain: what a lock and a lease are, when a lease ends, when it is renewed, and which waiter
//! is next.
//!
//! Nothing in this module does I/O, reads a clock or knows of Node or of any store. Time comes in
//! as an argument, so that every rule can be tested, and simulated, at any instant.

pub mod hand_off;
pub mod in_doubt;
pub mod instant;
pub mod queue;
pub mod renewal;
pub mod state;
pub mod validity;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use instant::Instant;
pub use state::{LeaseState, LossReason, Phase};

use crate::mutants::{self, Mutant};

/// The name of a lock as the store sees it: the client's prefix and the user's key.
pub type Key = Arc<str>;

/// The unguessable value that proves ownership of a lease at the store (a version 4 UUID).
///
/// It is a secret: a client that knows it can release the lease. `Debug` therefore does not show
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(uuid::Uuid);

impl Token {
    /// Returns a new token from the process's cryptographic random generator.
    pub fn random() -> Self {
        Self(random_uuid())
    }

    /// Returns the token that `text` spells, or `None` if `text` is no UUID in its hyphenated form.
    pub fn parse(text: &str) -> Option<Self> {
        uuid::Uuid::try_parse(text).ok().map(Self)
    }

    /// Writes the 36 characters that stores keep into `buffer`.
    pub fn encode<'a>(&self, buffer: &'a mut [u8; Token::LENGTH]) -> &'a str {
        self.0.hyphenated().encode_lower(buffer)
    }

    /// Returns the first 32 bits of the token. They tell two tokens apart without revealing them.
    pub fn mark(&self) -> u32 {
        self.0.as_fields().0
    }

    /// Returns a fresh token with which `adopter` claims the lease of `ticket`. The token has the
    /// [mark](Token::mark) of `adopter`, the first 28 bits of `ticket`, and the UUID version 8.
    /// Other tokens have version 4.
    pub fn claim(ticket: Token, adopter: Token) -> Self {
        let (mut bytes, of) = (*random_uuid().as_bytes(), ticket.0.as_bytes());
        bytes[..4].copy_from_slice(&adopter.0.as_bytes()[..4]);
        bytes[4..8].copy_from_slice(&[of[0], of[1], 0x80 | of[2] >> 4, of[2] << 4 | of[3] >> 4]);
        Self(uuid::Uuid::from_bytes(bytes))
    }

    /// Returns true if this token is a [claim](Token::claim) to the lease of `ticket`. A claim is
    /// never a ticket, although it begins with the same bits as its adopter's token, which may be
    /// the next ticket.
    pub fn claims(&self, ticket: Token) -> bool {
        let is_claim = ticket.0.get_version_num() == 8 && !mutants::is(Mutant::ClaimTakenForTicket);
        !is_claim && self.0.as_bytes()[4..8] == Self::claim(ticket, *self).0.as_bytes()[4..8]
    }

    /// The number of characters that [`Token::encode`] writes.
    pub const LENGTH: usize = uuid::fmt::Hyphenated::LENGTH;
}

/// Returns a number of 64 bits from the process's cryptographic random generator.
pub fn random_number() -> u64 {
    // The first 48 bits of the UUID are random, and the last 62.
    let (high, low) = random_uuid().as_u64_pair();
    high & !0xFFFF ^ low << 2 >> 2
}

/// Returns a random UUID. In a simulation, it depends on the seed.
fn random_uuid() -> uuid::Uuid {
    #[cfg(feature = "mutants")]
    if let Some(bytes) = crate::mutants::seeded_bytes() {
        return uuid::Builder::from_random_bytes(bytes).into_uuid();
    }
    uuid::Uuid::new_v4()
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A number that grows with every lease of a key, so that storage can refuse a write that comes
/// late (Kleppmann, "How to do distributed locking", 2016). At most [`Fence::MAX`], so a JS number
/// holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

impl Fence {
    /// The largest fence: 2^53 − 1, the largest integer that a JS number counts to. In microseconds
    /// since 1970 that is the year 2255.
    pub const MAX: Fence = Fence((1 << 53) - 1);

    /// The latest wall clock that fences follow, in µs since 1970: the beginning of the year 2200.
    /// A clock that shows a later time is wrong. Its fences would stay in the store after the clock
    /// was corrected, and few fences or none would be left. If this is larger, fewer fences are
    /// left above it; at a million leases per second, they now last for 55 years. If it is smaller,
    /// fences stop following the clock sooner.
    pub const LATEST_WALL_US: u64 = 7_258_118_400_000_000;

    /// The earliest wall clock that a server with a correct clock shows, in µs since 1970: the
    /// beginning of the year 2020. If this is larger, the fences of a server whose clock is slow
    /// are refused. If it is smaller, fewer impossible fences are noticed.
    pub const EARLIEST_WALL_US: u64 = 1_577_836_800_000_000;

    /// A value below every fence. Stands for the last fence if there was none.
    pub const NONE: Fence = Fence(0);

    /// Returns the fence of the next lease, when `self` was the last one and the store's wall clock
    /// shows `wall_us` microseconds since 1970. The fence grows even if the clock stands still. If
    /// the last fence was lost together with the data, the clock makes the next one larger. A clock
    /// later than [`Fence::LATEST_WALL_US`] is ignored.
    pub fn next(self, wall_us: u64) -> Fence {
        let wall_us = if wall_us > Fence::LATEST_WALL_US { 0 } else { wall_us };
        Fence((self.0 + 1).max(wall_us).min(Fence::MAX.0))
    }

    /// Returns the last of `count` fences in a row that begin with `self`; `count` is at least 1.
    pub fn last_of(self, count: u32) -> Fence {
        Fence((self.0 + u64::from(count.max(1)) - 1).min(Fence::MAX.0))
    }
}

/// Says which other leases of the same lock may be held together with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// No others: a plain lock, or the writer of a read/write lock.
    Exclusive,
    /// Others of this mode, up to `most` in all: the permits of a semaphore. With a limit that is
    /// never reached, the readers of a read/write lock.
    Shared {
        /// The most leases that may be held at a time; at least 1.
        most: u32,
    },
}

impl Mode {
    /// Returns true for [`Mode::Shared`].
    pub fn is_shared(self) -> bool {
        matches!(self, Mode::Shared { .. })
    }
}

/// How long a lease lives without renewal, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u32);

impl Ttl {
    /// The shortest ttl, 10 ms. If this is smaller, the drift allowance and a round trip leave no
    /// time to hold the lease. `MIN_TTL` of lib/util/arguments.ts is the same.
    pub const MIN: Ttl = Ttl(10);
    /// The longest ttl, 2^31 − 1 ms (24.8 days), which is also the longest Node timer. `MAX_MS` of
    /// lib/util/arguments.ts is the same.
    pub const MAX: Ttl = Ttl(i32::MAX as u32);

    /// Returns a ttl of `ms` milliseconds, or `None` outside [`Ttl::MIN`] to [`Ttl::MAX`].
    pub fn from_millis(ms: u32) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0).contains(&ms).then_some(Self(ms))
    }

    /// Returns the ttl in milliseconds.
    pub fn as_millis(self) -> u32 {
        self.0
    }

    /// Returns the ttl as a span of time.
    pub fn as_duration(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_grows_without_a_clock_and_follows_the_clock_when_data_was_lost() {
        assert_eq!(Fence(41).next(7), Fence(42));
        assert_eq!(Fence(0).next(1_700_000_000_000_000), Fence(1_700_000_000_000_000));
        assert_eq!(Fence::MAX.next(u64::MAX), Fence::MAX);
    }

    #[test]
    fn tickets_and_fences_agree_on_the_latest_clock() {
        let ticket = include_str!("../../lib/lock/ticket.ts").replace('_', "");
        let line = format!("const LATESTWALLUS = {}\n", Fence::LATEST_WALL_US);
        assert!(ticket.contains(&line), "{line}");
    }

    #[test]
    fn a_wall_clock_of_a_distant_year_neither_uses_up_the_fences_nor_stops_them() {
        let (today, year_2300) = (1_700_000_000_000_000, 10_413_792_000_000_000);
        let before = Fence::NONE.next(today);
        let during = before.next(year_2300);
        assert_eq!((during, during.next(u64::MAX)), (Fence(today + 1), Fence(today + 2)));
        assert_eq!(during.next(today + 1_000_000), Fence(today + 1_000_000), "the clock is right again");
        assert_eq!(Fence::NONE.next(Fence::LATEST_WALL_US), Fence(Fence::LATEST_WALL_US));
        const { assert!(Fence::MAX.0 - Fence::LATEST_WALL_US > 50 * 365 * 86_400 * 1_000_000) };
    }

    #[test]
    fn a_token_is_never_shown_by_debug() {
        let token = Token::random();
        assert!(!format!("{token:?}").contains(&token.to_string()));
        assert_eq!(Token::parse(&token.to_string()), Some(token));
    }

    #[test]
    fn a_claim_is_a_claim_to_its_ticket_and_to_no_token_that_begins_alike() {
        let [ticket, adopter, next] = [(); 3].map(|()| Token::random());
        let (claim, later) = (Token::claim(ticket, adopter), Token::claim(adopter, next));
        assert!(claim.claims(ticket) && later.claims(adopter));
        assert!(!claim.claims(adopter) && !later.claims(ticket) && !adopter.claims(ticket));
        assert!(claim.mark() == adopter.mark() && !later.claims(claim));
    }

    #[test]
    fn a_ttl_outside_its_range_is_refused() {
        assert!(Ttl::from_millis(9).is_none());
        assert_eq!(Ttl::from_millis(10), Some(Ttl::MIN));
        assert!(Ttl::from_millis(u32::MAX).is_none());
    }
}
