//! The short forms in which the tests speak to a store.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::{Fence, Token, Ttl};
use leasehold::store::redis::RedisStore;
use leasehold::store::{Answer, LeaseInfo, Reply, Request, Store, StoreError};

/// The time-out of batches that are expected to be answered.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one test on a runtime like the engine's, and never for ever.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("it hangs") })
}

pub fn acquire(key: &str, token: Token, ttl_ms: u32) -> Request {
    let ttl = Ttl::from_millis(ttl_ms).unwrap();
    Request::Acquire { key: key.into(), token, ttl, holder: "a test".into() }
}

pub fn renew(key: &str, token: Token, ttl_ms: u32) -> Request {
    Request::Renew { key: key.into(), token, ttl: Ttl::from_millis(ttl_ms).unwrap() }
}

pub fn release(key: &str, token: Token) -> Request {
    Request::Release { key: key.into(), token }
}

pub fn inspect(key: &str) -> Request {
    Request::Inspect { key: key.into() }
}

pub async fn all(store: &Rc<RedisStore>, batch: Vec<Request>) -> Vec<Answer> {
    let count = batch.len();
    let answers = store.clone().execute(batch, TIMEOUT).await;
    assert_eq!(answers.len(), count, "one answer each");
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
        Reply::Acquired { fence } => fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

pub async fn info(store: &Rc<RedisStore>, key: &str) -> Option<LeaseInfo> {
    match ask(store, inspect(key)).await {
        Reply::Inspected(info) => info,
        other => panic!("expected what inspect tells, got {other:?}"),
    }
}
