//! The answers of a store.

use std::time::Duration;

use super::adopted_lease::AdoptedLease;
use super::diagnosis::Report;
use super::error::StoreError;
use super::info::LockInfo;
use super::listing::Listing;
use super::node_views::NodeViews;
use crate::lease::{Fence, Token};

/// The answer to a request that the store carried out, or found to be impossible.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Answers [`Request::Ping`](super::Request::Ping): the store can be reached and used.
    Ready,
    /// Answers [`Request::Acquire`](super::Request::Acquire): the token has the lease for the ttl,
    /// from now on.
    Acquired {
        /// The first of the fences that were asked for.
        fence: Fence,
        /// The number of waiters at the store.
        waiting: u32,
    },
    /// To [`Request::Acquire`](super::Request::Acquire) without a place: another client holds the
    /// key, or waits for it. The token must not be used again, because a quorum may still be taking
    /// back what a node has granted it.
    Busy {
        /// The time until the first of the leases in the way ends, unless it is renewed; `None` if
        /// none of them ever ends (a foreign key without expiry).
        remaining: Option<Duration>,
    },
    /// Answers [`Request::Acquire`](super::Request::Acquire) with a place, and a
    /// [repair](AcquireRequest::repairs): the request has got its place in the queue, or still has
    /// it.
    Queued {
        /// As for [`Reply::Busy`].
        remaining: Option<Duration>,
        /// The number of waiters before it.
        ahead: u32,
        /// True if a [`Notice`](super::Notice) will come. If not, only another poll shows that the
        /// lease was granted.
        notified: bool,
        /// The [mark](Token::mark) of the exclusive lease in the way. By it, a quorum sees whether
        /// most of its nodes have the same holder.
        by: Option<u32>,
    },
    /// Answers [`Request::Renew`](super::Request::Renew) and
    /// [`Request::Detach`](super::Request::Detach).
    Renewed {
        /// The first of the fences that were asked for, and the number of waiters at the store.
        /// `None` if no fences were asked for.
        block: Option<(Fence, u32)>,
    },
    /// Answers [`Request::Release`](super::Request::Release),
    /// [`Request::GiveBack`](super::Request::GiveBack) and
    /// [`Request::Break`](super::Request::Break): the lease or the lock was held.
    Released,
    /// Answers [`Request::Acquire`](super::Request::Acquire) at a quorum: too few nodes granted the
    /// lease, and other clients have the rest of them. The token may have the lease at some nodes:
    /// it has to be released, and must not be used again.
    Split,
    /// Answers [`Request::Adopt`](super::Request::Adopt) and
    /// [`Request::Move`](super::Request::Move): the new token has the lease, or had it before.
    Adopted(AdoptedLease),
    /// Answers [`Request::Move`](super::Request::Move): another adopter [claims](Token::claim) the
    /// lease of the token.
    Claimed {
        /// The claim. Its adopter has the same [mark](Token::mark).
        by: Token,
    },
    /// Answers [`Request::Accept`](super::Request::Accept).
    Accepted,
    /// Answers [`Request::Renew`](super::Request::Renew),
    /// [`Request::Detach`](super::Request::Detach), [`Request::Release`](super::Request::Release),
    /// [`Request::Adopt`](super::Request::Adopt), [`Request::Move`](super::Request::Move),
    /// [`Request::GiveBack`](super::Request::GiveBack) or
    /// [`Request::Accept`](super::Request::Accept): the token does not hold the key. Answers
    /// [`Request::Break`](super::Request::Break): no token held the key ([`Absence::Missing`]).
    NotHeld(Absence),
    /// Answers [`Request::Inspect`](super::Request::Inspect): the leases and the queue, or `None`
    /// if nobody holds the lock.
    Inspected(Option<LockInfo>),
    /// Answers [`Request::List`](super::Request::List).
    Listed(Listing),
    /// Answers an inspection or a listing in a quorum with what the nodes say. The quorum merges
    /// that into [`Reply::Inspected`] or [`Reply::Listed`] before it answers, so no store answers
    /// with this.
    Views(NodeViews),
    /// Answers [`Request::Diagnose`](super::Request::Diagnose): a report for each server. A server
    /// that can't be reached or used is not an error: its report says so.
    Diagnosed(Vec<Report>),
}

impl Reply {
    /// Returns true if the reply says that a token has a lease or a place in the queue.
    pub fn is_of_lease(&self) -> bool {
        matches!(
            self,
            Reply::Acquired { .. }
                | Reply::Queued { .. }
                | Reply::Renewed { .. }
                | Reply::Adopted(_)
                | Reply::Accepted
        )
    }

    /// Returns true for [`Reply::Adopted`].
    pub fn is_adopted(&self) -> bool {
        matches!(self, Reply::Adopted(_))
    }
}

/// Why a token does not hold a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Nobody holds the key.
    Missing,
    /// Another token holds the key.
    Taken,
}

/// The answer of a store to one request.
pub type Answer = Result<Reply, StoreError>;

/// Returns the same error for each of `count` requests, for stores that fail as a whole.
pub fn all_failed(count: usize, error: &StoreError) -> Vec<Answer> {
    (0..count).map(|_| Err(error.clone())).collect()
}
