//! Keeps the calls that are on their way to the nodes of a quorum and back. Requests that go to the
//! same node at the same time make one call. Pure.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::store::Request;

/// Requests that are sent to a node together.
#[derive(Debug)]
pub struct Call {
    /// The id of the call, to pass back with the answers.
    pub id: u64,
    /// Which node.
    pub node: usize,
    /// What to ask.
    pub requests: Vec<Request>,
    /// How long the node may take.
    pub timeout: Duration,
}

/// Says what the answer to a request means.
#[derive(Clone, Copy)]
pub enum Tag {
    /// The node's vote on that motion.
    Vote(u64),
    /// The node's answer to the fence of that motion.
    Accept(u64),
    /// The node's answer to the claim of that adoption.
    Claim(u64),
    /// The node's answer to the second round of that adoption.
    Confirm(u64),
    /// The inspection of a node that the waiter of that motion spares.
    Spared(u64),
    /// The node's answer to the acquire of that repair.
    Repair(u64),
    /// The node's answer to the fence of that repair.
    RepairFence(u64),
    /// The node's answer to a release or a move that it was owed.
    Debt,
}

/// Requests for one node that are not sent yet.
struct Draft {
    node: usize,
    timeout: Duration,
    requests: Vec<Request>,
    tags: Vec<Tag>,
}

struct Sent {
    node: usize,
    tags: Vec<Tag>,
    /// Whether answers about leases count.
    trusted: bool,
}

/// See the module.
#[derive(Default)]
pub struct Post {
    drafts: Vec<Draft>,
    sent: FxHashMap<u64, Sent>,
    calls: Vec<Call>,
    /// The last number given to a call.
    last: u64,
}

impl Post {
    /// Adds a request to the next call to `node`.
    pub fn draft(&mut self, node: usize, timeout: Duration, request: Request, tag: Tag) {
        let fits = |draft: &&mut Draft| draft.node == node && draft.timeout == timeout;
        match self.drafts.iter_mut().find(fits) {
            Some(draft) => {
                draft.requests.push(request);
                draft.tags.push(tag);
            }
            None => self.drafts.push(Draft { node, timeout, requests: vec![request], tags: vec![tag] }),
        }
    }

    /// Sends these requests to `node` in a call of their own.
    pub fn send_apart(&mut self, node: usize, timeout: Duration, requests: Vec<Request>, tag: Tag) {
        let tags = vec![tag; requests.len()];
        self.send(Draft { node, timeout, requests, tags });
    }

    /// Forgets an answered call. Returns its node, the meaning of each answer, and whether answers
    /// about leases count.
    pub fn answered(&mut self, call: u64) -> Option<(usize, Vec<Tag>, bool)> {
        self.sent.remove(&call).map(|Sent { node, tags, trusted }| (node, tags, trusted))
    }

    /// Marks all calls to `node` that are under way as untrusted: the node has lost its leases.
    pub fn distrust(&mut self, node: usize) {
        for sent in self.sent.values_mut().filter(|sent| sent.node == node) {
            sent.trusted = false;
        }
    }

    /// Takes the calls to send.
    pub fn take_calls(&mut self) -> Vec<Call> {
        for draft in std::mem::take(&mut self.drafts) {
            self.send(draft);
        }
        std::mem::take(&mut self.calls)
    }

    fn send(&mut self, draft: Draft) {
        let Draft { node, timeout, requests, tags } = draft;
        self.last += 1;
        self.sent.insert(self.last, Sent { node, tags, trusted: true });
        self.calls.push(Call { id: self.last, node, requests, timeout });
    }
}
