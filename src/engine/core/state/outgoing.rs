//! Outgoing requests: the unsent requests of one store, and the batches that are made of them.
//! Touches the requests of that store only.

use std::time::Duration;

use super::tags::Tag;
use crate::engine::ids::StoreId;
use crate::lease::Instant;
use crate::store::Request;

/// A request to a store, what its answer will mean, and how long the store may take.
pub struct Outgoing {
    pub store: StoreId,
    pub request: Request,
    pub tag: Tag,
    pub timeout: Duration,
}

/// What the engine remembers of a batch until it is answered.
#[derive(Debug)]
pub struct Sent {
    /// The store to which the batch went.
    pub store: StoreId,
    /// An instant just before the batch was sent.
    pub at: Instant,
    /// What each answer means.
    pub(crate) tags: Vec<Tag>,
}

/// Requests to be sent to a store together.
#[derive(Debug)]
pub struct Batch {
    /// The driver hands this back with the answers.
    pub sent: Sent,
    /// How long the store may take.
    pub timeout: Duration,
    /// The requests.
    pub requests: Vec<Request>,
}

impl Batch {
    /// Divides the batch. `parts` has the number of the part of each request.
    pub(super) fn split(self, parts: &[u32]) -> Vec<Batch> {
        let Batch { sent: Sent { store, at, tags }, timeout, requests } = self;
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
        split.into_iter().map(|(_, batch)| batch).collect()
    }
}

/// The requests of the next batch of a store. Renewals come first, because their leases run out.
/// Then come releases, because they make room for the acquires of the same batch, which come last.
#[derive(Default)]
pub struct Unsent {
    renewals: Vec<Outgoing>,
    releases: Vec<Outgoing>,
    others: Vec<Outgoing>,
}

impl Unsent {
    pub fn add(&mut self, outgoing: Outgoing) {
        let list = match outgoing.request {
            Request::Renew { .. } | Request::Adopt { .. } | Request::Detach { .. } => &mut self.renewals,
            Request::Release { .. } | Request::GiveBack { .. } | Request::Break { .. } => &mut self.releases,
            Request::Acquire(_)
            | Request::Accept { .. }
            | Request::Move { .. }
            | Request::Inspect { .. }
            | Request::List(_)
            | Request::Ping
            | Request::Diagnose { .. } => &mut self.others,
        };
        list.push(outgoing);
    }

    /// Moves the requests into batches of at most `most` requests. Requests with different
    /// time-outs go separately, so that an impatient client does not make others fail. Returns how
    /// many batches there are.
    pub fn take(&mut self, most: usize, at: Instant, batches: &mut Vec<Batch>) -> usize {
        let first = batches.len();
        let unsent = self.renewals.drain(..).chain(self.releases.drain(..)).chain(self.others.drain(..));
        for Outgoing { store, request, tag, timeout } in unsent {
            let open = batches[first..].iter().rposition(|b| b.timeout == timeout && b.requests.len() < most);
            let batch = match open {
                Some(index) => &mut batches[first + index],
                None => {
                    let sent = Sent { store, at, tags: Vec::new() };
                    batches.push(Batch { sent, timeout, requests: Vec::new() });
                    batches.last_mut().expect("just pushed")
                }
            };
            batch.requests.push(request);
            batch.sent.tags.push(tag);
        }
        batches.len() - first
    }

    pub fn is_empty(&self) -> bool {
        self.renewals.is_empty() && self.releases.is_empty() && self.others.is_empty()
    }
}
