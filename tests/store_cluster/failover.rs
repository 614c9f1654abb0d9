//! Masters go, and replicas take their place.

use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::{Absence, Reply, Request};

use crate::asking::{RENEWED, acquire, ask, fence, renew};
use crate::client::Client;
use crate::load::Load;
use crate::redis_cluster::{NODE_TIMEOUT, RedisCluster};
use crate::scene::{client, key_at, persist, run, until, within};
use crate::waiter::Waiter;

/// How long after the cluster serves again a lock may be had again at the latest.
const SOON: Duration = Duration::from_secs(1);

fn is_master(cluster: &RedisCluster, node: usize) -> bool {
    let known: String = cluster.nodes[node].ask(&["INFO", "replication"]);
    let state: String = cluster.nodes[node].ask(&["CLUSTER", "INFO"]);
    known.contains("role:master") && state.contains("cluster_state:ok")
}

#[test]
fn a_failover_by_hand_loses_nothing() {
    run(async {
        let cluster = RedisCluster::start(3, true);
        let clients = [client(&cluster.url()), client(&cluster.url())];
        let key = key_at(&cluster, 0);
        let holder = Waiter::exclusive(&clients[0], &key, "the holder");
        let mut last = holder.granted().await;
        let next = Waiter::exclusive(&clients[1], &key, "the next");
        assert_eq!(next.queued().await, 0);
        let others =
            [key_at(&cluster, 0), key_at(&cluster, 1)].map(|key| format!("{key}:load").as_str().into());
        let load = Load::begin(&clients, &others);
        until("it runs", || load.turns() > 3).await;
        let missed = clients[0].missed();
        // Redis gives one up after five seconds, which a busy machine can take.
        let mut told: Option<Instant> = None;
        until("the replica is the master", || {
            if told.is_none_or(|told| told.elapsed() > Duration::from_millis(5_500)) {
                cluster.nodes[3].tell(&["CLUSTER", "FAILOVER"]);
                told = Some(Instant::now());
            }
            is_master(&cluster, 3)
        })
        .await;
        let (reply, took) = persist(&clients[0], renew(&key, holder.wants.token, 60_000)).await;
        assert_eq!(reply, RENEWED);
        assert!(took < SOON, "{took:?}");
        until("who waits is told to look again", || clients[0].missed() > missed).await;
        holder.released().await;
        let fence = next.served().await;
        assert!(fence > last);
        last = fence;
        next.released().await;
        let before = load.turns();
        until("it runs on", || load.turns() > before + 5).await;
        let gap = load.end().await;
        assert!(gap < Duration::from_secs(3), "nobody got a lock for {gap:?}");
        let again = Waiter::exclusive(&clients[1], &key, "the last");
        assert!(again.granted().await > last);
    });
}

/// Returns the node's replication offset in bytes: what a master has sent, or a replica has applied.
fn replicated(cluster: &RedisCluster, node: usize) -> u64 {
    let told: String = cluster.nodes[node].ask(&["INFO", "replication"]);
    let own = if told.contains("role:master") { "master_repl_offset:" } else { "slave_repl_offset:" };
    let offset = told.lines().find_map(|line| line.strip_prefix(own));
    offset.expect("an offset").trim().parse().expect("a number")
}

/// Kills the master of a lock and returns how much later than the cluster's own failover the lock could be had.
async fn lose_master(cluster: &RedisCluster, client: &Client, request: &Request) -> (Reply, Duration) {
    cluster.nodes[0].kill();
    let start = Instant::now();
    let mut served = None;
    let mut outcome = None;
    while outcome.is_none() || served.is_none() {
        assert!(start.elapsed() < Duration::from_secs(30), "no failover");
        if served.is_none() && is_master(cluster, 3) {
            served = Some(Instant::now());
        }
        if outcome.is_none() {
            match within(client, 1_000, request.clone()).await {
                Ok(reply) => outcome = Some((reply, Instant::now())),
                Err(error) => assert!(error.kind.is_transient(), "{error}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    let ((reply, back), served) = (outcome.unwrap(), served.unwrap());
    eprintln!("failover {:?}, service {:?} after the kill", served - start, back - start);
    assert!(served - start >= Duration::from_millis(NODE_TIMEOUT / 2), "it was a failover");
    (reply, back.saturating_duration_since(served))
}

#[test]
fn a_master_that_dies_is_followed_to_its_replica() {
    run(async {
        let cluster = RedisCluster::start(3, true);
        let client = client(&cluster.url());
        let key = key_at(&cluster, 0);
        let (token, other) = (Token::random(), Token::random());
        let first = fence(ask(&client, acquire(&key, token, 60_000)).await);
        // WAIT would return at once: it covers only writes of its own connection, which made none.
        let written = replicated(&cluster, 0);
        until("the replica has the lease", || replicated(&cluster, 3) >= written).await;
        let missed = client.missed();
        let (reply, late) = lose_master(&cluster, &client, &renew(&key, token, 60_000)).await;
        assert_eq!(reply, RENEWED);
        assert!(late < SOON, "{late:?}");
        until("who waits is told to look again", || client.missed() > missed).await;
        ask(&client, Request::Release { key: key.clone(), token, used: None }).await;
        assert!(fence(ask(&client, acquire(&key, other, 60_000)).await) > first);
    });
}

/// Redis replicates behind the answer's back: a lease may be lost with its master. Its holder is told, and whoever comes next
/// has a larger fence all the same.
#[test]
fn a_lease_that_was_lost_with_its_master_is_told_and_its_fence_is_not_given_again() {
    run(async {
        let cluster = RedisCluster::start(3, true);
        let client = client(&cluster.url());
        let key = key_at(&cluster, 0);
        let (token, other) = (Token::random(), Token::random());
        // The replica does not hear of the lease: it has no connection, and makes no other before it is too late.
        let deaf = cluster.nodes[3].stall();
        cluster.nodes[0].tell(&["CLIENT", "KILL", "TYPE", "replica"]);
        let first = fence(ask(&client, acquire(&key, token, 60_000)).await);
        cluster.nodes[0].kill();
        drop(deaf);
        let (reply, _) = persist(&client, renew(&key, token, 60_000)).await;
        assert_eq!(reply, Reply::NotHeld(Absence::Missing));
        assert!(fence(ask(&client, acquire(&key, other, 60_000)).await) > first);
    });
}
