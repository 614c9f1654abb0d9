//! Coordinates all requests to a quorum. Pure: the caller passes in the time, and sends the calls
//! that come out. So the simulation runs the same code.

mod adopting;
mod detaching;
mod endings;
mod lost;
mod minority_waits;
mod open_requests;
mod pending_request;
mod repairing;
mod used_tickets;
mod voting;
mod waiting_detachments;

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use self::open_requests::OpenRequests;
use self::pending_request::PendingRequest;
use self::waiting_detachments::WaitingDetachments;
use super::adoptions::Adoptions;
use super::batches::{Batches, Settled};
use super::call_queue::{CallQueue, CallTag};
use super::detached_leases::DetachedLeases;
use super::lease_nodes::{EndedLease, LeaseNodes};
use super::nodes::Nodes;
use super::other_adopters::OtherAdopters;
use super::pending_releases::{MoveResult, PendingReleases, TokenChange};
use super::quorum_availability::QuorumAvailability;
use super::repairs::Repairs;
use super::ticket_ends::TicketEnds;
use super::vote_round::VoteRound;
use super::waiter_tracker::WaiterTracker;
use crate::lease::validity::longest_life;
use crate::lease::{Instant, Key, Mode};
use crate::store::{AcquireRequest, Answer, Notice, Reply, Request, StoreError, StoreErrorKind};

/// The shortest time that a request waits for the rest of the nodes. If this is smaller, requests
/// give up nodes that are about to answer. If it is larger, requests that lose take longer.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);
/// The longest time that a request waits for the rest of the nodes. If this is smaller, requests
/// over a slow network give up nodes that are about to answer. If it is larger, a slow node delays
/// requests for longer.
const LONGEST_PATIENCE: Duration = Duration::from_millis(50);
/// How long a node may take to answer its pending releases and moves. If this is smaller, a slow
/// node gets the same requests again and again. If it is larger, a lost call delays the next
/// releases at the node for longer.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

pub use super::call_queue::Call;

/// Holds what the caller of a coordinator has to do.
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
pub struct Coordinator {
    nodes: Nodes,
    rng: fastrand::Rng,
    batches: Batches,
    pending_requests: FxHashMap<u64, PendingRequest>,
    adoptions: Adoptions,
    detachments: WaitingDetachments,
    other_adopters: OtherAdopters,
    /// The requests that wait for more nodes.
    holding: Vec<u64>,
    call_queue: CallQueue,
    availability: QuorumAvailability,
    /// Tokens with acquires and renewals that not all nodes have answered yet.
    open_requests: OpenRequests,
    waiters: WaiterTracker,
    lease_nodes: LeaseNodes,
    detached_leases: DetachedLeases,
    repairs: Repairs,
    ticket_ends: TicketEnds,
    pending_releases: PendingReleases,
    /// The last number given to a vote round, an adoption or a repair.
    serial: u64,
    /// How long a majority takes to answer, smoothed.
    majority_time: Duration,
    effects: Effects,
}

