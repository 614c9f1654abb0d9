//! Tests the keys at the server, and how the store works together with other libraries that lock
//! there.

use std::time::Duration;

use leasehold::lease::{Fence, Token};
use leasehold::store::{Absence, Reply, StoreErrorKind};

use crate::ask::{
    RENEWED, acquire, all, ask, fence, granted, info, inspect, queue, refused, release, renew, run,
};
use crate::server::Server;

const HOUR: i64 = 3_600_000;

fn left(server: &Server, key: &str) -> i64 {
    server.command(&["PTTL", key]).parse().unwrap()
}

/// Returns true if `ms` is `expected`, or was a moment ago.
fn about(ms: i64, expected: i64) -> bool {
    (expected - 5_000..=expected).contains(&ms)
}

#[test]
fn a_lock_has_a_key_for_its_token_and_one_for_its_fence() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let (one, two, three) = (Token::random(), Token::random(), Token::random());
        let alone = granted(&store, "lock:a", one).await;
        let batch = vec![acquire("lock:b", two, 20_000), acquire("lock:c{d}e", three, 20_000)];
        let together: Vec<_> =
            all(&store, batch).await.into_iter().map(|answer| fence(answer.unwrap())).collect();
        for (lock, side, token, fence, ttl) in [
            ("lock:a", "{lock:a}:fence", one, alone, 60_000),
            ("lock:b", "{lock:b}:fence", two, together[0], 20_000),
            ("lock:c{d}e", "{d}:lock:c{d}e:fence", three, together[1], 20_000),
        ] {
            assert_eq!(server.command(&["GET", lock]), token.to_string());
            assert_eq!(server.command(&["GET", side]), format!("{} {token} a test", fence.0));
            assert!(about(left(&server, lock), ttl), "{lock} {}", left(&server, lock));
            assert!(about(left(&server, side), ttl + HOUR), "{side} {}", left(&server, side));
            assert_eq!(ask(&store, release(lock, token)).await, Reply::Released);
            assert_eq!(server.command(&["EXISTS", lock]), "0");
            assert!(about(left(&server, side), ttl + HOUR));
        }
    });
}

#[test]
fn a_lock_may_have_a_name_like_the_fence_of_another_lock() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        granted(&store, "{t}lock:a:fence", token).await;
        granted(&store, "{t}lock:a", Token::random()).await;
        assert_eq!(ask(&store, release("{t}lock:a:fence", token)).await, Reply::Released);
    });
}

#[test]
fn leasehold_and_other_libraries_exclude_each_other() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let ours = Token::random();
        server.command(&["SET", "lock:a", "theirs", "NX", "PX", "20000"]);
        server.command(&["SET", "lock:b", "theirs", "NX"]);
        match ask(&store, acquire("lock:a", ours, 1_000)).await {
            Reply::Busy { remaining: Some(left) } => assert!(about(left.as_millis() as i64, 20_000)),
            other => panic!("{other:?}"),
        }
        assert_eq!(ask(&store, acquire("lock:b", ours, 1_000)).await, Reply::Busy { remaining: None });
        for key in ["lock:a", "lock:b"] {
            assert_eq!(ask(&store, renew(key, ours, 1_000)).await, Reply::NotHeld(Absence::Taken));
            assert_eq!(ask(&store, release(key, ours)).await, Reply::NotHeld(Absence::Taken));
            let known = info(&store, key).await.unwrap();
            assert_eq!((known.holder, known.fence), (None, None));
            assert_eq!(known.remaining.is_some(), key == "lock:a");
            assert_eq!(server.command(&["GET", key]), "theirs");
        }
        granted(&store, "lock:c", ours).await;
        assert_eq!(server.command(&["SET", "lock:c", "theirs", "NX", "PX", "20000"]), "(nil)");
    });
}

#[test]
fn a_fence_continues_from_one_that_is_ahead_of_the_clock() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        let ahead = 9_000_000_000_000_000_u64;
        let now_ms = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
        server.command(&["SET", "{lock:a}:fence", &format!("{ahead} {token} x"), "PX", "20000"]);
        assert_eq!(granted(&store, "lock:a", token).await, Fence(ahead + 1));
        let expected = (ahead / 1000 - now_ms) as i64 + HOUR + 60_000;
        assert!(
            (left(&server, "{lock:a}:fence") - expected).abs() < 5_000,
            "the fence is kept until the clock has reached it"
        );
        assert_eq!(granted(&store, "lock:a", token).await, Fence(ahead + 1), "the same lease");
        assert_eq!(info(&store, "lock:a").await.unwrap().fence, Some(Fence(ahead + 1)));

        server.command(&["SET", "{lock:max}:fence", &format!("{} {token} x", Fence::MAX.0)]);
        assert_eq!(granted(&store, "lock:max", token).await, Fence::MAX);
        for (key, nonsense) in
            [("lock:n", "nonsense"), ("lock:o", ""), ("lock:p", "12"), ("lock:q", "99 x y")]
        {
            server.command(&["SET", &format!("{{{key}}}:fence"), nonsense]);
            assert!(granted(&store, key, token).await > Fence(now_ms * 1000 - 60_000_000));
        }
    });
}

#[test]
fn leases_of_one_key_in_one_batch_have_different_fences() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut batch = Vec::new();
        for _ in 0..100 {
            let token = Token::random();
            batch.extend([acquire("lock:a", token, 1_000), release("lock:a", token)]);
        }
        let answers = all(&store, batch).await;
        let fences: Vec<_> = answers.into_iter().step_by(2).map(|answer| fence(answer.unwrap())).collect();
        assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "{fences:?}");
    });
}

