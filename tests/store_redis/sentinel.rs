//! Tests Sentinel: the client finds the master, and follows a failover.

use std::net::TcpListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Access, Notice, Reply, Request, Store, StoreErrorKind};
use rustix::process::Signal;

use crate::ask::{Notices, acquire, ask, fence, granted, info, queue, queued, refused, release, run, within};
use crate::group::{Group, NAME, Sentinel, delaying_proxy, fake_sentinel, until_in_time};
use crate::server::{Server, is_old, store, store_with};

fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn the_master_is_found_by_any_sentinel_that_answers() {
    run(async {
        let master = Server::start(&["--requirepass", "hunter2-secret"]);
        // The sentinel does not know the master's password, so it considers the master dead after
        // 0.5 s. A single sentinel begins no failover.
        let sentinel = Sentinel::start(&master, 2, "");
        let url = |places: &str, name: &str| format!("redis-sentinel://:hunter2-secret@{places}/{name}");
        // One sentinel is down, one hangs, and one answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let places =
            format!("127.0.0.1:{},{},{}", closed_port(), silent.local_addr().unwrap(), sentinel.place());
        let store_there = store(&url(&places, NAME));
        let began = Instant::now();
        granted(&store_there, "lock:a", Token::random()).await;
        // The silent sentinel might lead a failover, so the first grant waits up to 0.5 s for it.
        assert!(began.elapsed() < Duration::from_millis(800), "{:?}", began.elapsed());
        assert_eq!(master.command(&["GET", "lock:a"]), "-NOAUTH Authentication required.");

        let error = refused(&store(&url(&sentinel.place(), "another")), Request::Ping).await;
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unsupported, false), "{error}");
        assert!(error.message.contains("no master of the name \"another\""), "{error}");
        assert!(!error.message.contains("hunter2"), "{error}");
    });
}

#[test]
fn missing_sentinels_are_unreachable_and_other_servers_are_reported() {
    run(async {
        let ports = [closed_port(), closed_port()];
        let url = format!("redis-sentinel://127.0.0.1:{},127.0.0.1:{}/{NAME}", ports[0], ports[1]);
        let error = refused(&store(&url), Request::Ping).await;
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreachable, false), "{error}");
        assert!(error.message.starts_with(&url) && error.message.contains("no sentinel"), "{error}");
        for port in ports {
            assert!(error.message.contains(&format!("127.0.0.1:{port} can't be reached")), "{error}");
        }
        let server = Server::start(&[]);
        let url = format!("redis-sentinel://127.0.0.1:{}/{NAME}", server.port());
        let error = refused(&store(&url), Request::Ping).await;
        assert_eq!(error.kind, StoreErrorKind::Unsupported, "{error}");
        assert!(error.message.contains("is no Sentinel"), "{error}");
    });
}

#[test]
fn a_sentinel_may_have_its_own_password() {
    run(async {
        let master = Server::start(&[]);
        let sentinel = Sentinel::start(&master, 1, "hunter2-sentinel");
        let url = format!("redis-sentinel://{}/{NAME}", sentinel.place());
        let with = |password: Option<&str>| {
            let sentinel_password = password.map(str::to_owned);
            store_with(&url, &Access { sentinel_password, ..Access::default() })
        };
        assert_eq!(ask(&with(Some("hunter2-sentinel")), Request::Ping).await, Reply::Ready);
        for (password, part) in
            [(None, "give one as sentinelPassword"), (Some("hunter2"), "check sentinelUsername")]
        {
            let error = refused(&with(password), Request::Ping).await;
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Denied, false), "{error}");
            assert!(error.message.contains(part) && !error.message.contains("hunter2"), "{error}");
        }
    });
}

#[test]
fn a_replica_and_a_missing_server_in_place_of_the_master_are_reported() {
    run(async {
        let master = Server::start(&[]);
        let replica = Server::replica_of(&master);
        let unused_port = closed_port();
        for (port, kind, part) in [
            (replica.port(), StoreErrorKind::ReadOnly, "but it is a replica"),
            (unused_port, StoreErrorKind::Unreachable, "can't be reached"),
        ] {
            let began = Instant::now();
            let url = format!("redis-sentinel://{}/{NAME}", fake_sentinel(port));
            let error = within(&store(&url), 1_000, Request::Ping).await.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (kind, false), "{error}");
            assert!(error.message.contains(part), "{error}");
            assert!(
                error.message.contains(&format!("name 127.0.0.1:{port} as the master \"{NAME}\"")),
                "{error}"
            );
            assert!(began.elapsed() < Duration::from_millis(950), "{:?}", began.elapsed());
        }
        // The server accepts connections and hangs.
        replica.signal(Signal::STOP);
        let url = format!("redis-sentinel://{}/{NAME}", fake_sentinel(replica.port()));
        let error = within(&store(&url), 5_000, Request::Ping).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "{error}");
        assert!(error.message.contains("as the master"), "{error}");
        replica.signal(Signal::CONT);
    });
}

