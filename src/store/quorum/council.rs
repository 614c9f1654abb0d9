//! Coordinates all requests to a quorum. Pure: the caller passes in the time, and sends the calls
//! that come out. So the simulation runs the same code.

mod adopting;
mod asking;
mod endings;
mod holding;
mod lost;
mod motion;
mod repairing;
mod used_tickets;

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use self::asking::Asking;
pub use self::lost::is_of_lease;
use self::motion::Motion;
use super::adoption::Adoption;
use super::backers::Backers;
use super::ballot::{Ballot, Nodes, Verdict};
use super::batches::{Batches, Settled};
use super::debts::{Debts, Owed, Said};
use super::places::Places;
use super::post::{Post, Tag};
use super::reach::Reach;
use super::repairs::Repairs;
use super::rivals::Rivals;
use crate::lease::{Fence, Instant, Key, Mode};
use crate::store::{Answer, Ask, Notice, Reply, Request, StoreError, StoreErrorKind};

/// The shortest time that a request waits for the rest of the nodes. If this is smaller, requests
/// give up nodes that are about to answer. If it is larger, requests that lose take longer.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);
/// The longest time that a request waits for the rest of the nodes. If this is smaller, requests
/// over a slow network give up nodes that are about to answer. If it is larger, a slow node delays
/// requests for longer.
const LONGEST_PATIENCE: Duration = Duration::from_millis(50);
/// How long a release or a move that is owed to a node may take.
const DEBT_TIMEOUT: Duration = Duration::from_millis(500);

pub use super::post::Call;

/// Holds what the caller of a council has to do.
#[derive(Default)]
pub struct Effects {
    /// The calls to send.
    pub calls: Vec<Call>,
    /// The answers to batches.
    pub answers: Vec<(u64, Vec<Answer>)>,
    /// The notices for the listener.
    pub notices: Vec<Notice>,
}

/// See the module.
pub struct Council {
    nodes: Nodes,
    rng: fastrand::Rng,
    batches: Batches,
    motions: FxHashMap<u64, Motion>,
    adoptions: FxHashMap<u64, Adoption>,
    rivals: Rivals,
    /// The requests that hold a minority.
    holding: Vec<u64>,
    post: Post,
    reach: Reach,
    /// Tokens with acquires that not all nodes have answered yet.
    asking: Asking,
    places: Places,
    backers: Backers,
    repairs: Repairs,
    debts: Debts,
    /// The last number given to a ballot.
    serial: u64,
    /// How long a majority takes to answer, smoothed.
    trip: Duration,
    effects: Effects,
}

impl Council {
    /// Creates the council of the nodes with these names. `seed` is the seed of its jitter.
    pub fn new(names: Vec<Arc<str>>, seed: u64) -> Self {
        let count = names.len();
        Self {
            nodes: Nodes { names },
            rng: fastrand::Rng::with_seed(seed),
            batches: Batches::default(),
            motions: FxHashMap::default(),
            adoptions: FxHashMap::default(),
            rivals: Rivals::default(),
            holding: Vec::new(),
            post: Post::default(),
            reach: Reach::new(count),
            asking: Asking::default(),
            places: Places::default(),
            backers: Backers::default(),
            repairs: Repairs::default(),
            debts: Debts::new(count),
            serial: 0,
            trip: SHORTEST_PATIENCE,
            effects: Effects::default(),
        }
    }

    /// Returns the name of the node in messages.
    pub fn name(&self, node: usize) -> Arc<str> {
        self.nodes.names[node].clone()
    }

    /// Begins a batch. [`Effects::answers`] contains its answers within `timeout`.
    pub fn submit(&mut self, now: Instant, batch: u64, requests: Vec<Request>, timeout: Duration) {
        for (index, request) in self.batches.begin(batch, requests, now + timeout) {
            self.propose(now, batch, index, request, timeout);
        }
    }

