//! Simulates adopters, nodes, and the network between them. Each adopter has its own coordinator,
//! and its own distances to the nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use super::super::*;
use crate::store::memory::LeaseTable;
use crate::store::{LockInfo, Source};

pub const TTL: u32 = 20_000;
pub const KEY: &str = "k";

pub fn ttl() -> Ttl {
    Ttl::from_millis(TTL).unwrap()
}

/// A message on its way: a request of an adopter to a node, or the answer.
pub enum Message {
    Request(usize, Call),
    Answer(usize, u64, Vec<Answer>),
}

/// Simulates adopters, nodes, and the network between them.
pub struct TestNetwork {
    pub now: Instant,
    pub coordinators: Vec<Coordinator>,
    pub nodes: Vec<LeaseTable>,
    /// The nodes that refuse connections.
    pub down: Vec<usize>,
    /// The nodes that never answer.
    pub silent: Vec<usize>,
    /// A node that carries its requests out at that instant, even if no adopter waits for them any
    /// more.
    pub stalled: Option<(usize, Instant)>,
    /// The nodes that deny all requests.
    pub denying: Vec<usize>,
    /// An adopter that does nothing, and gets no answers, for now.
    pub frozen: Option<usize>,
    /// Returns how long a message between an adopter and a node takes, in µs.
    pub distance: Box<dyn Fn(usize, usize) -> u64>,
    pub queue: BinaryHeap<Reverse<(Instant, u64)>>,
    pub messages: FxHashMap<u64, Message>,
    pub serial: u64,
    pub answers: FxHashMap<(usize, u64), Vec<Answer>>,
}

impl TestNetwork {
    pub fn new(adopters: usize, nodes: usize, distance: impl Fn(usize, usize) -> u64 + 'static) -> Self {
        let names = || (0..nodes).map(|node| format!("n{node}").into()).collect();
        Self {
            now: Instant::from_micros(1_000_000_000),
            coordinators: (0..adopters)
                .map(|adopter| Coordinator::new(names(), adopter as u64 + 1))
                .collect(),
            nodes: (0..nodes).map(|_| LeaseTable::default()).collect(),
            down: Vec::new(),
            silent: Vec::new(),
            stalled: None,
            denying: Vec::new(),
            frozen: None,
            distance: Box::new(distance),
            queue: BinaryHeap::new(),
            messages: FxHashMap::default(),
            serial: 0,
            answers: FxHashMap::default(),
        }
    }

    /// Creates a network where each adopter is near to the node of its own number, and far from the
    /// others.
    pub fn scattered(adopters: usize, nodes: usize) -> Self {
        Self::new(adopters, nodes, |adopter, node| if adopter == node { 500 } else { 20_000 })
    }

    /// Grants `token` a lease at every node.
    pub fn grant(&mut self, token: Token, mode: Mode) {
        for node in &mut self.nodes {
            let ask =
                AcquireRequest { mode, ..AcquireRequest::new(KEY.into(), token, ttl(), "first".into()) };
            let granted = node.apply(Request::Acquire(ask), self.now, 1);
            assert!(matches!(granted, Ok(Reply::Acquired { .. })), "{granted:?}");
            let accept = Request::Accept { key: KEY.into(), token, fence: Fence(77), count: 1 };
            assert_eq!(node.apply(accept, self.now, 1).unwrap(), Reply::Accepted);
        }
    }

    pub fn put(&mut self, after: u64, message: Message) {
        self.serial += 1;
        self.queue.push(Reverse((self.now + Duration::from_micros(after), self.serial)));
        self.messages.insert(self.serial, message);
    }

    pub fn ask(&mut self, adopter: usize, batch: u64, request: Request) {
        self.coordinators[adopter].submit(self.now, batch, vec![request], Duration::from_secs(2));
        self.gather(adopter);
    }

    pub fn adopt(&mut self, index: usize, batch: u64, ticket: Token, adopter: Token) {
        self.ask(index, batch, adopt(ticket, adopter));
    }

    pub fn gather(&mut self, adopter: usize) {
        let effects = self.coordinators[adopter].take_effects();
        for call in effects.calls {
            let (node, count, timeout) = (call.node, call.requests.len(), call.timeout.as_micros() as u64);
            let refused = StoreError::not_done(StoreErrorKind::Unreachable, "down");
            let late = StoreError::maybe_done(StoreErrorKind::TimedOut, "late");
            let denied = StoreError::not_done(StoreErrorKind::Denied, "denied");
            if self.down.contains(&node) {
                self.put(100, Message::Answer(adopter, call.id, vec![Err(refused); count]));
            } else if self.denying.contains(&node) {
                self.put(100, Message::Answer(adopter, call.id, vec![Err(denied); count]));
            } else if self.silent.contains(&node) {
                self.put(timeout, Message::Answer(adopter, call.id, vec![Err(late); count]));
            } else if let Some((_, until)) =
                self.stalled.filter(|stalled| stalled.0 == node && self.now < stalled.1)
            {
                let wait = until.since(self.now).as_micros() as u64;
                if timeout < wait {
                    self.put(timeout, Message::Answer(adopter, call.id, vec![Err(late); count]));
                }
                self.put(wait, Message::Request(adopter, call));
            } else {
                self.put((self.distance)(adopter, node), Message::Request(adopter, call));
            }
        }
        self.answers.extend(effects.answers.into_iter().map(|(batch, answers)| ((adopter, batch), answers)));
    }

