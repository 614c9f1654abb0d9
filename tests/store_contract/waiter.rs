//! One who waits as the contract asks for it: it looks again when it is told, when the lease in its way may have
//! ended, and from time to time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::lease::{Fence, Key, Mode, Token};
use leasehold::store::{Ask, Place, Reply, Request};

use crate::asking::{HEARTBEAT, ask, ask_in_a_crowd, ttl};
use crate::client::Client;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

pub struct Waiter {
    pub client: Client,
    pub wants: Ask,
}

impl Waiter {
    /// One that calls itself `name`, with a number that nobody else has.
    pub fn new(client: &Client, key: &Key, name: &str, mode: Mode) -> Self {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let place = Some(Place { number });
        let ask = Ask::new(key.clone(), Token::random(), ttl(60_000), name.into());
        Self { client: client.clone(), wants: Ask { mode, place, ..ask } }
    }

    /// One that wants the lock for itself.
    pub fn exclusive(client: &Client, key: &Key, name: &str) -> Self {
        Self::new(client, key, name, Mode::Exclusive)
    }

    pub fn number(&self) -> u64 {
        self.wants.place.expect("it waits").number
    }

    /// Asks once.
    pub async fn ask(&self) -> Reply {
        ask(&self.client, Request::Acquire(self.wants.clone())).await
    }

    /// Asks, and has to wait, until a notice is promised to it: a store may have to prepare for that. Returns how many
    /// stand before it, and when the first lease in its way ends.
    async fn told(&self) -> (u32, Duration) {
        for _ in 0..1_000 {
            match self.ask().await {
                Reply::Queued { remaining, ahead, told: true, .. } => {
                    return (ahead, remaining.expect("a lease of ours always ends"));
                }
                Reply::Queued { .. } => tokio::time::sleep(Duration::from_millis(5)).await,
                other => panic!("{} is to wait, got {other:?}", self.wants.holder),
            }
        }
        panic!("{} is never promised a notice", self.wants.holder)
    }

    /// Has to wait. Returns how many stand before it.
    pub async fn queued(&self) -> u32 {
        self.told().await.0
    }

    /// Has to wait. Returns when the first lease in its way ends.
    pub async fn queued_for(&self) -> Duration {
        self.told().await.1
    }

    /// Asks, and has to be granted the lease now.
    pub async fn granted(&self) -> Fence {
        match self.ask().await {
            Reply::Acquired { fence, .. } => fence,
            other => panic!("{} is to be granted the lease, got {other:?}", self.wants.holder),
        }
    }

    /// Waits until it is served, be it in a crowd.
    pub async fn served(&self) -> Fence {
        loop {
            let seen = self.client.notices.count();
            match ask_in_a_crowd(&self.client, Request::Acquire(self.wants.clone())).await {
                Reply::Acquired { fence, .. } => return fence,
                Reply::Queued { remaining, .. } => {
                    let pause = remaining.unwrap_or(HEARTBEAT).clamp(Duration::from_millis(1), HEARTBEAT);
                    let _told_or_time_to_look =
                        tokio::time::timeout(pause, self.client.notices.after(seen)).await;
                }
                other => panic!("{} is to wait or to be served, got {other:?}", self.wants.holder),
            }
        }
    }

    /// Gives up what it has: the lease, or its place.
    pub async fn release(&self) -> Reply {
        let Ask { key, token, .. } = &self.wants;
        ask(&self.client, Request::Release { key: key.clone(), token: *token, used: None }).await
    }

    /// Holds the lease and gives it back.
    pub async fn released(&self) {
        assert_eq!(self.release().await, Reply::Released, "{}", self.wants.holder);
    }
}
