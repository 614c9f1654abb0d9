//! Other libraries at the same keys, and keys that are no locks.

use std::time::Duration;

use leasehold::lease::Token;
use leasehold::store::{Absence, LeaseInfo, Reply, StoreErrorKind};

use crate::redis_server::RedisServer;
use crate::support::*;

#[test]
fn a_foreign_lock_excludes_us_until_it_ends() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        server.tell(&["SET", "lock:k", "theirs", "NX", "PX", "30000"]);

        let Reply::Busy { remaining: Some(remaining) } = ask(&store, acquire("lock:k", token, LONG)).await
        else {
            panic!("not busy")
        };
        assert!(remaining <= Duration::from_secs(30) && remaining > Duration::from_secs(20), "{remaining:?}");
        assert_eq!(ask(&store, renew("lock:k", token, LONG)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(ask(&store, release("lock:k", token)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(server.ask::<String>(&["GET", "lock:k"]), "theirs");
        let left: i64 = server.ask(&["PTTL", "lock:k"]);
        assert!(left <= 30_000, "a refused renewal does not renew: {left}");

        server.tell(&["DEL", "lock:k"]);
        granted(&store, "lock:k", token, LONG).await;
    });
}

#[test]
fn our_lock_excludes_a_foreign_one_until_it_is_released() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        let take = ["SET", "lock:k", "theirs", "NX", "PX", "30000"];
        granted(&store, "lock:k", token, LONG).await;
        assert_eq!(server.ask::<Option<String>>(&take), None);
        assert_eq!(ask(&store, release("lock:k", token)).await, Reply::Released);
        assert_eq!(server.ask::<Option<String>>(&take).as_deref(), Some("OK"));
    });
}

#[test]
fn inspect_tells_of_a_foreign_lock_what_can_be_known() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        server.tell(&["SET", "lock:k", "theirs", "PX", "30000"]);
        let found = info(&store, "lock:k").await.expect("held");
        assert_eq!((found.holder, found.fence), (None, None));
        let remaining = found.remaining.expect("it expires");
        assert!(remaining <= Duration::from_secs(30) && remaining > Duration::from_secs(20), "{remaining:?}");

        // Nor is what we remember of our own last lease taken for theirs.
        server.tell(&["DEL", "lock:k"]);
        once(&store, "lock:k").await;
        server.tell(&["SET", "lock:k", "theirs"]);
        let forever = LeaseInfo { holder: None, fence: None, remaining: None };
        assert_eq!(info(&store, "lock:k").await, Some(forever));
    });
}

#[test]
fn a_foreign_lock_without_expiry_is_busy_for_ever() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        server.tell(&["SET", "lock:k", "theirs"]);
        let answer = ask(&store, acquire("lock:k", Token::random(), LONG)).await;
        assert_eq!(answer, Reply::Busy { remaining: None });
        assert_eq!(server.ask::<i64>(&["PTTL", "lock:k"]), -1, "it is theirs, we give it no expiry");
    });
}

#[test]
fn a_key_of_another_type_fails_its_own_requests_and_no_others() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        server.tell(&["RPUSH", "lock:list", "precious"]);
        let batch = vec![
            acquire("lock:a", token, LONG),
            acquire("lock:list", token, LONG),
            acquire("lock:b", token, LONG),
            renew("lock:a", token, LONG),
            renew("lock:list", token, LONG),
            renew("lock:b", token, LONG),
            inspect("lock:a"),
            inspect("lock:list"),
            inspect("lock:b"),
            release("lock:a", token),
            release("lock:list", token),
            release("lock:b", token),
        ];
        let answers = answers(&store, batch).await;
        for refused in [1, 4, 7] {
            let error = assert_error(&answers[refused], StoreErrorKind::WrongType, false);
            assert!(error.message.contains("another prefix"), "{error}");
        }
        for (granted, renewed, seen, released) in [(0, 3, 6, 9), (2, 5, 8, 11)] {
            assert!(matches!(answers[granted], Ok(Reply::Acquired { .. })), "{:?}", answers[granted]);
            assert!(matches!(answers[renewed], Ok(Reply::Renewed)), "{:?}", answers[renewed]);
            assert!(matches!(answers[seen], Ok(Reply::Inspected(Some(_)))), "{:?}", answers[seen]);
            assert!(matches!(answers[released], Ok(Reply::Released)), "{:?}", answers[released]);
        }
        // What is no lock, nobody holds.
        assert!(matches!(answers[10], Ok(Reply::NotHeld(Absence::Missing))), "{:?}", answers[10]);
        assert_eq!(server.ask::<Vec<String>>(&["LRANGE", "lock:list", "0", "-1"]), ["precious"]);
    });
}
