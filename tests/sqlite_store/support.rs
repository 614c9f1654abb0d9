//! Creates a directory for each test, and has short functions for requests.

use std::future::Future;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::{Fence, Token, Ttl};
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{AcquireRequest, Answer, Reply, Request, Store, StoreError};

/// A new directory. Dropping the value deletes it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn fresh() -> Self {
        let path = std::env::temp_dir().canonicalize().unwrap();
        let path = path.join(format!("leasehold-test-{}", Token::random()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn db(&self) -> PathBuf {
        self.0.join("locks.db")
    }
}

impl Deref for Folder {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs")
    })
}

pub fn acquire(key: &str, token: Token, ttl_ms: u32) -> Request {
    let ttl = Ttl::from_millis(ttl_ms).unwrap();
    Request::Acquire(AcquireRequest::new(key.into(), token, ttl, "test".into()))
}

pub fn renew(key: &str, token: Token, ttl_ms: u32) -> Request {
    Request::Renew { key: key.into(), token, ttl: Ttl::from_millis(ttl_ms).unwrap(), fences: 0 }
}

pub fn release(key: &str, token: Token) -> Request {
    Request::Release { key: key.into(), token, used: None }
}

pub async fn attempt(store: &Rc<SqliteStore>, request: Request) -> Answer {
    let mut answers = store.clone().execute(vec![request], Duration::from_secs(5)).await;
    assert_eq!(answers.len(), 1);
    answers.pop().unwrap()
}

pub async fn ask(store: &Rc<SqliteStore>, request: Request) -> Reply {
    attempt(store, request).await.expect("the store answers")
}

pub async fn granted(store: &Rc<SqliteStore>, key: &str, token: Token, ttl_ms: u32) -> Fence {
    match ask(store, acquire(key, token, ttl_ms)).await {
        Reply::Acquired { fence, .. } => fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

pub async fn is_busy(store: &Rc<SqliteStore>, key: &str) -> bool {
    matches!(ask(store, acquire(key, Token::random(), 60_000)).await, Reply::Busy { .. })
}

/// Returns the error with which the store at `path` answers a ping.
pub fn refusal(path: &Path) -> StoreError {
    run(async {
        let store = SqliteStore::open(path.into());
        let error = attempt(&store, Request::Ping).await.expect_err("refused");
        let change = attempt(&store, acquire("k", Token::random(), 1000)).await.expect_err("refused");
        assert_eq!(error.kind, change.kind);
        assert!(!error.maybe_done, "{error}");
        store.close().await;
        error
    })
}
