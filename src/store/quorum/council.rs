//! All requests that a quorum is asked, on their way through its nodes. Pure: time comes in as an argument, and what is to
//! be sent comes out, so that it is simulated as it runs.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::ballot::{Ballot, Nodes, Verdict};
use super::batches::{Batches, Settled};
use super::debts::Debts;
use super::places::{Heard, Places};
use super::post::{Post, Tag};
use crate::lease::{Fence, Instant, Key, Mode, Token};
use crate::store::{Answer, Ask, Notice, Reply, Request, StoreError, StoreErrorKind};

/// How long at least, and at most, one waits for the rest of the nodes.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(1);
/// See [`SHORTEST_PATIENCE`].
const LONGEST_PATIENCE: Duration = Duration::from_millis(50);
/// Who has too few nodes waits for the end of a lease in its way, should that be so near: it does not end at all of them at
/// once, and nobody is told of it.
const NEAR: Duration = Duration::from_millis(5);
/// How long a release that is owed to a node may take.
const DEBT_TIMEOUT: Duration = Duration::from_millis(500);

pub use super::post::Call;

/// What a council wants done.
#[derive(Default)]
pub struct Effects {
    /// What to send.
    pub calls: Vec<Call>,
    /// The answers to batches.
    pub answers: Vec<(u64, Vec<Answer>)>,
    /// What there is to tell.
    pub notices: Vec<Notice>,
}

/// A ballot, and whose it is.
struct Motion {
    ballot: Ballot,
    batch: u64,
    index: usize,
    /// When the nodes were asked, and how long each may take.
    asked: Instant,
    timeout: Duration,
    /// Whether it was an adoption that is over: nobody will release what a node gives it.
    refused: bool,
    /// Whether those nodes were asked again at which a lease in the way was about to end.
    asked_again: bool,
    /// Whether it has waited for the rest of the nodes, so that the time it took says nothing of the network.
    held: bool,
}

/// A token with looks of which not all nodes were heard.
#[derive(Default)]
struct Asking {
    looks: u32,
    /// Whether it was released, or has had its day: nobody will release what a node gives it after that.
    refused: bool,
}

/// See the module.
pub struct Council {
    nodes: Nodes,
    rng: fastrand::Rng,
    batches: Batches,
    motions: FxHashMap<u64, Motion>,
    /// Those that hold a minority.
    holding: Vec<u64>,
    post: Post,
    /// Who has looks of which not all nodes were heard.
    asking: FxHashMap<Token, Asking>,
    places: Places,
    debts: Debts,
    /// The last number given to a ballot.
    serial: u64,
    /// How long it takes to hear of a majority, smoothed.
    trip: Duration,
    effects: Effects,
}

impl Council {
    /// A council of the nodes of those names, with the seed of its jitter.
    pub fn new(names: Vec<Arc<str>>, seed: u64) -> Self {
        let count = names.len();
        Self {
            nodes: Nodes { names },
            rng: fastrand::Rng::with_seed(seed),
            batches: Batches::default(),
            motions: FxHashMap::default(),
            holding: Vec::new(),
            post: Post::default(),
            asking: FxHashMap::default(),
            places: Places::default(),
            debts: Debts::new(count),
            serial: 0,
            trip: SHORTEST_PATIENCE,
            effects: Effects::default(),
        }
    }

    /// What messages call that node.
    pub fn name(&self, node: usize) -> Arc<str> {
        self.nodes.names[node].clone()
    }

