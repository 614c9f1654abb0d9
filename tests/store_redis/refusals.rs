//! A server that is there and does not want to.

use std::io::Write;
use std::net::TcpStream;

use leasehold::lease::Token;
use leasehold::store::StoreErrorKind::{Full, Loading, ReadOnly, Unreachable};
use leasehold::store::{Reply, Request};

use crate::redis_server::RedisServer;
use crate::support::*;

#[test]
fn a_replica_is_read_only_until_it_is_promoted() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        granted(&store, "lock:k", token, LONG).await;
        // Of a master that nobody finds.
        server.tell(&["REPLICAOF", "127.0.0.1", "1"]);
        for request in
            [acquire("lock:new", token, LONG), renew("lock:k", token, LONG), release("lock:k", token)]
        {
            let error = attempt(&store, request).await;
            assert_error(&error, ReadOnly, false);
        }
        let fresh = open(&server.url());
        assert_error(&attempt(&fresh, acquire("lock:new", token, LONG)).await, ReadOnly, false);
        server.tell(&["CONFIG", "SET", "replica-serve-stale-data", "no"]);
        assert_unusable(&server.url(), ReadOnly, TIMEOUT).await;

        server.tell(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(ask(&store, renew("lock:k", token, LONG)).await, Reply::Renewed);
        assert_eq!(ask(&store, release("lock:k", token)).await, Reply::Released);
    });
}

#[test]
fn a_master_without_its_replicas_is_read_only() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        assert_usable(&store).await;
        server.tell(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        assert_error(&attempt(&store, acquire("lock:k", Token::random(), LONG)).await, ReadOnly, false);
        server.tell(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
        assert_usable(&store).await;
    });
}

#[test]
fn a_full_server_grants_nothing_but_lets_go() {
    run(async {
        let server = RedisServer::start(&["maxmemory-policy noeviction"]);
        let store = open(&server.url());
        let token = Token::random();
        granted(&store, "lock:held", token, LONG).await;
        server.tell(&["CONFIG", "SET", "maxmemory", "1mb"]);
        // What is there already may be more than that, or just a little less.
        server.tell(&["CONFIG", "SET", "maxmemory", "1"]);
        let batch = (0..100).map(|i| acquire(&format!("lock:{i}"), Token::random(), LONG)).collect();
        for answer in answers(&store, batch).await {
            assert_error(&answer, Full, false);
        }
        assert_eq!(ask(&store, renew("lock:held", token, LONG)).await, Reply::Renewed);
        assert!(info(&store, "lock:held").await.is_some());
        assert_eq!(ask(&store, release("lock:held", token)).await, Reply::Released);
        // Also for one who comes only now.
        let late = open(&server.url());
        assert_error(&attempt(&late, acquire("lock:k", token, LONG)).await, Full, false);
        server.tell(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_usable(&store).await;
        assert_usable(&late).await;
    });
}

#[test]
fn a_server_that_can_not_save_is_full() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        assert_usable(&store).await;
        std::fs::remove_dir_all(server.socket().parent().unwrap()).unwrap();
        server.tell(&["CONFIG", "SET", "save", "3600 1"]);
        server.tell(&["BGSAVE"]);
        until(|| server.ask::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err")).await;
        assert_error(&attempt(&store, acquire("lock:k", Token::random(), LONG)).await, Full, false);
    });
}

#[test]
fn a_server_that_reads_its_data_is_loading() {
    run(async {
        let server = RedisServer::start(&[]);
        if server.generation() < 7 {
            // It can't be made to answer while it reads so little.
            return;
        }
        let store = open(&server.url());
        let token = Token::random();
        let fence = granted(&store, "lock:k", token, LONG).await;
        for i in 0..1000 {
            server.tell(&["SET", &format!("ballast:{i}"), &"x".repeat(50)]);
        }
        server.tell(&["SAVE"]);
        server.restart_loading();
        assert_unusable(&server.url(), Loading, TIMEOUT).await;
        // The old connection is gone, and the new one finds the same.
        for request in one_of_each("lock:k") {
            assert_error(&attempt(&store, request).await, Loading, false);
        }
        server.tell(&["CONFIG", "SET", "key-load-delay", "0"]);
        until(|| server.ask::<String>(&["INFO", "persistence"]).contains("loading:0")).await;
        // What was saved is held again, by the same token and with the same fence.
        assert_eq!(granted(&store, "lock:k", token, LONG).await, fence);
        assert_usable(&store).await;
    });
}

#[test]
fn a_server_that_runs_a_long_script_is_as_if_loading() {
    run(async {
        let server = RedisServer::start(&["lua-time-limit 20"]);
        let store = open(&server.url());
        assert_usable(&store).await;
        let mut other = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        other.write_all(b"EVAL \"while true do end\" 0\r\n").unwrap();
        until(|| server.try_ask::<String>(&["PING"]).is_err()).await;
        for request in [vec![Request::Ping], one_of_each("lock:k").to_vec()].concat() {
            assert_error(&attempt(&store, request).await, Loading, false);
        }
        assert_unusable(&server.url(), Loading, TIMEOUT).await;
        server.tell(&["SCRIPT", "KILL"]);
        until(|| server.try_ask::<String>(&["PING"]).is_ok()).await;
        assert_usable(&store).await;
    });
}

#[test]
fn a_server_with_too_many_guests_is_out_of_reach() {
    run(async {
        let server = RedisServer::start(&[]);
        server.tell(&["CONFIG", "SET", "requirepass", "secret"]);
        server.tell(&["CONFIG", "SET", "maxclients", "1"]);
        assert_unusable(&server.url_with(":secret@"), Unreachable, TIMEOUT).await;
        server.tell(&["CONFIG", "SET", "maxclients", "100"]);
        assert_usable(&open(&server.url_with(":secret@"))).await;
    });
}
