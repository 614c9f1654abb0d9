//! Tests failovers: masters go away, and replicas take their place.

use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::{Absence, Reply, Request};

use crate::asking::{RENEWED, acquire, ask, fence, renew};
use crate::client::Client;
use crate::load::Load;
use crate::redis_cluster::{NODE_TIMEOUT, RedisCluster};
use crate::setup::{client, key_at, persist, run, until, within};
use crate::waiter::Waiter;

/// How long it may take to get a lock after the cluster serves again.
const SOON: Duration = Duration::from_secs(1);

fn is_master(cluster: &RedisCluster, node: usize) -> bool {
    let known: String = cluster.nodes[node].ask(&["INFO", "replication"]);
    let state: String = cluster.nodes[node].ask(&["CLUSTER", "INFO"]);
    known.contains("role:master") && state.contains("cluster_state:ok")
}

#[test]
fn a_manual_failover_loses_no_lease() {
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
        until("the load runs", || load.turns() > 3).await;
        let missed = clients[0].missed();
        // Redis gives up a failover after five seconds, and a busy machine can take that long.
        let mut asked_at: Option<Instant> = None;
        until("the replica is the master", || {
            if asked_at.is_none_or(|at| at.elapsed() > Duration::from_millis(5_500)) {
                cluster.nodes[3].run(&["CLUSTER", "FAILOVER"]);
                asked_at = Some(Instant::now());
            }
            is_master(&cluster, 3)
        })
        .await;
        let (reply, took) = persist(&clients[0], renew(&key, holder.request.token, 60_000)).await;
        assert_eq!(reply, RENEWED);
        assert!(took < SOON, "{took:?}");
        until("waiters get a notice to poll again", || clients[0].missed() > missed).await;
        holder.released().await;
        let fence = next.served().await;
        assert!(fence > last);
        last = fence;
        next.released().await;
        let before = load.turns();
        until("the load goes on", || load.turns() > before + 5).await;
        let gap = load.end().await;
        assert!(gap < Duration::from_secs(3), "no client got a lock for {gap:?}");
        let again = Waiter::exclusive(&clients[1], &key, "the last");
        assert!(again.granted().await > last);
    });
}

/// Returns the node's replication offset in bytes: what a master has sent, or a replica has
/// applied.
fn replicated(cluster: &RedisCluster, node: usize) -> u64 {
    let info: String = cluster.nodes[node].ask(&["INFO", "replication"]);
    let own = if info.contains("role:master") { "master_repl_offset:" } else { "slave_repl_offset:" };
    let offset = info.lines().find_map(|line| line.strip_prefix(own));
    offset.expect("an offset").trim().parse().expect("a number")
}

/// Kills the master of a lock. Returns the reply, and how much later than the cluster's own
/// failover it came.
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
    assert!(
        served - start >= Duration::from_millis(NODE_TIMEOUT / 2),
        "the replica took over too early for a failover"
    );
    (reply, back.saturating_duration_since(served))
}

#[test]
fn the_client_follows_a_dead_master_to_its_replica() {
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
        until("waiters get a notice to poll again", || client.missed() > missed).await;
        ask(&client, Request::Release { key: key.clone(), token, used: None }).await;
        assert!(fence(ask(&client, acquire(&key, other, 60_000)).await) > first);
    });
}

/// Redis replicates after it has answered, so a lease may be lost with its master. Its holder finds
/// that out, and the next lease still has a larger fence.
#[test]
fn a_lease_lost_with_its_master_is_reported_and_its_fence_is_not_used_again() {
    run(async {
        let cluster = RedisCluster::start(3, true);
        let client = client(&cluster.url());
        let key = key_at(&cluster, 0);
        let (token, other) = (Token::random(), Token::random());
        // The replica does not receive the lease: it has no connection, and makes none before it is
        // too late.
        let stalled = cluster.nodes[3].stall();
        cluster.nodes[0].run(&["CLIENT", "KILL", "TYPE", "replica"]);
        let first = fence(ask(&client, acquire(&key, token, 60_000)).await);
        cluster.nodes[0].kill();
        drop(stalled);
        let (reply, _) = persist(&client, renew(&key, token, 60_000)).await;
        assert_eq!(reply, Reply::NotHeld(Absence::Missing));
        assert!(fence(ask(&client, acquire(&key, other, 60_000)).await) > first);
    });
}
