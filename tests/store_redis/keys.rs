//! How a lease lies in Redis, and what is left of it.

use leasehold::lease::Token;
use leasehold::store::Reply;

use crate::redis_server::RedisServer;
use crate::support::*;

#[test]
fn a_lock_is_the_token_as_a_plain_string_that_expires() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        let fence = granted(&store, "lock:jobs", token, 20_000).await;

        let mut keys: Vec<String> = server.ask(&["KEYS", "*"]);
        keys.sort();
        assert_eq!(keys, ["lock:jobs", "{lock:jobs}:fence"]);
        assert_eq!(server.ask::<String>(&["TYPE", "lock:jobs"]), "string");
        assert_eq!(server.ask::<String>(&["GET", "lock:jobs"]), token.to_string());
        let left: i64 = server.ask(&["PTTL", "lock:jobs"]);
        assert!((10_000..=20_000).contains(&left), "{left}");

        let side: String = server.ask(&["GET", "{lock:jobs}:fence"]);
        assert!(side.starts_with(&format!("{} {token} ", fence.0)), "{side}");
        let left: i64 = server.ask(&["PTTL", "{lock:jobs}:fence"]);
        assert!((HOUR..=HOUR + 20_000).contains(&left), "{left}");

        // The lock goes at once, the fence stays for its hour.
        ask(&store, release("lock:jobs", token)).await;
        let keys: Vec<String> = server.ask(&["KEYS", "*"]);
        assert_eq!(keys, ["{lock:jobs}:fence"]);
    });
}

/// A server of a cluster is asked for the slots. (A key with a `}` that closes no tag has no place for one.)
#[test]
fn a_fence_is_in_the_slot_of_its_lock() {
    run(async {
        let server = RedisServer::start(&[]);
        let node = RedisServer::start(&["cluster-enabled yes"]);
        let slot = |key: &str| node.ask::<i64>(&["CLUSTER", "KEYSLOT", key]);
        let store = open(&server.url());
        for lock in
            ["lock:a", "lock:{tenant}:a", "lock:{a", "lock:}{b}", "lock:{a}{b}", "lock:\u{1f512} \r\n\"'"]
        {
            server.tell(&["FLUSHALL"]);
            granted(&store, lock, Token::random(), LONG).await;
            let mut keys: Vec<String> = server.ask(&["KEYS", "*"]);
            keys.retain(|key| key != lock);
            assert_eq!(keys.len(), 1);
            assert_eq!(slot(&keys[0]), slot(lock), "{lock:?} and {:?}", keys[0]);
        }
    });
}

#[test]
fn ten_thousand_keys_locked_and_released_leave_none_that_does_not_expire() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        for thousand in 0..10 {
            let leases: Vec<_> =
                (0..1000).map(|i| (format!("lock:{thousand}-{i}"), Token::random())).collect();
            let batch = leases.iter().map(|(key, token)| acquire(key, *token, LONG)).collect();
            assert!(replies(&store, batch).await.iter().all(|r| matches!(r, Reply::Acquired { .. })));
            let batch = leases.iter().map(|(key, token)| release(key, *token)).collect();
            assert!(replies(&store, batch).await.iter().all(|r| *r == Reply::Released));
        }
        assert_eq!(server.ask::<usize>(&["DBSIZE"]), 10_000);
        assert_eq!(server.keys_without_expiry(), 0);
        let longest = "local most = 0 for _, key in ipairs(redis.call('KEYS', '*')) do
                       most = math.max(most, redis.call('PTTL', key)) end return most";
        let longest: i64 = server.ask(&["EVAL", longest, "0"]);
        assert!(longest <= HOUR + i64::from(LONG), "{longest}");
    });
}

#[test]
fn a_database_number_is_a_place_of_its_own() {
    run(async {
        let server = RedisServer::start(&[]);
        let (zero, seven) = (open(&server.url()), open(&format!("{}/7", server.url())));
        granted(&zero, "lock:k", Token::random(), LONG).await;
        granted(&seven, "lock:k", Token::random(), LONG).await;
        server.tell(&["SELECT", "7"]);
        assert_eq!(server.ask::<usize>(&["DBSIZE"]), 2);
    });
}

#[test]
fn a_unix_socket_is_the_same_place_as_the_port() {
    run(async {
        let server = RedisServer::start(&[]);
        let socket = open(&format!("redis+unix://{}", server.socket().display()));
        let port = open(&server.url());
        let token = Token::random();
        let fence = granted(&socket, "lock:k", token, LONG).await;
        assert_eq!(info(&port, "lock:k").await.expect("held").fence, Some(fence));
        assert!(matches!(ask(&port, acquire("lock:k", Token::random(), LONG)).await, Reply::Busy { .. }));
        assert_eq!(ask(&port, release("lock:k", token)).await, Reply::Released);
        assert_eq!(info(&socket, "lock:k").await, None);
        let second = format!("redis+unix://{}?db=3", server.socket().display());
        granted(&open(&second), "lock:k", token, LONG).await;
    });
}
