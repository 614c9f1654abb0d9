//! Tests the errors of servers that refuse requests.

use std::time::Duration;

use leasehold::lease::Token;
use leasehold::store::listing::ListFilter;
use leasehold::store::{Reply, Request, StoreError, StoreErrorKind};

use crate::ask::{
    Notices, RENEWED, acquire, adopt, all, ask, fence, granted, inspect, queue, queued, refused, release,
    renew, run, share, within,
};
use crate::server::{Server, is_old, send, store};

const PASSWORD: &str = "hunter2-secret";

#[track_caller]
fn assert_refused(error: &StoreError, kind: StoreErrorKind, part: &str) {
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.maybe_done, "{error}");
    assert!(error.message.contains(part), "{error}");
    assert!(!error.message.contains(PASSWORD), "{error}");
}

/// Returns one request of each kind, for keys that differ on a server with old data.
fn one_of_each() -> Vec<Request> {
    let token = Token::random();
    vec![
        acquire("lock:new", token, 1_000),
        acquire("lock:held", token, 1_000),
        queue("lock:held", token, 1),
        share("lock:new", token, 2, 1),
        share("lock:shared", token, 2, 1),
        renew("lock:shared", token, 1_000),
        release("lock:shared", token),
        adopt("lock:shared", token, token),
        inspect("lock:shared"),
        adopt("lock:held", token, token),
        adopt("lock:none", token, token),
        renew("lock:held", token, 1_000),
        renew("lock:none", token, 1_000),
        release("lock:held", token),
        release("lock:none", token),
        inspect("lock:held"),
    ]
}

#[test]
fn a_wrong_login_is_denied() {
    run(async {
        let server = Server::start(&["--requirepass", PASSWORD]);
        let at = |login: &str| store(&server.url().replace("redis://", &format!("redis://{login}")));
        assert_eq!(ask(&at(&format!(":{PASSWORD}@")), Request::Ping).await, Reply::Ready);
        assert_eq!(ask(&at(&format!("default:{PASSWORD}@")), Request::Ping).await, Reply::Ready);
        assert_refused(&refused(&at(""), Request::Ping).await, StoreErrorKind::Denied, "wants a password");
        for login in [":hunter2-secret-not@", "nobody:hunter2-secret@", "default@"] {
            let error = refused(&at(login), Request::Ping).await;
            assert_refused(&error, StoreErrorKind::Denied, "check user and password");
        }
        let open = Server::start(&[]);
        let error =
            refused(&store(&open.url().replace("://", &format!("://:{PASSWORD}@"))), Request::Ping).await;
        assert_refused(&error, StoreErrorKind::Denied, "no password set");
    });
}

#[test]
fn without_the_right_to_run_pttl_a_lock_is_denied() {
    run(async {
        let server = Server::start(&[]);
        let rules = format!("ACL SETUSER app on >{PASSWORD} ~* &* +@all -pttl");
        assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), "OK");
        let app = store(&server.url().replace("://", &format!("://app:{PASSWORD}@")));
        let (token, other) = (Token::random(), Token::random());
        granted(&app, "a", token).await;
        let error = refused(&app, acquire("a", other, 1_000)).await;
        assert_refused(&error, StoreErrorKind::Denied, "+pttl");
        let error = refused(&app, renew("a", token, 1_000)).await;
        assert_refused(&error, StoreErrorKind::Denied, "+pttl");
    });
}

