//! Tests promise 6: a store does not fill up.

use std::time::Duration;

use leasehold::engine::clock;
use leasehold::lease::{Key, Mode, Token};
use leasehold::store::{AcquireRequest, Place, Request};

use super::LONG;
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

pub async fn leases_leave_no_data(place: &dyn Fixture) {
    let store = place.open();
    ask(&store, Request::Ping).await;
    let before = place.traces().await;
    for _ in 0..4 {
        let leases: Vec<(Key, Token)> = (0..250).map(|_| (fresh_key("k"), Token::random())).collect();
        replies(&store, leases.iter().map(|(k, t)| acquire(k, *t, LONG)).collect()).await;
        assert!(place.traces().await >= before);
        replies(&store, leases.iter().map(|(k, t)| release(k, *t)).collect()).await;
        assert_eq!(place.traces().await, before, "released leases leave nothing");
    }
    // These leases expire without another request for them, while the store is used for other
    // locks.
    let brief = 10 * place.shortest_ttl();
    let forgotten = (0..1000).map(|_| acquire(&fresh_key("k"), Token::random(), brief)).collect();
    replies(&store, forgotten).await;
    disappears(place, &store, before).await;
}

/// Checks that everything that was not released disappears by itself, while the store is used for
/// other locks.
async fn disappears(place: &dyn Fixture, client: &Client, before: usize) {
    let start = clock::now();
    while place.traces().await > before {
        assert!(
            clock::now().since(start) < Duration::from_secs(20),
            "{} left",
            place.traces().await - before
        );
        let (key, token) = (fresh_key("k"), Token::random());
        granted(client, &key, token, LONG).await;
        ask(client, release(&key, token)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn waiters_leave_no_data(place: &dyn Fixture) {
    let client = place.open();
    ask(&client, Request::Ping).await;
    let before = place.traces().await;
    let keys: Vec<Key> = (0..50).map(|_| fresh_key("k")).collect();
    for key in &keys {
        let waiters = [Mode::Exclusive, Mode::Shared { most: u32::MAX }, Mode::Exclusive]
            .map(|mode| Waiter::new(&client, key, "w", mode));
        for (ahead, waiter) in waiters.iter().enumerate() {
            match ahead {
                0 => assert!(waiter.granted().await.0 > 0),
                _ => assert_eq!(waiter.queued().await as usize, ahead - 1),
            }
        }
        // One client leaves the queue, one releases its lease, and one releases the lease that it
        // was handed.
        for waiter in [&waiters[1], &waiters[0], &waiters[2]] {
            waiter.release().await;
        }
        assert_eq!(info(&client, key).await, None);
    }
    assert_eq!(place.traces().await, before, "waiters that gave up leave nothing");
    // None of these clients sends another request: the holders, the waiters that are handed the
    // lease, and the waiters behind them.
    let mut forgotten = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        forgotten.push(acquire(key, Token::random(), 10 * place.shortest_ttl()));
        for j in 0..3 {
            let place = Some(Place { number: 1_000_000 + 3 * i as u64 + j });
            let ask = AcquireRequest::new(key.clone(), Token::random(), ttl(LONG), "gone".into());
            forgotten.push(Request::Acquire(AcquireRequest { place, ..ask }));
        }
    }
    replies(&client, forgotten).await;
    disappears(place, &client, before).await;
}
