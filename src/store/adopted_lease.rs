//! Decides which fence, mode and ttl the adopter of a detached lease gets.
//!
//! A ticket comes from outside, and another program may have changed it on its way. So the store
//! keeps the fences and the mode of the lease, and a *note* with the ttl that the lease had when it
//! was detached. If an earlier version of leasehold detached the lease, there is no note. The fence
//! in the ticket is then limited to the fences that the store has reserved for this lease, and the
//! ttl in the ticket is not limited.
//!
//! **A lease with a note keeps its own fence.** Only a detachment, or the quorum's decision in an
//! adoption, sets it. Requests that reserve more fences only raise the last one. The process that
//! detaches a lease may have sent such a request before: it wants fences for its next waiter, or
//! repeats an acquire. Over a quorum, the second round of that request reaches some nodes after the
//! detachment. The lease can keep its own fence all the same:
//!
//! - Nobody needs the new fences. A process that detaches a lease does not hand it on. If the
//!   detachment fails, the process gets its fences from the answers, and a later detachment sets
//!   the lease's own fence again. The adopter of a lease keeps the note, and gets the same answers.
//! - Fences still grow, because a reservation begins above the last fence of the lease, whatever
//!   the lease's own fence is.
//!
//! **A detachment names a fence of the lease that it detaches.** Suppose that the lease of a token
//! has passed to an adopter and has ended. If an acquire of that token was held up on its way and
//! arrives now, the token gets a new lease. A late copy of the detachment may follow. That copy
//! must not detach the new lease, because the ticket would then have a second one. All fences of
//! the new lease are larger than the ticket's. So a detachment is refused if its fence is smaller
//! than the fence of the lease's *grant*, or than that of an earlier detachment.
//!
//! The lease's own fence can't serve for that: an acquire that is repeated while the lease lives
//! raises it, and the holder may use the smaller one. So if the own fence becomes larger than that
//! of the grant, the name of the holder gets a *grant note* with the fence of the grant. A node of
//! a quorum may have granted the lease with a larger fence than the quorum decided on. So an
//! accepted fence that is smaller than the grant's takes its place. This leaves one gap: after the
//! ticket was used, a late acquire and then a late second round of that acquire arrive at a node of
//! a quorum. A later adopter takes such a node for one that the detachment did not reach. The gap
//! does harm only if this happens at most nodes, or at some nodes while others still have the used
//! ticket.

use std::sync::Arc;
use std::time::Duration;

use crate::lease::{Fence, Mode, Ttl};

/// Begins a grant note, behind a [`SEPARATOR`]. No trace begins with it.
const GRANT: char = 'g';
/// Separates the note from the holder's name. Names and traces do not contain this character, and a
/// trace does not consist of digits only.
const SEPARATOR: char = '\u{1f}';

/// Says where the fence and the ttl of an [adoption](super::Request::Adopt) come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A ticket.
    Ticket {
        /// The fence in the ticket. A single store does not need this fence: see
        /// [`AdoptedLease::fence`].
        fence: Fence,
        /// True if the ttl, too, comes from the ticket. The note of the lease then limits the ttl.
        with_ttl: bool,
    },
    /// A quorum. The node accepts the fence as [`Request::Accept`] does.
    ///
    /// [`Request::Accept`]: super::Request::Accept
    Quorum(Fence),
}

impl Source {
    /// Returns true if the adopter's ttl takes the place of the ticket's when the lease passes to
    /// the adopter. If the adopter dies, its lock is then free after the adopter's ttl.
    ///
    /// A store passes a lease once. The adopter counts its ttl from before it sent its request, so
    /// its lease at the store ends later. A repeated or late request finds the adopter, and can't
    /// shorten what the adopter has renewed. A node of a quorum may have to give the lease back to
    /// the ticket: it keeps the end of the ticket if that is later, because the ticket still has
    /// its time then.
    pub fn ends_ticket(self) -> bool {
        matches!(self, Source::Ticket { .. })
    }
}

/// Describes a lease that passed to another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdoptedLease {
    /// The first fence of the lease. If there is a note, this is the lease's fence.
    pub first: Fence,
    /// The last fence that is reserved with the lease.
    pub last: Fence,
    /// The fence with which the lease was granted, if that is smaller than `first`. Otherwise the
    /// same as `first`. Only the answer to a [move](super::Request::Move) is sure to have it.
    pub granted: Fence,
    /// Whether the lease is exclusive or shared. The limit of a shared lease is `u32::MAX` if the
    /// store does not know it.
    pub mode: Mode,
    /// The ttl in the note. `None` if the lease has no note.
    pub ttl: Option<Ttl>,
    /// How long the lease of the ticket still lives. Only the answer to a
    /// [move](super::Request::Move) says it, and only if the adopter does not have the lease yet.
    pub remaining: Option<Duration>,
}

impl AdoptedLease {
    /// Returns the fence of the lease, if its ticket contains the fence `said`.
    pub fn fence(&self, said: Fence) -> Fence {
        match self.ttl {
            Some(_) => self.first,
            None => said.clamp(self.first, self.last.max(self.first)),
        }
    }

    /// Returns false if the lease is newer than its ticket, which contains the fence `said`. The
    /// lease of the ticket has then passed to another adopter. After that, an acquire that was sent
    /// before the lease was detached arrived late, and got a new lease for the same token.
    ///
    /// If the lease has no note, `first` can't show that. The process that detached the lease may
    /// have reserved more fences for its next waiter, so `first` may be larger than `said`. Then
    /// the fence of the grant decides.
    pub fn is_of_ticket(&self, said: Fence) -> bool {
        self.ttl.is_some() || self.granted <= said
    }

    /// Returns true if the fence `said` may be the lease's.
    pub fn vouches(&self, said: Fence) -> bool {
        self.fence(said) == said
    }
}

