//! The short forms that the suite speaks in.

use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Token, Ttl};
use leasehold::store::{Answer, Ask, LeaseInfo, LockInfo, Reply, Request, Source};

use crate::client::Client;

/// The time-out of every batch that is expected to succeed.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// How often one looks again though nothing happened.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// A key that no other test uses, so that a place may be shared.
pub fn fresh_key(name: &str) -> Key {
    format!("lock:{name}:{}", Token::random()).into()
}

pub fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

pub fn acquire(key: &Key, token: Token, ttl_ms: u32) -> Request {
    Request::Acquire(Ask::new(key.clone(), token, ttl(ttl_ms), "contract".into()))
}

/// For a lease with that many fences.
pub fn acquire_block(key: &Key, token: Token, ttl_ms: u32, fences: u32) -> Request {
    Request::Acquire(Ask { fences, ..Ask::new(key.clone(), token, ttl(ttl_ms), "contract".into()) })
}

pub fn renew(key: &Key, token: Token, ttl_ms: u32) -> Request {
    renew_block(key, token, ttl_ms, 0)
}

/// With that many more fences.
pub fn renew_block(key: &Key, token: Token, ttl_ms: u32, fences: u32) -> Request {
    Request::Renew { key: key.clone(), token, ttl: ttl(ttl_ms), fences }
}

pub fn release(key: &Key, token: Token) -> Request {
    Request::Release { key: key.clone(), token, used: None }
}

/// Releases a lease as a holder that knows the last used fence.
pub fn give_back(key: &Key, token: Token, used: Fence) -> Request {
    Request::Release { key: key.clone(), token, used: Some(used) }
}

/// Returns the request by which `heir` adopts a lease that it does not renew.
pub fn adopt(key: &Key, token: Token, heir: Token, ttl_ms: u32) -> Request {
    adopt_with_fence(key, token, heir, ttl_ms, Fence(1))
}

/// Returns the request by which `heir` adopts a lease. A quorum gives the fence to its nodes with
/// the first renewal.
pub fn adopt_with_fence(key: &Key, token: Token, heir: Token, ttl_ms: u32, fence: Fence) -> Request {
    Request::Adopt {
        key: key.clone(),
        token,
        heir,
        ttl: ttl(ttl_ms),
        holder: "heir".into(),
        outlives_process: false,
        source: Source::Ticket { fence, with_ttl: false },
    }
}

/// Detaches a lease of that fence and ttl.
pub fn detach(key: &Key, token: Token, fence: Fence, ttl_ms: u32) -> Request {
    let ttl = ttl(ttl_ms);
    Request::Detach { key: key.clone(), token, ttl, fence, own_ttl: ttl }
}

/// Lets a lease have that many fences from `fence` on.
pub fn accept(key: &Key, token: Token, fence: Fence, count: u32) -> Request {
    Request::Accept { key: key.clone(), token, fence, count }
}

pub fn inspect(key: &Key) -> Request {
    Request::Inspect { key: key.clone() }
}

pub fn break_all(key: &Key) -> Request {
    Request::Break { key: key.clone(), bars_repairs: false }
}

/// To a renewal that wanted no fences.
pub const RENEWED: Reply = Reply::Renewed { block: None };

/// Asks for all of `batch` and expects an answer to each. What is asked next may overtake it at the slowest of several nodes.
pub async fn answers(client: &Client, batch: Vec<Request>) -> Vec<Answer> {
    let count = batch.len();
    let answers = client.store.clone().execute(batch, TIMEOUT).await;
    assert_eq!(answers.len(), count, "one answer each");
    answers
}

/// Asks for all of `batch` and expects no error. Whatever is asked next comes after it.
pub async fn replies(client: &Client, batch: Vec<Request>) -> Vec<Reply> {
    let answers = answers(client, batch).await;
    client.caught_up().await;
    answers.into_iter().map(|answer| answer.expect("the store answers")).collect()
}

/// Asks for one thing among others who ask at the same time, and expects no error.
pub async fn ask_in_a_crowd(client: &Client, request: Request) -> Reply {
    answers(client, vec![request]).await.pop().unwrap().expect("the store answers")
}

pub async fn ask(client: &Client, request: Request) -> Reply {
    replies(client, vec![request]).await.pop().unwrap()
}

/// The fence of a granted lease.
pub fn fence(reply: Reply) -> Fence {
    match reply {
        Reply::Acquired { fence, .. } => fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

pub async fn granted(client: &Client, key: &Key, token: Token, ttl_ms: u32) -> Fence {
    fence(ask(client, acquire(key, token, ttl_ms)).await)
}

/// A lease that was got in the end.
pub struct Got {
    pub token: Token,
    pub fence: Fence,
    /// When that was known.
    pub known: Instant,
}

/// Asks for the lease until it is granted, with a new token each time.
pub async fn granted_in_the_end(client: &Client, key: &Key) -> Got {
    loop {
        let token = Token::random();
        match ask(client, acquire(key, token, 60_000)).await {
            Reply::Acquired { fence, .. } => {
                return Got { token, fence, known: leasehold::engine::clock::now() };
            }
            Reply::Busy { remaining } => {
                // As soon as it may be free, looked at a little before so that a grant too early shows. And from time to
                // time: of a quorum, what is in the way may be a node's grant that is just being taken back.
                let remaining = remaining.expect("a lease of ours always ends");
                tokio::time::sleep(remaining.saturating_sub(Duration::from_millis(3)).min(HEARTBEAT)).await;
            }
            Reply::Split => give_way(client, key, token).await,
            other => panic!("expected a lease or busy, got {other:?}"),
        }
    }
}

/// Gives back what `token` has got of a quorum, and leaves the others some time, by chance shorter or longer than theirs.
pub async fn give_way(client: &Client, key: &Key, token: Token) {
    ask_in_a_crowd(client, release(key, token)).await;
    tokio::time::sleep(Duration::from_micros(fastrand::u64(..4_000))).await;
}

pub async fn info(client: &Client, key: &Key) -> Option<LockInfo> {
    match ask(client, inspect(key)).await {
        Reply::Inspected(info) => info,
        other => panic!("expected what inspect tells, got {other:?}"),
    }
}

/// The only lease of the lock.
pub async fn lease(client: &Client, key: &Key) -> LeaseInfo {
    let mut leases = info(client, key).await.expect("held").leases;
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases.remove(0)
}

pub async fn remaining(client: &Client, key: &Key) -> Duration {
    lease(client, key).await.remaining.expect("a lease of ours always ends")
}

/// Who holds the lock and who waits for it, by their names, in order.
pub async fn names(client: &Client, key: &Key) -> (Vec<String>, Vec<String>) {
    let Some(info) = info(client, key).await else { return Default::default() };
    let holders = info.leases.into_iter().map(|lease| lease.holder.expect("one of ours").to_string());
    (holders.collect(), info.waiters.into_iter().map(|waiter| waiter.holder.to_string()).collect())
}
