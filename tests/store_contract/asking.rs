//! Has short functions for the requests of the suite.

use std::time::Duration;

use leasehold::lease::{Fence, Instant, Key, Token, Ttl};
use leasehold::store::{AcquireRequest, Answer, LeaseInfo, LockInfo, Reply, Request, Source};

use crate::client::Client;

/// The time-out of every batch that is expected to succeed.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// How often a waiter polls without a notice.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// Returns a key that no other test uses, so that tests may share a store.
pub fn fresh_key(name: &str) -> Key {
    format!("lock:{name}:{}", Token::random()).into()
}

pub fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

pub fn acquire(key: &Key, token: Token, ttl_ms: u32) -> Request {
    Request::Acquire(AcquireRequest::new(key.clone(), token, ttl(ttl_ms), "contract".into()))
}

/// Returns a request for a lease with `fences` fences.
pub fn acquire_block(key: &Key, token: Token, ttl_ms: u32, fences: u32) -> Request {
    Request::Acquire(AcquireRequest {
        fences,
        ..AcquireRequest::new(key.clone(), token, ttl(ttl_ms), "contract".into())
    })
}

pub fn renew(key: &Key, token: Token, ttl_ms: u32) -> Request {
    renew_block(key, token, ttl_ms, 0)
}

/// Returns a renewal that reserves `fences` more fences.
pub fn renew_block(key: &Key, token: Token, ttl_ms: u32, fences: u32) -> Request {
    Request::Renew { key: key.clone(), token, ttl: ttl(ttl_ms), fences }
}

pub fn release(key: &Key, token: Token) -> Request {
    Request::Release { key: key.clone(), token, used: None }
}

/// Returns a release by a holder that knows its last used fence.
pub fn give_back(key: &Key, token: Token, used: Fence) -> Request {
    Request::Release { key: key.clone(), token, used: Some(used) }
}

/// Returns the request by which `adopter` adopts a lease that it does not renew.
pub fn adopt(key: &Key, token: Token, adopter: Token, ttl_ms: u32) -> Request {
    adopt_with_fence(key, token, adopter, ttl_ms, Fence(1))
}

/// Returns the request by which `adopter` adopts a lease. A quorum gives the fence to its nodes
/// with the first renewal.
pub fn adopt_with_fence(key: &Key, token: Token, adopter: Token, ttl_ms: u32, fence: Fence) -> Request {
    Request::Adopt {
        key: key.clone(),
        token,
        adopter,
        ttl: ttl(ttl_ms),
        holder: "adopter".into(),
        outlives_process: false,
        source: Source::Ticket { fence, with_ttl: false },
    }
}

/// Returns a request that detaches a lease with `fence` and `ttl_ms`.
pub fn detach(key: &Key, token: Token, fence: Fence, ttl_ms: u32) -> Request {
    let ttl = ttl(ttl_ms);
    Request::Detach { key: key.clone(), token, ttl, fence, own_ttl: ttl }
}

/// Returns a request that gives a lease `count` fences from `fence` on.
pub fn accept(key: &Key, token: Token, fence: Fence, count: u32) -> Request {
    Request::Accept { key: key.clone(), token, fence, count }
}

pub fn inspect(key: &Key) -> Request {
    Request::Inspect { key: key.clone() }
}

pub fn break_all(key: &Key) -> Request {
    Request::Break { key: key.clone(), bars_repairs: false }
}

/// The reply to a renewal that reserved no fences.
pub const RENEWED: Reply = Reply::Renewed { block: None };

/// Sends `batch` and expects an answer to each request. At the slowest nodes of a quorum, later
/// requests may overtake it.
pub async fn answers(client: &Client, batch: Vec<Request>) -> Vec<Answer> {
    let count = batch.len();
    let answers = client.store.clone().execute(batch, TIMEOUT).await;
    assert_eq!(answers.len(), count, "each request has one answer");
    answers
}

/// Sends `batch` and expects no error. Later requests arrive after it.
pub async fn replies(client: &Client, batch: Vec<Request>) -> Vec<Reply> {
    let answers = answers(client, batch).await;
    client.caught_up().await;
    answers.into_iter().map(|answer| answer.expect("the store answers")).collect()
}

/// Sends one request while other clients send theirs, and expects no error.
pub async fn ask_in_a_crowd(client: &Client, request: Request) -> Reply {
    answers(client, vec![request]).await.pop().unwrap().expect("the store answers")
}

pub async fn ask(client: &Client, request: Request) -> Reply {
    replies(client, vec![request]).await.pop().unwrap()
}

/// Returns the fence of a granted lease.
pub fn fence(reply: Reply) -> Fence {
    match reply {
        Reply::Acquired { fence, .. } => fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

pub async fn granted(client: &Client, key: &Key, token: Token, ttl_ms: u32) -> Fence {
    fence(ask(client, acquire(key, token, ttl_ms)).await)
}

/// A lease that was granted after some tries.
pub struct Granted {
    pub token: Token,
    pub fence: Fence,
    /// When the reply with the grant arrived.
    pub known: Instant,
}

/// Asks for the lease until it is granted, with a new token each time.
pub async fn granted_in_the_end(client: &Client, key: &Key) -> Granted {
    loop {
        let token = Token::random();
        match ask(client, acquire(key, token, 60_000)).await {
            Reply::Acquired { fence, .. } => {
                return Granted { token, fence, known: leasehold::engine::clock::now() };
            }
            Reply::Busy { remaining } => {
                // Ask a little before the lease may be free, so that a grant that comes too early
                // shows. Also ask from time to time: in a quorum, the obstacle may be a node's
                // grant that is just being undone.
                let remaining = remaining.expect("each lease of the suite ends");
                tokio::time::sleep(remaining.saturating_sub(Duration::from_millis(3)).min(HEARTBEAT)).await;
            }
            Reply::Split => back_off(client, key, token).await,
            other => panic!("expected a lease or busy, got {other:?}"),
        }
    }
}

/// Releases the nodes of a quorum that `token` has, and pauses for a random time, so that other
/// clients have a chance.
pub async fn back_off(client: &Client, key: &Key, token: Token) {
    ask_in_a_crowd(client, release(key, token)).await;
    tokio::time::sleep(Duration::from_micros(fastrand::u64(..4_000))).await;
}

pub async fn info(client: &Client, key: &Key) -> Option<LockInfo> {
    match ask(client, inspect(key)).await {
        Reply::Inspected(info) => info,
        other => panic!("expected an inspection, got {other:?}"),
    }
}

/// Returns the only lease of the lock.
pub async fn lease(client: &Client, key: &Key) -> LeaseInfo {
    let mut leases = info(client, key).await.expect("held").leases;
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases.remove(0)
}

pub async fn remaining(client: &Client, key: &Key) -> Duration {
    lease(client, key).await.remaining.expect("each lease of the suite ends")
}

/// Returns the names of the holders and of the waiters, in order.
pub async fn names(client: &Client, key: &Key) -> (Vec<String>, Vec<String>) {
    let Some(info) = info(client, key).await else { return Default::default() };
    let holders =
        info.leases.into_iter().map(|lease| lease.holder.expect("the suite names its holders").to_string());
    (holders.collect(), info.waiters.into_iter().map(|waiter| waiter.holder.to_string()).collect())
}
