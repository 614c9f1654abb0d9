//! Has short functions for the requests of the tests.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::{Fence, Mode, Token, Ttl};
use leasehold::store::redis::RedisStore;
use leasehold::store::{
    AcquireRequest, Answer, LeaseInfo, LockInfo, Notice, Place, Reply, Request, Source, Store, StoreError,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::LocalSet;

/// The time-out of batches that are expected to be answered.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer to a renewal without fences.
pub const RENEWED: Reply = Reply::Renewed { block: None };

/// Runs one test on a runtime like the engine's. Fails if the test hangs.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
    })
}

/// Returns an acquire of one exclusive lease for a minute, without a place.
pub fn terms(key: &str, token: Token) -> AcquireRequest {
    AcquireRequest::new(key.into(), token, Ttl::from_millis(60_000).unwrap(), "a test".into())
}

pub fn acquire(key: &str, token: Token, ttl_ms: u32) -> Request {
    Request::Acquire(AcquireRequest { ttl: Ttl::from_millis(ttl_ms).unwrap(), ..terms(key, token) })
}

/// Returns an acquire of an exclusive lease, or of a place with `number`.
pub fn queue(key: &str, token: Token, number: u64) -> Request {
    Request::Acquire(AcquireRequest { place: Some(Place { number }), ..terms(key, token) })
}

/// Returns an acquire of one of `most` shared leases, or of a place with `number`.
pub fn share(key: &str, token: Token, most: u32, number: u64) -> Request {
    let place = Some(Place { number });
    Request::Acquire(AcquireRequest { mode: Mode::Shared { most }, place, ..terms(key, token) })
}

pub fn renew(key: &str, token: Token, ttl_ms: u32) -> Request {
    Request::Renew { key: key.into(), token, ttl: Ttl::from_millis(ttl_ms).unwrap(), fences: 0 }
}

pub fn adopt(key: &str, token: Token, adopter: Token) -> Request {
    let ttl = Ttl::from_millis(60_000).unwrap();
    Request::Adopt {
        key: key.into(),
        token,
        adopter,
        ttl,
        holder: "an adopter".into(),
        outlives_process: false,
        source: Source::Ticket { fence: Fence(1), with_ttl: false },
    }
}

pub fn accept(key: &str, token: Token, fence: Fence) -> Request {
    Request::Accept { key: key.into(), token, fence, count: 1 }
}

pub fn release(key: &str, token: Token) -> Request {
    Request::Release { key: key.into(), token, used: None }
}

pub fn inspect(key: &str) -> Request {
    Request::Inspect { key: key.into() }
}

pub async fn all(store: &Rc<RedisStore>, batch: Vec<Request>) -> Vec<Answer> {
    let count = batch.len();
    let answers = store.clone().execute(batch, TIMEOUT).await;
    assert_eq!(answers.len(), count, "each request has one answer");
    answers
}

pub async fn within(store: &Rc<RedisStore>, ms: u64, request: Request) -> Answer {
    store.clone().execute(vec![request], Duration::from_millis(ms)).await.pop().expect("an answer")
}

pub async fn ask(store: &Rc<RedisStore>, request: Request) -> Reply {
    within(store, 10_000, request).await.expect("the server answers")
}

pub async fn refused(store: &Rc<RedisStore>, request: Request) -> StoreError {
    within(store, 10_000, request).await.expect_err("the server refuses")
}

pub async fn granted(store: &Rc<RedisStore>, key: &str, token: Token) -> Fence {
    fence(ask(store, acquire(key, token, 60_000)).await)
}

pub fn fence(reply: Reply) -> Fence {
    match reply {
        Reply::Acquired { fence, .. } => fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

/// Inspects a lock. Returns `None` if it is free.
pub async fn lock(store: &Rc<RedisStore>, key: &str) -> Option<LockInfo> {
    match ask(store, inspect(key)).await {
        Reply::Inspected(info) => info,
        other => panic!("expected an inspection, got {other:?}"),
    }
}

/// Inspects a lock. Returns its first lease.
pub async fn info(store: &Rc<RedisStore>, key: &str) -> Option<LeaseInfo> {
    lock(store, key).await.map(|info| info.leases[0].clone())
}

/// Expects a place in the queue. Returns how many waiters are before it, and whether it gets a
/// notice.
#[track_caller]
pub fn queued(reply: Reply) -> (u32, bool) {
    match reply {
        Reply::Queued { ahead, notified, .. } => (ahead, notified),
        other => panic!("expected a place, got {other:?}"),
    }
}

/// The notices of a store.
pub struct Notices(UnboundedReceiver<Notice>);

impl Notices {
    /// Listens to a store that has not been used yet.
    pub fn of(store: &Rc<RedisStore>) -> Self {
        let (sender, receiver) = unbounded_channel();
        store.listen(Rc::new(move |notice| {
            let _ = sender.send(notice);
        }));
        Self(receiver)
    }

    /// Expects a grant as the next notice. Returns the number of its waiter, and its fence.
    pub async fn granted(&mut self) -> (u64, Option<Fence>) {
        match self.next().await {
            Notice::Granted { number, fence } => (number, fence),
            Notice::Missed | Notice::Moved | Notice::Lost(_) => panic!("notices were missed"),
            Notice::Breaker(_) | Notice::Availability(_) => panic!("this store has no breaker"),
        }
    }

    pub async fn next(&mut self) -> Notice {
        self.0.recv().await.expect("the store lives")
    }

    /// Returns the notices that have arrived and were not awaited.
    pub fn more(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}