    fn propose(&mut self, now: Instant, batch: u64, index: usize, mut request: Request, timeout: Duration) {
        // Each node has reserved its own fences with the lease. The used fences do not say which of
        // them a node may take back.
        if let Request::Release { used, .. } = &mut request {
            *used = None;
        }
        if let Request::Acquire(Ask { mode: Mode::Shared { most }, .. }) = &request
            && *most != u32::MAX
        {
            let message = "a quorum has no semaphores: two majorities need not have the same node in common with a third, \
                           so their permits can't be counted; use one server";
            let error = StoreError::not_done(StoreErrorKind::Unsupported, message);
            return self.settle(now, batch, index, request.key().cloned(), Err(error));
        }
        if let Request::Adopt { .. } = request {
            return self.adopt(now, batch, index, request, now + timeout);
        }
        self.serial += 1;
        let id = self.serial;
        let (mut spared, mut inspects) = (0, false);
        match &request {
            Request::Acquire(Ask { token, place, .. }) => {
                self.asking.begin(*token);
                match place {
                    Some(place) => (spared, inspects) = self.places.look(now, *token, place.number, id),
                    None => self.places.forget(*token),
                }
            }
            Request::Release { token, .. } => {
                let ended = self.end_repairs(*token);
                self.refuse(*token);
                self.heir_ended(now, *token, None);
                self.release_ticket(now, ended.as_ref());
            }
            Request::GiveBack { token, ticket, .. } => {
                self.end_repairs(*token);
                self.heir_ended(now, *token, Some(*ticket));
            }
            _ => {}
        }
        // A request that may need a second round leaves time for it.
        let timeout = match &request {
            Request::Acquire(_) | Request::Renew { fences: 1.., .. } => timeout / 2,
            _ => timeout,
        };
        for node in 0..self.nodes.count() {
            if spared & 1 << node == 0 {
                self.post.draft(node, timeout, at_a_node(&request), Tag::Vote(id));
            } else if let (true, Request::Acquire(Ask { key, .. })) = (inspects, &request) {
                self.post.draft(node, timeout, Request::Inspect { key: key.clone() }, Tag::Spared(id));
            }
        }
        let mut ballot = Ballot::new(request, spared, &self.nodes);
        ballot.awaited += if inspects { spared.count_ones() as usize } else { 0 };
        self.motions.insert(id, Motion::new(ballot, batch, index, now, timeout));
    }

    /// Handles a node's answers to a call.
    pub fn answered(&mut self, now: Instant, call: u64, answers: Vec<Answer>) {
        let Some((node, tags, trusted)) = self.post.answered(call) else { return };
        debug_assert_eq!(tags.len(), answers.len(), "a node answers each request once");
        if let Some(Tag::Debt) = tags.first() {
            let failed: Vec<bool> = answers.iter().map(is_owed).collect();
            let said: Vec<Said> = answers.iter().map(said).collect();
            self.debts.said(now, node, &said);
            let jitter = self.rng.f64();
            self.debts.paid(now, node, &failed, jitter);
        } else {
            for (tag, answer) in tags.into_iter().zip(answers) {
                let answer = if trusted { answer } else { self.outdated(node, tag, answer) };
                match tag {
                    Tag::Vote(id) => self.voted(now, id, node, answer),
                    Tag::Accept(id) => self.accepted(now, id, node, answer),
                    Tag::Claim(id) => self.claimed(now, id, node, answer),
                    Tag::Confirm(id) => self.confirmed(now, id, node, answer),
                    Tag::Spared(id) => self.inspected_spared(now, id, node, &answer),
                    Tag::Repair(id) => self.repaired(now, id, &answer),
                    Tag::RepairFence(id) => self.fence_repaired(id, &answer),
                    Tag::Debt => {}
                }
            }
        }
        self.pay_debts(now);
    }

