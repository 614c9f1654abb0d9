//! Tests promise 7: first come, first served. These tests check the order of the queue.

use std::time::Duration;

use leasehold::engine::clock;
use leasehold::lease::{Fence, Key, Token};
use leasehold::store::{Absence, Reply, Request, WAITER_LIFE};

use super::LONG;
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

/// Returns `count` waiters that came one after the other, through each client in turn, while
/// another client holds the lock.
async fn queue(clients: &[Client], key: &Key, count: usize) -> Vec<Waiter> {
    let mut waiters = Vec::new();
    for i in 0..count {
        let waiter = Waiter::exclusive(&clients[i % clients.len()], key, &format!("w{i}"));
        assert_eq!(waiter.queued().await as usize, i, "behind all earlier waiters");
        waiters.push(waiter);
    }
    waiters
}

pub async fn waiters_are_served_in_the_order_of_their_arrival(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&clients[0], &key, "holder");
    let mut last = holder.granted().await;
    let waiters = queue(&clients, &key, 20).await;
    let served = std::cell::RefCell::new(Vec::new());
    let wait = async |i: usize| {
        let fence = waiters[i].served().await;
        served.borrow_mut().push((i, fence));
        waiters[i].released().await;
    };
    // All wait at the same time, and the last ones poll first.
    let all = futures_util::future::join_all((0..waiters.len()).rev().map(wait));
    tokio::join!(holder.released(), all);
    let served = served.into_inner();
    assert_eq!(served.iter().map(|(i, _)| *i).collect::<Vec<_>>(), (0..20).collect::<Vec<_>>());
    for (i, fence) in served {
        assert!(fence > last, "w{i}: {fence:?} after {last:?}");
        last = fence;
    }
    assert_eq!(info(&clients[0], &key).await, None);
}

pub async fn a_newcomer_never_overtakes(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let always_queued = async |client: &Client, key: &Key, ahead: u32| {
        match ask(client, acquire(key, Token::random(), LONG)).await {
            Reply::Busy { .. } => {}
            other => panic!("a newcomer without a place, while a client waits: {other:?}"),
        }
        let newcomer = Waiter::exclusive(client, key, "newcomer");
        assert_eq!(newcomer.queued().await, ahead);
        newcomer
    };

    // The waiter was handed the lease, but has not taken it up yet.
    let key = fresh_key("handed");
    let (holder, waiter) =
        (Waiter::exclusive(&one, &key, "holder"), Waiter::exclusive(&other, &key, "waiter"));
    holder.granted().await;
    waiter.queued().await;
    holder.released().await;
    let newcomer = always_queued(&one, &key, 0).await;
    waiter.granted().await;
    assert_eq!(newcomer.queued().await, 0);

    // The lease has expired, and the newcomer is the first to ask.
    for with_place in [false, true] {
        let key = fresh_key("run-out");
        let waiter = Waiter::exclusive(&other, &key, "waiter");
        granted(&one, &key, Token::random(), 3 * place.shortest_ttl()).await;
        let left = waiter.queued_for().await;
        tokio::time::sleep(left + Duration::from_millis(2)).await;
        if with_place {
            assert_eq!(Waiter::exclusive(&one, &key, "newcomer").queued().await, 0, "the waiter holds now");
        } else {
            always_queued(&one, &key, 0).await;
        }
        assert_eq!(&*names(&one, &key).await.0[0], "waiter");
        waiter.granted().await;
    }
}