    /// Begins a batch: [`Effects::answers`] will have its answers, within `timeout`.
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
        self.serial += 1;
        let id = self.serial;
        match &request {
            Request::Acquire(Ask { token, place, .. }) => {
                self.asking.entry(*token).or_default().looks += 1;
                match place {
                    Some(place) => self.places.look(now, *token, place.number, id),
                    None => self.places.forget(*token),
                }
            }
            Request::Release { token, .. } => self.refuse(*token),
            _ => {}
        }
        // What may need a second round leaves it time.
        let timeout = match &request {
            Request::Acquire(_) | Request::Renew { fences: 1.., .. } => timeout / 2,
            _ => timeout,
        };
        for node in 0..self.nodes.count() {
            self.post.draft(node, timeout, request.clone(), Tag::Vote(id));
        }
        let ballot = Ballot::new(request, &self.nodes);
        self.motions.insert(
            id,
            Motion {
                ballot,
                batch,
                index,
                asked: now,
                timeout,
                refused: false,
                asked_again: false,
                held: false,
            },
        );
    }

    /// A node has answered a call.
    pub fn answered(&mut self, now: Instant, call: u64, answers: Vec<Answer>) {
        let Some((node, tags)) = self.post.answered(call) else { return };
        debug_assert_eq!(tags.len(), answers.len(), "a node answers each request once");
        if let Some(Tag::Debt) = tags.first() {
            let failed: Vec<bool> = answers.iter().map(is_owed).collect();
            let jitter = self.rng.f64();
            self.debts.paid(now, node, &failed, jitter);
        } else {
            for (tag, answer) in tags.into_iter().zip(answers) {
                match tag {
                    Tag::Vote(id) => self.voted(now, id, node, answer),
                    Tag::Accept(id) => self.accepted(now, id, node, answer),
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
                let is_refused = self.asking.get(&ask.token).is_some_and(|asking| asking.refused);
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
                    // Its look is over, and said that it waits.
                    Ok(Reply::Acquired { .. }) if motion.ballot.is_settled() => {
                        let (token, enough, patience) = (ask.token, self.nodes.majority(), self.trip);
                        let heard = self.places.handed(now, token, node, enough, patience);
                        self.heard(now, node, heard);
                    }
                    _ => {}
                }
            }
            Request::Adopt { key, heir, .. } if motion.refused => match &answer {
                Ok(Reply::NotHeld(_)) => {}
                Ok(_) => self.debts.owe(now, node, key, *heir, false),
                Err(error) => self.debts.owe(now, node, key, *heir, error.maybe_done),
            },
            _ => {}
        }
        let Some(motion) = self.motions.get_mut(&id) else { return };
        let verdict = motion.ballot.voted(node, answer, &self.nodes);
        self.follow(now, id, verdict);
    }

    fn accepted(&mut self, now: Instant, id: u64, node: usize, answer: Answer) {
        let Some(motion) = self.motions.get_mut(&id) else { return };
        motion.ballot.awaited -= 1;
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
            self.forget(id);
        }
    }

    /// Nothing more will be heard of it.
    fn forget(&mut self, id: u64) {
        let Some(Motion { ballot: Ballot { request: Request::Acquire(ask), .. }, .. }) =
            self.motions.remove(&id)
        else {
            return;
        };
        if let Entry::Occupied(mut asking) = self.asking.entry(ask.token) {
            asking.get_mut().looks -= 1;
            if asking.get().looks == 0 {
                asking.remove();
            }
        }
    }

    /// Somebody else has the other nodes. Whoever has the fewest gives way first, by and large.
    fn hold(&mut self, now: Instant, id: u64) {
        let share = 0.5 + self.rng.f64();
        let patience = self.patience();
        let Some(motion) = self.motions.get_mut(&id) else { return };
        let granted = motion.ballot.granted().count_ones();
        let until = now + (patience * granted.max(1)).mul_f64(share);
        // A millisecond more than the node said, because it counts in whole ones.
        let near = motion.ballot.ending(NEAR).map(|(_, left)| now + left + Duration::from_millis(1)).max();
        let until = near.map_or(until, |near| near.max(until));
        motion.ballot.hold(until.min(motion.asked + motion.timeout));
        motion.held = true;
        self.holding.push(id);
        // Those that have handed it the lock since they said that it has to wait.
        if let Request::Acquire(Ask { token, .. }) = motion.ballot.request {
            let handed = self.places.handed_to(token);
            for node in (0..self.nodes.count()).filter(|node| handed & 1 << node != 0) {
                self.heard(now, node, Heard::Look(id));
            }
        }
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

    fn end(&mut self, now: Instant, id: u64, answer: Answer) {
        let Some(motion) = self.motions.get(&id) else { return };
        let (batch, index, asked, held) = (motion.batch, motion.index, motion.asked, motion.held);
        let key = motion.ballot.request.key().cloned();
        match (&motion.ballot.request, key.as_ref()) {
            (Request::Acquire(Ask { token, .. }), Some(key)) => {
                self.acquire_ended(now, id, key, *token, &answer)
            }
            (Request::Adopt { heir, .. }, Some(key)) if matches!(answer, Ok(Reply::NotHeld(_))) => {
                self.adoption_failed(now, id, key, *heir)
            }
            _ => {}
        }
        // To wait as long as one has waited would be to wait ever longer.
        if answer.is_ok() && !held {
            let took = now.since(asked);
            self.trip = (self.trip * 7 + took.min(LONGEST_PATIENCE)) / 8;
        }
        self.settle(now, batch, index, key, answer);
    }

    fn acquire_ended(&mut self, now: Instant, id: u64, key: &Key, token: Token, answer: &Answer) {
        let patience = self.patience();
        let Some(motion) = self.motions.get_mut(&id) else { return };
        let granted = motion.ballot.granted();
        match answer {
            Ok(Reply::Queued { .. }) => self.places.queued(now, token, id, granted, patience),
            Ok(Reply::Busy { .. }) => {
                for node in motion.ballot.doubtful() {
                    self.debts.owe(now, node, key, token, true);
                }
                self.refuse(token);
            }
            // The token has had its day; what it has at some nodes is nobody's.
            Err(_) => {
                let touched = granted | self.places.touched_by(token);
                for node in motion.ballot.doubtful() {
                    self.debts.owe(now, node, key, token, true);
                }
                for node in (0..self.nodes.count()).filter(|node| touched & 1 << node != 0) {
                    self.debts.owe(now, node, key, token, false);
                }
                self.refuse(token);
            }
            Ok(_) => self.places.forget(token),
        }
    }

    /// The heir is told that it is lost, and has no use for the few nodes that it has.
    fn adoption_failed(&mut self, now: Instant, id: u64, key: &Key, heir: Token) {
        let Some(motion) = self.motions.get_mut(&id) else { return };
        motion.refused = true;
        for (node, is_straggler) in motion.ballot.adopting() {
            self.debts.owe(now, node, key, heir, is_straggler);
        }
    }

    /// Nobody will use what any look by `token` is yet granted.
    fn refuse(&mut self, token: Token) {
        if let Some(asking) = self.asking.get_mut(&token) {
            asking.refused = true;
        }
        self.places.forget(token);
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

    /// A node says something by itself.
    pub fn noticed(&mut self, now: Instant, node: usize, notice: Notice) {
        match notice {
            Notice::Granted { number, .. } => {
                let (enough, patience) = (self.nodes.majority(), self.patience());
                let heard = self.places.noticed(now, number, node, enough, patience);
                self.heard(now, node, heard);
            }
            // One node is not the quorum: a lease still counts at the other nodes.
            Notice::Lost(_) => self.effects.notices.push(Notice::Missed),
            other => self.effects.notices.push(other),
        }
    }

    fn heard(&mut self, now: Instant, node: usize, heard: Heard) {
        match heard {
            Heard::Nothing => {}
            Heard::Call(number) => self.effects.notices.push(Notice::Granted { number, fence: None }),
            Heard::Look(id) => {
                // It holds a minority, and waits for just this.
                let Some(motion) = self.motions.get_mut(&id) else { return };
                let Some(until) = motion.ballot.holds_until() else { return };
                motion.ballot.awaited += 1;
                let request = motion.ballot.request.clone();
                let left = until.since(now).max(SHORTEST_PATIENCE);
                self.post.draft(node, left, request, Tag::Vote(id));
            }
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
        for number in self.places.due(now) {
            self.effects.notices.push(Notice::Granted { number, fence: None });
        }
        self.pay_debts(now);
    }

    /// Before it gives way: once more those nodes at which a lease in the way has ended since they were asked. Whether there
    /// are any.
    fn ask_again(&mut self, now: Instant, id: u64) -> bool {
        let patience = self.patience();
        let Some(motion) = self.motions.get_mut(&id) else { return false };
        let until = (now + patience).min(motion.asked + motion.timeout);
        if std::mem::replace(&mut motion.asked_again, true) || until <= now {
            return false;
        }
        let ended: Vec<usize> = motion.ballot.ending(NEAR).map(|(node, _)| node).collect();
        if ended.is_empty() {
            return false;
        }
        motion.ballot.hold(until);
        self.holding.push(id);
        for node in ended {
            self.heard(now, node, Heard::Look(id));
        }
        true
    }

    /// When [`Council::tick`] has something to do next.
    pub fn next_wake(&self) -> Option<Instant> {
        let holds = self.holding.iter().filter_map(|id| self.motions.get(id)?.ballot.holds_until()).min();
        [holds, self.places.next_wake(), self.debts.next_wake()].into_iter().flatten().min()
    }

    /// Takes what is to be done.
    pub fn take_effects(&mut self) -> Effects {
        let calls = self.post.take_calls();
        Effects { calls, ..std::mem::take(&mut self.effects) }
    }

    /// How many things it still minds: requests under way, those who wait, releases that are owed.
    pub fn concerns(&self) -> usize {
        self.motions.len() + self.places.len() + self.debts.len()
    }

    /// Whether a node has an answer to give or a release to get.
    pub fn is_busy(&self) -> bool {
        !self.motions.is_empty() || self.debts.len() > 0
    }

    /// How long to wait for the other nodes, after the first has said something.
    fn patience(&self) -> Duration {
        (self.trip * 3).clamp(SHORTEST_PATIENCE, LONGEST_PATIENCE)
    }

    fn pay_debts(&mut self, now: Instant) {
        for (node, releases) in self.debts.due(now) {
            let requests = releases
                .into_iter()
                .map(|(key, token): (Key, Token)| Request::Release { key, token, used: None })
                .collect();
            self.post.send_apart(node, DEBT_TIMEOUT, requests, Tag::Debt);
        }
    }
}

/// Whether a release with that answer may have left something.
fn is_owed(answer: &Answer) -> bool {
    answer.as_ref().is_err_and(|error| error.kind.is_transient() || error.maybe_done)
}

#[cfg(test)]
#[path = "council_tests.rs"]
mod tests;
