//! Tests how requests find their node.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use leasehold::lease::{Key, Token};
use leasehold::store::redis::{RedisAddress, RedisStore};
use leasehold::store::{Reply, Request, StoreErrorKind};

use crate::asking::{TIMEOUT, acquire, ask, inspect, release, renew};
use crate::client::Client;
use crate::redis_cluster::RedisCluster;
use crate::redis_server::RedisServer;
use crate::setup::{calls, client, key_at, persist, run, until, within};
use crate::waiter::Waiter;

#[test]
fn a_batch_goes_to_all_masters_and_is_answered_in_its_order() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        let client = client(&cluster.url());
        let locks: Vec<(Key, Token)> =
            (0..300).map(|n| (format!("lock:{n}").into(), Token::random())).collect();
        let all = async |batch| client.store.clone().execute(batch, TIMEOUT).await;
        let mut fences = HashSet::new();
        let answers = all(locks.iter().map(|(key, token)| acquire(key, *token, 60_000)).collect()).await;
        for (index, answer) in answers.into_iter().enumerate() {
            let Ok(Reply::Acquired { fence, .. }) = answer else { panic!("{answer:?}") };
            fences.insert((index, fence));
        }
        for node in &cluster.nodes {
            assert!(node.ask::<usize>(&["DBSIZE"]) > 100, "a third of 600 keys");
        }
        // Each answer belongs to its own request: every second lock has another holder.
        let mut batch = Vec::new();
        for (index, (key, token)) in locks.iter().enumerate() {
            batch.push(renew(key, if index % 2 == 0 { *token } else { Token::random() }, 60_000));
        }
        for (index, answer) in all(batch).await.into_iter().enumerate() {
            assert_eq!(matches!(answer, Ok(Reply::Renewed { .. })), index % 2 == 0, "{index}: {answer:?}");
        }
        // Requests for one key keep their order, even with requests for other keys between them.
        let mut batch = Vec::new();
        for (key, token) in &locks {
            batch.extend([release(key, *token), acquire(key, Token::random(), 60_000)]);
        }
        for (index, pair) in all(batch).await.chunks(2).enumerate() {
            assert!(
                matches!(pair, [Ok(Reply::Released), Ok(Reply::Acquired { fence, .. })] if fences.insert((index, *fence))),
                "{pair:?}"
            );
        }
    });
}

#[test]
fn locks_of_one_slot_share_a_call() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        let client = client(&cluster.url());
        let owner = &cluster.nodes[cluster.owner_of(cluster.slot_of("x{jobs}"))];
        ask(&client, inspect(&"{jobs}".into())).await;
        owner.run(&["CONFIG", "RESETSTAT"]);
        let locks: Vec<(Key, Token)> =
            (0..50).map(|n| (format!("lock:{{jobs}}:{n}").into(), Token::random())).collect();
        let batch = locks.iter().map(|(key, token)| acquire(key, *token, 60_000)).collect();
        assert!(client.store.clone().execute(batch, TIMEOUT).await.iter().all(Result::is_ok));
        assert_eq!(calls(owner, "evalsha"), 1);
        let batch = locks.iter().map(|(key, token)| release(key, *token)).collect();
        let answers = client.store.clone().execute(batch, TIMEOUT).await;
        assert!(answers.iter().all(|answer| *answer.as_ref().unwrap() == Reply::Released), "{answers:?}");
        assert_eq!(calls(owner, "evalsha"), 2);
    });
}

/// Checks that a notice to one waiter goes to one node and not to all, if the server supports that.
#[test]
fn the_notice_of_a_hand_over_goes_to_its_node_only() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        let client = client(&cluster.url());
        for node in 0..3 {
            let key = key_at(&cluster, node);
            let server = &cluster.nodes[node];
            let holder = Waiter::exclusive(&client, &key, "the holder");
            holder.granted().await;
            let next = Waiter::exclusive(&client, &key, "the next");
            assert_eq!(next.queued().await, 0);
            server.run(&["CONFIG", "RESETSTAT"]);
            holder.released().await;
            client.notices.granted(next.number()).await;
            assert_eq!(client.notices.fences_of(next.number()).len(), 1, "the notice has the fence");
            let [expected, other] =
                if cluster.is_old() { ["publish", "spublish"] } else { ["spublish", "publish"] };
            assert_eq!((calls(server, expected), calls(server, other)), (1, 0));
        }
    });
}

#[test]
fn a_lock_with_braces_in_its_name_has_one_slot() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        let client = client(&cluster.url());
        for name in ["lock:a", "lock:a}b", "lock:{a}}b", "lock:{}a", "}lock:a{", "lock:{a"] {
            let key: Key = name.into();
            let owner = &cluster.nodes[cluster.owner_of(cluster.slot_of(name))];
            let before: usize = owner.ask(&["DBSIZE"]);
            let [holder, next] =
                ["the holder", "the next"].map(|name| Waiter::exclusive(&client, &key, name));
            holder.granted().await;
            assert_eq!(next.queued().await, 0, "{name}");
            assert_eq!(owner.ask::<usize>(&["DBSIZE"]), before + 5, "{name}: its fence and queue are there");
            holder.released().await;
            client.notices.granted(next.number()).await;
            next.granted().await;
            next.released().await;
        }
    });
}

