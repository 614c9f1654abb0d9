//! A client of a store, which also records the notices of the store.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::Fence;
use leasehold::store::{Notice, Store};
use tokio::sync::Notify;

/// How long a notice may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// A client that sends requests and listens, like the engine.
#[derive(Clone)]
pub struct Client {
    pub store: Rc<dyn Store>,
    pub notices: Rc<Notices>,
    under_way: Rc<UnderWay>,
}

impl Client {
    /// Returns a client of a store that has had no requests yet.
    pub fn of(store: Rc<dyn Store>) -> Self {
        let notices = Rc::<Notices>::default();
        store.listen(notices.clone().listener());
        Self { store, notices, under_way: Rc::default() }
    }

    /// Returns a client of a quorum, which answers before all its nodes have. `under_way` counts
    /// the calls of nodes.
    pub fn of_nodes(store: Rc<dyn Store>, under_way: Rc<UnderWay>) -> Self {
        Self { under_way, ..Self::of(store) }
    }

    /// Waits until no call is under way. A later request then arrives after the earlier ones at
    /// every node.
    pub async fn caught_up(&self) {
        self.under_way.none().await;
    }

    /// Returns true if the store sees both clients as one process, so that it has one listener for
    /// both.
    pub fn shares_process_with(&self, other: &Client) -> bool {
        Rc::ptr_eq(&self.notices, &other.notices)
    }
}

/// Counts the calls of nodes that have not been answered.
#[derive(Default)]
pub struct UnderWay {
    count: Cell<usize>,
    changed: Notify,
}

impl UnderWay {
    /// Counts one more call until the guard is dropped.
    pub fn one(self: &Rc<Self>) -> impl Drop + use<> {
        self.count.set(self.count.get() + 1);
        OneUnderWay(self.clone())
    }

    async fn none(&self) {
        while self.count.get() > 0 {
            self.changed.notified().await;
        }
    }
}

struct OneUnderWay(Rc<UnderWay>);

impl Drop for OneUnderWay {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.changed.notify_waiters();
    }
}

/// All notices that a client has received.
#[derive(Default)]
pub struct Notices {
    received: RefCell<Vec<Notice>>,
    changed: Notify,
}

impl Notices {
    pub fn listener(self: Rc<Self>) -> Rc<dyn Fn(Notice)> {
        Rc::new(move |notice| {
            self.received.borrow_mut().push(notice);
            self.changed.notify_waiters();
        })
    }

    /// Returns how many notices the waiter with that number has received.
    pub fn of(&self, number: u64) -> usize {
        self.notices_to(number).count()
    }

    /// Returns the fences in the notices to the waiter with that number.
    pub fn fences_of(&self, number: u64) -> Vec<Fence> {
        self.notices_to(number).flatten().collect()
    }

    /// Returns the fence of each notice to the waiter with that number.
    fn notices_to(&self, number: u64) -> impl Iterator<Item = Option<Fence>> {
        self.received().into_iter().filter_map(move |notice| match notice {
            Notice::Granted { number: to, fence } if to == number => Some(fence),
            _ => None,
        })
    }

    /// Returns all notices so far.
    pub fn received(&self) -> Vec<Notice> {
        self.received.borrow().clone()
    }

    /// Returns the number of notices so far.
    pub fn count(&self) -> usize {
        self.received.borrow().len()
    }

    /// Waits until the waiter with that number has received a notice, now or earlier.
    pub async fn granted(&self, number: u64) {
        let notified = self.until(|| self.of(number) > 0);
        tokio::time::timeout(PATIENCE, notified).await.unwrap_or_else(|_| panic!("no notice for {number}"));
    }

    /// Waits for the next notice after the first `seen`.
    pub fn after(&self, seen: usize) -> impl Future<Output = ()> {
        self.until(move || self.count() > seen)
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let notified = self.changed.notified();
            tokio::pin!(notified);
            // From here on, no notice is missed.
            notified.as_mut().enable();
            if is_so() {
                return;
            }
            notified.await;
        }
    }
}