#[test]
fn only_requests_that_an_acl_forbids_are_denied() {
    run(async {
        let server = Server::start(&[]);
        let user = |rules: &str| {
            let rules = format!("ACL SETUSER app reset on >{PASSWORD} {rules}");
            assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), "OK");
            store(&server.url().replace("://", &format!("://app:{PASSWORD}@")))
        };
        // The rights in the error message are enough, although they do not include naming the
        // connection and `INFO`.
        let least = "~lock:* ~{* +set +get +getex +mget +del +type +exists +pttl +pexpire +pexpireat +zadd +zrem +zrange \
                     +zrangebyscore +zremrangebyscore +zcard +zscore +zrank +hset +hget +hdel +time +evalsha \
                     +script|load";
        let app = user(&format!("{least} resetchannels"));
        let token = Token::random();
        assert_eq!(ask(&app, Request::Ping).await, Reply::Ready);
        granted(&app, "lock:a", token).await;
        granted(&app, "lock:a", token).await;
        let others = [Token::random(), Token::random(), Token::random()];
        assert_eq!(queued(ask(&app, queue("lock:a", others[0], 1)).await), (0, false));
        let batch = vec![
            queue("lock:a", others[1], 2),
            inspect("lock:a"),
            renew("lock:a", token, 1_000),
            adopt("lock:a", token, others[2]),
            release("lock:a", others[2]),
            release("lock:a", others[0]),
            share("lock:s", token, 2, 1),
            share("lock:s", others[0], 2, 2),
            queue("lock:s", others[1], 3),
            inspect("lock:s"),
            adopt("lock:s", token, others[2]),
            renew("lock:s", others[2], 1_000),
            release("lock:s", others[2]),
            release("lock:s", others[0]),
        ];
        let answers = all(&app, batch).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        let notified = user(&format!("{least} resetchannels &leasehold:* +subscribe +publish"));
        assert_eq!(queued(ask(&notified, queue("lock:a", token, 1)).await), (0, true));
        server.command(&["DEL", "lock:a", "lock:s"]);

        // Listing locks needs one more right; breaking a lock needs none.
        granted(&app, "lock:a", token).await;
        let wanted = ListFilter { prefix: "lock:".into(), pattern: "*".into(), limit: 10 };
        let error = refused(&app, Request::List(wanted.clone())).await;
        assert_refused(&error, StoreErrorKind::Denied, "+scan");
        let lister = user(&format!("{least} +scan resetchannels"));
        let listed = ask(&lister, Request::List(wanted)).await;
        let Reply::Listed(listing) = listed else { panic!("{listed:?}") };
        assert_eq!((listing.locks.len(), listing.complete), (1, true));
        assert_eq!(
            ask(&app, Request::Break { key: "lock:a".into(), bars_repairs: true }).await,
            Reply::Released
        );

        // A forbidden key does not affect the other requests of the call.
        let batch = vec![
            acquire("lock:b", token, 1_000),
            acquire("other:b", token, 1_000),
            acquire("lock:c", token, 1_000),
        ];
        let answers = all(&app, batch).await;
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
        assert_refused(answers[1].as_ref().unwrap_err(), StoreErrorKind::Forbidden, "~PREFIX*");
        assert_eq!(server.command(&["EXISTS", "other:b"]), "0");

        // A user that may not run scripts can't use the store at all, and a ping reports that.
        for missing in ["+script|load", "+evalsha"] {
            let error = refused(&user(&least.replace(missing, "-lpush")), Request::Ping).await;
            assert_refused(&error, StoreErrorKind::Denied, "+script|load");
        }
        for missing in ["+script|load", "+evalsha", "+set", "+mget", "+time"] {
            server.command(&["DEL", "lock:d"]);
            let app = user(&least.replace(missing, "-lpush"));
            let batch = vec![
                acquire("lock:d", token, 1_000),
                renew("lock:d", token, 1_000),
                release("lock:d", token),
            ];
            let answers = all(&app, batch).await;
            let error = answers.iter().find_map(|answer| answer.as_ref().err()).unwrap();
            assert_eq!(error.kind, StoreErrorKind::Denied, "{missing}: {error}");
            assert!(error.message.contains("+script|load"), "{missing}: {error}");
        }
    });
}

#[test]
fn a_database_that_does_not_exist_is_unsupported() {
    run(async {
        let server = Server::start(&["--databases", "4"]);
        let error = refused(&store(&format!("{}/4", server.url())), Request::Ping).await;
        assert_refused(&error, StoreErrorKind::Unsupported, "no database 4");
        assert_eq!(ask(&store(&format!("{}/3", server.url())), Request::Ping).await, Reply::Ready);
    });
}

#[test]
fn a_replica_refuses_every_request_and_is_left_for_a_new_connection() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        granted(&store, "lock:held", Token::random()).await;
        queued(ask(&store, queue("lock:held", Token::random(), 1)).await);
        fence(ask(&store, share("lock:shared", Token::random(), 2, 1)).await);
        // Port 1 is no master: the replica keeps its data, as after a failover.
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let connections = server.info("stats", "total_connections_received");
        let requests = one_of_each();
        let count = requests.len() as u64;
        for request in requests {
            let error = refused(&store, request).await;
            assert_refused(&error, StoreErrorKind::ReadOnly, "failover");
        }
        // The first request used the old connection. The last connection is the one of this
        // command.
        assert_eq!(server.info("stats", "total_connections_received"), connections + count);
        assert_refused(&refused(&store, Request::Ping).await, StoreErrorKind::ReadOnly, "master");
        server.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
        assert_refused(&refused(&store, inspect("lock:held")).await, StoreErrorKind::ReadOnly, "MASTERDOWN");
        server.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
        granted(&store, "lock:new", Token::random()).await;
    });
}

#[test]
fn too_few_replicas_are_reported() {
    run(async {
        let server = Server::start(&["--min-replicas-to-write", "1"]);
        for request in one_of_each() {
            assert_refused(&refused(&server.store(), request).await, StoreErrorKind::ReadOnly, "replicas");
        }
    });
}

