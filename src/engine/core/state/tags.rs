//! Tags: what the answers to requests will mean. Plain data; touches nothing.

use super::held_leases::Prolongation;
use crate::engine::ids::{ClientId, OpId};
use crate::lease::{Fence, Instant, Key, Token, Ttl};

/// Says what the answer to a request means.
#[derive(Debug)]
pub enum Tag {
    /// Answers a question about the store or several of its locks, or breaks a lock.
    Query(OpId, ClientId),
    /// Says who holds a lock.
    Inspect(OpId, ClientId, Key),
    /// Answers a poll.
    Acquire(AcquireTag),
    /// Answers a renewal.
    Renew(RenewTag),
    /// Answers a release that the holder waits for.
    Release(ReleaseTag),
    /// Answers a release of a clean-up, for which no caller waits.
    CleanUp(u64),
    /// Answers an adoption.
    Adopt(AdoptTag),
}

impl Tag {
    /// Returns the operation that the answer concerns.
    pub fn op(&self) -> Option<OpId> {
        match self {
            Tag::Query(op, _) | Tag::Inspect(op, ..) => Some(*op),
            Tag::Renew(tag) => Some(tag.op),
            Tag::Release(tag) => Some(tag.op),
            Tag::Adopt(tag) => Some(tag.op),
            Tag::Acquire(_) | Tag::CleanUp(_) => None,
        }
    }
}

/// A poll of the store, with the data for a clean-up if the waiters leave before the answer.
#[derive(Debug)]
pub struct AcquireTag {
    pub entry: u64,
    /// The number of the poll, by which a notice names the place.
    pub number: u64,
    /// How many fences the poll asked for.
    pub fences: u32,
    pub client: ClientId,
    pub key: Key,
    pub token: Token,
    pub ttl: Ttl,
}

/// What a renewal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To keep the lease alive.
    Keep,
    /// To do what the holder has asked for.
    Requested,
    /// To get more fences for hand-offs.
    Reserve,
    /// To give a lease that was taken up on a notice its whole ttl.
    TakeUp,
    /// To hand the lease to another process.
    Detach,
}

/// A renewal.
#[derive(Debug)]
pub struct RenewTag {
    /// The holder of the lease when the request was sent. The cohort may have another holder by
    /// now.
    pub op: OpId,
    /// The holder's fence at that time. A later holder of the lease may have the same number.
    pub fence: Fence,
    pub client: ClientId,
    pub key: Key,
    pub token: Token,
    /// How long the lease lives after the renewal.
    pub ttl: Ttl,
    /// The new ttl of the lease, if the holder asks for one. It is longer than `ttl` if the lease
    /// ends earlier by its `maxHold`.
    pub asked: Option<Ttl>,
    pub purpose: Purpose,
    /// How the renewal may prolong the lease beyond its own ttl; `None` if it can't.
    pub prolongs: Option<Prolongation>,
}

/// An adoption, with the data for a clean-up if the caller is gone before the answer.
#[derive(Debug)]
pub struct AdoptTag {
    pub op: OpId,
    pub client: ClientId,
    pub key: Key,
    pub from: Token,
    pub adopter: Token,
    pub ttl: Ttl,
}

/// A release that the holder waits for.
#[derive(Debug)]
pub struct ReleaseTag {
    pub op: OpId,
    pub client: ClientId,
    pub key: Key,
    pub token: Token,
    /// When the lease ends by itself at the latest.
    pub until: Instant,
}