    fn voted(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(motion) = self.motions.get_mut(&id) else { return };
        motion.ballot.awaited -= 1;
        match &motion.ballot.request {
            Request::Release { key, token, .. } => {
                self.debts.released(now, node, key, *token, is_owed(&answer));
            }
            Request::Acquire(ask) => {
                let is_refused = self.asking.is_refused(ask.token);
                if !matches!(answer, Err(StoreError { maybe_done: false, .. }) | Ok(Reply::Busy { .. })) {
                    self.places.touched(ask.token, node);
                }
                match &answer {
                    Err(StoreError { maybe_done: true, .. })
                    | Ok(Reply::Acquired { .. } | Reply::Queued { .. })
                        if is_refused =>
                    {
                        self.debts.owe(now, node, &ask.key, ask.token, answer.is_err());
                    }
                    Err(error) if error.maybe_done => self.debts.doubt(now, node, ask.token),
                    // The waiter's look has ended, and said that the client waits.
                    Ok(Reply::Acquired { .. }) if motion.ballot.is_settled() => {
                        let token = ask.token;
                        if !self.spare(now, id, 1 << node) {
                            let (enough, patience) = (self.nodes.majority(), self.trip);
                            let heard = self.places.handed(now, token, node, enough, patience);
                            self.heard(now, node, heard);
                        }
                    }
                    _ => {}
                }
            }
            Request::GiveBack { key, token, ticket } if is_owed(&answer) => {
                let owed = Owed::moved(key.clone(), *token, *ticket);
                self.debts.owe_move(now, node, owed, true);
            }
            _ => {}
        }
        self.vote(now, id, node, answer);
    }

    /// Counts the vote of a node, and repairs the lease there if the vote is late and needs it.
    fn vote(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(motion) = self.motions.get_mut(&id) else { return };
        if let Some((token, _)) = motion.ballot.request.lease()
            && matches!(&answer, Ok(reply) if motion.ballot.is_settled() && is_of_lease(reply))
        {
            self.backers.joined(token, id, node);
        }
        let is_renewed = motion.is_renewed;
        let absence = match answer {
            Ok(Reply::NotHeld(absence)) => Some(absence),
            _ => None,
        };
        let verdict = motion.ballot.voted(node, answer, &self.nodes);
        match absence {
            _ if !is_renewed => {}
            Some(absence) => self.repair_at(now, id, node, absence),
            None => self.fence_at(now, id, node),
        }
        self.follow(now, id, verdict);
    }

    /// Takes the answer of a spared node to an inspection. The waiter's next request asks the node
    /// again if the lock's holder has the lease there.
    fn inspected_spared(&mut self, now: Instant, id: u64, node: usize, answer: &Answer) {
        let Some(Motion { ballot, .. }) = self.motions.get_mut(&id) else { return };
        ballot.awaited -= 1;
        if let (Request::Acquire(Ask { token, .. }), Ok(Reply::Inspected(Some(info)))) =
            (&ballot.request, answer)
        {
            self.places.seen(*token, node, info.leases.iter().filter_map(|lease| lease.mark));
        }
        self.follow(now, id, Verdict::Open);
    }

    fn accepted(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(motion) = self.motions.get_mut(&id) else { return };
        motion.ballot.awaited -= 1;
        if let (Some((token, _)), Some((fence, _)), Ok(Reply::Accepted)) =
            (motion.ballot.request.lease(), motion.ballot.fence(), &answer)
        {
            self.backers.fenced(token, node, fence);
        }
        let verdict = motion.ballot.accepted(node, answer, &self.nodes);
        self.follow(now, id, verdict);
    }

    /// Does what follows from an answer.
    fn follow(&mut self, now: Instant, id: u64, verdict: Verdict) {
        match verdict {
            Verdict::Open => {}
            Verdict::Hold => self.hold(now, id),
            Verdict::Accept { nodes, fence, count } => self.accept(id, &nodes, fence, count),
            Verdict::Settle(answer) => self.end(now, id, answer),
        }
        if self
            .motions
            .get(&id)
            .is_some_and(|motion| motion.ballot.is_settled() && motion.ballot.awaited == 0)
        {
            self.forget(now, id);
        }
    }

    /// Forgets a request that all nodes have answered.
    fn forget(&mut self, now: Instant, id: u64) {
        if let Some(Motion { ballot, .. }) = self.motions.get(&id)
            && let Request::Acquire(Ask { token, .. }) = ballot.request
        {
            let granted = ballot.granted();
            self.asking.end(token);
            if !self.spare(now, id, granted) {
                self.places.spare_none(token, id);
            }
        }
        self.motions.remove(&id);
    }

    fn accept(&mut self, id: u64, nodes: &[usize], fence: Fence, count: u32) {
        let Some(motion) = self.motions.get_mut(&id) else { return };
        let (key, token) = match &motion.ballot.request {
            Request::Acquire(Ask { key, token, .. }) | Request::Renew { key, token, .. } => {
                (key.clone(), *token)
            }
            _ => return,
        };
        motion.ballot.awaited += nodes.len();
        let timeout = motion.timeout;
        for &node in nodes {
            let request = Request::Accept { key: key.clone(), token, fence, count };
            self.post.draft(node, timeout, request, Tag::Accept(id));
        }
    }