impl Coordinator {
    /// Creates the coordinator of the nodes with these names. `seed` is the seed of its jitter.
    pub fn new(names: Vec<Arc<str>>, seed: u64) -> Self {
        let count = names.len();
        Self {
            nodes: Nodes { names },
            rng: fastrand::Rng::with_seed(seed),
            batches: Batches::default(),
            pending_requests: FxHashMap::default(),
            adoptions: Adoptions::default(),
            detachments: WaitingDetachments::default(),
            other_adopters: OtherAdopters::default(),
            holding: Vec::new(),
            call_queue: CallQueue::default(),
            availability: QuorumAvailability::new(count),
            open_requests: OpenRequests::default(),
            waiters: WaiterTracker::default(),
            lease_nodes: LeaseNodes::default(),
            detached_leases: DetachedLeases::default(),
            repairs: Repairs::default(),
            ticket_ends: TicketEnds::default(),
            pending_releases: PendingReleases::new(count),
            serial: 0,
            majority_time: SHORTEST_PATIENCE,
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
        if let Request::Acquire(AcquireRequest { mode: Mode::Shared { most }, .. }) = &request
            && *most != u32::MAX
        {
            let message = "a quorum has no semaphores: no node of a quorum sees all leases, so permits can't be counted; use \
                           one server";
            let error = StoreError::not_done(StoreErrorKind::Unsupported, message);
            return self.settle(now, batch, index, request.key().cloned(), Err(error));
        }
        if let Request::Adopt { .. } = request {
            return self.adopt(now, batch, index, request, now + timeout);
        }
        if let Some(token) = self.waits_to_detach(&request) {
            return self.wait_to_detach(now, batch, index, token, request, now + timeout);
        }
        self.ask_nodes(now, batch, index, request, timeout);
    }

    /// Asks the nodes for their votes on a request.
    fn ask_nodes(&mut self, now: Instant, batch: u64, index: usize, request: Request, timeout: Duration) {
        self.serial += 1;
        let id = self.serial;
        let (mut skipped, mut inspects) = (0, false);
        let (mut released, mut detached, mut waited) = (None, None, None);
        match &request {
            Request::Acquire(AcquireRequest { token, place, .. }) => {
                self.open_requests.begin(*token);
                match place {
                    Some(place) => (skipped, inspects) = self.waiters.poll(now, *token, place.number, id),
                    None => self.waiters.forget(*token),
                }
            }
            Request::Release { token, .. } => {
                let ended = self.end_repairs(*token);
                detached = self.detached_leases.take(*token);
                waited = self.waiters.touched_by(*token);
                self.refuse(*token);
                self.adopter_ended(now, *token, None);
                if let Some(ended) = &ended {
                    self.release_ticket(now, ended, *token);
                }
                released = ended;
            }
            Request::GiveBack { token, ticket, .. } => {
                self.end_repairs(*token);
                self.adopter_ended(now, *token, Some(*ticket));
            }
            Request::Renew { token, .. } => self.open_requests.begin(*token),
            Request::Detach { token, .. } => self.lease_nodes.detaching(*token),
            _ => {}
        }
        if let Some((token, ttl)) = request.lease() {
            self.lease_nodes.may_live(token, now + timeout + longest_life(ttl));
        }
        // A request that may need a second round leaves time for it.
        let timeout = match &request {
            Request::Acquire(_) | Request::Renew { fences: 1.., .. } => timeout / 2,
            _ => timeout,
        };
        for node in 0..self.nodes.count() {
            if skipped & 1 << node == 0 {
                let request = self.at_a_node(now, node, &request);
                self.call_queue.add(node, timeout, request, CallTag::Vote(id));
            } else if let (true, Request::Acquire(AcquireRequest { key, .. })) = (inspects, &request) {
                self.call_queue.add(
                    node,
                    timeout,
                    Request::Inspect { key: key.clone() },
                    CallTag::Skipped(id),
                );
            }
        }
        let mut vote_round = VoteRound::new(request, skipped, &self.nodes);
        vote_round.awaited += if inspects { skipped.count_ones() as usize } else { 0 };
        let mut pending = PendingRequest::new(vote_round, batch, index, now, timeout);
        if let Some(EndedLease { nodes, valid_until, may_have, may_live_until, .. }) = released {
            pending.vote_round.held_at = (now < valid_until).then_some(nodes);
            pending.lease_ends = Some((may_have, may_live_until));
        } else {
            pending.lease_ends = detached;
        }
        pending.waited = waited;
        self.pending_requests.insert(id, pending);
    }

    /// Handles a node's answers to a call.
    pub fn answered(&mut self, now: Instant, call: u64, answers: Vec<Answer>) {
        let Some((node, tags, trusted)) = self.call_queue.answered(call) else { return };
        debug_assert_eq!(tags.len(), answers.len(), "a node answers each request once");
        if let Some(CallTag::PendingRelease) = tags.first() {
            let said: Vec<MoveResult> = answers.iter().map(said).collect();
            self.pending_releases.said(now, node, &said);
            let jitter = self.rng.f64();
            self.pending_releases.answered(now, node, &answers, jitter);
        } else {
            for (tag, answer) in tags.into_iter().zip(answers) {
                let answer = if trusted { answer } else { self.outdated(node, tag, answer) };
                match tag {
                    CallTag::Vote(id) => self.voted(now, id, node, answer),
                    CallTag::Accept(id) => self.accepted(now, id, node, answer),
                    CallTag::Claim(id) => self.claimed(now, id, node, answer),
                    CallTag::Confirm(id) => self.confirmed(now, id, node, answer),
                    CallTag::Skipped(id) => self.inspected_skipped(now, id, node, &answer),
                    CallTag::Repair(id) => self.repaired(now, id, &answer),
                    CallTag::RepairFence(id) => self.fence_repaired(id, &answer),
                    CallTag::PendingRelease => {}
                }
            }
        }
        self.begin_adoptions(now);
        self.send_detachments(now);
        self.send_pending_releases(now);
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
            let until = self.pending_requests.get(id).and_then(|pending| pending.vote_round.holds_until());
            if until.is_some_and(|until| until <= now) {
                over.push(*id);
            }
            until.is_some_and(|until| now < until)
        });
        for id in over {
            if self.ask_again(now, id) {
                continue;
            }
            if let Some(pending) = self.pending_requests.get_mut(&id) {
                let decision = pending.vote_round.back_off(&self.nodes);
                self.follow(now, id, decision);
            }
        }
        self.tick_adoptions(now);
        self.end_adopted_leases(now);
        self.send_detachments(now);
        for number in self.waiters.due(now) {
            self.effects.notices.push(Notice::Granted { number, fence: None });
        }
        self.send_pending_releases(now);
    }

    /// Returns when [`Coordinator::tick`] has something to do next.
    pub fn next_wake(&self) -> Option<Instant> {
        let holds = self
            .holding
            .iter()
            .filter_map(|id| self.pending_requests.get(id)?.vote_round.holds_until())
            .min();
        let others = [
            self.adoptions.next_wake(),
            self.waiters.next_wake(),
            self.pending_releases.next_wake(),
            self.detachments.next_wake(),
            self.lease_nodes.next_end(),
        ];
        others.into_iter().chain([holds]).flatten().min()
    }

    /// Takes what the caller has to do.
    pub fn take_effects(&mut self) -> Effects {
        let calls = self.call_queue.take_calls();
        Effects { calls, ..std::mem::take(&mut self.effects) }
    }

    /// Returns the number of things that the coordinator still cares for: requests under way,
    /// waiters, and pending releases.
    pub fn concerns(&self) -> usize {
        self.pending_requests.len()
            + self.adoptions.len()
            + self.detachments.len()
            + self.repairs.len()
            + self.waiters.len()
            + self.pending_releases.len()
    }

    /// Returns true if a node still has an answer to give, or still has to carry out a release or a
    /// move.
    pub fn is_busy(&self) -> bool {
        let open = self.pending_requests.len() + self.adoptions.len() + self.detachments.len();
        open + self.repairs.len() + self.pending_releases.len() > 0
    }

    /// Returns how long a request waits for the rest of the nodes.
    fn patience(&self) -> Duration {
        (self.majority_time * 3).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    /// Returns the request that `node` gets for `request`. If a lease is given back, the node moves
    /// it to the ticket. If a lock is broken, the node also refuses repairs of it for a while.
    fn at_a_node(&self, now: Instant, node: usize, request: &Request) -> Request {
        match request.clone() {
            Request::GiveBack { key, token, ticket } => {
                let most = self.ticket_ends.of(token, node).map(|ends| ends.since(now));
                Request::Move { key, token, to: ticket, adopter: ticket, most }
            }
            Request::Break { key, .. } => Request::Break { key, bars_repairs: true },
            other => other,
        }
    }

    fn send_pending_releases(&mut self, now: Instant) {
        for (node, change) in self.pending_releases.due(now) {
            let request = |TokenChange { key, token, to, ends, .. }| match to {
                Some(to) => {
                    Request::Move { key, token, to, adopter: to, most: ends.map(|ends| ends.since(now)) }
                }
                None => Request::Release { key, token, used: None },
            };
            let requests = change.into_iter().map(request).collect();
            self.call_queue.send_apart(node, RELEASE_TIMEOUT, requests, CallTag::PendingRelease);
        }
    }
}

/// Returns what an answer to a pending release says.
fn said(answer: &Answer) -> MoveResult {
    match answer {
        Ok(Reply::Adopted(_)) => MoveResult::Moved,
        Ok(Reply::Claimed { by }) => MoveResult::Claimed(*by),
        _ => MoveResult::Other,
    }
}

#[cfg(test)]
#[path = "coordinator_tests.rs"]
mod tests;