/// Returns the ttl of an adoption that asks for `ttl`. The note of the lease has the ttl `noted`.
pub fn limit(ttl: Ttl, source: Source, noted: Option<Ttl>) -> Ttl {
    match (source, noted) {
        (Source::Ticket { with_ttl: true, .. }, Some(noted)) => ttl.min(noted),
        _ => ttl,
    }
}

/// Returns the holder's name with a note behind it, in the place of an older note.
///
/// The note is part of the name. So no store needs another field for the note, and earlier
/// versions can read the lease.
pub fn with_note(holder: &str, ttl: Option<Ttl>) -> Arc<str> {
    let (name, _) = split_note(holder);
    ttl.map_or_else(|| name.into(), |ttl| format!("{name}{SEPARATOR}{}", ttl.as_millis()).into())
}

/// Returns the holder's name without any note, and the note of a detached lease.
pub fn split_note(holder: &str) -> (&str, Option<Ttl>) {
    let note = last_part(holder).and_then(|(name, digits)| {
        let ttl = Ttl::from_millis(number(digits)?.try_into().ok()?)?;
        Some((name, Some(ttl)))
    });
    let (name, ttl) = note.unwrap_or((holder, None));
    // An earlier version puts its note behind the grant note.
    let mut bare = name;
    while let Some((name, _)) = split_grant(bare) {
        bare = name;
    }
    (bare, ttl)
}

/// Returns the holder's name with a grant note, in the place of an older one. `fence` is the fence
/// of the grant.
pub fn with_grant(holder: &str, fence: Fence) -> Arc<str> {
    let name = split_grant(holder).map_or(holder, |(name, _)| name);
    format!("{name}{SEPARATOR}{GRANT}{}", fence.0).into()
}

/// Returns the holder's name without its grant note, and the fence in the note.
pub fn split_grant(holder: &str) -> Option<(&str, Fence)> {
    let (name, note) = last_part(holder)?;
    Some((name, Fence(number(note.strip_prefix(GRANT)?)?.min(Fence::MAX.0))))
}

fn last_part(holder: &str) -> Option<(&str, &str)> {
    holder.rsplit_once(SEPARATOR)
}

/// Returns the number that consists of these digits. `parse` alone would take a sign, which the
/// scripts of the Redis store do not.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(ms: u32) -> Ttl {
        Ttl::from_millis(ms).unwrap()
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_replaces_the_last_one() {
        let trace = "name\u{1f}00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for name in ["", "host:42", "7", trace] {
            assert_eq!(split_note(name), (name, None));
            let noted = with_note(&with_note(name, Some(ttl(10))), Some(Ttl::MAX));
            assert_eq!(split_note(&noted), (name, Some(Ttl::MAX)));
            assert_eq!(&*with_note(&noted, None), name);
        }
    }

    #[test]
    fn a_grant_note_is_read_as_it_was_written_and_a_note_takes_its_place() {
        let trace = "name\u{1f}00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for name in ["", "host:42", "7", "g7", trace] {
            assert_eq!(split_grant(name), None);
            let noted = with_grant(&with_grant(name, Fence(7)), Fence::MAX);
            assert_eq!(split_grant(&noted), Some((name, Fence::MAX)));
            assert_eq!(split_note(&noted), (name, None));
            assert_eq!(with_note(&noted, Some(ttl(10))), with_note(name, Some(ttl(10))));
            // An earlier version writes its note behind the grant note.
            assert_eq!(split_note(&format!("{noted}\u{1f}10")), (name, Some(ttl(10))));
        }
    }

    #[test]
    fn a_ticket_says_the_fence_only_within_what_the_store_reserved_for_the_lease() {
        let without = AdoptedLease {
            first: Fence(100),
            last: Fence(163),
            granted: Fence(100),
            mode: Mode::Exclusive,
            ttl: None,
            remaining: None,
        };
        for (said, fence) in [(1, 100), (100, 100), (130, 130), (163, 163), (164, 163), (u64::MAX, 163)] {
            assert_eq!(without.fence(Fence(said)), Fence(fence));
            assert_eq!(without.vouches(Fence(said)), said == fence);
        }
        let noted = AdoptedLease { ttl: Some(ttl(10)), ..without };
        assert_eq!(noted.fence(Fence(130)), Fence(100));
    }

    #[test]
    fn a_lease_without_a_note_is_of_the_ticket_if_it_was_granted_before() {
        let lease = |first, granted, ttl| AdoptedLease {
            first: Fence(first),
            last: Fence(163),
            granted: Fence(granted),
            mode: Mode::Exclusive,
            ttl,
            remaining: None,
        };
        assert!(lease(100, 100, None).is_of_ticket(Fence(100)));
        assert!(!lease(101, 101, None).is_of_ticket(Fence(100)));
        assert!(lease(130, 100, None).is_of_ticket(Fence(100)), "its process reserved more fences");
        assert!(!lease(130, 101, None).is_of_ticket(Fence(100)));
        assert!(lease(101, 101, Some(ttl(10))).is_of_ticket(Fence(100)));
    }

    #[test]
    fn a_note_limits_the_ttl_of_a_ticket_only() {
        let from = |with_ttl| Source::Ticket { fence: Fence(1), with_ttl };
        assert_eq!(limit(ttl(60_000), from(true), Some(ttl(500))), ttl(500));
        assert_eq!(limit(ttl(100), from(true), Some(ttl(500))), ttl(100));
        assert_eq!(limit(ttl(60_000), from(true), None), ttl(60_000));
        assert_eq!(limit(ttl(60_000), from(false), Some(ttl(500))), ttl(60_000));
    }
}

#[cfg(test)]
#[path = "adopted_lease_fuzz.rs"]
mod fuzz;