#[test]
fn a_lost_fence_of_a_held_lease_is_replaced_by_a_larger_one() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        let before = granted(&store, "lock:a", token).await;
        server.command(&["DEL", "{lock:a}:fence"]);
        let known = info(&store, "lock:a").await.unwrap();
        assert_eq!((known.holder, known.fence), (None, None), "the holder is unknown");
        assert!(granted(&store, "lock:a", token).await > before);
    });
}

#[test]
fn a_renewal_prolongs_the_life_of_the_fence_and_never_shortens_it() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        server.command(&["PEXPIRE", "{lock:a}:fence", "20000"]);
        assert_eq!(ask(&store, renew("lock:a", token, 90_000)).await, RENEWED);
        assert!(about(left(&server, "lock:a"), 90_000));
        assert!(left(&server, "{lock:a}:fence") >= HOUR + 90_000);
        for late in [renew("lock:a", token, 10), acquire("lock:a", token, 10)] {
            ask(&store, late).await;
            assert!(about(left(&server, "lock:a"), 90_000), "a late request shortens nothing");
        }
        server.command(&["PEXPIRE", "{lock:a}:fence", "36000000"]);
        assert_eq!(ask(&store, renew("lock:a", token, 30_000)).await, RENEWED);
        granted(&store, "lock:a", token).await;
        assert!(about(left(&server, "{lock:a}:fence"), 10 * HOUR));
        server.command(&["PEXPIRE", "{lock:a}:fence", "20000"]);
        granted(&store, "lock:a", token).await;
        assert!(about(left(&server, "{lock:a}:fence"), HOUR + 60_000));
    });
}

#[test]
fn a_key_of_another_type_fails_only_its_own_request() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        server.command(&["LPUSH", "lock:list", "x"]);
        server.command(&["LPUSH", "{lock:side}:fence", "x"]);
        for make in [
            |key: &str, token| acquire(key, token, 60_000),
            |key: &str, token| renew(key, token, 60_000),
            |key: &str, token| release(key, token),
            |key: &str, _| inspect(key),
        ] {
            let batch = vec![make("lock:a", token), make("lock:list", token), make("lock:b", token)];
            let answers = all(&store, batch).await;
            assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
            assert_eq!(answers[1].as_ref().unwrap_err().kind, StoreErrorKind::WrongType);
        }
        let error = refused(&store, acquire("lock:side", token, 60_000)).await;
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::WrongType, false));
        assert_eq!(server.command(&["EXISTS", "lock:side"]), "0", "no lease is granted without a fence");
        assert_eq!(server.command(&["LLEN", "{lock:side}:fence"]), "1", "foreign data is not changed");
    });
}

#[test]
fn a_big_batch_takes_few_calls() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let tokens: Vec<_> = (0..1_000).map(|n| (format!("lock:{n}"), Token::random())).collect();
        let asked =
            |make: &dyn Fn(&str, Token) -> _| tokens.iter().map(|(key, token)| make(key, *token)).collect();
        // Each acquire has its own place, as in the engine.
        let asks = tokens.iter().enumerate().map(|(n, (key, token))| queue(key, *token, n as u64)).collect();
        for answer in all(&store, asks).await {
            fence(answer.unwrap());
        }
        for answer in all(&store, asked(&|key, token| renew(key, token, 60_000))).await {
            assert_eq!(answer.unwrap(), RENEWED);
        }
        // Every second lease ends while another begins.
        let mut batch = Vec::new();
        for (key, token) in tokens.iter().step_by(2) {
            batch.extend([release(key, *token), acquire(&format!("{key}:next"), *token, 60_000)]);
        }
        for (place, answer) in all(&store, batch).await.into_iter().enumerate() {
            match answer.unwrap() {
                Reply::Released => assert_eq!(place % 2, 0),
                reply => drop(fence(reply)),
            }
        }
        assert_eq!(server.command(&["DBSIZE"]), "2500", "500 + 500 locks, 1500 fences");
        let calls = server.info("commandstats", "cmdstat_evalsha:calls");
        assert_eq!(calls, 1 + 16 + 16 + 8 + 8, "one call of the handshake, and one for each 64 requests");
    });
}

#[test]
fn the_same_release_twice_in_a_batch_is_harmless() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let (token, other) = (Token::random(), Token::random());
        granted(&store, "lock:a", token).await;
        let batch = vec![
            release("lock:a", other),
            release("lock:a", token),
            release("lock:a", token),
            release("lock:none", token),
        ];
        let answers: Vec<_> = all(&store, batch).await.into_iter().map(Result::unwrap).collect();
        let missing = Reply::NotHeld(Absence::Missing);
        assert_eq!(answers, [Reply::NotHeld(Absence::Taken), Reply::Released, missing.clone(), missing]);
    });
}

#[test]
fn databases_are_separate_and_the_socket_reaches_the_same_server() {
    run(async {
        let server = Server::start(&[]);
        let token = Token::random();
        let socket = crate::server::store(&server.socket_url());
        granted(&socket, "lock:a", token).await;
        assert!(matches!(
            ask(&server.store(), acquire("lock:a", Token::random(), 100)).await,
            Reply::Busy { .. }
        ));
        let third = crate::server::store(&format!("{}/3", server.url()));
        granted(&third, "lock:a", Token::random()).await;
        let third_by_socket = crate::server::store(&format!("{}?db=3", server.socket_url()));
        assert!(matches!(ask(&third_by_socket, acquire("lock:a", token, 100)).await, Reply::Busy { .. }));
        assert!(info(&third, "lock:a").await.unwrap().remaining > Some(Duration::from_secs(50)));
    });
}
