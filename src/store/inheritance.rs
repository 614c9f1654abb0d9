//! Decides which fence, mode and ttl the heir of a detached lease gets.
//!
//! A ticket comes from outside, and somebody may have changed it on its way. So the store keeps the
//! fences and the mode of the lease, and a *note* with the ttl that the lease had when it was
//! detached. If an earlier version of leasehold detached the lease, there is no note. The fence in
//! the ticket is then limited to the fences that the store has reserved for this lease, and the ttl
//! in the ticket is not limited.
//!
//! **A lease with a note keeps its own fence.** Only a detachment, or the quorum's decision in an
//! adoption, sets it. Requests that reserve more fences only raise the last one. The process that
//! detaches a lease may have sent such a request before: it wants fences for its next waiter, or
//! repeats an acquire. Over a quorum, the second round of that request reaches some nodes after the
//! detachment. The lease can keep its own fence all the same:
//!
//! - Nobody needs the new fences. A process that detaches a lease does not hand it on. If the
//!   detachment fails, the process gets its fences from the answers, and a later detachment sets
//!   the lease's own fence again. The heir of a lease keeps the note, and gets the same answers.
//! - Fences still grow, because a reservation begins above the last fence of the lease, whatever
//!   the lease's own fence is.

use std::sync::Arc;

use crate::lease::{Fence, Mode, Ttl};

/// Separates the note from the holder's name. Names and traces do not contain this character, and a
/// trace does not consist of digits only.
const SEPARATOR: char = '\u{1f}';

/// Says where the fence and the ttl of an [adoption](super::Request::Adopt) come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A ticket.
    Ticket {
        /// The fence in the ticket. A single store does not need this fence: see
        /// [`Inherited::fence`].
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
    /// Returns true if the heir's ttl takes the place of the ticket's when the lease passes to the
    /// heir. If the heir dies, its lock is then free after the heir's ttl.
    ///
    /// A store passes a lease once. The heir counts its ttl from before it sent its request, so its
    /// lease at the store ends later. A repeated or late request finds the heir, and can't shorten
    /// what the heir has renewed. A node of a quorum may have to give the lease back to the ticket:
    /// it keeps the end of the ticket, because the ticket still has its time then.
    pub fn ends_ticket(self) -> bool {
        matches!(self, Source::Ticket { .. })
    }
}

/// Describes a lease that passed to another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inherited {
    /// The first fence of the lease. If there is a note, this is the lease's fence.
    pub first: Fence,
    /// The last fence that is reserved with the lease.
    pub last: Fence,
    /// Which other leases the lease bears. The limit of a shared lease is `u32::MAX` if the store
    /// does not know it.
    pub mode: Mode,
    /// The ttl in the note. `None` if the lease has no note.
    pub ttl: Option<Ttl>,
}

impl Inherited {
    /// Returns the fence of the lease, if its ticket contains the fence `said`.
    pub fn fence(&self, said: Fence) -> Fence {
        match self.ttl {
            Some(_) => self.first,
            None => said.clamp(self.first, self.last.max(self.first)),
        }
    }

    /// Returns false if the lease is newer than its ticket, which contains the fence `said`. The
    /// lease of the ticket has then passed to another heir. After that, an acquire that was sent
    /// before the lease was detached arrived late, and got a new lease for the same token.
    pub fn is_of_ticket(&self, said: Fence) -> bool {
        self.ttl.is_some() || self.first <= said
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

/// Returns the holder's name without its note, and the note.
pub fn split_note(holder: &str) -> (&str, Option<Ttl>) {
    let note = holder.rsplit_once(SEPARATOR).and_then(|(name, digits)| {
        // `parse` alone would take a sign, which the scripts of the Redis store do not.
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let ttl = Ttl::from_millis(digits.parse().ok().filter(|_| is_number)?)?;
        Some((name, Some(ttl)))
    });
    note.unwrap_or((holder, None))
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
    fn a_ticket_says_the_fence_only_within_what_the_store_reserved_for_the_lease() {
        let without = Inherited { first: Fence(100), last: Fence(163), mode: Mode::Exclusive, ttl: None };
        for (said, fence) in [(1, 100), (100, 100), (130, 130), (163, 163), (164, 163), (u64::MAX, 163)] {
            assert_eq!(without.fence(Fence(said)), Fence(fence));
            assert_eq!(without.vouches(Fence(said)), said == fence);
        }
        let noted = Inherited { ttl: Some(ttl(10)), ..without };
        assert_eq!(noted.fence(Fence(130)), Fence(100));
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
#[path = "inheritance_fuzz.rs"]
mod fuzz;