#[test]
fn a_failover_is_followed_at_once_and_replicated_leases_are_kept() {
    run(async {
        let mut group = Group::start();
        let (a, b) = (group.store(), group.store());
        let mut notices = Notices::of(&b);
        let (one, two) = (Token::random(), Token::random());
        let first = granted(&a, "lock:a", one).await;
        assert_eq!(queued(ask(&b, queue("lock:a", two, 1)).await), (0, true));
        group.heard_by(2).await;
        let old = group.servers[0].port();
        // The replicas have the lease.
        assert_eq!(group.servers[0].command(&["WAIT", "2", "5000"]), "2");
        group.servers[0].kill();
        let promoted = group.promoted(old).await.port();
        let switched = Instant::now();
        assert_eq!(notices.next().await, Notice::Missed);
        let known = info(&b, "lock:a").await.expect("the lock is still held");
        assert_eq!(known.fence, Some(first));
        assert_eq!(queued(ask(&b, queue("lock:a", two, 2)).await), (0, true));
        assert_eq!(ask(&a, crate::ask::renew("lock:a", one, 60_000)).await, crate::ask::RENEWED);
        assert_eq!(ask(&a, crate::ask::release("lock:a", one)).await, Reply::Released);
        assert!(switched.elapsed() < Duration::from_secs(1), "{:?}", switched.elapsed());
        // The notice arrives over the new connection.
        let (number, notified_fence) = loop {
            match notices.next().await {
                Notice::Granted { number, fence } => break (number, fence),
                Notice::Missed
                | Notice::Moved
                | Notice::Lost(_)
                | Notice::Breaker(_)
                | Notice::Availability(_) => {}
            }
        };
        assert_eq!(number, 2);
        assert!(notified_fence.unwrap() > first);
        assert_ne!(promoted, old);
    });
}

#[test]
fn a_live_master_that_is_deposed_is_not_used_any_more() {
    run(async {
        let group = Group::start();
        let store = group.store();
        let mut notices = Notices::of(&store);
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        group.heard_by(1).await;
        let old = group.servers[0].port();
        // The old master does not notice anything: without the sentinels, the client would use it
        // for ever.
        group.servers[0].signal(Signal::STOP);
        let promoted = group.promoted(old).await;
        // The sentinels name the new master as soon as they have chosen it, and publish that when
        // the replicas follow it.
        assert_eq!(notices.next().await, Notice::Missed);
        let began = Instant::now();
        let other = Token::random();
        fence(within(&store, 1_000, acquire("lock:b", other, 60_000)).await.unwrap());
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(promoted.command(&["GET", "lock:b"]), other.to_string());
        group.servers[0].signal(Signal::CONT);
    });
}

#[test]
fn the_client_listens_to_all_sentinels_although_the_url_names_one() {
    run(async {
        let group = Group::start();
        let url = format!("redis-sentinel://{}/{NAME}", group.sentinels[2].place());
        let store = store(&url);
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
        group.heard_by(1).await;
        // The client listens again to a sentinel that was lost and comes back.
        let clients = group.sentinels[0].command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_ne!(clients, "0");
        group.heard_by(1).await;
    });
}

#[test]
fn the_client_listens_to_a_sentinel_that_comes_later() {
    run(async {
        let mut group = Group::start();
        let store = group.store();
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
        group.heard_by(1).await;
        group.sentinels.push(Sentinel::start(&group.servers[0], 2, ""));
        group.heard_by(1).await;
    });
}

