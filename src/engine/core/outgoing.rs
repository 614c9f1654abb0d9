//! Requests on their way to a store, and what their answers will mean.

use std::time::Duration;

use super::Core;
use crate::engine::command::{ClientId, OpId, StoreId};
use crate::lease::{Instant, Key, Token, Ttl};
use crate::store::Request;

/// The most requests in one batch: enough to spread the cost of a round trip thin, few enough that the store works
/// on the next one while the answers to this one are on their way.
const MOST: usize = 64;

/// What the answer to a request means.
#[derive(Debug)]
pub enum Tag {
    /// To a question whether the store is there.
    Ping(OpId, ClientId),
    /// To a question who holds a lock.
    Inspect(OpId, ClientId, Key),
    /// To a waiter's look at the store.
    Acquire(AcquireTag),
    /// To a renewal.
    Renew(RenewTag),
    /// To the holder giving its lease back.
    Release(ReleaseTag),
    /// To a release that nobody waits for.
    Cleanup(u64),
}

impl Tag {
    /// The operation that the answer concerns.
    pub fn op(&self) -> Option<OpId> {
        match self {
            Tag::Ping(op, _) | Tag::Inspect(op, ..) => Some(*op),
            Tag::Acquire(tag) => Some(tag.op),
            Tag::Renew(tag) => Some(tag.op),
            Tag::Release(tag) => Some(tag.op),
            Tag::Cleanup(_) => None,
        }
    }
}

/// A look at the store, with what it takes to clean up after it should the waiter be gone by then.
#[derive(Debug)]
pub struct AcquireTag {
    /// The waiter, if it still has the same token.
    pub op: OpId,
    pub client: ClientId,
    pub key: Key,
    pub token: Token,
    pub ttl: Ttl,
}

/// A renewal.
#[derive(Debug)]
pub struct RenewTag {
    /// The lease, if it still has the same token.
    pub op: OpId,
    pub token: Token,
    pub ttl: Ttl,
    /// Whether the holder asked for it.
    pub explicit: bool,
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

/// What the engine remembers of a batch until it is answered.
#[derive(Debug)]
pub struct Sent {
    /// Where it went.
    pub store: StoreId,
    /// The instant before it was sent.
    pub at: Instant,
    /// What each answer means.
    pub(super) tags: Vec<Tag>,
}

/// Requests to be sent to a store together.
#[derive(Debug)]
pub struct Batch {
    /// To be handed back with the answers.
    pub sent: Sent,
    /// How long the store may take.
    pub timeout: Duration,
    /// What to ask.
    pub requests: Vec<Request>,
}

/// One store as the engine sees it.
#[derive(Default)]
pub struct Link {
    /// How many clients use it.
    pub clients: usize,
    /// How many batches are not answered yet.
    pub in_flight: usize,
    /// How many clean-ups are still to be done on it.
    pub cleanups: usize,
    /// What the next batch asks. Renewals come first, because their leases run out, then releases,
    /// because they make room for the acquires of the same batch, which come last.
    renewals: Vec<(Request, Tag)>,
    releases: Vec<(Request, Tag)>,
    others: Vec<(Request, Tag)>,
    /// The shortest time-out that one of them asked for.
    timeout: Option<Duration>,
}

impl Link {
    /// Moves what is to be sent into batches.
    pub fn take(&mut self, store: StoreId, at: Instant, batches: &mut Vec<Batch>) {
        let Some(timeout) = self.timeout.take() else { return };
        let mut entries =
            self.renewals.drain(..).chain(self.releases.drain(..)).chain(self.others.drain(..)).peekable();
        while entries.peek().is_some() {
            let (requests, tags) = entries.by_ref().take(MOST).unzip();
            batches.push(Batch { sent: Sent { store, at, tags }, timeout, requests });
            self.in_flight += 1;
        }
    }

    /// Whether there is something to send.
    pub fn has_requests(&self) -> bool {
        self.timeout.is_some()
    }

    fn is_unused(&self) -> bool {
        self.clients == 0 && self.in_flight == 0 && self.cleanups == 0 && !self.has_requests()
    }
}

impl Core {
    /// Puts a request into the next batch for `store`.
    pub(super) fn send(&mut self, store: StoreId, request: Request, tag: Tag, timeout: Duration) {
        let link = self.stores.entry(store).or_default();
        link.timeout = Some(link.timeout.map_or(timeout, |t| t.min(timeout)));
        let list = match request {
            Request::Renew { .. } => &mut link.renewals,
            Request::Release { .. } => &mut link.releases,
            Request::Acquire { .. } | Request::Inspect { .. } | Request::Ping => &mut link.others,
        };
        list.push((request, tag));
    }

    /// Whether a client, a request or a clean-up still needs `store`.
    pub fn is_used(&self, store: StoreId) -> bool {
        self.stores.contains_key(&store)
    }

    /// Lets go of `store` when nothing needs it any more.
    pub(super) fn drop_if_unused(&mut self, store: StoreId) {
        if self.stores.get(&store).is_some_and(Link::is_unused) {
            self.stores.remove(&store);
            self.effects.unused.push(store);
        }
    }
}
