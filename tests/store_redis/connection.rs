//! Tests the connection: all batches share one, and a new one replaces it when it fails.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::lease::Token;
use leasehold::store::{Reply, Request, Store, StoreErrorKind};
use rustix::process::Signal;

use crate::ask::{TIMEOUT, acquire, all, ask, fence, granted, info, inspect, release, run, within};
use crate::group::until;
use crate::server::{Server, store};

/// Returns how many connections the server has seen, including the one of this command.
fn connections(server: &Server) -> u64 {
    server.info("stats", "total_connections_received")
}

#[test]
fn the_first_batch_connects_and_all_batches_share_one_connection() {
    run(async {
        let server = Server::start(&[]);
        let before = connections(&server);
        let store = server.store();
        let unpolled = store.clone().execute(vec![Request::Ping], TIMEOUT);
        assert_eq!(connections(&server), before + 1, "only the test is connected");
        drop(unpolled);
        let batches =
            (0..50).map(|n| within(&store, 10_000, acquire(&format!("lock:{n}"), Token::random(), 1_000)));
        assert!(join_all(batches).await.iter().all(Result::is_ok));
        assert_eq!(connections(&server), before + 3);
        assert!(server.command(&["CLIENT", "LIST"]).contains("name=leasehold"));
        store.close().await;
        // The server may notice the end of the connection after this command.
        until("the connection is gone", || !server.command(&["CLIENT", "LIST"]).contains("name=leasehold"));
    });
}

#[test]
fn an_empty_batch_has_no_answers() {
    run(async { assert!(store("redis://127.0.0.1:1").execute(Vec::new(), TIMEOUT).await.is_empty()) });
}

#[test]
fn a_connection_that_is_cut_while_idle_causes_no_error() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        for _ in 0..3 {
            assert_eq!(server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]), "1");
            // The engine has pauses, too. The store notices the end of the connection meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(info(&store, "lock:a").await.unwrap().holder.as_deref(), Some("a test"));
        }
    });
}

#[test]
fn a_request_whose_connection_is_cut_may_have_been_carried_out() {
    run(async {
        let mut server = Server::start(&[]);
        let store = server.store();
        ask(&store, Request::Ping).await;
        server.signal(Signal::STOP);
        let waiting = async {
            tokio::join!(
                within(&store, 10_000, acquire("lock:a", Token::random(), 1_000)),
                within(&store, 10_000, inspect("lock:a")),
            )
        };
        let killed = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            server.kill();
        };
        let ((one, two), ()) = tokio::join!(waiting, killed);
        for answer in [one, two] {
            let error = answer.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreachable, true), "{error}");
        }
        let error = within(&store, 10_000, inspect("lock:a")).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreachable, false), "{error}");
    });
}

#[test]
fn requests_to_a_hanging_server_time_out_and_later_ones_use_a_new_connection() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        let before = connections(&server);
        server.signal(Signal::STOP);
        let began = Instant::now();
        let error = within(&store, 200, release("lock:a", token)).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, true), "{error}");
        assert!((200..700).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        // The kernel still accepts connections, but the server does not answer: nothing was sent.
        for _ in 0..2 {
            let began = Instant::now();
            let error = within(&store, 200, acquire("lock:b", token, 60_000)).await.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, false), "{error}");
            assert!((200..700).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        }
        server.signal(Signal::CONT);
        assert_eq!(info(&store, "lock:b").await, None);
        assert_eq!(info(&store, "lock:a").await, None, "the release was carried out");
        assert!(connections(&server) > before + 1);
    });
}

#[test]
fn a_patient_caller_on_a_shared_connection_gets_the_answer() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        ask(&store, Request::Ping).await;
        server.signal(Signal::STOP);
        let timed_out = async {
            let error = within(&store, 100, inspect("lock:a")).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::TimedOut);
            server.signal(Signal::CONT);
        };
        let patient = within(&store, 10_000, acquire("lock:a", Token::random(), 1_000));
        let (answer, ()) = tokio::join!(patient, timed_out);
        fence(answer.unwrap());
    });
}

#[test]
fn batches_that_wait_for_a_connection_have_their_own_time_outs() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let before = connections(&server);
        server.signal(Signal::STOP);
        let began = Instant::now();
        let answers = join_all([100, 200, 300].map(|ms| within(&store, ms, Request::Ping))).await;
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, false), "{error}");
        }
        assert!((300..800).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        server.signal(Signal::CONT);
        assert_eq!(connections(&server), before + 2, "one attempt for three batches");
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
    });
}

#[test]
fn an_attempt_to_connect_outlasts_short_time_outs_and_ends_when_it_hangs() {
    run(async {
        // A server that accepts connections and sends nothing. Later, it closes them.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        silent.set_nonblocking(true).unwrap();
        let store = store(&format!("redis://{}", silent.local_addr().unwrap()));
        for _ in 0..10 {
            let error = within(&store, 20, Request::Ping).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::TimedOut);
        }
        let held = silent.accept().expect("one attempt");
        assert!(silent.accept().is_err(), "requests with short time-outs share one attempt");
        let error = within(&store, 10_000, Request::Ping).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "the attempt has its own time-out");
        drop(held);
        let hang_up = async {
            while silent.accept().is_err() {
                tokio::task::yield_now().await;
            }
        };
        let (answer, ()) = tokio::join!(within(&store, 5_000, Request::Ping), hang_up);
        assert_eq!(
            answer.unwrap_err().kind,
            StoreErrorKind::Unreachable,
            "the server closes the connection of the next attempt"
        );
    });
}

#[test]
fn scripts_that_the_server_forgot_are_loaded_again_and_run_once() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        let first = granted(&store, "lock:a", token).await;
        let before = connections(&server);
        server.command(&["SCRIPT", "FLUSH"]);
        let mut batch: Vec<_> = (0..200).map(|n| acquire(&format!("lock:{n}"), token, 60_000)).collect();
        batch.extend([Request::Ping, release("lock:a", token), acquire("lock:a", token, 60_000)]);
        let answers = all(&store, batch).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        assert!(fence(answers.last().unwrap().clone().unwrap()) > first);
        assert_eq!(connections(&server), before + 2, "the store uses the same connection");
    });
}

#[test]
fn fences_grow_although_the_server_lost_its_data() {
    run(async {
        let mut server = Server::start(&[]);
        let store = server.store();
        let mut last = granted(&store, "lock:a", Token::random()).await;
        for _ in 0..3 {
            server.restart(&[], "Ready to accept connections");
            tokio::time::sleep(Duration::from_millis(20)).await;
            let next = granted(&store, "lock:a", Token::random()).await;
            assert!(next > last, "{next:?} after {last:?}");
            last = next;
        }
    });
}