#[test]
fn a_user_with_only_the_channel_of_the_switch_gets_its_notices() {
    run(async {
        let master = Server::start(&[]);
        let user =
            "user watcher on >hunter2 resetchannels &+switch-master -@all +auth +hello +sentinel +subscribe";
        let sentinel = Sentinel::configured(&master, 1, &format!("port {{port}}\n{user}"));
        let access = Access {
            sentinel_username: Some("watcher".into()),
            sentinel_password: Some("hunter2".into()),
            ..Access::default()
        };
        let store = store_with(&format!("redis-sentinel://{}/{NAME}", sentinel.place()), &access);
        granted(&store, "lock:a", Token::random()).await;
        let listens = || sentinel.command(&["CLIENT", "LIST"]).contains(" sub=1 ");
        until_in_time("a listener", listens).await;
        // The client does not connect again and again because other channels are denied.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert!(listens());
        assert_eq!(sentinel.command(&["CLIENT", "LIST"]).matches("user=watcher").count(), 1);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn the_new_master_is_used_at_once_although_all_servers_have_the_same_port() {
    run(async {
        let group = Group::start_on_one_port();
        let store = group.store();
        granted(&store, "lock:a", Token::random()).await;
        group.heard_by(1).await;
        let leader = &group.sentinels[0];
        group.fail_over();
        until_in_time("the promotion", || leader.master_host() != group.servers[0].host()).await;
        let token = Token::random();
        until_granted(&store, "lock:b", token).await;
        // The other replica still has to follow the new master, which takes about a second.
        assert!(leader.knows("flags").contains("failover_in_progress"), "the failover is over");
        let host = leader.master_host();
        let promoted = group.servers.iter().find(|server| server.host() == host).unwrap();
        assert_eq!(promoted.command(&["GET", "lock:b"]), token.to_string());
    });
}

/// Asks for the lock until it is granted.
async fn until_granted(store: &Rc<RedisStore>, key: &str, token: Token) {
    while within(store, 3_000, acquire(key, token, 60_000)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a client that has subscribed at the sentinel has asked about a failover.
async fn until_asked(sentinel: &Sentinel) {
    // A server before 7.0 does not name the subcommand.
    let question = if is_old() { " cmd=sentinel " } else { " cmd=sentinel|get-master-addr-by-name " };
    let is_asked = || sentinel.subscribers().iter().any(|client| client.contains(question));
    until_in_time("a question about a failover", is_asked).await;
}

#[test]
fn the_client_listens_to_a_distant_sentinel_and_grants_do_not_wait_for_it() {
    run(async {
        let master = Server::start(&[]);
        let sentinel = Sentinel::start(&master, 1, "");
        let place = delaying_proxy(sentinel.port(), Duration::from_millis(70));
        let store = store(&format!("redis-sentinel://{place}/{NAME}"));
        let began = Instant::now();
        granted(&store, "lock:a", Token::random()).await;
        // Finding the master takes a round trip, and the first grant waits up to 0.5 s.
        assert!(began.elapsed() < Duration::from_millis(1_000), "{:?}", began.elapsed());
        until_asked(&sentinel).await;
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        granted(&store, "lock:b", Token::random()).await;
    });
}

#[test]
fn a_sentinel_without_an_id_is_asked_when_it_comes_back() {
    run(async {
        let master = Server::start(&[]);
        // A sentinel before 6.2 returns no id either.
        let user = "user watcher on >hunter2 allchannels -@all +auth +hello +subscribe +sentinel|master \
                    +sentinel|get-master-addr-by-name +sentinel|sentinels";
        let start = || Sentinel::configured(&master, 1, &format!("port {{port}}\n{user}"));
        let (sentinel, other) = (start(), start());
        let access = Access {
            sentinel_username: Some("watcher".into()),
            sentinel_password: Some("hunter2".into()),
            ..Access::default()
        };
        sentinel.signal(Signal::STOP);
        let places = format!("{},{}", sentinel.place(), other.place());
        let store = store_with(&format!("redis-sentinel://{places}/{NAME}"), &access);
        granted(&store, "lock:a", Token::random()).await;
        sentinel.signal(Signal::CONT);
        until_asked(&sentinel).await;
    });
}

#[test]
fn requests_that_need_no_answer_of_the_sentinels_do_not_wait() {
    run(async {
        let master = Server::start(&[]);
        let sentinel = Sentinel::start(&master, 1, "");
        sentinel.signal(Signal::STOP);
        let places = format!("{},{}", fake_sentinel(master.port()), sentinel.place());
        let store = store(&format!("redis-sentinel://{places}/{NAME}"));
        let token = Token::random();
        let batch = vec![
            acquire("lock:a", token, 60_000),
            release("lock:b", token),
            release("lock:a", token),
            Request::Ping,
        ];
        let alone = [&batch[1..], &batch[..1], &[]];
        assert_eq!(store.parts(&batch), Some(vec![1, 0, 1, 0]));
        assert!(alone.iter().all(|batch| store.parts(batch).is_none()), "a batch of one kind has one part");
        // The client knows the master and not yet whether a failover is under way.
        let error = within(&store, 300, acquire("lock:a", token, 60_000)).await.unwrap_err();
        assert!(error.maybe_done && error.message.contains("not all sentinels"), "{error}");
        // The master answers, so the error must not open the circuit breaker.
        assert_eq!(error.kind, StoreErrorKind::Loading, "{error}");
        assert_eq!(store.parts(&batch), Some(vec![1, 0, 1, 0]));
        // Now the client knows that this sentinel can't be reached.
        granted(&store, "lock:a", token).await;
        assert_eq!(store.parts(&batch), None);
        assert_eq!(Server::start(&[]).store().parts(&batch), None, "a store without sentinels has one part");
        sentinel.signal(Signal::CONT);
    });
}
