//! The short forms the tests speak in.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::{Fence, Token, Ttl};
use leasehold::store::redis::{RedisAddress, RedisStore};
use leasehold::store::{Answer, LeaseInfo, Reply, Request, Store, StoreError, StoreErrorKind};

/// The time-out of every batch that is expected to succeed.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// A ttl in ms that no test outlives.
pub const LONG: u32 = 60_000;

/// How long fences are remembered beyond the lease, in ms.
pub const HOUR: i64 = 3_600_000;

/// Runs one test on a runtime like the engine's, and never for ever.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs");
    });
}

pub fn open(url: &str) -> Rc<RedisStore> {
    RedisStore::new(RedisAddress::parse(url, None, None).unwrap())
}

pub fn acquire(key: &str, token: Token, ttl_ms: u32) -> Request {
    let ttl = Ttl::from_millis(ttl_ms).unwrap();
    Request::Acquire { key: key.into(), token, ttl, holder: "tester".into() }
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

/// One request of each kind that changes or reads `key`.
pub fn one_of_each(key: &str) -> [Request; 4] {
    let token = Token::random();
    [acquire(key, token, LONG), renew(key, token, LONG), release(key, token), inspect(key)]
}

pub async fn answers(store: &Rc<RedisStore>, batch: Vec<Request>) -> Vec<Answer> {
    let count = batch.len();
    let answers = store.clone().execute(batch, TIMEOUT).await;
    assert_eq!(answers.len(), count, "one answer each");
    answers
}

/// The answers to a batch that has no errors.
pub async fn replies(store: &Rc<RedisStore>, batch: Vec<Request>) -> Vec<Reply> {
    answers(store, batch).await.into_iter().map(|answer| answer.expect("the store answers")).collect()
}

pub async fn attempt(store: &Rc<RedisStore>, request: Request) -> Answer {
    answers(store, vec![request]).await.pop().unwrap()
}

pub async fn ask(store: &Rc<RedisStore>, request: Request) -> Reply {
    attempt(store, request).await.expect("the store answers")
}

pub async fn granted(store: &Rc<RedisStore>, key: &str, token: Token, ttl_ms: u32) -> Fence {
    match ask(store, acquire(key, token, ttl_ms)).await {
        Reply::Acquired { fence } => fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

/// Acquires and releases; tells the fence.
pub async fn once(store: &Rc<RedisStore>, key: &str) -> Fence {
    let token = Token::random();
    let fence = granted(store, key, token, LONG).await;
    assert_eq!(ask(store, release(key, token)).await, Reply::Released);
    fence
}

pub async fn info(store: &Rc<RedisStore>, key: &str) -> Option<LeaseInfo> {
    match ask(store, inspect(key)).await {
        Reply::Inspected(info) => info,
        other => panic!("expected what inspect tells, got {other:?}"),
    }
}

/// Asserts that `answer` is just this error. "secret" is in every password of these tests.
#[track_caller]
pub fn assert_error(answer: &Answer, kind: StoreErrorKind, maybe_done: bool) -> &StoreError {
    let error = answer.as_ref().expect_err("an error");
    assert_eq!((error.kind, error.maybe_done), (kind, maybe_done), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    error
}

/// Asserts that the server at `url` is refused whatever is asked of it, as `kind`, with nothing done, and
/// returns the message.
pub async fn assert_unusable(url: &str, kind: StoreErrorKind, timeout: Duration) -> String {
    let store = open(url);
    let mut message = String::new();
    for request in [vec![Request::Ping], one_of_each("lock:k").to_vec()] {
        let answers = store.clone().execute(request, timeout).await;
        for answer in &answers {
            message = assert_error(answer, kind, false).to_string();
        }
    }
    store.close().await;
    message
}

/// Asserts that everything can be done at `store`.
pub async fn assert_usable(store: &Rc<RedisStore>) {
    assert_eq!(ask(store, Request::Ping).await, Reply::Ready);
    let key = format!("lock:{}", Token::random());
    once(store, &key).await;
    assert_eq!(info(store, &key).await, None);
}

/// Waits for what the server does in its own time.
pub async fn until(done: impl Fn() -> bool) {
    while !done() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets the connection's task hear of what has happened to it, as other things go on in the engine between two
/// batches.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}
