//! Promises 5 to 7: every batch is answered, and nothing is left behind.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::engine::clock;
use leasehold::lease::{Key, Token};
use leasehold::store::{Absence, Reply, Request, Store};

use super::LONG;
use crate::fixture::*;

// 5. One answer each, in order.

pub async fn a_big_mixed_batch_is_answered_in_order(place: &dyn Fixture) {
    let store = place.open();
    assert!(answers(&store, vec![]).await.is_empty());
    let leases: Vec<(Key, Token)> = (0..500).map(|_| (fresh_key("k"), Token::random())).collect();
    let mut batch = Vec::new();
    for (key, token) in &leases {
        batch.push(Request::Ping);
        batch.push(acquire(key, *token, LONG));
        batch.push(renew(key, *token, LONG));
        batch.push(release(key, Token::random()));
        batch.push(inspect(key));
    }
    for of_a_key in replies(&store, batch).await.chunks(5) {
        let [Reply::Ready, Reply::Acquired { fence }, renewed, foreign, Reply::Inspected(Some(info))] =
            of_a_key
        else {
            panic!("out of order: {of_a_key:?}")
        };
        assert_eq!((renewed, foreign), (&Reply::Renewed, &Reply::NotHeld(Absence::Taken)));
        assert_eq!(info.fence, Some(*fence));
    }
    // Every other one is given back, in the opposite order.
    let (kept, gone): (Vec<_>, Vec<_>) = leases.iter().rev().enumerate().partition(|(i, _)| i % 2 == 0);
    let released = replies(&store, gone.iter().map(|(_, (k, t))| release(k, *t)).collect()).await;
    assert!(released.iter().all(|reply| *reply == Reply::Released));
    let still = replies(&store, kept.iter().map(|(_, (k, t))| renew(k, *t, LONG)).collect()).await;
    assert!(still.iter().all(|reply| *reply == Reply::Renewed));
    let free = replies(&store, gone.iter().map(|(_, (k, _))| inspect(k)).collect()).await;
    assert!(free.iter().all(|reply| *reply == Reply::Inspected(None)));
}

pub async fn repeated_keys_take_effect_in_order(place: &dyn Fixture) {
    let store = place.open();
    let (key, a, b) = (fresh_key("k"), Token::random(), Token::random());
    let replies = replies(
        &store,
        vec![
            acquire(&key, a, LONG),
            acquire(&key, b, LONG),
            release(&key, b),
            renew(&key, a, LONG),
            release(&key, a),
            renew(&key, a, LONG),
            acquire(&key, b, LONG),
            release(&key, a),
            acquire(&key, b, LONG),
            inspect(&key),
            release(&key, b),
            inspect(&key),
        ],
    )
    .await;
    let first = fence(replies[0].clone());
    let second = fence(replies[6].clone());
    assert!(second > first);
    assert!(matches!(replies[1], Reply::Busy { .. }));
    assert_eq!(replies[2], Reply::NotHeld(Absence::Taken));
    assert_eq!(replies[3], Reply::Renewed);
    assert_eq!(replies[4], Reply::Released);
    assert_eq!(replies[5], Reply::NotHeld(Absence::Missing));
    assert_eq!(replies[7], Reply::NotHeld(Absence::Taken));
    assert_eq!(fence(replies[8].clone()), second);
    assert!(matches!(&replies[9], Reply::Inspected(Some(info)) if info.fence == Some(second)));
    assert_eq!(replies[10], Reply::Released);
    assert_eq!(replies[11], Reply::Inspected(None));
}

pub async fn batches_under_way_together_are_all_answered(place: &dyn Fixture) {
    let stores = [place.open(), place.open()];
    let key = fresh_key("k");
    let batches = (0..40).map(|i| {
        let store: Rc<dyn Store> = stores[i % 2].clone();
        let batch = vec![acquire(&key, Token::random(), LONG), inspect(&key), Request::Ping];
        async move { replies(&store, batch).await }
    });
    let all = join_all(batches).await;
    let winners = all.iter().filter(|replies| matches!(replies[0], Reply::Acquired { .. })).count();
    assert_eq!(winners, 1);
    assert!(all.iter().all(|replies| matches!(replies[1], Reply::Inspected(Some(_)))));
}

pub async fn nothing_happens_before_the_first_poll(place: &dyn Fixture) {
    let store = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    drop(store.clone().execute(vec![acquire(&key, a, LONG)], TIMEOUT));
    assert_eq!(info(&store, &key).await, None);
    granted(&store, &key, Token::random(), LONG).await;
}

// 6. Nothing piles up.

pub async fn nothing_piles_up(place: &dyn Fixture) {
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
    // These run out, and nobody asks about them again; the store goes on being used for something else.
    let forgotten = (0..1000).map(|_| acquire(&fresh_key("k"), Token::random(), 10)).collect();
    replies(&store, forgotten).await;
    let start = clock::now();
    while place.traces().await > before {
        assert!(
            clock::now().since(start) < Duration::from_secs(20),
            "{} left",
            place.traces().await - before
        );
        let (key, token) = (fresh_key("k"), Token::random());
        granted(&store, &key, token, LONG).await;
        ask(&store, release(&key, token)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

// 7. It ends.

pub async fn it_ends_when_the_place_does_not_answer(place: &dyn Fixture) {
    let store = place.open();
    let key = fresh_key("k");
    ask(&store, Request::Ping).await;
    let Some(stalled) = place.stall() else { return };
    let tokens: Vec<Token> = (0..20).map(|_| Token::random()).collect();
    let timeout = Duration::from_millis(150);
    let before = clock::now();
    let batches = tokens.iter().map(|token| {
        let request = acquire(&key, *token, LONG);
        store.clone().execute(vec![request.clone(), Request::Ping, request], timeout)
    });
    let all = join_all(batches).await;
    let span = clock::now().since(before);
    assert!(span < timeout + Duration::from_millis(500), "answered after {span:?}");
    for answers in &all {
        assert_eq!(answers.len(), 3);
        let error = answers[0].as_ref().expect_err("nobody can have answered");
        assert!(error.kind.is_transient(), "{error:?}");
    }
    drop(stalled);
    // What may have been done is undone by its token; what was not done has left nothing.
    for (token, answers) in tokens.iter().zip(&all) {
        let maybe_done = answers[0].as_ref().is_err_and(|error| error.maybe_done);
        match ask(&store, release(&key, *token)).await {
            Reply::NotHeld(_) => {}
            Reply::Released => assert!(maybe_done, "carried out, though the error denied it"),
            other => panic!("{other:?}"),
        }
    }
    granted(&store, &key, Token::random(), LONG).await;
}

pub async fn it_ends_on_close(place: &dyn Fixture) {
    let store = place.open();
    granted(&store, &fresh_key("k"), Token::random(), LONG).await;
    tokio::time::timeout(Duration::from_secs(2), store.close()).await.expect("close ends");
    let unused = place.open();
    tokio::time::timeout(Duration::from_secs(2), unused.close()).await.expect("close ends");
}
