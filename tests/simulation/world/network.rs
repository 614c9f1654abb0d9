//! Simulates the network between processes and nodes, and its failures. Messages are delayed, lost
//! or repeated. Nodes freeze, crash and lose their data.

use std::time::Duration;

use leasehold::lease::Instant;
use leasehold::store::{Answer, Notice, Request, StoreError, StoreErrorKind};

use super::super::process::Message;
use super::{Event, LONGEST_TTL, PROCESSES, World};

impl World {
    pub(super) fn arrive(
        &mut self,
        life: u64,
        process: usize,
        message: Message,
        until: Instant,
        reply_lost: bool,
    ) {
        let Message { node, reply_to, requests, .. } = message;
        let (back, thaw) = (self.delay() + self.distance(process, node), self.nodes[node].frozen_until);
        let is_down = self.nodes[node].down_until > self.now;
        let answers: Vec<Answer> = if is_down {
            // Most senders learn that the node is down. For the others, the answer gets lost below.
            requests.iter().map(|_| Err(refused())).collect()
        } else if thaw > self.now {
            // The node carries out all requests when it goes on, even if no caller waits for them
            // any more.
            let late = thaw.since(self.now);
            for request in &requests {
                self.plan(process, late, Event::Stray { process, node, request: request.clone() });
            }
            vec![Err(no_answer()); requests.len()]
        } else {
            let apply = |request| self.apply(process, node, life, request);
            requests.into_iter().map(apply).collect()
        };
        let is_lost = reply_lost || thaw > self.now || is_down && self.rng.u8(..4) == 0;
        let (wait, answers) = match until.since(self.now) {
            left if is_lost || back >= left => (left, vec![Err(no_answer()); answers.len()]),
            _ => (back, answers),
        };
        if life == self.lives[process] {
            self.plan(process, wait, Event::Answer { process, reply_to, answers });
        }
    }

    /// Lets a node carry out a request, and sends the notices of the node.
    pub(super) fn apply(&mut self, process: usize, node: usize, life: u64, mut request: Request) -> Answer {
        if let Request::Acquire(ask) = &mut request
            && let Some(place) = &mut ask.place
        {
            // Waiters of different processes may have the same number, so the node gets a new
            // number for the waiter.
            self.waiters.insert(self.serial, (process, life, place.number));
            place.number = self.serial;
            self.serial += 1;
        }
        let noted = self.lease_ends.is_some().then(|| request.clone());
        let answer = self.nodes[node].apply(request, self.now);
        if let Some(request) = noted {
            self.note_lease_end(process, node, &request, &answer);
        }
        for notice in self.nodes[node].take_notices() {
            self.tell(node, notice);
        }
        answer
    }

    fn distance(&self, process: usize, node: usize) -> Duration {
        self.distances.get(&(process, node)).copied().unwrap_or_default()
    }

    /// Lets a node or the network to it fail. After the trouble, ends such failures.
    pub(super) fn mishap(&mut self) {
        if !self.is_trouble() {
            for node in &mut self.nodes {
                // Keep `down_until`: a node that has lost its data must not come back sooner.
                node.frozen_until = self.now;
            }
            self.cut_until.clear();
            return;
        }
        if self.shape.rolling {
            return self.roll();
        }
        let (node, process) = (self.rng.usize(..self.nodes.len()), self.rng.usize(..PROCESSES));
        let span = Duration::from_micros(self.rng.u64(1_000..1_500_000)) / self.haste;
        let until = self.now + span;
        match self.rng.u8(..10) {
            0..2 => self.nodes[node].frozen_until = until,
            2..4 if self.nodes[node].down_until <= self.now => {
                let forgets = self.shape.lossy && self.rng.u8(..2) == 0;
                self.crash(node, span, forgets);
            }
            4..7 => drop(self.cut_until.insert((process, node), until)),
            7 => self.nodes[node].set_wall_clock(&mut self.rng),
            _ => {}
        }
        let pause = Duration::from_micros(self.rng.u64(1_000..400_000)) / self.haste;
        self.plan(0, pause, Event::Mishap);
    }

