//! Lets a test answer for the nodes of a coordinator, and makes its requests and replies.

use super::super::super::merged_views::merge_at_once;
use super::super::*;
use crate::lease::{Fence, Token, Ttl};
use crate::store::Place;

pub const TIMEOUT: Duration = Duration::from_secs(1);

/// A coordinator. The test answers for the nodes.
pub struct TestQuorum {
    pub coordinator: Coordinator,
    pub now: Instant,
    /// The calls that the nodes have not answered.
    pub calls: Vec<Call>,
    pub answers: FxHashMap<u64, Vec<Answer>>,
    pub notices: Vec<Notice>,
}

impl TestQuorum {
    pub fn of(nodes: usize) -> Self {
        let names = (0..nodes).map(|node| format!("n{node}").into()).collect();
        Self {
            coordinator: Coordinator::new(names, 1),
            now: Instant::from_micros(1_000_000),
            calls: Vec::new(),
            answers: FxHashMap::default(),
            notices: Vec::new(),
        }
    }

    pub fn gather(&mut self) {
        let effects = self.coordinator.take_effects();
        self.calls.extend(effects.calls);
        self.answers.extend(effects.answers);
        self.notices.extend(effects.notices);
    }

    pub fn submit(&mut self, batch: u64, requests: Vec<Request>) {
        self.coordinator.submit(self.now, batch, requests, TIMEOUT);
        self.gather();
    }

    /// Returns the oldest call that `node` has not answered.
    pub fn asked(&self, node: usize) -> Option<&Call> {
        self.calls.iter().find(|call| call.node == node)
    }

    /// Lets `node` answer its oldest call.
    pub fn answer(&mut self, node: usize, answers: Vec<Answer>) {
        let place = self.calls.iter().position(|call| call.node == node).expect("it was asked");
        let call = self.calls.remove(place);
        self.coordinator.answered(self.now, call.id, answers);
        self.gather();
    }

    pub fn answer_one(&mut self, node: usize, reply: Reply) {
        self.answer(node, vec![Ok(reply)]);
    }

    /// Lets time pass until something is due, and returns how long. Returns `None` if nothing is
    /// due.
    pub fn wait(&mut self) -> Option<Duration> {
        let next = self.coordinator.next_wake()?;
        let waited = next.since(self.now);
        self.now = self.now.max(next);
        self.coordinator.tick(self.now);
        self.gather();
        Some(waited)
    }

    /// Lets `node` send a notice: it has handed the lock to the waiter `number`.
    pub fn notice(&mut self, node: usize, number: u64) {
        let notice = Notice::Granted { number, fence: Some(Fence(number)) };
        self.coordinator.noticed(self.now, node, notice);
        self.gather();
    }

    /// Returns the answers to a batch that is settled, with merged views.
    pub fn settled(&mut self, batch: u64) -> Vec<Answer> {
        self.answers.remove(&batch).expect("it is settled").into_iter().map(merge_at_once).collect()
    }

    pub fn settled_one(&mut self, batch: u64) -> Reply {
        let mut answers = self.settled(batch);
        assert_eq!(answers.len(), 1);
        answers.remove(0).expect("no error")
    }
}

pub fn acquire(token: Token, number: Option<u64>) -> Request {
    let ask = AcquireRequest::new("k".into(), token, Ttl::MIN, "h".into());
    Request::Acquire(AcquireRequest { place: number.map(|number| Place { number }), ..ask })
}

pub fn got(fence: u64) -> Reply {
    Reply::Acquired { fence: Fence(fence), waiting: 0 }
}

pub fn queued() -> Reply {
    Reply::Queued { remaining: Some(TIMEOUT), ahead: 0, notified: true, by: None }
}

pub const BUSY: Reply = Reply::Busy { remaining: Some(TIMEOUT) };

/// Returns true if the call asks only to release the token `whose`.
pub fn releases(call: Option<&Call>, whose: Token) -> bool {
    let is_it = |request: &Request| matches!(request, Request::Release { token, .. } if *token == whose);
    call.is_some_and(|call| call.requests.len() == 1 && is_it(&call.requests[0]))
}

pub fn accepts(call: Option<&Call>, wanted: u64) -> bool {
    let is_it = |request: &Request| matches!(request, Request::Accept { fence, .. } if fence.0 == wanted);
    call.is_some_and(|call| call.requests.len() == 1 && is_it(&call.requests[0]))
}
