//! Requests find their node.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use leasehold::lease::{Key, Token};
use leasehold::store::redis::{RedisAddress, RedisStore};
use leasehold::store::{Reply, Request, StoreErrorKind};

use crate::asking::{TIMEOUT, acquire, ask, inspect, release, renew};
use crate::client::Client;
use crate::redis_cluster::RedisCluster;
use crate::redis_server::RedisServer;
use crate::scene::{calls, client, key_at, persist, run, until, within};
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
        // Each answer is that of its own request: of each second lock somebody else is the holder.
        let mut batch = Vec::new();
        for (index, (key, token)) in locks.iter().enumerate() {
            batch.push(renew(key, if index % 2 == 0 { *token } else { Token::random() }, 60_000));
        }
        for (index, answer) in all(batch).await.into_iter().enumerate() {
            assert_eq!(matches!(answer, Ok(Reply::Renewed { .. })), index % 2 == 0, "{index}: {answer:?}");
        }
        // Requests on one key keep their order, whatever is asked of the others meanwhile.
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
        owner.tell(&["CONFIG", "RESETSTAT"]);
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

/// Where the server has it, what one waiter is told goes to one node, and not to all.
#[test]
fn a_hand_over_is_told_to_its_node_only() {
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
            server.tell(&["CONFIG", "RESETSTAT"]);
            holder.released().await;
            client.notices.granted(next.number()).await;
            assert_eq!(client.notices.fences_of(next.number()).len(), 1, "it is told its fence");
            let [expected, other] =
                if cluster.is_old() { ["publish", "spublish"] } else { ["spublish", "publish"] };
            assert_eq!((calls(server, expected), calls(server, other)), (1, 0));
        }
    });
}

#[test]
fn a_lock_keeps_its_slot_whatever_braces_are_in_its_name() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        let client = client(&cluster.url());
        for name in ["lock:a", "lock:a}b", "lock:{a}}b", "lock:{}a", "}lock:a{", "lock:{a"] {
            let key: Key = name.into();
            let owner = &cluster.nodes[cluster.owner_of(cluster.slot_of(name))];
            let before: usize = owner.ask(&["DBSIZE"]);
            let [holder, next] = ["the holder", "the next"].map(|who| Waiter::exclusive(&client, &key, who));
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
fn any_seed_that_is_up_will_do() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        // A port of which nothing is known but that nobody listens there.
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("redis-cluster://{nobody},localhost:{}", cluster.nodes[1].port());
        let client = client(&url);
        assert_eq!(ask(&client, Request::Ping).await, Reply::Ready);
        for node in 0..3 {
            ask(&client, acquire(&key_at(&cluster, node), Token::random(), 1_000)).await;
        }
        // Who was asked only for the way is not needed any more.
        let ours =
            |node: &RedisServer| node.ask::<String>(&["CLIENT", "LIST"]).matches("name=leasehold").count();
        until("each node has one connection", || cluster.nodes.iter().all(|node| ours(node) == 1)).await;
        client.store.clone().close().await;
        until("none has", || cluster.nodes.iter().all(|node| ours(node) == 0)).await;
    });
}

async fn refusal(client: &Client) -> (StoreErrorKind, String) {
    let error = within(client, 2_000, Request::Ping).await.unwrap_err();
    let other = within(client, 2_000, acquire(&"lock:a".into(), Token::random(), 1_000)).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_done, &error.message), (other.kind, false, &other.message));
    (error.kind, error.message.to_string())
}

#[test]
fn what_is_no_cluster_and_what_is_only_part_of_one_says_what_to_use() {
    run(async {
        let server = RedisServer::start(&[]);
        let (kind, said) = refusal(&client(&server.url().replace("redis:", "redis-cluster:"))).await;
        assert_eq!(kind, StoreErrorKind::Unsupported);
        assert!(said.contains("use redis:// in place of redis-cluster://"), "{said}");

        let node = RedisServer::start(&["cluster-enabled yes"]);
        let alone = Client::of(RedisStore::new(
            RedisAddress::parse(&node.url(), &leasehold::store::Access::default()).unwrap(),
        ));
        let (kind, said) = refusal(&alone).await;
        assert_eq!(kind, StoreErrorKind::Unsupported);
        assert!(said.contains("use redis-cluster:// in place of redis://"), "{said}");

        let (kind, said) = refusal(&client(&node.url().replace("redis:", "redis-cluster:"))).await;
        assert_eq!(kind, StoreErrorKind::Loading);
        assert!(said.contains("still being made"), "{said}");

        let nobody = "redis-cluster://user:secret@127.0.0.1:1,127.0.0.1:2";
        let (kind, said) = refusal(&client(nobody)).await;
        assert_eq!(kind, StoreErrorKind::Unreachable);
        assert!(said.contains("is the server up?") && !said.contains("secret"), "{said}");
    });
}

/// A master that is down and has no replica: its locks can't be had, and it is said at once.
#[test]
fn slots_that_nobody_serves_are_told_at_once() {
    run(async {
        let cluster = RedisCluster::start(3, false);
        cluster
            .nodes
            .iter()
            .for_each(|node| node.tell(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]));
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
        // Not even when nobody can be connected to is the way asked for more often than a few times a second.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        cluster.nodes[0].restart();
        let (reply, _) = persist(&client, renew(&kept, two, 60_000)).await;
        assert!(matches!(reply, Reply::Renewed { .. }));
        // Without what it knew; but it says so, and there is service.
        assert!(matches!(persist(&client, renew(&lost, one, 60_000)).await.0, Reply::NotHeld(_)));
        assert!(matches!(persist(&client, acquire(&lost, one, 60_000)).await.0, Reply::Acquired { .. }));
    });
}
