//! Tests slots that move while leases in them are held and renewed, and while clients wait for
//! them.

use std::time::Duration;

use leasehold::lease::{Fence, Key, Token};
use leasehold::store::{Reply, StoreErrorKind};

use crate::asking::{RENEWED, acquire, adopt, ask, fence, inspect, lease, release, renew, renew_block};
use crate::load::Load;
use crate::redis_cluster::RedisCluster;
use crate::setup::{calls, client, key_at, persist, run, until, within};
use crate::waiter::Waiter;

/// Returns a cluster, a lock of its first node, and the lock's slot. The tests move the slot to the
/// second node.
fn setup() -> (RedisCluster, Key, u16) {
    let cluster = RedisCluster::start(3, false);
    let key = key_at(&cluster, 0);
    let slot = cluster.slot_of(&key);
    (cluster, key, slot)
}

#[test]
fn a_lease_is_renewed_and_released_while_its_slot_moves() {
    run(async {
        let (cluster, key, slot) = setup();
        let client = client(&cluster.url());
        let (token, adopter) = (Token::random(), Token::random());
        let first = fence(ask(&client, acquire(&key, token, 60_000)).await);
        cluster.open_slot(slot, 0, 1);
        assert_eq!(ask(&client, renew(&key, token, 60_000)).await, RENEWED);
        while cluster.move_keys(slot, 0, 1, 10) > 0 {}
        // The keys are at a node that does not have the slot yet.
        assert_eq!(ask(&client, renew(&key, token, 60_000)).await, RENEWED);
        assert_eq!(lease(&client, &key).await.fence, Some(first));
        let Reply::Renewed { block: Some((block, 0)) } =
            ask(&client, renew_block(&key, token, 60_000, 5)).await
        else {
            panic!("no fences")
        };
        assert!(block > first);
        assert!(ask(&client, adopt(&key, token, adopter, 60_000)).await.is_adopted());
        assert_eq!(ask(&client, release(&key, adopter)).await, Reply::Released);
        cluster.close_slot(slot, 0, 1);
        let last = fence(ask(&client, acquire(&key, token, 60_000)).await);
        assert!(last.0 >= block.0 + 5, "{last:?} {block:?}");
        assert_eq!(cluster.nodes[1].ask::<String>(&["GET", &key]), token.to_string());
        assert_eq!(ask(&client, release(&key, token)).await, Reply::Released);
    });
}

/// Checks that a fence that is larger than the clock of the new node moves with the slot.
#[test]
fn fences_move_with_their_slot() {
    run(async {
        let (cluster, key, slot) = setup();
        let client = client(&cluster.url());
        let (one, two) = (Token::random(), Token::random());
        ask(&client, acquire(&key, one, 60_000)).await;
        let side = format!("{{{key}}}:fence");
        let ahead = 9_000_000_000_000_000_u64;
        cluster.nodes[0].run(&["SET", &side, &format!("{ahead} {one} x"), "PX", "3600000"]);
        assert_eq!(ask(&client, release(&key, one)).await, Reply::Released);
        cluster.move_slot(slot, 0, 1);
        assert_eq!(fence(ask(&client, acquire(&key, two, 60_000)).await), Fence(ahead + 1));
    });
}

#[test]
fn while_a_slot_moves_no_lock_is_granted_and_no_reply_is_wrong() {
    run(async {
        let (cluster, key, slot) = setup();
        let client = client(&cluster.url());
        let (holder, other) = (Token::random(), Token::random());
        ask(&client, acquire(&key, holder, 60_000)).await;
        let free: Key = format!("lock:free{{{key}}}").as_str().into();
        assert_eq!(cluster.slot_of(&free), slot);
        let moving = async |request| {
            let error = within(&client, 5_000, request).await.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Loading, false), "{error}");
            assert!(error.message.contains("being moved"), "{error}");
        };
        cluster.open_slot(slot, 0, 1);
        moving(acquire(&free, other, 60_000)).await;
        assert!(matches!(ask(&client, acquire(&key, other, 60_000)).await, Reply::Busy { .. }));
        // The second node has the lock, the first one still has its fence.
        cluster.move_these(&[&key], 0, 1);
        for request in
            [renew(&key, holder, 60_000), acquire(&key, other, 60_000), inspect(&key), release(&key, holder)]
        {
            moving(request).await;
        }
        cluster.move_these(&[&format!("{{{key}}}:fence")], 0, 1);
        assert_eq!(ask(&client, renew(&key, holder, 60_000)).await, RENEWED);
        moving(acquire(&key, other, 60_000)).await;
        // The client waits during a short move.
        cluster.close_slot(slot, 0, 1);
        assert!(matches!(ask(&client, acquire(&key, other, 60_000)).await, Reply::Busy { .. }));
        assert!(matches!(ask(&client, acquire(&free, other, 60_000)).await, Reply::Acquired { .. }));
        assert_eq!(ask(&client, renew(&key, holder, 60_000)).await, RENEWED);
    });
}

