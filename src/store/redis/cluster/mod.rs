//! A Redis Cluster, as one store.
//!
//! Each lock lies, with all that is kept beside it, in one of 16384 hash slots, and each slot is a master's. So a cluster
//! is as many servers, each of which does for its locks what [`RedisStore`](super::RedisStore) has it do; what is left to do here is to find
//! the right one. redis-rs' cluster connection is not used for that: it sends requests again that may have been
//! carried out, and has neither a channel for each node nor the pushes of each told apart.
//!
//! A node that does not do what it was asked, because the slot is not, or not quite, its own, says so and has done
//! nothing; then the request is sent where it belongs. While a slot *moves* from one node to another, what is kept of a
//! lock may be partly here and partly there. Leases are renewed, released and handed to heirs wherever lock and fence are
//! together. None is granted in a slot that is still being given: a queue that has not come yet would be begun anew
//! there, and then could not come.
//!
//! - [`address`]: the URL;
//! - [`slots`]: who has which slot; pure;
//! - [`redirect`]: what a node says when it does not do what it was asked;
//! - [`errand`]: requests on their way;
//! - [`fault`]: what goes wrong with a cluster, in the contract's words;
//! - [`node`]: a server as a node;
//! - [`nodes`]: all of them, and how it is found out who has which slot.

mod address;
mod errand;
mod fault;
mod node;
mod nodes;
mod redirect;
mod slots;

use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, FuturesUnordered};
use rustc_hash::FxHashMap;
use tokio::time::{Instant, sleep, timeout_at};

pub use self::address::ClusterAddress;
use self::errand::{Call, Errand, Next, can_be_asked, may_be_anothers};
use self::nodes::Nodes;
pub(super) use self::redirect::Elsewhere;
pub(super) use self::slots::{Place, SlotMap, hash_tag, slot_of, tag_in};
use super::Limit;
use super::listing::{Found, MOST_INSPECTED};
use super::outcomes::Outcomes;
use super::trial;
use crate::lease::{Key, Ttl};
use crate::store::diagnosis::{self, Facts, Report, ServerFacts};
use crate::store::listing::{self, Listing, Wanted};
use crate::store::{Answer, Listener, Reply, Request, Store, StoreError, StoreErrorKind};

/// For how long a request is tried again whose slot is moving: most slots take less. Others of its batch, which waits for
/// it, may be in a hurry; and whoever sent it tries again, too.
const PATIENCE: Duration = Duration::from_millis(150);
/// The first pause before that; each further one is longer by as much.
const PAUSE: Duration = Duration::from_millis(2);
/// How often a request follows what nodes say before that counts as nodes that do not agree.
const MOST_HOPS: u32 = 5;

/// How many masters the store asks at a time if it asks all of them. If this is larger, connecting
/// keeps the engine's thread from other stores; if it is smaller, large clusters take longer.
const MOST_AT_ONCE: usize = 64;

/// A Redis Cluster. Connects to a node when it is first needed; requests that may have been carried out are never sent
/// again.
///
/// It needs what [`RedisStore`](super::RedisStore) needs.
pub struct ClusterStore {
    nodes: Rc<Nodes>,
}

impl ClusterStore {
    /// The cluster at `address`.
    pub fn new(address: ClusterAddress) -> Rc<Self> {
        Rc::new(Self { nodes: Nodes::new(address) })
    }

