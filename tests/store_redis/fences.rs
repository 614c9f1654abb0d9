//! Fences grow, whatever happens to the server, its data and its clock.

use leasehold::lease::{Fence, Token};

use crate::redis_server::RedisServer;
use crate::support::*;

const SIDE: &str = "{lock:k}:fence";

/// The server's clock in microseconds.
fn clock(server: &RedisServer) -> u64 {
    let [seconds, micros] = server.ask::<[u64; 2]>(&["TIME"]);
    seconds * 1_000_000 + micros
}

#[test]
fn a_fence_is_the_servers_clock_in_microseconds() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let before = clock(&server);
        let Fence(fence) = once(&store, "lock:k").await;
        assert!((before..=clock(&server)).contains(&fence), "{fence}");
        assert!(Fence(fence) < Fence::MAX);
    });
}

#[test]
fn fences_of_leases_in_one_instant_differ() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let tokens: Vec<Token> = (0..1000).map(|_| Token::random()).collect();
        let batch =
            tokens.iter().flat_map(|t| [acquire("lock:k", *t, LONG), release("lock:k", *t)]).collect();
        let mut last = Fence(0);
        for answer in answers(&store, batch).await.into_iter().step_by(2) {
            let Ok(leasehold::store::Reply::Acquired { fence }) = answer else { panic!("{answer:?}") };
            assert!(fence > last, "{fence:?} after {last:?}");
            last = fence;
        }
    });
}

/// As after the clock was set back by two hours: the last fence is ahead of it.
#[test]
fn a_clock_that_was_set_back_is_outlived_by_the_fence() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        for ahead_ms in [1, 1000, 2 * HOUR] {
            let future = clock(&server) + 1000 * ahead_ms as u64;
            server.tell(&["SET", SIDE, &format!("{future} {} old", Token::random()), "PX", "60000"]);
            let Fence(first) = once(&store, "lock:k").await;
            let Fence(second) = once(&store, "lock:k").await;
            assert!(first > future && second > first, "{first} and {second} after {future}");
            // Once the key has expired, the clock must have passed the last fence, with an hour to spare.
            let left: i64 = server.ask(&["PTTL", SIDE]);
            let covers = clock(&server) as i64 / 1000 + left - i64::from(LONG) - HOUR;
            assert!(covers >= (second / 1000) as i64 - 1000, "{left} ms for {ahead_ms} ms ahead");
            assert!(left <= ahead_ms + i64::from(LONG) + HOUR + 1000, "{left} ms is longer than need be");
        }
    });
}

#[test]
fn a_fence_lives_as_long_as_its_lease_and_an_hour() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        granted(&store, "lock:k", token, 10_000).await;
        let day = 24 * 3_600_000;
        assert_eq!(ask(&store, renew("lock:k", token, day)).await, leasehold::store::Reply::Renewed);
        let left: i64 = server.ask(&["PTTL", SIDE]);
        assert!(left > i64::from(day) + HOUR - 20_000, "{left}");
        // A shorter renewal takes nothing away.
        ask(&store, renew("lock:k", token, 10_000)).await;
        let still: i64 = server.ask(&["PTTL", SIDE]);
        assert!(still > i64::from(day) + HOUR - 20_000, "{still}");
        // A lease that is asked for again, for longer, has its fence that long, too.
        server.tell(&["PEXPIRE", SIDE, "1000000"]);
        granted(&store, "lock:k", token, day).await;
        let left: i64 = server.ask(&["PTTL", SIDE]);
        assert!(left > i64::from(day), "{left}");
    });
}

#[test]
fn what_is_no_fence_at_its_key_is_written_over() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        for junk in [
            vec!["SET", SIDE, ""],
            vec!["SET", SIDE, "nonsense"],
            vec!["SET", SIDE, "99"],
            vec!["SET", SIDE, "7 7 7 7"],
            vec!["RPUSH", SIDE, "x"],
            vec!["HSET", SIDE, "x", "y"],
        ] {
            server.tell(&["DEL", SIDE]);
            server.tell(&junk);
            let before = clock(&server);
            let token = Token::random();
            let fence = granted(&store, "lock:k", token, LONG).await;
            assert!(fence.0 >= before, "{junk:?}: {fence:?}");
            assert_eq!(info(&store, "lock:k").await.expect("held").fence, Some(fence), "{junk:?}");
            ask(&store, release("lock:k", token)).await;
            assert!(once(&store, "lock:k").await > fence, "{junk:?}");
        }
        // Also while a lease lives: it can be renewed, seen, asked for again and released.
        let token = Token::random();
        let fence = granted(&store, "lock:k", token, LONG).await;
        server.tell(&["DEL", SIDE]);
        server.tell(&["RPUSH", SIDE, "x"]);
        assert_eq!(ask(&store, renew("lock:k", token, LONG)).await, leasehold::store::Reply::Renewed);
        assert_eq!(info(&store, "lock:k").await.expect("held").fence, None);
        assert!(granted(&store, "lock:k", token, LONG).await > fence);
        assert_eq!(ask(&store, release("lock:k", token)).await, leasehold::store::Reply::Released);
    });
}

#[test]
fn a_server_that_lost_everything_goes_on_from_the_clock() {
    run(async {
        let server = RedisServer::start(&[]);
        let mut last = Fence(0);
        for _ in 0..3 {
            let store = open(&server.url());
            let token = Token::random();
            let fence = granted(&store, "lock:k", token, LONG).await;
            assert!(fence > last, "{fence:?} after {last:?}");
            last = fence;
            server.restart();
            assert_eq!(server.ask::<usize>(&["DBSIZE"]), 0);
        }
        let store = open(&server.url());
        let fence = once(&store, "lock:k").await;
        assert!(fence > last);
        server.tell(&["FLUSHALL"]);
        assert!(once(&store, "lock:k").await > fence);
    });
}
