//! Keeps the nodes of a cluster and the map of their slots.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::budget::Budget;
use super::super::store::RedisStore;
use super::address::ClusterAddress;
use super::fault;
use super::slots::{NodeAddress, RefreshLimiter, SlotMap};
use crate::store::{Listener, Notice, Store, StoreError, StoreErrorKind};

/// How long one question for the map may take, at all nodes together.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long a node may take to answer before the client asks another one as well. If this is
/// smaller, the client asks more nodes than it needs; if it is larger, a node that hangs delays the
/// map.
const STAGGER: Duration = Duration::from_millis(150);

/// How long after a node failed to answer the client keeps asking whether another node has its
/// slots. Most requests to a node that hangs fail in less time, so the client keeps asking as long
/// as requests need the slots. If this is larger, a node that nothing replaces costs more
/// questions; if it is smaller, the client may notice a failover late.
const SUSPICION: Duration = Duration::from_secs(2);

/// The most nodes to which the client connects in addition to those of the map and of the URL. If
/// this is larger, a node that keeps naming other nodes costs more connections; if it is smaller,
/// more requests that are redirected to new nodes have to wait for the next map.
const MOST_STRANGERS: usize = 64;

/// A question for the map, shared by all requests that wait for the answer.
type Refresh = Shared<LocalBoxFuture<'static, Result<(), StoreError>>>;

/// The nodes of one cluster.
pub struct Nodes {
    address: ClusterAddress,
    /// Limits the memory that the connections to all nodes take together.
    budget: Arc<Budget>,
    map: RefCell<SlotMap>,
    /// The stores on the nodes in use: masters, and nodes that were asked for the map.
    stores: RefCell<HashMap<NodeAddress, Rc<RedisStore>>>,
    refresh_limiter: RefCell<RefreshLimiter>,
    refresh: RefCell<Option<(Refresh, AbortHandle)>>,
    /// True if a redirect has changed the map since the last answer.
    moved: Cell<bool>,
    /// The node that a redirect last named as the owner of a slot. It knows about that move.
    informed: RefCell<Option<NodeAddress>>,
    /// When a node last failed to answer, unless a slot has moved since.
    suspected: Cell<Option<Instant>>,
    /// Wakes the tasks that wait until a slot has moved.
    news: Notify,
    listener: OnceCell<Listener>,
    closed: Cell<bool>,
}

impl Nodes {
    pub fn new(address: ClusterAddress) -> Rc<Self> {
        Rc::new(Self {
            address,
            budget: Budget::new(),
            map: RefCell::new(SlotMap::empty()),
            stores: RefCell::default(),
            refresh_limiter: RefCell::default(),
            refresh: RefCell::default(),
            moved: Cell::new(false),
            informed: RefCell::default(),
            suspected: Cell::new(None),
            news: Notify::new(),
            listener: OnceCell::new(),
            closed: Cell::new(false),
        })
    }

    pub fn address(&self) -> &ClusterAddress {
        &self.address
    }