#[test]
fn one_seed_that_is_up_is_enough() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        // A port where no server listens.
        let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("redis-cluster://{closed_port},localhost:{}", cluster.nodes[1].port());
        let client = client(&url);
        assert_eq!(ask(&client, Request::Ping).await, Reply::Ready);
        for node in 0..3 {
            ask(&client, acquire(&key_at(&cluster, node), Token::random(), 1_000)).await;
        }
        // The client does not keep the connection with which it asked for the map of slots.
        let ours =
            |node: &RedisServer| node.ask::<String>(&["CLIENT", "LIST"]).matches("name=leasehold").count();
        until("each node has one connection", || cluster.nodes.iter().all(|node| ours(node) == 1)).await;
        client.store.clone().close().await;
        until("no node has a connection", || cluster.nodes.iter().all(|node| ours(node) == 0)).await;
    });
}

async fn refusal(client: &Client) -> (StoreErrorKind, String) {
    let error = within(client, 2_000, Request::Ping).await.unwrap_err();
    let other = within(client, 2_000, acquire(&"lock:a".into(), Token::random(), 1_000)).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_done, &error.message), (other.kind, false, &other.message));
    (error.kind, error.message.to_string())
}

#[test]
fn a_server_without_a_cluster_and_an_incomplete_cluster_say_what_to_use() {
    run(async {
        let server = RedisServer::start(&[]);
        let (kind, message) = refusal(&client(&server.url().replace("redis:", "redis-cluster:"))).await;
        assert_eq!(kind, StoreErrorKind::Unsupported);
        assert!(message.contains("use redis:// in place of redis-cluster://"), "{message}");

        let node = RedisServer::start(&["cluster-enabled yes"]);
        let alone = Client::of(RedisStore::new(
            RedisAddress::parse(&node.url(), &leasehold::store::Access::default()).unwrap(),
        ));
        let (kind, message) = refusal(&alone).await;
        assert_eq!(kind, StoreErrorKind::Unsupported);
        assert!(message.contains("use redis-cluster:// in place of redis://"), "{message}");

        let (kind, message) = refusal(&client(&node.url().replace("redis:", "redis-cluster:"))).await;
        assert_eq!(kind, StoreErrorKind::Loading);
        assert!(message.contains("still being made"), "{message}");

        let closed_ports = "redis-cluster://user:secret@127.0.0.1:1,127.0.0.1:2";
        let (kind, message) = refusal(&client(closed_ports)).await;
        assert_eq!(kind, StoreErrorKind::Unreachable);
        assert!(message.contains("is the server up?") && !message.contains("secret"), "{message}");
    });
}

/// Checks a master that is down and has no replica: requests for its locks fail at once.
#[test]
fn requests_for_slots_without_a_node_fail_at_once() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        cluster
            .nodes
            .iter()
            .for_each(|node| node.run(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]));
        let client = client(&cluster.url());
        assert_eq!(ask(&client, Request::Ping).await, Reply::Ready);
        let [lost, kept] = [0, 1].map(|node| key_at(&cluster, node));
        let (one, two) = (Token::random(), Token::random());
        for (key, token) in [(&lost, one), (&kept, two)] {
            ask(&client, acquire(key, token, 60_000)).await;
        }
        cluster.nodes[0].kill();
        let start = Instant::now();
        let answers = client
            .store
            .clone()
            .execute(vec![renew(&lost, one, 60_000), renew(&kept, two, 60_000)], TIMEOUT)
            .await;
        assert!(matches!(answers[1], Ok(Reply::Renewed { .. })), "{answers:?}");
        for _ in 0..20 {
            let error = within(&client, 5_000, acquire(&lost, Token::random(), 1_000)).await.unwrap_err();
            assert!(error.kind.is_transient() && !error.maybe_done, "{error}");
            let error = within(&client, 5_000, Request::Ping).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unreachable, "{error}");
        }
        // Even if no connection can be made, the client asks for the map of slots only a few times
        // a second.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        cluster.nodes[0].restart();
        let (reply, _) = persist(&client, renew(&kept, two, 60_000)).await;
        assert!(matches!(reply, Reply::Renewed { .. }));
        // The restarted master has lost its leases. It says so, and grants new ones.
        assert!(matches!(persist(&client, renew(&lost, one, 60_000)).await.0, Reply::NotHeld(_)));
        assert!(matches!(persist(&client, acquire(&lost, one, 60_000)).await.0, Reply::Acquired { .. }));
    });
}
