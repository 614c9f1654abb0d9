//! A client of a place, and what the place tells it without being asked.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::Fence;
use leasehold::store::{Notice, Store};
use tokio::sync::Notify;

/// How long a notice may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client as the engine is one: it asks, and it listens.
#[derive(Clone)]
pub struct Client {
    pub store: Rc<dyn Store>,
    pub notices: Rc<Notices>,
    under_way: Rc<UnderWay>,
}

impl Client {
    /// For a store of its own, which nobody has asked anything yet.
    pub fn of(store: Rc<dyn Store>) -> Self {
        let notices = Rc::<Notices>::default();
        store.listen(notices.clone().listener());
        Self { store, notices, under_way: Rc::default() }
    }

    /// For a store that answers before all its nodes have, of which `under_way` knows.
    pub fn of_nodes(store: Rc<dyn Store>, under_way: Rc<UnderWay>) -> Self {
        Self { under_way, ..Self::of(store) }
    }

    /// Resolves when nothing that was asked is under way any more. What one asks then comes after it at every node,
    /// and not only at most of them.
    pub async fn caught_up(&self) {
        self.under_way.none().await;
    }

    /// Whether both are one process to the place, so that it has one listener for both.
    pub fn is_one_with(&self, other: &Client) -> bool {
        Rc::ptr_eq(&self.notices, &other.notices)
    }
}

/// How many calls of nodes have not been answered.
#[derive(Default)]
pub struct UnderWay {
    count: Cell<usize>,
    bell: Notify,
}

impl UnderWay {
    /// One more, until the guard is dropped.
    pub fn one(self: &Rc<Self>) -> impl Drop + use<> {
        self.count.set(self.count.get() + 1);
        OneUnderWay(self.clone())
    }

    async fn none(&self) {
        while self.count.get() > 0 {
            self.bell.notified().await;
        }
    }
}

struct OneUnderWay(Rc<UnderWay>);

impl Drop for OneUnderWay {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.bell.notify_waiters();
    }
}

/// All notices that a client has heard.
#[derive(Default)]
pub struct Notices {
    heard: RefCell<Vec<Notice>>,
    bell: Notify,
}

impl Notices {
    pub fn listener(self: Rc<Self>) -> Rc<dyn Fn(Notice)> {
        Rc::new(move |notice| {
            self.heard.borrow_mut().push(notice);
            self.bell.notify_waiters();
        })
    }

    /// How often the waiter of that number was told so far.
    pub fn of(&self, number: u64) -> usize {
        self.told(number).count()
    }

    /// Which fences the waiter of that number was told so far.
    pub fn fences_of(&self, number: u64) -> Vec<Fence> {
        self.told(number).flatten().collect()
    }

    /// What notices to the waiter of that number say of the fence.
    fn told(&self, number: u64) -> impl Iterator<Item = Option<Fence>> {
        self.heard().into_iter().filter_map(move |notice| match notice {
            Notice::Granted { number: whose, fence } if whose == number => Some(fence),
            _ => None,
        })
    }

    /// All notices so far.
    pub fn heard(&self) -> Vec<Notice> {
        self.heard.borrow().clone()
    }

    /// How many notices there were so far.
    pub fn count(&self) -> usize {
        self.heard.borrow().len()
    }

    /// Resolves when the waiter of that number has been told, be it before.
    pub async fn granted(&self, number: u64) {
        let told = self.until(|| self.of(number) > 0);
        tokio::time::timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("no notice for {number}"));
    }

    /// Resolves at the next notice after the first `seen`.
    pub fn after(&self, seen: usize) -> impl Future<Output = ()> {
        self.until(move || self.count() > seen)
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let rung = self.bell.notified();
            tokio::pin!(rung);
            // From here on no notice is missed.
            rung.as_mut().enable();
            if is_so() {
                return;
            }
            rung.await;
        }
    }
}
