//! A Redis Cluster as one store.
//!
//! A lock lies with its side keys in one of 16384 hash slots, and one master has each slot. For
//! each master, there is a [`RedisStore`](super::RedisStore), which serves the master's locks. This
//! module finds the right master for each request. It does not use the cluster connection of
//! redis-rs. That connection repeats requests that may have been carried out, has no channel for
//! each node, and does not tell from which node a message came.
//!
//! A node that does not have a slot, or has only a part of it, answers so and does nothing. Then
//! the store sends the request to the right node. While a slot *moves* from one node to another,
//! each of the two may have some keys of a lock. Leases are renewed, released and adopted at the
//! node that has both the lock and its fence. A node that is still importing the slot grants no
//! lease: a second queue would begin there, and the first one could no longer move.
//!
//! - [`address`]: reads the URL;
//! - [`slots`]: keeps which node has which slot; pure;
//! - [`redirect`]: reads the errors with which a node redirects a request;
//! - [`routed_request`]: requests with the nodes that they go to;
//! - [`fault`]: the store errors of a cluster;
//! - [`node`]: a server as a node of a cluster;
//! - [`diagnosis`](self::diagnosis) and [`listing`]: ask all masters;
//! - [`nodes`]: keeps all nodes, and asks them which node has which slot.

mod address;
mod diagnosis;
mod fault;
mod listing;
mod node;
mod nodes;
mod redirect;
mod routed_request;
mod slots;

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, FuturesUnordered};
use tokio::time::{Instant, sleep, timeout_at};

pub use self::address::ClusterAddress;
use self::nodes::Nodes;
pub(super) use self::redirect::Redirect;
use self::routed_request::{Next, NodeCall, RoutedRequest, can_be_asked, may_be_anothers};
pub(super) use self::slots::{NodeAddress, SlotMap, hash_tag, slot_of, tag_in};
use super::outcomes::Outcomes;
use super::time_limit::TimeLimit;
use crate::store::listing::MOST_LISTED;
use crate::store::listing_batch;
use crate::store::{Answer, Listener, Reply, Request, Store, StoreError, StoreErrorKind};

/// For how long a request is tried again while its slot moves: most slots take less. The other
/// requests of its batch wait for it, and the engine tries again by itself.
const PATIENCE: Duration = Duration::from_millis(150);
/// The first pause before a request is repeated. Each further pause is longer by this time. If this
/// is smaller, nodes get more requests; if it is larger, requests are answered later.
const PAUSE: Duration = Duration::from_millis(2);
/// How often a request is sent to another node in a row before the client decides that the nodes do
/// not agree. If this is smaller, a request may fail while several slots move; if it is larger, it
/// takes longer to fail.
const MOST_HOPS: u32 = 5;

/// How many masters the store asks at a time if it asks all of them. If this is larger, connecting
/// keeps the engine's thread from other stores; if it is smaller, large clusters take longer.
const MOST_AT_ONCE: usize = 64;

/// A store on a Redis Cluster. Connects to a node when a request first needs it. Does not repeat
/// requests that may have been carried out.
///
/// The store needs the runtime that [`RedisStore`](super::RedisStore) needs.
pub struct ClusterStore {
    nodes: Rc<Nodes>,
}

impl ClusterStore {
    /// Returns the store on the cluster at `address`.
    pub fn new(address: ClusterAddress) -> Rc<Self> {
        Rc::new(Self { nodes: Nodes::new(address) })
    }

