//! Requests on their way to a store, and what their answers will mean.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::engine::command::{ClientId, OpId, StoreId};
use crate::lease::{Fence, Instant, Key, Token, Ttl};
use crate::store::breaker::Health;
use crate::store::{Availability, Request};

/// What the answer to a request means.
#[derive(Debug)]
pub enum Tag {
    /// To a question about the store or several of its locks, or to an order that concerns no lease of ours.
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
    /// To an adoption.
    Adopt(AdoptTag),
}

impl Tag {
    /// The operation that the answer concerns.
    pub fn op(&self) -> Option<OpId> {
        match self {
            Tag::Ping(op, _) | Tag::Inspect(op, ..) => Some(*op),
            Tag::Renew(tag) => Some(tag.op),
            Tag::Release(tag) => Some(tag.op),
            Tag::Adopt(tag) => Some(tag.op),
            Tag::Acquire(_) | Tag::Cleanup(_) => None,
        }
    }
}

/// A look at the store, with what it takes to clean up after it should nobody wait by then.
#[derive(Debug)]
pub struct AcquireTag {
    pub ticket: u64,
    /// What its place is called.
    pub number: u64,
    /// How many fences were asked for.
    pub fences: u32,
    pub client: ClientId,
    pub key: Key,
    pub token: Token,
    pub ttl: Ttl,
}

/// What a renewal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The engine keeps the lease alive.
    Keep,
    /// The holder asked for it.
    Asked,
    /// To have more fences to hand the lease on with.
    Reserve,
    /// To have a lease for its whole ttl that was taken up on a notice.
    TakeUp,
    /// To hand the lease to another process.
    Detach,
}

/// A renewal.
#[derive(Debug)]
pub struct RenewTag {
    /// Who had the lease, if nobody else of its line has it by now.
    pub op: OpId,
    /// Its fence then: one who has the lease later may have the same number.
    pub fence: Fence,
    pub client: ClientId,
    pub key: Key,
    pub token: Token,
    pub ttl: Ttl,
    pub purpose: Purpose,
}

/// An adoption, with what it takes to clean up after it should the caller be gone by then.
#[derive(Debug)]
pub struct AdoptTag {
    pub op: OpId,
    pub client: ClientId,
    pub key: Key,
    pub from: Token,
    pub heir: Token,
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
    /// The most requests in one batch.
    pub most: usize,
    /// How many batches are not answered yet.
    pub in_flight: usize,
    /// How many clean-ups are still to be done on it.
    pub cleanups: usize,
    /// When the store last said that it has lost all leases.
    pub lost_at: Option<Instant>,
    /// How its servers are, as far as that has ever changed.
    pub health: Vec<Arc<Health>>,
    /// Whether the store can grant leases. Usable until the store tells a change.
    pub availability: Availability,
    /// What the next batch asks. Renewals come first, because their leases run out, then releases,
    /// because they make room for the acquires of the same batch, which come last.
    renewals: Vec<Entry>,
    releases: Vec<Entry>,
    others: Vec<Entry>,
}

/// A request, what its answer will mean, and how long it may take.
struct Entry {
    request: Request,
    tag: Tag,
    timeout: Duration,
}

impl Link {
    /// Moves what is to be sent into batches. Requests with different time-outs go separately, so that an impatient client
    /// does not make others fail.
    pub fn take(&mut self, store: StoreId, at: Instant, batches: &mut Vec<Batch>) {
        let first = batches.len();
        let entries = self.renewals.drain(..).chain(self.releases.drain(..)).chain(self.others.drain(..));
        for Entry { request, tag, timeout } in entries {
            let open =
                batches[first..].iter().rposition(|b| b.timeout == timeout && b.requests.len() < self.most);
            let batch = match open {
                Some(index) => &mut batches[first + index],
                None => {
                    self.in_flight += 1;
                    let sent = Sent { store, at, tags: Vec::new() };
                    batches.push(Batch { sent, timeout, requests: Vec::new() });
                    batches.last_mut().expect("just pushed")
                }
            };
            batch.requests.push(request);
            batch.sent.tags.push(tag);
        }
    }

    /// Whether there is something to send.
    pub fn has_requests(&self) -> bool {
        !(self.renewals.is_empty() && self.releases.is_empty() && self.others.is_empty())
    }

    fn is_unused(&self) -> bool {
        self.clients == 0 && self.in_flight == 0 && self.cleanups == 0 && !self.has_requests()
    }
}

impl Core {
    /// Puts a request into the next batch for `store`.
    pub(super) fn send(&mut self, store: StoreId, request: Request, tag: Tag, timeout: Duration) {
        let link = self.stores.entry(store).or_default();
        let list = match request {
            Request::Renew { .. } | Request::Adopt { .. } | Request::Detach { .. } => &mut link.renewals,
            Request::Release { .. } | Request::GiveBack { .. } | Request::Break { .. } => &mut link.releases,
            Request::Acquire(_)
            | Request::Accept { .. }
            | Request::Move { .. }
            | Request::Inspect { .. }
            | Request::List(_)
            | Request::Ping
            | Request::Diagnose { .. } => &mut link.others,
        };
        list.push(Entry { request, tag, timeout });
    }

    /// Makes a batch for each of the `parts` that its requests are of.
    pub fn split(&mut self, batch: Batch, parts: &[u32]) -> Vec<Batch> {
        let Batch { sent: Sent { store, at, tags }, timeout, requests } = batch;
        let mut split: Vec<(u32, Batch)> = Vec::new();
        for ((request, tag), part) in requests.into_iter().zip(tags).zip(parts) {
            let known = split.iter().position(|(known, _)| known == part);
            let index = known.unwrap_or_else(|| {
                let sent = Sent { store, at, tags: Vec::new() };
                split.push((*part, Batch { sent, timeout, requests: Vec::new() }));
                split.len() - 1
            });
            let batch = &mut split[index].1;
            batch.requests.push(request);
            batch.sent.tags.push(tag);
        }
        if let Some(link) = self.stores.get_mut(&store) {
            link.in_flight += split.len().saturating_sub(1);
        }
        split.into_iter().map(|(_, batch)| batch).collect()
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