#[test]
fn waiters_are_served_in_order_after_their_slot_has_moved() {
    run(async {
        let (cluster, key, slot) = setup();
        let [one, two] = [client(&cluster.url()), client(&cluster.url())];
        let holder = Waiter::exclusive(&one, &key, "the holder");
        let mut last = holder.granted().await;
        let waiters = [&one, &two, &one].map(|client| Waiter::exclusive(client, &key, "a waiter"));
        for (ahead, waiter) in waiters.iter().enumerate() {
            assert_eq!(waiter.queued().await, ahead as u32);
        }
        let missed = [&one, &two].map(|client| client.missed());
        cluster.move_slot(slot, 0, 1);
        assert_eq!(persist(&one, renew(&key, holder.request.token, 60_000)).await.0, RENEWED);
        until("the client that found the slot moved notifies its waiters", || one.missed() > missed[0]).await;
        holder.released().await;
        for waiter in &waiters {
            let fence = waiter.served().await;
            assert!(fence > last);
            last = fence;
            waiter.released().await;
        }
    });
}

/// The channel of a connection lies in a slot of its node. When that slot moves, the server ends
/// the subscription between the replies.
#[test]
fn a_channel_whose_slot_moves_is_replaced_and_replies_stay_in_order() {
    run(async {
        let (cluster, _, _) = setup();
        if cluster.is_old() {
            return;
        }
        let client = client(&cluster.url());
        let keys: Vec<Key> = (0..40).map(|n| format!("lock:{n}").as_str().into()).collect();
        let tokens: Vec<Token> = keys.iter().map(|_| Token::random()).collect();
        for (key, token) in keys.iter().zip(&tokens) {
            ask(&client, acquire(key, *token, 60_000)).await;
        }
        for round in 0..6 {
            let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
            let channels: Vec<String> = cluster.nodes[from].ask(&["PUBSUB", "SHARDCHANNELS"]);
            let [channel] = &channels[..] else { panic!("a connection has one channel: {channels:?}") };
            let home = cluster.slot_of(channel);
            // Many small batches are under way during the move.
            let mut under_way = tokio::task::JoinSet::new();
            for _ in 0..5 {
                for (index, key) in keys.iter().enumerate() {
                    let token = if index % 2 == 0 { tokens[index] } else { Token::random() };
                    let (client, request) = (client.clone(), renew(key, token, 60_000));
                    under_way.spawn_local(async move { (index, within(&client, 2_000, request).await) });
                }
            }
            tokio::task::yield_now().await;
            let missed = client.missed();
            cluster.move_slot(home, from, to);
            let asked = || cluster.nodes.iter().map(|node| calls(node, "cluster|slots")).sum::<usize>();
            let before = asked();
            while let Some(call) = under_way.join_next().await {
                match call.unwrap() {
                    (index, Ok(reply)) => {
                        assert_eq!(reply == RENEWED, index % 2 == 0, "{index}: {reply:?}");
                    }
                    (_, Err(error)) => assert!(error.kind.is_transient(), "{error}"),
                }
            }
            until("waiters get a notice to poll again", || client.missed() > missed).await;
            until("the client asks for the map of slots", || asked() > before).await;
            for (key, token) in keys.iter().zip(&tokens) {
                assert_eq!(persist(&client, renew(key, *token, 60_000)).await.0, RENEWED);
            }
            until("there is a new channel", || {
                cluster.nodes[from]
                    .ask::<Vec<String>>(&["PUBSUB", "SHARDCHANNELS"])
                    .iter()
                    .all(|new| new != channel)
            })
            .await;
        }
    });
}

#[test]
fn live_resharding_loses_no_lease_and_keeps_the_order_of_waiters() {
    run(async {
        let (cluster, _, _) = setup();
        let clients = [client(&cluster.url()), client(&cluster.url()), client(&cluster.url())];
        let keys: Vec<Key> = (0..6).map(|n| format!("lock:{n}").as_str().into()).collect();
        let load = Load::begin(&clients, &keys);
        until("the load runs", || load.turns() > 3).await;
        let before = load.turns();
        for round in 1..=5 {
            for key in &keys {
                let slot = cluster.slot_of(key);
                let from = cluster.owner_of(slot);
                let to = (from + 1 + round % 2) % 3;
                cluster.open_slot(slot, from, to);
                // Move one key at a time: this is the worst case for locks that have several keys.
                loop {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    if cluster.move_keys(slot, from, to, 1) == 0 {
                        break;
                    }
                }
                cluster.close_slot(slot, from, to);
            }
        }
        until("the load goes on", || load.turns() > before + 20).await;
        let gap = load.end().await;
        assert!(gap < Duration::from_secs(3), "no client got a lock for {gap:?}");
    });
}
