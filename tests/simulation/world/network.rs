//! What is between processes and servers, and what goes wrong there: messages that are delayed, lost, repeated; servers that
//! freeze, crash and forget.

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
        let Message { node, errand, requests, .. } = message;
        let (back, thaw) = (self.delay() + self.distance(process, node), self.nodes[node].frozen_until);
        let is_down = self.nodes[node].down_until > self.now;
        let answers: Vec<Answer> = if is_down {
            // Refused, most of the time.
            requests.iter().map(|_| Err(refused())).collect()
        } else if thaw > self.now {
            // It does it all when it goes on, whoever still waits for it.
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
            self.plan(process, wait, Event::Answer { process, errand, answers });
        }
    }

    /// A store carries out a request, and sends its notices.
    pub(super) fn apply(&mut self, process: usize, node: usize, life: u64, mut request: Request) -> Answer {
        if let Request::Acquire(ask) = &mut request
            && let Some(place) = &mut ask.place
        {
            // Each engine numbers its waiters for itself; the store knows whose number it is.
            self.waiters.insert(self.serial, (process, life, place.number));
            place.number = self.serial;
            self.serial += 1;
        }
        let answer = self.nodes[node].apply(request, self.now);
        for notice in self.nodes[node].take_notices() {
            self.tell(node, notice);
        }
        answer
    }

    fn distance(&self, process: usize, node: usize) -> Duration {
        self.distances.get(&(process, node)).copied().unwrap_or_default()
    }

    /// Something befalls a node, or the way to it.
    pub(super) fn mishap(&mut self) {
        if !self.is_trouble() {
            for node in &mut self.nodes {
                // One that stays away because it has lost its data does so to the end.
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

    /// A node is gone for a while. One that loses its data stays away until every lease that it knew has ended.
    pub(super) fn crash(&mut self, node: usize, span: Duration, forgets: bool) {
        let span = if forgets && !self.shape.hasty { span.max(LONGEST_TTL + LONGEST_TTL / 50) } else { span };
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

    /// Sends a notice. It may get lost, or come twice, or after much else has happened.
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
                // It arrives when nobody waits for it any more.
                self.stray(process, &message, message.timeout);
                self.lose(process, message);
            }
            _ if process == 0 && self.mute.contains(&message.node) && self.rng.bool() => {
                self.plan(process, there, Event::Arrive { process, message, until, reply_lost: true })
            }
            _ => {
                if fate < 24 && trouble && !self.tidy {
                    // It arrives twice.
                    self.stray(process, &message, Duration::ZERO);
                }
                self.plan(process, there, Event::Arrive { process, message, until, reply_lost: false });
            }
        }
    }

    /// No answer will come.
    pub(super) fn lose(&mut self, process: usize, message: Message) {
        let Message { errand, requests, timeout, .. } = message;
        let answers = vec![Err(no_answer()); requests.len()];
        self.plan(process, timeout, Event::Answer { process, errand, answers });
    }

    /// Each of its requests arrives some time after that.
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