    /// Passes the notices of all nodes to `listener`.
    pub fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// Returns the map of the slots.
    pub fn map(&self) -> std::cell::Ref<'_, SlotMap> {
        self.map.borrow()
    }

    /// Returns the store on the node at `place`, which is made if there is none.
    pub fn node(self: &Rc<Self>, place: &NodeAddress) -> Rc<RedisStore> {
        let mut stores = self.stores.borrow_mut();
        let store = stores.entry(place.clone()).or_insert_with(|| {
            let address = self.address.at(place);
            let store = RedisStore::of_cluster(address, self.budget.clone());
            if let Some(listener) = self.listener.get() {
                let (nodes, listener) = (Rc::downgrade(self), listener.clone());
                store.listen(Rc::new(move |notice| {
                    // The node may be gone, or the slot of its channel may have moved.
                    if notice == Notice::Missed
                        && let Some(nodes) = nodes.upgrade()
                    {
                        nodes.refresh_soon();
                    }
                    listener(notice);
                }));
            }
            store
        });
        if store.homes().is_none()
            && let Some(homes) = self.map.borrow().homes_of(place)
        {
            store.settle(homes);
        }
        store.clone()
    }

    /// Returns true if the store knows the node at `place`, or has room for one more node. The next
    /// map of the cluster makes room.
    pub fn admits(&self, place: &NodeAddress) -> bool {
        let (stores, map) = (self.stores.borrow(), self.map.borrow());
        let known = map.count_masters() + self.address.seeds().len();
        stores.contains_key(place) || stores.len() < known + MOST_STRANGERS
    }

    /// Notes that a redirect named `to` as the owner of `slot`.
    pub fn moved(self: &Rc<Self>, slot: u16, to: NodeAddress) {
        if self.map.borrow_mut().moved(slot, to.clone()) {
            self.moved.set(true);
        }
        if self.admits(&to) {
            *self.informed.borrow_mut() = Some(to);
        }
        self.refresh_soon();
    }

    /// Notes that a node has failed to answer. Asks for the map until another node has its slots.
    pub fn suspect(self: &Rc<Self>) {
        self.suspected.set(Some(Instant::now()));
        self.refresh_soon();
    }

    /// Waits until the node at `place`, which has a slot, has none any more.
    pub async fn left(&self, place: &NodeAddress) {
        loop {
            self.news.notified().await;
            if !self.map.borrow().is_master(place) {
                return;
            }
        }
    }

    /// Asks for the map again, because it may be wrong. No caller waits for that.
    pub fn refresh_soon(self: &Rc<Self>) {
        if !self.closed.get() {
            drop(self.refresh());
        }
    }

    /// Asks for the map as soon as the refresh limiter permits. All callers share one question
    /// until it is answered.
    pub fn refresh(self: &Rc<Self>) -> Refresh {
        let mut current = self.refresh.borrow_mut();
        if let Some((refresh, _)) = &*current
            && refresh.peek().is_none()
        {
            return refresh.clone();
        }
        let nodes = self.clone();
        let refresh = async move { nodes.ask().await }.boxed_local().shared();
        // The task keeps the question going even if no request waits for it.
        let (nodes, task) = (self.clone(), refresh.clone());
        let task = spawn_local(async move {
            let _ = task.await;
            if nodes.suspected.get().is_some_and(|at| at.elapsed() < SUSPICION) {
                nodes.refresh_soon();
            }
        });
        *current = Some((refresh.clone(), task.abort_handle()));
        refresh
    }

    async fn ask(self: &Rc<Self>) -> Result<(), StoreError> {
        let at = self.refresh_limiter.borrow().next(Instant::now());
        sleep_until(at).await;
        let silent = |_| Err(fault::silent(&self.address));
        let answer = timeout(ATTEMPT, self.first_answer()).await.unwrap_or_else(silent);
        let answer = answer.map(|map| self.take(map));
        if answer.is_err() {
            self.close_strangers();
        }
        self.refresh_limiter.borrow_mut().asked(Instant::now(), answer.as_ref().is_ok_and(|news| *news));
        answer.map(drop)
    }

    /// Returns the map of the first node that answers.
    async fn first_answer(self: &Rc<Self>) -> Result<SlotMap, StoreError> {
        let mut others = self.candidates().into_iter();
        let mut asked = FuturesUnordered::new();
        let mut failed: Option<StoreError> = None;
        loop {
            if let Some(place) = others.next() {
                asked.push(self.node(&place).slots(ATTEMPT));
            }
            let is_last = others.len() == 0;
            tokio::select! {
                answer = asked.next() => match answer {
                    Some(Ok(map)) => return Ok(map),
                    // The error that one server sent says more than the error that another server
                    // can't be reached.
                    Some(Err(error)) => {
                        let better = |known: &StoreError| known.kind == StoreErrorKind::Unreachable;
                        if failed.as_ref().is_none_or(better) {
                            failed = Some(error);
                        }
                    }
                    None if is_last => {
                        let nobody = || StoreError::not_done(StoreErrorKind::Internal, "a cluster without nodes");
                        return Err(failed.unwrap_or_else(nobody));
                    }
                    None => {}
                },
                () = sleep(STAGGER), if !is_last => {}
            }
        }
    }

    /// Returns the nodes to ask for the map, the best first: the node that a redirect last named,
    /// then connected masters, other masters, and the nodes in the URL.
    fn candidates(&self) -> Vec<NodeAddress> {
        let mut places: Vec<NodeAddress> =
            self.map.borrow().masters().map(|(place, _)| place.clone()).collect();
        // Not all clients must ask the same node.
        fastrand::shuffle(&mut places);
        let stores = self.stores.borrow();
        places.sort_by_key(|place| !stores.get(place).is_some_and(|store| store.is_connected()));
        let seeds = self.address.seeds().iter().filter_map(NodeAddress::of_address);
        let mut known = HashSet::new();
        let candidates = self.informed.take().into_iter().chain(places).chain(seeds);
        candidates.filter(|place| known.insert(place.clone())).collect()
    }

    /// Takes the new map into use, and closes the connections to nodes without slots. Returns true
    /// if a slot has moved.
    fn take(&self, map: SlotMap) -> bool {
        let news = map.differs_from(&self.map.borrow()) | self.moved.take();
        *self.map.borrow_mut() = map;
        let map = self.map.borrow();
        let masters: HashMap<&NodeAddress, [u16; 2]> = map.masters().collect();
        let mut gone = Vec::new();
        self.stores.borrow_mut().retain(|place, store| {
            let homes = masters.get(place).copied();
            match homes {
                Some(homes) => store.settle(homes),
                None => gone.push(store.clone()),
            }
            homes.is_some()
        });
        drop(masters);
        drop(map);
        for store in gone {
            spawn_local(store.close());
        }
        if news {
            self.suspected.set(None);
            self.news.notify_waiters();
            // Some waiters are in the queue of a node that does not serve their slot any more.
            if let Some(listener) = self.listener.get() {
                listener(Notice::Missed);
            }
        }
        news
    }

    /// Closes the connections to nodes that are neither in the map nor in the URL. Otherwise, a
    /// node that redirects each request to another place, and never answers with a map, would cost
    /// more and more connections.
    fn close_strangers(&self) {
        let map = self.map.borrow();
        let mut known: HashSet<NodeAddress> = map.masters().map(|(place, _)| place.clone()).collect();
        known.extend(self.address.seeds().iter().filter_map(NodeAddress::of_address));
        let mut stores = self.stores.borrow_mut();
        for (_, store) in stores.extract_if(|place, _| !known.contains(place)) {
            spawn_local(store.close());
        }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.closed.set(true);
        if let Some((_, task)) = self.refresh.take() {
            task.abort();
        }
        let stores = self.stores.take();
        for store in stores.into_values() {
            store.close().await;
        }
        *self.map.borrow_mut() = SlotMap::empty();
    }
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