pub async fn a_place_is_kept_by_repeating_the_acquire(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    let key = fresh_key("k");
    let holder = granted(&clients[0], &key, Token::random(), LONG).await;
    let waiters = queue(&clients, &key, 3).await;
    let start = clock::now();
    while clock::now().since(start) < WAITER_LIFE + Duration::from_millis(500) {
        tokio::time::sleep(WAITER_LIFE / 5).await;
        // They poll in another order than that of their arrival, and through the other client.
        for i in [2, 0, 1] {
            let asked = ask(&clients[(i + 1) % 2], Request::Acquire(waiters[i].request.clone())).await;
            match asked {
                Reply::Queued { ahead, .. } => assert_eq!(ahead as usize, i),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(lease(&clients[1], &key).await.fence, Some(holder));
    assert_eq!(names(&clients[0], &key).await.1, ["w0", "w1", "w2"]);
}

pub async fn a_place_without_polls_is_lost(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    let (key, holder) = (fresh_key("k"), Token::random());
    granted(&clients[0], &key, holder, LONG).await;
    let mut waiters = queue(&clients, &key, 3).await;
    let start = clock::now();
    let (silent, lively, second) = (waiters.remove(0), waiters.remove(0), waiters.remove(0));
    while clock::now().since(start) < WAITER_LIFE + Duration::from_millis(50) {
        let before = clock::now();
        let ahead = lively.queued().await;
        second.queued().await;
        let waited = before.since(start);
        if waited + Duration::from_millis(300) < WAITER_LIFE {
            assert_eq!(ahead, 1, "{waited:?} after the last poll of the silent waiter");
        }
        tokio::time::sleep(WAITER_LIFE / 10).await;
    }
    assert_eq!(lively.queued().await, 0, "the silent waiter has lost its place");
    assert_eq!(silent.queued().await, 2, "the silent waiter is at the end of the queue");
    assert_eq!(names(&clients[0], &key).await.1, ["w1", "w2", "w0"]);
    assert_eq!(ask(&clients[0], release(&key, holder)).await, Reply::Released);
    lively.granted().await;
    assert_eq!((second.queued().await, silent.queued().await), (0, 1));
}

pub async fn a_waiter_that_gives_up_leaves_the_queue(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    let (key, holder) = (fresh_key("k"), Token::random());
    granted(&clients[0], &key, holder, LONG).await;
    let waiters = queue(&clients, &key, 3).await;
    for _repeated in 0..2 {
        assert_eq!(waiters[0].release().await, Reply::NotHeld(Absence::Taken));
        assert_eq!(waiters[1].queued().await, 0);
    }
    assert_eq!(waiters[2].queued().await, 1);
    assert_eq!(ask(&clients[1], release(&key, holder)).await, Reply::Released);
    waiters[1].granted().await;
    assert_eq!(waiters[0].client.notices.of(waiters[0].number()), 0, "the waiter has left the queue");
    assert_eq!(waiters[2].release().await, Reply::NotHeld(Absence::Taken));
    waiters[1].released().await;
    assert_eq!(waiters[1].release().await, Reply::NotHeld(Absence::Missing));
    assert_eq!(info(&clients[0], &key).await, None);
}

pub async fn many_waiters_of_many_keys_in_one_batch(place: &dyn Fixture) {
    const WAITERS: usize = 5;
    let (one, other) = (place.open(), place.open());
    let keys: Vec<Key> = (0..40).map(|_| fresh_key("k")).collect();
    let tokens: Vec<Token> = keys.iter().map(|_| Token::random()).collect();
    let held: Vec<(&Key, &Token)> = keys.iter().zip(&tokens).collect();
    replies(&one, held.iter().map(|(key, token)| acquire(key, **token, LONG)).collect()).await;
    // In a batch, each waiter is behind those before it in the batch.
    let waiters: Vec<Waiter> = (0..WAITERS)
        .flat_map(|i| keys.iter().map(move |key| (i, key)))
        .map(|(i, key)| Waiter::exclusive(&other, key, &format!("w{i}")))
        .collect();
    let asks = || waiters.iter().map(|waiter| Request::Acquire(waiter.request.clone())).collect();
    for (i, reply) in replies(&other, asks()).await.iter().enumerate() {
        match reply {
            Reply::Queued { ahead, .. } => assert_eq!(*ahead as usize, i / keys.len()),
            other => panic!("{other:?}"),
        }
    }
    let mut last: Vec<Fence> = vec![Fence(0); keys.len()];
    replies(&one, held.iter().map(|(key, token)| release(key, **token)).collect()).await;
    for round in 0..WAITERS {
        // All poll at the same time. For each key, the first of the remaining waiters gets the
        // lease.
        for (i, reply) in replies(&other, asks()).await.into_iter().enumerate().skip(round * keys.len()) {
            match reply {
                Reply::Acquired { fence, .. } if i / keys.len() == round => {
                    assert!(fence > last[i % keys.len()]);
                    last[i % keys.len()] = fence;
                }
                Reply::Queued { ahead, .. } => assert_eq!(ahead as usize, i / keys.len() - round - 1),
                other => panic!("round {round}, {i}: {other:?}"),
            }
        }
        // The waiters that have been served leave, and so do those that were served before and are
        // in the queue again.
        let done = waiters[..(round + 1) * keys.len()].iter().rev();
        replies(&other, done.map(|waiter| release(&waiter.request.key, waiter.request.token)).collect())
            .await;
    }
    for key in &keys {
        assert_eq!(info(&one, key).await, None);
    }
}
