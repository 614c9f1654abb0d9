//! The nodes of a cluster, and what is known of who has which slot.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::RedisStore;
use super::super::budget::Budget;
use super::address::ClusterAddress;
use super::fault;
use super::slots::{MOST_MASTERS, Pace, Place, SlotMap};
use crate::store::{Listener, Notice, Store, StoreError, StoreErrorKind};

/// How long one question for the map may take, whoever is asked.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How long one node may take to answer it before another is asked as well.
const STAGGER: Duration = Duration::from_millis(150);

/// For how long after a node has failed to answer it is asked again and again whether another has its slots: longer than
/// most requests to one that hangs take to fail, so that this goes on as long as anybody needs them.
const SUSPICION: Duration = Duration::from_secs(2);

/// One question for the map, for all who wait for its answer.
type Refresh = Shared<LocalBoxFuture<'static, Result<(), StoreError>>>;

/// The nodes of one cluster.
pub struct Nodes {
    address: ClusterAddress,
    /// Limits the memory that the connections to all nodes take together.
    budget: Arc<Budget>,
    map: RefCell<SlotMap>,
    /// The masters that have been needed, and who was asked for the map.
    stores: RefCell<FxHashMap<Place, Rc<RedisStore>>>,
    pace: RefCell<Pace>,
    refresh: RefCell<Option<(Refresh, AbortHandle)>>,
    /// Whether a slot was found to have moved since the last answer.
    moved: Cell<bool>,
    /// Who was last said to have a slot: it knows of that.
    informed: RefCell<Option<Place>>,
    /// When a node last failed to answer, unless there has been news since.
    suspected: Cell<Option<Instant>>,
    /// Rung when a slot has moved.
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
            pace: RefCell::default(),
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

    /// Notices of all nodes go to `listener`.
    pub fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// What is known of the slots.
    pub fn map(&self) -> std::cell::Ref<'_, SlotMap> {
        self.map.borrow()
    }

    /// The node at `place`.
    pub fn node(self: &Rc<Self>, place: &Place) -> Rc<RedisStore> {
        let mut stores = self.stores.borrow_mut();
        let store = stores.entry(place.clone()).or_insert_with(|| {
            let address = self.address.at(place);
            let store = RedisStore::of_cluster(address, self.budget.clone());
            if let Some(listener) = self.listener.get() {
                let (nodes, listener) = (Rc::downgrade(self), listener.clone());
                store.listen(Rc::new(move |notice| {
                    // It, or the slot of its channel, may be gone for good.
                    if notice == Notice::Missed
                        && let Some(nodes) = nodes.upgrade()
                    {
                        nodes.doubt();
                    }
                    listener(notice);
                }));
            }
            store
        });
        if store.homes().is_none()
            && let Some((_, homes)) = self.map.borrow().masters().find(|(master, _)| *master == place)
        {
            store.settle(homes);
        }
        store.clone()
    }

    /// Returns true if the store knows the node at `place`, or has room for one more node. The next
    /// map of the cluster makes room.
    pub fn admits(&self, place: &Place) -> bool {
        let stores = self.stores.borrow();
        stores.contains_key(place) || stores.len() < 2 * MOST_MASTERS
    }

    /// A node said that `slot` is another's.
    pub fn moved(self: &Rc<Self>, slot: u16, to: Place) {
        if self.map.borrow_mut().moved(slot, to.clone()) {
            self.moved.set(true);
        }
        *self.informed.borrow_mut() = Some(to);
        self.doubt();
    }

    /// A node has failed to answer: until that is known to be another's business, somebody asks.
    pub fn suspect(self: &Rc<Self>) {
        self.suspected.set(Some(Instant::now()));
        self.doubt();
    }

    /// Resolves when the node at `place`, which has a slot, has none any more.
    pub async fn left(&self, place: &Place) {
        loop {
            self.news.notified().await;
            if !self.map.borrow().masters().any(|(master, _)| master == place) {
                return;
            }
        }
    }

    /// What is known may be wrong: it is asked for anew, though nobody waits for that.
    pub fn doubt(self: &Rc<Self>) {
        if !self.closed.get() {
            drop(self.refresh());
        }
    }

    /// Asks for the map as soon as that may be done again. One question serves all who ask for it until it is answered.
    pub fn refresh(self: &Rc<Self>) -> Refresh {
        let mut current = self.refresh.borrow_mut();
        if let Some((refresh, _)) = &*current
            && refresh.peek().is_none()
        {
            return refresh.clone();
        }
        let nodes = self.clone();
        let refresh = async move { nodes.ask().await }.boxed_local().shared();
        // A task of its own, so that it goes on though nobody waits for it.
        let (nodes, task) = (self.clone(), refresh.clone());
        let task = spawn_local(async move {
            let _ = task.await;
            if nodes.suspected.get().is_some_and(|at| at.elapsed() < SUSPICION) {
                nodes.doubt();
            }
        });
        *current = Some((refresh.clone(), task.abort_handle()));
        refresh
    }

    async fn ask(self: &Rc<Self>) -> Result<(), StoreError> {
        let at = self.pace.borrow().next(Instant::now());
        sleep_until(at).await;
        let silent = |_| Err(fault::silent(&self.address));
        let answer = timeout(ATTEMPT, self.first_answer()).await.unwrap_or_else(silent);
        let answer = answer.map(|map| self.take(map));
        self.pace.borrow_mut().asked(Instant::now(), answer.as_ref().is_ok_and(|news| *news));
        answer.map(drop)
    }

    /// The map of whoever answers first.
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
                    // What a server said is worth more than that another can't be reached.
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

    /// Whom to ask for the map, the best first: who knows what the others may not know yet, who is there, and so on.
    fn candidates(&self) -> Vec<Place> {
        let mut places: Vec<Place> = self.map.borrow().masters().map(|(place, _)| place.clone()).collect();
        // All clients shall not ask the same node.
        fastrand::shuffle(&mut places);
        let stores = self.stores.borrow();
        places.sort_by_key(|place| !stores.get(place).is_some_and(|store| store.is_connected()));
        let seeds = self.address.seeds().iter().filter_map(Place::of_address);
        let mut known = FxHashSet::default();
        let candidates = self.informed.take().into_iter().chain(places).chain(seeds);
        candidates.filter(|place| known.insert(place.clone())).collect()
    }

    /// Whether the new map says that a slot has moved.
    fn take(&self, map: SlotMap) -> bool {
        let news = map.differs_from(&self.map.borrow()) | self.moved.take();
        *self.map.borrow_mut() = map;
        let map = self.map.borrow();
        let masters: FxHashMap<&Place, [u16; 2]> = map.masters().collect();
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
            // Those who wait there have told a node that does not serve them any more.
            if let Some(listener) = self.listener.get() {
                listener(Notice::Missed);
            }
        }
        news
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