    fn settle(&mut self, now: Instant, id: u64, index: usize, key: Option<Key>, answer: Answer) {
        match self.batches.settle(id, index, key.as_ref(), answer) {
            Settled::Open => {}
            Settled::Next((index, request), deadline) => {
                let timeout = deadline.since(now).max(SHORTEST_PATIENCE);
                self.propose(now, id, index, request, timeout);
            }
            Settled::Done(answers) => self.effects.answers.push((id, answers)),
        }
    }

    /// Does what is due at `now`.
    pub fn tick(&mut self, now: Instant) {
        let mut over = Vec::new();
        self.holding.retain(|id| {
            let until = self.motions.get(id).and_then(|motion| motion.ballot.holds_until());
            if until.is_some_and(|until| until <= now) {
                over.push(*id);
            }
            until.is_some_and(|until| now < until)
        });
        for id in over {
            if self.ask_again(now, id) {
                continue;
            }
            if let Some(motion) = self.motions.get_mut(&id) {
                let verdict = motion.ballot.give_way(&self.nodes);
                self.follow(now, id, verdict);
            }
        }
        self.tick_adoptions(now);
        for number in self.places.due(now) {
            self.effects.notices.push(Notice::Granted { number, fence: None });
        }
        self.pay_debts(now);
    }

    /// Returns when [`Council::tick`] has something to do next.
    pub fn next_wake(&self) -> Option<Instant> {
        let holds = self.holding.iter().filter_map(|id| self.motions.get(id)?.ballot.holds_until()).min();
        let adoptions = self.adoptions.values().filter_map(Adoption::next_wake).min();
        [holds, adoptions, self.places.next_wake(), self.debts.next_wake()].into_iter().flatten().min()
    }

    /// Takes what the caller has to do.
    pub fn take_effects(&mut self) -> Effects {
        let calls = self.post.take_calls();
        Effects { calls, ..std::mem::take(&mut self.effects) }
    }

    /// Returns how many things the council still has to care for: requests under way, waiters, and
    /// what nodes are owed.
    pub fn concerns(&self) -> usize {
        self.motions.len() + self.adoptions.len() + self.repairs.len() + self.places.len() + self.debts.len()
    }

    /// Returns true if a node still has an answer to give, or is owed a release or a move.
    pub fn is_busy(&self) -> bool {
        let open = self.motions.len() + self.adoptions.len() + self.repairs.len();
        open + self.debts.len() > 0
    }

    /// Returns how long to wait for the other nodes after the first one has answered.
    fn patience(&self) -> Duration {
        (self.trip * 3).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    fn pay_debts(&mut self, now: Instant) {
        for (node, owed) in self.debts.due(now) {
            let request = |Owed { key, token, to, .. }| match to {
                Some(to) => Request::Move { key, token, to, heir: to },
                None => Request::Release { key, token, used: None },
            };
            let requests = owed.into_iter().map(request).collect();
            self.post.send_apart(node, DEBT_TIMEOUT, requests, Tag::Debt);
        }
    }
}

/// Returns the request that each node gets for `request`. A lease that is given back moves to the
/// ticket. A node that breaks a lock refuses repairs of that lock for a while.
fn at_a_node(request: &Request) -> Request {
    match request.clone() {
        Request::GiveBack { key, token, ticket } => Request::Move { key, token, to: ticket, heir: ticket },
        Request::Break { key, .. } => Request::Break { key, bars_repairs: true },
        other => other,
    }
}

/// Returns what an answer to a debt says.
fn said(answer: &Answer) -> Said {
    match answer {
        Ok(Reply::Adopted(_)) => Said::Moved,
        Ok(Reply::Claimed { by }) => Said::Claimed(*by),
        _ => Said::Other,
    }
}

/// Returns true if a release or a move with that answer may not have been carried out.
fn is_owed(answer: &Answer) -> bool {
    answer.as_ref().is_err_and(|error| error.kind.is_transient() || error.maybe_done)
}

#[cfg(test)]
#[path = "council_tests.rs"]
mod tests;