    async fn run(&self, batch: &[Request], limit: TimeLimit) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = vec![None; batch.len()];
        let mut routed = Vec::with_capacity(batch.len());
        let mut pinged = None;
        for (index, request) in batch.iter().enumerate() {
            match request.key() {
                Some(key) => {
                    routed.push(RoutedRequest { index, slot: slot_of(key), ask: None, hops: 0 });
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
        // All answers share this room. Otherwise false nodes that answer one after the other could
        // take more memory together than one node alone.
        let mut room = MOST_LISTED;
        while !routed.is_empty() {
            let mut next = Vec::new();
            let is_unknown = self.nodes.map().is_empty();
            if is_unknown && let Err(error) = self.refresh(limit).await {
                routed
                    .iter()
                    .for_each(|routed_request| answers[routed_request.index] = Some(Err(error.clone())));
                break;
            }
            let calls = self.calls(std::mem::take(&mut routed), &mut next);
            // Take the outcomes one by one: together, they may take much more memory than the
            // budget allows.
            let mut calls: FuturesUnordered<_> =
                calls.into_iter().map(|call| self.call(call, batch, limit)).collect();
            while let Some((call, mut outcomes)) = calls.next().await {
                outcomes.spend(&mut room, self.address());
                self.sort(call, outcomes, batch, &mut answers, &mut next);
            }
            let mut later = false;
            let mut asked = false;
            for next in next {
                let (routed_request, error) = match next {
                    Next::Again(routed_request) => (routed_request, None),
                    Next::Later(routed_request, error) => {
                        let in_time = Instant::now() + pause + PAUSE < patience;
                        later |= in_time;
                        (routed_request, (!in_time).then_some(error))
                    }
                    Next::Nowhere(routed_request, place, error) => {
                        if !std::mem::replace(&mut asked, true) {
                            // If this fails, the error of the routed request still says more.
                            let _ = self.refresh(limit).await;
                        }
                        let is_new = self.nodes.map().owner(routed_request.slot) != place.as_ref();
                        (routed_request, (!is_new).then_some(error))
                    }
                };
                match error {
                    // If another request of the batch pauses, there is time for this one, too.
                    None if routed_request.hops < MOST_HOPS || later => routed.push(routed_request),
                    None => {
                        answers[routed_request.index] =
                            Some(Err(fault::at_odds(self.address(), routed_request.slot)))
                    }
                    Some(error) => answers[routed_request.index] = Some(Err(error)),
                }
            }
            // Requests on one key keep their order.
            routed.sort_by_key(|routed_request| routed_request.index);
            if later {
                pause += PAUSE;
                sleep(pause).await;
            }
        }
        let lost = || Err(StoreError::maybe_done(StoreErrorKind::Internal, "a request was lost on its way"));
        answers.into_iter().map(|answer| answer.unwrap_or_else(lost)).collect()
    }

    /// Asks for the map of the slots.
    async fn refresh(&self, limit: TimeLimit) -> Result<(), StoreError> {
        let silent = |_| Err(fault::silent(self.address()));
        timeout_at(limit.deadline, self.nodes.refresh()).await.unwrap_or_else(silent)
    }

    fn address(&self) -> &ClusterAddress {
        self.nodes.address()
    }

    /// Divides the requests into one call for each node. Puts the requests whose slot has no owner
    /// into `next`.
    fn calls(&self, routed: Vec<RoutedRequest>, next: &mut Vec<Next>) -> Vec<NodeCall> {
        let map = self.nodes.map();
        let mut calls: Vec<NodeCall> = Vec::new();
        let mut places: HashMap<(NodeAddress, bool), usize> = HashMap::new();
        for routed_request in routed {
            let Some(place) = routed_request.ask.as_ref().or_else(|| map.owner(routed_request.slot)) else {
                let error = fault::down(self.address(), routed_request.slot, "no node has it");
                next.push(Next::Nowhere(routed_request, None, error));
                continue;
            };
            let asking = routed_request.ask.is_some();
            let place = place.clone();
            let call = *places.entry((place.clone(), asking)).or_insert(calls.len());
            match calls.get_mut(call) {
                Some(call) => call.routed.push(routed_request),
                None => calls.push(NodeCall { place, asking, routed: vec![routed_request] }),
            }
        }
        calls
    }

    async fn call(&self, call: NodeCall, batch: &[Request], limit: TimeLimit) -> (NodeCall, Outcomes) {
        let node = self.nodes.node(&call.place);
        let part: Vec<Request>;
        let requests = if call.routed.len() == batch.len() {
            batch
        } else {
            part = call.routed.iter().map(|routed_request| batch[routed_request.index].clone()).collect();
            &part
        };
        let outcomes = tokio::select! {
            biased;
            outcomes = node.ask_node(requests, limit, call.asking) => outcomes,
            // Stop waiting for a node that hangs once another node has replaced it.
            () = self.nodes.left(&call.place), if !call.asking => {
                let mut outcomes = Outcomes::none(requests.len(), None);
                outcomes.fill_in(&fault::replaced(self.address(), &call.place));
                outcomes
            }
        };
        (call, outcomes)
    }

    /// Takes the answers of a node. Decides how the requests go on that the node did not carry out,
    /// and puts them into `next`.
    fn sort(
        &self,
        call: NodeCall,
        outcomes: Outcomes,
        batch: &[Request],
        answers: &mut [Option<Answer>],
        next: &mut Vec<Next>,
    ) {
        let NodeCall { place, routed, .. } = call;
        let Outcomes { answers: mut given, mut redirects, .. } = outcomes;
        redirects.sort_by_key(|(index, _)| *index);
        let mut redirects = redirects.into_iter().peekable();
        for (index, routed_request) in routed.into_iter().enumerate() {
            let slot = routed_request.slot;
            let routed_request = RoutedRequest { ask: None, hops: routed_request.hops + 1, ..routed_request };
            match redirects.next_if(|(member, _)| *member == index).map(|(_, redirects)| redirects) {
                Some(Redirect::Moved(slot, to)) => {
                    self.nodes.moved(slot, to);
                    next.push(if routed_request.hops < MOST_HOPS {
                        Next::Again(routed_request)
                    } else {
                        Next::Later(routed_request, fault::at_odds(self.address(), slot))
                    });
                }
                Some(Redirect::Ask(to))
                    if can_be_asked(&batch[routed_request.index]) && self.nodes.admits(&to) =>
                {
                    next.push(Next::Again(RoutedRequest { ask: Some(to), ..routed_request }));
                }
                Some(redirect @ (Redirect::Ask(_) | Redirect::Torn)) => {
                    // The next map makes room for another node.
                    if matches!(&redirect, Redirect::Ask(to) if !self.nodes.admits(to)) {
                        self.nodes.refresh_soon();
                    }
                    next.push(Next::Later(
                        RoutedRequest { hops: 0, ..routed_request },
                        fault::moving(self.address(), slot),
                    ));
                }
                Some(Redirect::Down(said)) => {
                    next.push(Next::Nowhere(
                        routed_request,
                        Some(place.clone()),
                        fault::down(self.address(), slot, &said),
                    ));
                }
                None => match given[index].take() {
                    Some(Err(error)) if may_be_anothers(&error) => {
                        self.nodes.suspect();
                        if error.maybe_done {
                            answers[routed_request.index] = Some(Err(error));
                        } else {
                            next.push(Next::Nowhere(routed_request, Some(place.clone()), error));
                        }
                    }
                    answer => answers[routed_request.index] = answer,
                },
            }
        }
    }

    /// Returns an error unless every slot has a master, and every master is ready.
    async fn ping(&self, limit: TimeLimit) -> Answer {
        let is_unknown = self.nodes.map().is_empty();
        if is_unknown {
            self.refresh(limit).await?;
        }
        let known = self.nodes.map().clone();
        match self.ping_masters(&known, limit).await {
            Err(error) if may_be_anothers(&error) => {
                self.nodes.suspect();
                // Only a change of the map matters here.
                let _ = self.refresh(limit).await;
                let news = self.nodes.map().clone();
                if news.differs_from(&known) { self.ping_masters(&news, limit).await } else { Err(error) }
            }
            answer => answer,
        }
    }

    async fn ping_masters(&self, map: &SlotMap, limit: TimeLimit) -> Answer {
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

impl Store for ClusterStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            let limit = TimeLimit { deadline: Instant::now() + timeout, timeout };
            let mut answers = self.run(&batch, limit).await;
            for (index, ttl, key) in crate::store::diagnosis::asked(&batch) {
                answers[index] = self.diagnose(&answers[index], ttl, key, limit).await;
            }
            for (index, filter) in listing_batch::asked(&batch) {
                if answers[index].is_ok() {
                    answers[index] = self.list(filter, limit).await;
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
