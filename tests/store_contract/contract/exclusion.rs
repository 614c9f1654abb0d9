//! Tests promise 1: exclusion.

use std::cell::Cell;

use futures_util::future::join_all;
use leasehold::engine::clock;
use leasehold::lease::{Fence, Key, Token};
use leasehold::store::{Absence, Reply, Request};

use super::{GRAIN, LONG, SLACK};
use crate::asking::*;
use crate::fixture::Fixture;

pub async fn exclusion_while_a_lease_is_valid(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, a) = (fresh_key("k"), Token::random());
    granted(&one, &key, a, LONG).await;
    for store in [&one, &other] {
        let b = Token::random();
        match ask(store, acquire(&key, b, LONG)).await {
            Reply::Busy { remaining: Some(left) } => {
                assert!(left <= ttl(LONG).as_duration() && left > SLACK, "{left:?}");
            }
            other => panic!("expected busy, got {other:?}"),
        }
        assert_eq!(ask(store, renew(&key, b, LONG)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(ask(store, release(&key, b)).await, Reply::NotHeld(Absence::Taken));
    }
    assert_eq!(ask(&one, release(&key, a)).await, Reply::Released);
    granted(&other, &key, Token::random(), LONG).await;
    assert!(matches!(ask(&one, acquire(&key, a, LONG)).await, Reply::Busy { .. }));
}

pub async fn exclusion_ends_with_the_ttl_and_not_before(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    ask(&one, Request::Ping).await;
    ask(&other, Request::Ping).await;
    for ms in [1, 5, 12].map(|times| times * place.shortest_ttl()) {
        let key = fresh_key("k");
        let before = clock::now();
        granted(&one, &key, Token::random(), ms).await;
        let span = granted_in_the_end(&other, &key).await.known.since(before);
        assert!(span + GRAIN >= ttl(ms).as_duration(), "two leases overlap: {span:?} of {ms} ms");
        assert!(span < ttl(ms).as_duration() + SLACK, "free too late: {span:?} of {ms} ms");
    }
}

pub async fn exclusion_counts_from_the_last_renewal(place: &dyn Fixture) {
    let store = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    let short = place.shortest_ttl();
    granted(&store, &key, a, LONG).await;
    // A renewal that arrives late, after a longer one, must not shorten the lease.
    assert_eq!(ask(&store, renew(&key, a, short)).await, RENEWED);
    tokio::time::sleep(2 * ttl(short).as_duration()).await;
    assert!(matches!(ask(&store, acquire(&key, Token::random(), LONG)).await, Reply::Busy { .. }));

    let (key, a) = (fresh_key("k"), Token::random());
    granted(&store, &key, a, 5 * short).await;
    let before = clock::now();
    assert_eq!(ask(&store, renew(&key, a, 10 * short)).await, RENEWED);
    let span = granted_in_the_end(&store, &key).await.known.since(before);
    let renewed = ttl(10 * short).as_duration();
    assert!(span + GRAIN >= renewed && span < renewed + SLACK, "{span:?} of {renewed:?}");
    assert_eq!(ask(&store, renew(&key, a, 100)).await, Reply::NotHeld(Absence::Taken));

    let (key, b) = (fresh_key("k"), Token::random());
    granted(&store, &key, b, 3 * short).await;
    if ask(&store, renew(&key, b, LONG)).await == RENEWED {
        tokio::time::sleep(4 * ttl(short).as_duration()).await;
        assert!(matches!(ask(&store, acquire(&key, Token::random(), LONG)).await, Reply::Busy { .. }));
    }
}

pub async fn exclusion_among_many_contenders_of_two_clients(place: &dyn Fixture) {
    let (stores, key, inside, last) =
        ([place.open(), place.open()], fresh_key("k"), Cell::new(0), Cell::new(Fence(0)));
    // Open one store after the other: the engine never lets two stores of a process create a lock
    // file at the same time.
    for store in &stores {
        assert_eq!(ask(store, Request::Ping).await, Reply::Ready);
    }
    let contend = |i: usize| {
        let (store, key, inside, last) = (&stores[i % 2], &key, &inside, &last);
        async move {
            let mut turns = 0;
            while turns < 5 {
                let token = Token::random();
                match ask_in_a_crowd(store, acquire(key, token, LONG)).await {
                    Reply::Acquired { fence, .. } => {
                        assert_eq!(inside.replace(1), 0, "two holders at the same time");
                        assert!(fence > last.replace(fence), "fences out of order");
                        tokio::task::yield_now().await;
                        turns += 1;
                        inside.set(0);
                        assert_eq!(ask_in_a_crowd(store, release(key, token)).await, Reply::Released);
                    }
                    Reply::Split if !place.has_one_order() => back_off(store, key, token).await,
                    Reply::Busy { .. } => tokio::task::yield_now().await,
                    other => panic!("expected a lease or busy, got {other:?}"),
                }
            }
        }
    };
    join_all((0..8).map(contend)).await;
}

pub async fn keys_are_compared_byte_by_byte(place: &dyn Fixture) {
    let store = place.open();
    let unique = fresh_key("");
    let long = "x".repeat(1024 - unique.len());
    // These differ in case and blanks, look like numbers, write ä in two ways, or have wildcards.
    let names = [
        "a", "A", "a ", " a", "", "1", "1.0", "ä", "a\u{308}", "%", "a%", "*", "'", "\\", "{a}", "🔒", "a\n",
    ];
    let keys: Vec<Key> =
        names.iter().copied().chain([&*long]).map(|name| format!("{unique}{name}").into()).collect();
    let mut fences = Vec::new();
    for key in &keys {
        fences.push(granted(&store, key, Token::random(), LONG).await);
    }
    for (key, fence) in keys.iter().zip(fences) {
        assert_eq!(lease(&store, key).await.fence, Some(fence), "{key:?}");
    }
}
