//! A server that does not answer.

use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::StoreErrorKind::{TimedOut, Unreachable};
use leasehold::store::{Reply, Request, Store};

use crate::redis_server::RedisServer;
use crate::support::*;

const SHORT: Duration = Duration::from_millis(100);
/// What a busy machine may need beyond a time-out.
const SLACK: Duration = Duration::from_millis(1000);

#[test]
fn a_frozen_server_times_out_and_is_usable_again_when_it_thaws() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        granted(&store, "lock:k", token, LONG).await;
        let frozen = server.stall();
        let start = Instant::now();
        let batch = vec![acquire("lock:new", token, LONG), renew("lock:k", token, LONG), Request::Ping];
        for answer in store.clone().execute(batch, SHORT).await {
            let error = assert_error(&answer, TimedOut, true);
            assert!(error.message.contains("100 ms"), "{error}");
        }
        let took = start.elapsed();
        assert!(took >= SHORT && took < SHORT + SLACK, "{took:?}");
        // From here on there is no connection: nothing can be sent, so nothing is done.
        for _ in 0..3 {
            let answers = store.clone().execute(vec![renew("lock:k", token, LONG)], SHORT).await;
            assert_error(&answers[0], TimedOut, false);
        }
        drop(frozen);
        // What was sent before has been done meanwhile.
        assert_usable(&store).await;
        assert_eq!(ask(&store, release("lock:new", token)).await, Reply::Released);
        assert_eq!(ask(&store, renew("lock:k", token, LONG)).await, Reply::Renewed);
        until(|| server.connections() == 1).await;
    });
}

/// An attempt to connect that nobody waits for any more does not fail those who come later.
#[test]
fn a_server_that_was_frozen_at_first_is_usable_however_late_it_is_asked_again() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let frozen = server.stall();
        let answers = store.clone().execute(vec![acquire("lock:k", Token::random(), LONG)], SHORT).await;
        assert_error(&answers[0], TimedOut, false);
        // Longer than an attempt may take.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        drop(frozen);
        assert_usable(&store).await;
        assert_eq!(info(&store, "lock:k").await, None);
        until(|| server.connections() == 1).await;
    });
}

#[test]
fn many_batches_on_a_frozen_server_open_few_connections() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        assert_usable(&store).await;
        let frozen = server.stall();
        for _ in 0..30 {
            let answers = store.clone().execute(vec![Request::Ping], Duration::from_millis(20)).await;
            assert_eq!(answers[0].as_ref().expect_err("frozen").kind, TimedOut);
        }
        drop(frozen);
        assert_usable(&store).await;
        let stats: String = server.ask(&["INFO", "stats"]);
        let received = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        let received: u32 = received.unwrap().trim().parse().unwrap();
        // Ours, the first, and those of attempts.
        assert!(received <= 4, "{received}");
        until(|| server.connections() == 1).await;
    });
}

#[test]
fn a_server_that_dies_under_a_batch_is_out_of_reach_and_the_batch_may_be_done() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        assert_usable(&store).await;
        let frozen = server.stall();
        let mut sent = store.clone().execute(vec![acquire("lock:k", Token::random(), LONG)], TIMEOUT);
        // The connection's task sends it while this sleeps.
        let waited = tokio::time::timeout(Duration::from_millis(50), &mut sent).await;
        assert!(waited.is_err(), "frozen");
        let start = Instant::now();
        server.kill();
        assert_error(&sent.await[0], Unreachable, true);
        assert!(start.elapsed() < SLACK, "at once, not when its time is over");
        drop(frozen);
        assert_error(&attempt(&store, Request::Ping).await, Unreachable, false);
    });
}