#[test]
fn a_server_that_loads_its_data_is_reported_and_the_connection_is_kept() {
    run(async {
        let mut server = Server::start_allowing("--enable-debug-command");
        let token = Token::random();
        granted(&server.store(), "lock:a", token).await;
        // Redis 6 answers only every 2 MB while it loads, and has no setting for that.
        let (size, often) = if is_old() { ("10000", 2) } else { ("20", 4) };
        server.command(&["CONFIG", "SET", "rdbcompression", "no"]);
        server.command(&["DEBUG", "POPULATE", "5000", "key", size]);
        server.command(&["SAVE"]);
        // 5000 keys take 2 ms each. The test ends the loading earlier.
        let slowly = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"];
        server.restart(&slowly[..often], "Loading RDB");
        let store = server.store();
        assert_refused(&refused(&store, Request::Ping).await, StoreErrorKind::Loading, "from disk");
        for request in one_of_each() {
            assert_refused(&refused(&store, request).await, StoreErrorKind::Loading, "from disk");
        }
        let before = server.info("stats", "total_connections_received");
        server.command(&["CONFIG", "SET", "key-load-delay", "0"]);
        let fresh = Token::random();
        loop {
            match within(&store, 10_000, acquire("lock:a", fresh, 1_000)).await {
                Err(error) => assert_refused(&error, StoreErrorKind::Loading, "from disk"),
                reply => break assert!(matches!(reply, Ok(Reply::Busy { .. })), "the lease survived"),
            }
        }
        assert_eq!(
            server.info("stats", "total_connections_received"),
            before + 2,
            "the store and this command made one connection each"
        );
    });
}

#[test]
fn a_server_busy_with_a_script_is_reported() {
    run(async {
        let server = Server::start(&["--lua-time-limit", "10"]);
        let store = server.store();
        granted(&store, "lock:a", Token::random()).await;
        let mut other = std::os::unix::net::UnixStream::connect(server.folder().join("redis.sock")).unwrap();
        send(&mut other, &["EVAL", "while true do end", "0"]);
        let error = loop {
            // Wait until the script runs.
            if let Err(error) = within(&store, 10_000, inspect("lock:a")).await {
                break error;
            }
        };
        assert_refused(&error, StoreErrorKind::Loading, "SCRIPT KILL");
        assert_eq!(server.command(&["SCRIPT", "KILL"]), "OK");
        // The script ends when it next checks for that.
        while let Err(error) = within(&store, 10_000, inspect("lock:a")).await {
            assert_refused(&error, StoreErrorKind::Loading, "SCRIPT KILL");
        }
    });
}

#[test]
fn a_full_server_refuses_new_leases_and_releases_old_ones() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        granted(&store, "lock:b", token).await;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let break_it = Request::Break { key: "lock:b".into(), bars_repairs: true };
        assert_eq!(ask(&store, break_it).await, Reply::Released);
        let error = refused(&store, acquire("lock:b", token, 1_000)).await;
        assert_refused(&error, StoreErrorKind::Full, "maxmemory");
        let answers = all(&store, vec![renew("lock:a", token, 1_000), release("lock:a", token)]).await;
        assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [RENEWED, Reply::Released]);
    });
}

#[test]
fn a_full_server_hands_over_released_leases() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut notices = Notices::of(&store);
        let (token, next) = (Token::random(), Token::random());
        granted(&store, "lock:a", token).await;
        queued(ask(&store, queue("lock:a", next, 1)).await);
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(ask(&store, release("lock:a", token)).await, Reply::Released);
        assert_eq!(server.command(&["GET", "lock:a"]), next.to_string());
        assert_eq!(notices.granted().await.0, 1);
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        fence(ask(&store, queue("lock:a", next, 1)).await);
    });
}

#[test]
fn a_server_that_can_not_save_is_reported() {
    run(async {
        let server = Server::start_allowing("--enable-protected-configs");
        let gone = server.folder().join("gone");
        std::fs::create_dir(&gone).unwrap();
        for (name, value) in [("save", "3600 1"), ("dir", gone.to_str().unwrap())] {
            assert_eq!(server.command(&["CONFIG", "SET", name, value]), "OK");
        }
        std::fs::remove_dir(&gone).unwrap();
        server.command(&["BGSAVE"]);
        while !server.command(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for request in one_of_each() {
            assert_refused(&refused(&server.store(), request).await, StoreErrorKind::Full, "save");
        }
    });
}

#[test]
fn a_server_with_too_many_connections_is_unreachable() {
    run(async {
        let server = Server::start(&["--maxclients", "1"]);
        let first = server.store();
        assert_eq!(ask(&first, Request::Ping).await, Reply::Ready);
        let error = refused(&server.store(), Request::Ping).await;
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreachable, false), "{error}");
    });
}

#[test]
fn the_error_for_a_cluster_node_names_the_scheme_to_use() {
    run(async {
        let server = Server::start(&["--cluster-enabled", "yes"]);
        let error = refused(&server.store(), acquire("lock:a", Token::random(), 1_000)).await;
        assert_refused(&error, StoreErrorKind::Unsupported, "use redis-cluster:// in place of redis://");
        let error = refused(&store(&format!("{}/1", server.url())), Request::Ping).await;
        assert_refused(&error, StoreErrorKind::Unsupported, "no database 1");
    });
}