    /// Lets `ms` milliseconds pass.
    pub fn live(&mut self, ms: u64) {
        let end = self.now + Duration::from_millis(ms);
        loop {
            let message = self.queue.peek().map(|Reverse((at, _))| *at);
            let frozen = self.frozen;
            let awake = (0..self.coordinators.len()).filter(|index| frozen != Some(*index));
            let wake = awake.clone().filter_map(|index| self.coordinators[index].next_wake()).min();
            let Some(next) = [message, wake].into_iter().flatten().min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            for adopter in awake {
                self.coordinators[adopter].tick(self.now);
                self.gather(adopter);
            }
            if message.is_some_and(|at| at <= self.now) {
                let Reverse((_, serial)) = self.queue.pop().unwrap();
                match self.messages.remove(&serial).unwrap() {
                    Message::Request(adopter, Call { id, node, requests, .. }) => {
                        let now = self.now;
                        let answers: Vec<Answer> =
                            requests.into_iter().map(|r| self.nodes[node].apply(r, now, 1)).collect();
                        self.put((self.distance)(adopter, node), Message::Answer(adopter, id, answers));
                    }
                    late @ Message::Answer(..) if matches!(late, Message::Answer(index, ..) if self.frozen == Some(index)) =>
                    {
                        self.put(1_000, late);
                    }
                    Message::Answer(adopter, id, answers) => {
                        self.coordinators[adopter].answered(self.now, id, answers);
                        self.gather(adopter);
                    }
                }
            }
        }
        self.now = end;
    }

    pub fn settled(&mut self, adopter: usize, batch: u64) -> Answer {
        let mut answers = self.answers.remove(&(adopter, batch)).expect("the batch is settled");
        answers.remove(0)
    }

    /// Returns true if the first batch of `adopter` adopted the lease.
    pub fn has_adopted(&self, adopter: usize) -> bool {
        self.answers
            .get(&(adopter, 1))
            .is_some_and(|answers| answers[0].as_ref().is_ok_and(Reply::is_adopted))
    }

    /// Returns the adopter that adopted the lease. Fails unless all other adopters got the answer
    /// `Taken`.
    pub fn winner(&mut self, adopters: usize) -> usize {
        let replies: Vec<Answer> = (0..adopters).map(|adopter| self.settled(adopter, 1)).collect();
        let adopted: Vec<usize> =
            (0..adopters).filter(|adopter| replies[*adopter].as_ref().is_ok_and(Reply::is_adopted)).collect();
        assert_eq!(adopted.len(), 1, "{replies:?}");
        let told = replies.iter().filter(|reply| **reply == Ok(Reply::NotHeld(Absence::Taken))).count();
        assert_eq!(told, adopters - 1, "{replies:?}");
        adopted[0]
    }

    /// Lets the adopters adopt, and try again as long as they get an error.
    pub fn adopt_until_told(
        &mut self,
        adopters: Range<usize>,
        ticket: Token,
        tokens: &[Token],
    ) -> Vec<Reply> {
        let mut told = BTreeMap::new();
        for batch in 1..=4 {
            let open: Vec<usize> = adopters.clone().filter(|adopter| !told.contains_key(adopter)).collect();
            open.iter().for_each(|adopter| self.adopt(*adopter, batch, ticket, tokens[*adopter]));
            self.live(2_000);
            for adopter in open {
                match self.settled(adopter, batch) {
                    Ok(reply) => drop(told.insert(adopter, reply)),
                    Err(error) => {
                        assert!(matches!(error.kind, StoreErrorKind::Quorum | StoreErrorKind::TimedOut))
                    }
                }
            }
        }
        assert_eq!(told.len(), adopters.len(), "{told:?}");
        told.into_values().collect()
    }

    pub fn held_by(&mut self, node: usize) -> Option<LockInfo> {
        let now = self.now;
        match self.nodes[node].apply(Request::Inspect { key: KEY.into() }, now, 1) {
            Ok(Reply::Inspected(info)) => info,
            other => panic!("{other:?}"),
        }
    }
}

pub fn adopt(ticket: Token, adopter: Token) -> Request {
    adopt_with_fence(ticket, adopter, Fence(77))
}

pub fn adopt_with_fence(ticket: Token, adopter: Token, fence: Fence) -> Request {
    let (key, holder) = (KEY.into(), "adopter".into());
    Request::Adopt {
        key,
        token: ticket,
        adopter,
        ttl: ttl(),
        holder,
        outlives_process: false,
        source: Source::Ticket { fence, with_ttl: false },
    }
}

pub fn give_back(token: Token, ticket: Token) -> Request {
    Request::GiveBack { key: KEY.into(), token, ticket }
}

pub fn tokens(count: usize) -> Vec<Token> {
    (0..count).map(|_| Token::random()).collect()
}
