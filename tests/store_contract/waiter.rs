//! A waiter that polls as the contract requires: after a notice, when the lease before it may have
//! ended, and from time to time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::lease::{Fence, Key, Mode, Token};
use leasehold::store::{AcquireRequest, Place, Reply, Request};

use crate::asking::{HEARTBEAT, ask, ask_in_a_crowd, ttl};
use crate::client::Client;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

pub struct Waiter {
    pub client: Client,
    pub request: AcquireRequest,
}

impl Waiter {
    /// Returns a waiter with the name `name` and an unused number.
    pub fn new(client: &Client, key: &Key, name: &str, mode: Mode) -> Self {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let place = Some(Place { number });
        let ask = AcquireRequest::new(key.clone(), Token::random(), ttl(60_000), name.into());
        Self { client: client.clone(), request: AcquireRequest { mode, place, ..ask } }
    }

    /// Returns a waiter for an exclusive lease.
    pub fn exclusive(client: &Client, key: &Key, name: &str) -> Self {
        Self::new(client, key, name, Mode::Exclusive)
    }

    pub fn number(&self) -> u64 {
        self.request.place.expect("the request has a place").number
    }

    /// Sends the acquire once.
    pub async fn ask(&self) -> Reply {
        ask(&self.client, Request::Acquire(self.request.clone())).await
    }

    /// Sends the acquire, which must get a place in the queue, until the store promises a notice: a
    /// store may have to prepare for that. Returns how many waiters are before this one, and when
    /// the first lease in its way ends.
    async fn notified(&self) -> (u32, Duration) {
        for _ in 0..1_000 {
            match self.ask().await {
                Reply::Queued { remaining, ahead, notified: true, .. } => {
                    return (ahead, remaining.expect("each lease of the suite ends"));
                }
                Reply::Queued { .. } => tokio::time::sleep(Duration::from_millis(5)).await,
                other => panic!("{} must wait, got {other:?}", self.request.holder),
            }
        }
        panic!("{} is never promised a notice", self.request.holder)
    }

    /// Expects a place in the queue. Returns how many waiters are before this one.
    pub async fn queued(&self) -> u32 {
        self.notified().await.0
    }

    /// Expects a place in the queue. Returns when the first lease in the way ends.
    pub async fn queued_for(&self) -> Duration {
        self.notified().await.1
    }

    /// Sends the acquire, which must be granted now.
    pub async fn granted(&self) -> Fence {
        match self.ask().await {
            Reply::Acquired { fence, .. } => fence,
            other => panic!("{} must be granted the lease, got {other:?}", self.request.holder),
        }
    }

    /// Waits until the lease is granted, even while other clients send requests.
    pub async fn served(&self) -> Fence {
        loop {
            let seen = self.client.notices.count();
            match ask_in_a_crowd(&self.client, Request::Acquire(self.request.clone())).await {
                Reply::Acquired { fence, .. } => return fence,
                Reply::Queued { remaining, .. } => {
                    let pause = remaining.unwrap_or(HEARTBEAT).clamp(Duration::from_millis(1), HEARTBEAT);
                    let _notice_or_heartbeat =
                        tokio::time::timeout(pause, self.client.notices.after(seen)).await;
                }
                other => panic!("{} must wait or be granted the lease, got {other:?}", self.request.holder),
            }
        }
    }

    /// Releases the lease, or leaves the queue.
    pub async fn release(&self) -> Reply {
        let AcquireRequest { key, token, .. } = &self.request;
        ask(&self.client, Request::Release { key: key.clone(), token: *token, used: None }).await
    }

    /// Releases the lease, which this waiter must hold.
    pub async fn released(&self) {
        assert_eq!(self.release().await, Reply::Released, "{}", self.request.holder);
    }
}
