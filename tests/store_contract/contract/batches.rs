//! Promise 5, one answer each, in order.

use futures_util::future::join_all;
use leasehold::lease::{Key, Token};
use leasehold::store::{Absence, Reply, Request};

use super::LONG;
use crate::asking::*;
use crate::fixture::Fixture;

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
        let [Reply::Ready, Reply::Acquired { fence, .. }, renewed, foreign, Reply::Inspected(Some(info))] =
            of_a_key
        else {
            panic!("out of order: {of_a_key:?}")
        };
        assert_eq!((renewed, foreign), (&RENEWED, &Reply::NotHeld(Absence::Taken)));
        assert_eq!(info.leases[0].fence, Some(*fence));
    }
    // Every other one is given back, in the opposite order.
    let (kept, gone): (Vec<_>, Vec<_>) = leases.iter().rev().enumerate().partition(|(i, _)| i % 2 == 0);
    let released = replies(&store, gone.iter().map(|(_, (k, t))| release(k, *t)).collect()).await;
    assert!(released.iter().all(|reply| *reply == Reply::Released));
    let still = replies(&store, kept.iter().map(|(_, (k, t))| renew(k, *t, LONG)).collect()).await;
    assert!(still.iter().all(|reply| *reply == RENEWED));
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
    assert_eq!(replies[3], RENEWED);
    assert_eq!(replies[4], Reply::Released);
    assert_eq!(replies[5], Reply::NotHeld(Absence::Missing));
    assert_eq!(replies[7], Reply::NotHeld(Absence::Taken));
    assert_eq!(fence(replies[8].clone()), second);
    assert!(matches!(&replies[9], Reply::Inspected(Some(info)) if info.leases[0].fence == Some(second)));
    assert_eq!(replies[10], Reply::Released);
    assert_eq!(replies[11], Reply::Inspected(None));
}

pub async fn batches_under_way_together_are_all_answered(place: &dyn Fixture) {
    let stores = [place.open(), place.open()];
    let key = fresh_key("k");
    let batches = (0..40).map(|i| {
        let store = stores[i % 2].clone();
        let batch = vec![acquire(&key, Token::random(), LONG), inspect(&key), Request::Ping];
        async move { replies(&store, batch).await }
    });
    let all = join_all(batches).await;
    let winners = all.iter().filter(|replies| matches!(replies[0], Reply::Acquired { .. })).count();
    assert_eq!(winners, 1);
    assert!(all.iter().all(|replies| matches!(replies[1], Reply::Inspected(Some(_)))));
}

pub async fn nothing_happens_before_the_first_poll(place: &dyn Fixture) {
    let client = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    drop(client.store.clone().execute(vec![acquire(&key, a, LONG)], TIMEOUT));
    assert_eq!(info(&client, &key).await, None);
    granted(&client, &key, Token::random(), LONG).await;
}
