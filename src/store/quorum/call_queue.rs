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
    /// The node that is asked.
    pub node: usize,
    /// The requests, in the order in which the node carries them out.
    pub requests: Vec<Request>,
    /// How long the node may take.
    pub timeout: Duration,
}

/// Says what the answer to a request means.
#[derive(Clone, Copy)]
pub enum CallTag {
    /// The node's vote on that pending request.
    Vote(u64),
    /// The node's answer to the fence of that pending request.
    Accept(u64),
    /// The node's answer to the claim of that adoption.
    Claim(u64),
    /// The node's answer to the second round of that adoption.
    Confirm(u64),
    /// The inspection of a node that the waiter of that pending request skips.
    Skipped(u64),
    /// The node's answer to the acquire of that repair.
    Repair(u64),
    /// The node's answer to the fence of that repair.
    RepairFence(u64),
    /// The node's answer to a release or a move that it had to carry out.
    PendingRelease,
}

/// Requests for one node that are not sent yet.
struct UnsentCall {
    node: usize,
    timeout: Duration,
    requests: Vec<Request>,
    tags: Vec<CallTag>,
}

struct Sent {
    node: usize,
    tags: Vec<CallTag>,
    /// False if the node has lost its leases since: its answers about leases do not count.
    trusted: bool,
}

/// See the module.
#[derive(Default)]
pub struct CallQueue {
    unsent_calls: Vec<UnsentCall>,
    sent: FxHashMap<u64, Sent>,
    calls: Vec<Call>,
    /// The id of the last call.
    last: u64,
}

impl CallQueue {
    /// Adds a request to the next call to `node`.
    pub fn add(&mut self, node: usize, timeout: Duration, request: Request, tag: CallTag) {
        let fits = |unsent: &&mut UnsentCall| unsent.node == node && unsent.timeout == timeout;
        match self.unsent_calls.iter_mut().find(fits) {
            Some(unsent) => {
                unsent.requests.push(request);
                unsent.tags.push(tag);
            }
            None => {
                self.unsent_calls.push(UnsentCall { node, timeout, requests: vec![request], tags: vec![tag] })
            }
        }
    }

    /// Sends these requests to `node` in a call of their own.
    pub fn send_apart(&mut self, node: usize, timeout: Duration, requests: Vec<Request>, tag: CallTag) {
        let tags = vec![tag; requests.len()];
        self.send(UnsentCall { node, timeout, requests, tags });
    }

    /// Forgets an answered call. Returns its node, the meaning of each answer, and whether answers
    /// about leases count.
    pub fn answered(&mut self, call: u64) -> Option<(usize, Vec<CallTag>, bool)> {
        self.sent.remove(&call).map(|Sent { node, tags, trusted }| (node, tags, trusted))
    }

    /// Marks all calls to `node` that are under way as untrusted: the node has lost its leases.
    pub fn mark_untrusted(&mut self, node: usize) {
        for sent in self.sent.values_mut().filter(|sent| sent.node == node) {
            sent.trusted = false;
        }
    }

    /// Takes the calls to send.
    pub fn take_calls(&mut self) -> Vec<Call> {
        for unsent in std::mem::take(&mut self.unsent_calls) {
            self.send(unsent);
        }
        std::mem::take(&mut self.calls)
    }

    fn send(&mut self, unsent: UnsentCall) {
        let UnsentCall { node, timeout, requests, tags } = unsent;
        self.last += 1;
        self.sent.insert(self.last, Sent { node, tags, trusted: true });
        self.calls.push(Call { id: self.last, node, requests, timeout });
    }
}