    async fn run(&self, batch: &[Request], limit: Limit) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = vec![None; batch.len()];
        let mut errands = Vec::with_capacity(batch.len());
        let mut pinged = None;
        for (index, request) in batch.iter().enumerate() {
            match request.key() {
                Some(key) => {
                    errands.push(Errand { index, slot: slot_of(key), ask: None, hops: 0 });
                }
                None => {
                    let answer = match pinged.take() {
                        Some(answer) => answer,
                        None => self.ping(limit).await,
                    };
                    pinged = Some(answer.clone());
                    answers[index] = Some(answer);
                }
            }
        }
        let patience = limit.deadline.min(Instant::now() + PATIENCE);
        let mut pause = Duration::ZERO;
        // All answers share this room. Otherwise false nodes that answer one after the other could take
        // more memory together than one node alone.
        let mut room = listing::MOST_TOLD;
        while !errands.is_empty() {
            let mut next = Vec::new();
            let is_unknown = self.nodes.map().is_empty();
            if is_unknown && let Err(error) = self.refresh(limit).await {
                errands.iter().for_each(|errand| answers[errand.index] = Some(Err(error.clone())));
                break;
            }
            let calls = self.calls(std::mem::take(&mut errands), &mut next);
            // Take the outcomes one by one: together, they may take much more memory than the budget
            // allows.
            let mut calls: FuturesUnordered<_> =
                calls.into_iter().map(|call| self.call(call, batch, limit)).collect();
            while let Some((call, mut outcomes)) = calls.next().await {
                outcomes.spend(&mut room, self.address());
                self.sort(call, outcomes, batch, &mut answers, &mut next);
            }
            let mut later = false;
            let mut asked = false;
            for next in next {
                let (errand, error) = match next {
                    Next::Again(errand) => (errand, None),
                    Next::Later(errand, error) => {
                        let in_time = Instant::now() + pause + PAUSE < patience;
                        later |= in_time;
                        (errand, (!in_time).then_some(error))
                    }
                    Next::Nowhere(errand, place, error) => {
                        if !std::mem::replace(&mut asked, true) {
                            // Its failure is not what is wrong with the errand.
                            let _ = self.refresh(limit).await;
                        }
                        let is_new = self.nodes.map().owner(errand.slot) != place.as_ref();
                        (errand, (!is_new).then_some(error))
                    }
                };
                match error {
                    None if errand.hops < MOST_HOPS || later => errands.push(errand),
                    None => answers[errand.index] = Some(Err(fault::at_odds(self.address(), errand.slot))),
                    Some(error) => answers[errand.index] = Some(Err(error)),
                }
            }
            // Requests on one key keep their order.
            errands.sort_by_key(|errand| errand.index);
            if later {
                pause += PAUSE;
                sleep(pause).await;
            }
        }
        let lost = || Err(StoreError::maybe_done(StoreErrorKind::Internal, "a request was lost on its way"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }

    /// Asks who has which slot.
    async fn refresh(&self, limit: Limit) -> Result<(), StoreError> {
        let silent = |_| Err(fault::silent(self.address()));
        timeout_at(limit.deadline, self.nodes.refresh()).await.unwrap_or_else(silent)
    }

    fn address(&self) -> &ClusterAddress {
        self.nodes.address()
    }

    /// Who is to be asked what.
    fn calls(&self, errands: Vec<Errand>, next: &mut Vec<Next>) -> Vec<Call> {
        let map = self.nodes.map();
        let mut calls: Vec<Call> = Vec::new();
        let mut places: FxHashMap<(Place, bool), usize> = FxHashMap::default();
        for errand in errands {
            let Some(place) = errand.ask.as_ref().or_else(|| map.owner(errand.slot)) else {
                let error = fault::down(self.address(), errand.slot, "no node has it");
                next.push(Next::Nowhere(errand, None, error));
                continue;
            };
            let asking = errand.ask.is_some();
            let place = place.clone();
            let call = *places.entry((place.clone(), asking)).or_insert(calls.len());
            match calls.get_mut(call) {
                Some(call) => call.errands.push(errand),
                None => calls.push(Call { place, asking, errands: vec![errand] }),
            }
        }
        calls
    }

    async fn call(&self, call: Call, batch: &[Request], limit: Limit) -> (Call, Outcomes) {
        let node = self.nodes.node(&call.place);
        let part: Vec<Request>;
        let requests = if call.errands.len() == batch.len() {
            batch
        } else {
            part = call.errands.iter().map(|errand| batch[errand.index].clone()).collect();
            &part
        };
        let outcomes = tokio::select! {
            biased;
            outcomes = node.ask_node(requests, limit, call.asking) => outcomes,
            // One that hangs, and has been replaced meanwhile, is not waited for any longer.
            () = self.nodes.left(&call.place), if !call.asking => {
                let mut outcomes = Outcomes::none(requests.len(), None);
                outcomes.fill_in(&fault::replaced(self.address(), &call.place));
                outcomes
            }
        };
        (call, outcomes)
    }

    /// Takes the answers of a node, and sees what is to be done about the errands that it has not done.
    fn sort(
        &self,
        call: Call,
        outcomes: Outcomes,
        batch: &[Request],
        answers: &mut [Option<Answer>],
        next: &mut Vec<Next>,
    ) {
        let Call { place, errands, .. } = call;
        let Outcomes { answers: mut given, mut elsewhere, .. } = outcomes;
        elsewhere.sort_by_key(|(index, _)| *index);
        let mut elsewhere = elsewhere.into_iter().peekable();
        for (index, errand) in errands.into_iter().enumerate() {
            let slot = errand.slot;
            let errand = Errand { ask: None, hops: errand.hops + 1, ..errand };
            match elsewhere.next_if(|(member, _)| *member == index).map(|(_, elsewhere)| elsewhere) {
                Some(Elsewhere::Moved(slot, to)) => {
                    self.nodes.moved(slot, to);
                    next.push(if errand.hops < MOST_HOPS {
                        Next::Again(errand)
                    } else {
                        Next::Later(errand, fault::at_odds(self.address(), slot))
                    });
                }
                Some(Elsewhere::Ask(to)) if can_be_asked(&batch[errand.index]) && self.nodes.admits(&to) => {
                    next.push(Next::Again(Errand { ask: Some(to), ..errand }));
                }
                Some(Elsewhere::Ask(_) | Elsewhere::Torn) => {
                    next.push(Next::Later(Errand { hops: 0, ..errand }, fault::moving(self.address(), slot)));
                }
                Some(Elsewhere::Down(said)) => {
                    next.push(Next::Nowhere(
                        errand,
                        Some(place.clone()),
                        fault::down(self.address(), slot, &said),
                    ));
                }
                None => match given[index].take() {
                    Some(Err(error)) if may_be_anothers(&error) => {
                        self.nodes.suspect();
                        if error.maybe_done {
                            answers[errand.index] = Some(Err(error));
                        } else {
                            next.push(Next::Nowhere(errand, Some(place.clone()), error));
                        }
                    }
                    answer => answers[errand.index] = answer,
                },
            }
        }
    }

    /// Whether all of the cluster is there.
    async fn ping(&self, limit: Limit) -> Answer {
        let is_unknown = self.nodes.map().is_empty();
        if is_unknown {
            self.refresh(limit).await?;
        }
        let known = self.nodes.map().clone();
        match self.ping_masters(&known, limit).await {
            Err(error) if may_be_anothers(&error) => {
                self.nodes.suspect();
                // What matters is whether there is news.
                let _ = self.refresh(limit).await;
                let news = self.nodes.map().clone();
                if news.differs_from(&known) { self.ping_masters(&news, limit).await } else { Err(error) }
            }
            answer => answer,
        }
    }

    async fn ping_masters(&self, map: &SlotMap, limit: Limit) -> Answer {
        let uncovered = map.uncovered();
        if uncovered > 0 {
            return Err(fault::uncovered(self.address(), uncovered));
        }
        let pings = map.masters().map(|(place, _)| {
            let node = self.nodes.node(place);
            async move { node.ask_node(&[Request::Ping], limit, false).await }
        });
        let mut pings = stream::iter(pings).buffer_unordered(MOST_AT_ONCE);
        while let Some(outcomes) = pings.next().await {
            outcomes.answers.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
        }
        Ok(Reply::Ready)
    }
}

impl ClusterStore {
    /// A report on each master; `reached` is what became of reaching any.
    async fn diagnose(&self, reached: &Answer, ttl: Ttl, key: Option<Key>, limit: Limit) -> Answer {
        if let Err(error) = reached {
            return Ok(Reply::Diagnosed(vec![Report::unusable(self.address().to_string(), error)]));
        }
        let masters: Vec<Place> = self.nodes.map().masters().map(|(place, _)| place.clone()).collect();
        let left = limit.deadline.saturating_duration_since(Instant::now()).max(limit.timeout / 4);
        let asked = masters
            .iter()
            .map(|place| self.nodes.node(place).execute(vec![Request::Diagnose { ttl, key: None }], left));
        let reports: Vec<_> = stream::iter(asked).buffered(MOST_AT_ONCE).collect().await;
        let reports = reports.into_iter().flatten().filter_map(|answer| match answer {
            Ok(Reply::Diagnosed(reports)) => Some(reports),
            _ => None,
        });
        let mut reports: Vec<_> = reports.flatten().collect();
        if let Some(key) = key
            && let Some(denied) = trial::denial(&self.run(&trial::requests(key), limit).await)
            && let Some((report, facts)) = reports.iter_mut().find_map(|report| match report.facts.clone() {
                Facts::Server(facts) => Some((report, facts)),
                _ => None,
            })
        {
            let facts = Facts::Server(Box::new(ServerFacts { denied: Some(denied), ..*facts }));
            *report = Report::new(report.store.clone(), facts, ttl, false);
        }
        Ok(Reply::Diagnosed(reports))
    }
}

impl ClusterStore {
    /// What all masters have.
    async fn list(&self, wanted: &Wanted, limit: Limit) -> Answer {
        let masters: Vec<Place> = self.nodes.map().masters().map(|(place, _)| place.clone()).collect();
        let nodes: Vec<_> = masters.iter().map(|place| self.nodes.node(place)).collect();
        // A key whose slot is moving may be at two masters. `found` has it once.
        let found = Found::new(wanted);
        let mut scans =
            stream::iter(nodes.iter().map(|node| node.scan(&found, limit))).buffered(MOST_AT_ONCE);
        while let Some(end) = scans.next().await {
            end?;
        }
        drop(scans);
        let (keys, complete) = found.into_keys();
        let mut listing = Listing::begin(complete);
        for keys in keys.chunks(MOST_INSPECTED) {
            let answers = self.run(&listing::inspections(keys), limit).await;
            if !listing.take(wanted, keys, answers)? {
                break;
            }
        }
        Ok(Reply::Listed(listing))
    }
}

impl Store for ClusterStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            let limit = Limit { deadline: Instant::now() + timeout, timeout };
            let mut answers = self.run(&batch, limit).await;
            for (index, ttl, key) in diagnosis::asked(&batch) {
                answers[index] = self.diagnose(&answers[index], ttl, key, limit).await;
            }
            for (index, wanted) in listing::asked(&batch) {
                if answers[index].is_ok() {
                    answers[index] = self.list(wanted, limit).await;
                }
            }
            answers
        }
        .boxed_local()
    }

    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        let map = self.nodes.map();
        let part = |request: &Request| request.key().map_or(u32::MAX, |key| map.part(slot_of(key)).into());
        let first = part(batch.first()?);
        let is_one = batch.iter().all(|request| part(request) == first);
        (!is_one).then(|| batch.iter().map(part).collect())
    }

    fn listen(&self, listener: Listener) {
        self.nodes.listen(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async move { self.nodes.close().await }.boxed_local()
    }
}
