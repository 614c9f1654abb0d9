//! Tests promise 5: one answer for each request, in order.

use futures_util::future::join_all;
use leasehold::lease::{Fence, Key, Token};
use leasehold::store::{Absence, LockInfo, Reply, Request};

use super::LONG;
use crate::asking::*;
use crate::fixture::Fixture;

/// Checks the fence that an inspection in the same batch as the acquire shows. It is the fence of
/// the acquire, unless a node had another one and does not know the new one yet.
fn same_fence(place: &dyn Fixture, info: &LockInfo, fence: Fence) {
    let shown = info.leases[0].fence.expect("the lease has been taken up");
    assert!(shown == fence || shown > fence && !place.keeps_fences(), "{shown:?} shown of {fence:?}");
}

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
        same_fence(place, info, *fence);
    }
    // Release every other lease, in the opposite order.
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
    let (key, a, busy, b) = (fresh_key("k"), Token::random(), Token::random(), Token::random());
    let replies = replies(
        &store,
        vec![
            acquire(&key, a, LONG),
            acquire(&key, busy, LONG),
            release(&key, busy),
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
    let again = fence(replies[8].clone());
    assert!(again == second || again > second && !place.keeps_fences(), "{again:?} after {second:?}");
    let Reply::Inspected(Some(info)) = &replies[9] else { panic!("{:?}", replies[9]) };
    same_fence(place, info, again);
    assert_eq!(replies[10], Reply::Released);
    assert_eq!(replies[11], Reply::Inspected(None));
}

pub async fn batches_under_way_together_are_all_answered(place: &dyn Fixture) {
    let stores = [place.open(), place.open()];
    // Open one store after the other: the engine never lets two stores of a process create a lock
    // file at the same time.
    for store in &stores {
        assert_eq!(ask(store, Request::Ping).await, Reply::Ready);
    }
    let key = fresh_key("k");
    let tokens: Vec<Token> = (0..40).map(|_| Token::random()).collect();
    let batches = tokens.iter().enumerate().map(|(i, token)| {
        let batch = vec![acquire(&key, *token, LONG), inspect(&key), Request::Ping];
        answers(&stores[i % 2], batch)
    });
    let mut all = Vec::new();
    for answers in join_all(batches).await {
        all.push(answers.into_iter().map(|answer| answer.expect("the store answers")).collect::<Vec<_>>());
    }
    let count = |what: fn(&Reply) -> bool| all.iter().filter(|replies| what(&replies[0])).count();
    let (winners, busy) =
        (count(|r| matches!(r, Reply::Acquired { .. })), count(|r| matches!(r, Reply::Busy { .. })));
    let split = count(|r| *r == Reply::Split);
    assert_eq!(winners + busy + split, all.len());
    // If the nodes get requests in different orders, it may be that no client has a majority.
    assert!(
        winners == 1 || winners == 0 && split > 0 && !place.has_one_order(),
        "{winners} hold it, {split} split"
    );
    let held = |replies: &Vec<Reply>| matches!(replies[1], Reply::Inspected(Some(_)));
    assert!(winners == 0 || all.iter().all(held));
    assert!(all.iter().all(|replies| replies[2] == Reply::Ready));
    for (i, token) in tokens.iter().enumerate() {
        ask(&stores[i % 2], release(&key, *token)).await;
    }
    granted_in_the_end(&stores[0], &key).await;
}

pub async fn nothing_happens_before_the_first_poll(place: &dyn Fixture) {
    let client = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    drop(client.store.clone().execute(vec![acquire(&key, a, LONG)], TIMEOUT));
    assert_eq!(info(&client, &key).await, None);
    granted(&client, &key, Token::random(), LONG).await;
}
