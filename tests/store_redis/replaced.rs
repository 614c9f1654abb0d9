//! The server is not the one it was: its scripts, its data, its connections are gone.

use leasehold::lease::Token;
use leasehold::store::StoreErrorKind::Unreachable;
use leasehold::store::{Absence, Reply, Request, Store};

use crate::impostor;
use crate::redis_server::RedisServer;
use crate::support::*;

#[test]
fn scripts_that_were_flushed_are_loaded_again_in_the_same_batch() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        assert_usable(&store).await;
        let token = Token::random();
        let requests = [
            acquire("lock:k", token, LONG),
            Request::Ping,
            renew("lock:k", token, LONG),
            acquire("lock:k", Token::random(), LONG),
            inspect("lock:k"),
            release("lock:k", token),
            release("lock:k", token),
        ];
        for _ in 0..2 {
            server.tell(&["SCRIPT", "FLUSH"]);
            let replies = replies(&store, requests.to_vec()).await;
            assert!(matches!(replies[0], Reply::Acquired { .. }), "{:?}", replies[0]);
            assert_eq!(replies[1..3], [Reply::Ready, Reply::Renewed]);
            assert!(matches!(replies[3], Reply::Busy { remaining: Some(_) }));
            assert!(matches!(replies[4], Reply::Inspected(Some(_))));
            assert_eq!(replies[5..], [Reply::Released, Reply::NotHeld(Absence::Missing)]);
        }
        assert_eq!(server.connections(), 1);
    });
}

/// A server that cuts idle connections costs nobody an error: nothing was sent on the one that is gone.
#[test]
fn a_connection_that_was_cut_while_idle_is_made_again_unnoticed() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        let fence = granted(&store, "lock:k", token, LONG).await;
        for _ in 0..5 {
            assert_eq!(server.cut_connections(), 1);
            settle().await;
            assert_eq!(granted(&store, "lock:k", token, LONG).await, fence, "the same lease");
        }
        assert_eq!(server.connections(), 1);
    });
}

#[test]
fn a_restarted_server_is_found_again() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let token = Token::random();
        let fence = granted(&store, "lock:k", token, LONG).await;
        server.kill();
        for request in [Request::Ping, renew("lock:k", token, LONG)] {
            // The first may have been on its way when the connection ended.
            let error = attempt(&store, request).await.expect_err("nobody is there");
            assert_eq!(error.kind, Unreachable, "{error}");
        }
        assert_error(&attempt(&store, renew("lock:k", token, LONG)).await, Unreachable, false);
        server.restart();
        assert_eq!(ask(&store, renew("lock:k", token, LONG)).await, Reply::NotHeld(Absence::Missing));
        assert_eq!(ask(&store, release("lock:k", token)).await, Reply::NotHeld(Absence::Missing));
        assert!(granted(&store, "lock:k", Token::random(), LONG).await > fence);
    });
}

#[test]
fn nobody_at_the_address_is_out_of_reach() {
    run(async {
        let server = RedisServer::start(&[]);
        server.kill();
        let said = assert_unusable(&server.url(), Unreachable, TIMEOUT).await;
        assert!(said.contains(&server.url()), "{said}");
        for path in ["/nonexistent/redis.sock", "/dev/null", "/"] {
            assert_unusable(&format!("redis+unix://{path}x"), Unreachable, TIMEOUT).await;
        }
    });
}

/// An answer that is lost is an acquire that may have been done, and here has been. Asking again, over another
/// connection, is the same lease.
#[test]
fn an_acquire_whose_answer_was_lost_is_repeated_without_harm() {
    run(async {
        for bytes in [0, 1, 3, 8, 20] {
            let server = RedisServer::start(&[]);
            let direct = open(&server.url());
            let store = open(&impostor::cutting_once(server.port(), "tester", bytes));
            let token = Token::random();
            let batch = vec![acquire("lock:k", token, LONG), inspect("lock:k")];
            for answer in answers(&store, batch).await {
                assert_error(&answer, Unreachable, true);
            }
            let held = info(&direct, "lock:k").await.expect("it has been granted");
            assert_eq!(Some(granted(&store, "lock:k", token, LONG).await), held.fence, "{bytes}");
            assert_eq!(ask(&store, release("lock:k", token)).await, Reply::Released);
            store.close().await;
        }
    });
}

#[test]
fn an_attempt_to_connect_that_breaks_is_nothing_done() {
    run(async {
        for bytes in [0, 1, 5, 30] {
            let server = RedisServer::start(&[]);
            let store = open(&impostor::cutting_once(server.port(), "SCRIPT", bytes));
            assert_error(
                &attempt(&store, acquire("lock:k", Token::random(), LONG)).await,
                Unreachable,
                false,
            );
            assert_usable(&store).await;
        }
    });
}