    /// Restarts the next node. The node after it restarts as soon as this one is back.
    fn roll(&mut self) {
        let node = self.rolled % self.nodes.len();
        self.rolled += 1;
        let forgets = self.shape.lossy && self.rng.bool();
        self.crash(node, LONGEST_TTL, forgets);
        let pause = self.nodes[node].down_until.since(self.now) + self.delay();
        self.plan(0, pause, Event::Mishap);
    }

    /// Stops a node for `span`. If it `forgets` its data, it stays away until every lease that it
    /// knew has ended, except in a world whose nodes return early.
    pub(super) fn crash(&mut self, node: usize, span: Duration, forgets: bool) {
        let span = if forgets && !self.shape.returns_early {
            span.max(LONGEST_TTL + LONGEST_TTL / 50)
        } else {
            span
        };
        let there = &mut self.nodes[node];
        there.down_until = self.now + span;
        if forgets {
            there.forget();
        }
        for process in 0..PROCESSES {
            let wait = span + self.delay();
            self.plan(process, wait, Event::Notice { process, node, notice: Notice::Missed });
        }
    }

    /// Sends a notice. During the trouble, it may get lost, arrive twice, or arrive late.
    pub(super) fn tell(&mut self, node: usize, notice: Notice) {
        let Notice::Granted { number, fence } = notice else { unreachable!("the store misses nothing") };
        let (process, life, number) = self.waiters[&number];
        if life != self.lives[process] {
            return;
        }
        let notice = Notice::Granted { number, fence };
        let (soon, late) = (self.delay(), Duration::from_micros(self.rng.u64(0..2_500_000)));
        let times = match self.rng.u8(..10) {
            0 if self.is_trouble() => vec![],
            1 if self.is_trouble() => vec![late],
            2 if self.is_trouble() => vec![soon, late],
            _ => vec![soon],
        };
        for there in times {
            self.plan(process, there, Event::Notice { process, node, notice: notice.clone() });
        }
    }

    pub(super) fn send(&mut self, process: usize, message: Message) {
        if process == 0 {
            self.keep_copies(&message);
        }
        self.history.record(self.now, process, &[(message.node, message.timeout)]);
        self.history.record(self.now, process, &message.requests);
        let trouble = self.is_trouble();
        let there = self.delay() + self.distance(process, message.node);
        let until = self.now + message.timeout;
        let is_cut = self.cut_until.get(&(process, message.node)).is_some_and(|until| self.now < *until);
        let fate = if is_cut { 0 } else { self.rng.u8(..100) };
        let fate = if !is_cut && self.spared() { u8::MAX } else { fate };
        match fate {
            0..8 if trouble => self.lose(process, message),
            8..16 if trouble => {
                self.plan(process, there, Event::Arrive { process, message, until, reply_lost: true })
            }
            16..20 if trouble => {
                // The message arrives after its time-out.
                self.stray(process, &message, message.timeout);
                self.lose(process, message);
            }
            _ if process == 0 && self.mute.contains(&message.node) && self.rng.bool() => {
                self.plan(process, there, Event::Arrive { process, message, until, reply_lost: true })
            }
            _ => {
                if fate < 24 && trouble && !self.tidy {
                    // The message arrives twice.
                    self.stray(process, &message, Duration::ZERO);
                }
                self.plan(process, there, Event::Arrive { process, message, until, reply_lost: false });
            }
        }
    }

    /// Loses a message. After the time-out, its sender gets errors.
    pub(super) fn lose(&mut self, process: usize, message: Message) {
        let Message { reply_to, requests, timeout, .. } = message;
        let answers = vec![Err(no_answer()); requests.len()];
        self.plan(process, timeout, Event::Answer { process, reply_to, answers });
    }

    /// Lets the requests of the message arrive at a random time later than `after`.
    pub(super) fn stray(&mut self, process: usize, message: &Message, after: Duration) {
        let late = after + Duration::from_micros(self.rng.u64(0..2_000_000));
        for request in message.requests.iter().cloned() {
            self.plan(process, late, Event::Stray { process, node: message.node, request });
        }
    }
}

fn refused() -> StoreError {
    StoreError::not_done(StoreErrorKind::Unreachable, "nobody there")
}

fn no_answer() -> StoreError {
    StoreError::maybe_done(StoreErrorKind::TimedOut, "lost on its way")
}
