//! The connection: one for all, and another when it is of no use any more.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use leasehold::lease::Token;
use leasehold::store::{Reply, Request, Store, StoreErrorKind};
use rustix::process::Signal;

use crate::ask::{TIMEOUT, acquire, all, ask, fence, granted, info, inspect, release, run, within};
use crate::group::until;
use crate::server::{Server, store};

/// How many connections the server has seen, the one that asks included.
fn connections(server: &Server) -> u64 {
    server.info("stats", "total_connections_received")
}

#[test]
fn nothing_is_connected_before_it_is_needed_and_all_batches_share_one_connection() {
    run(async {
        let server = Server::start(&[]);
        let before = connections(&server);
        let store = server.store();
        let unpolled = store.clone().execute(vec![Request::Ping], TIMEOUT);
        assert_eq!(connections(&server), before + 1, "nobody but ourselves");
        drop(unpolled);
        let batches =
            (0..50).map(|n| within(&store, 10_000, acquire(&format!("lock:{n}"), Token::random(), 1_000)));
        assert!(join_all(batches).await.iter().all(Result::is_ok));
        assert_eq!(connections(&server), before + 3);
        assert!(server.command(&["CLIENT", "LIST"]).contains("name=leasehold"));
        store.close().await;
        // The server may hear of that after our question.
        until("the connection is gone", || !server.command(&["CLIENT", "LIST"]).contains("name=leasehold"));
    });
}

#[test]
fn an_empty_batch_has_no_answers() {
    run(async { assert!(store("redis://127.0.0.1:1").execute(Vec::new(), TIMEOUT).await.is_empty()) });
}

#[test]
fn a_connection_that_was_cut_while_idle_costs_no_error() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        for _ in 0..3 {
            assert_eq!(server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]), "1");
            // What the engine does meanwhile: wait for something. The end of the connection is noticed by then.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert_eq!(info(&store, "lock:a").await.unwrap().holder.as_deref(), Some("a test"));
        }
    });
}

#[test]
fn a_connection_that_is_cut_under_a_request_says_that_it_may_have_been_carried_out() {
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
fn a_server_that_hangs_is_timed_out_and_met_again_on_another_connection() {
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
        // Its kernel still takes connections, but nobody answers: nothing was sent.
        for _ in 0..2 {
            let began = Instant::now();
            let error = within(&store, 200, acquire("lock:b", token, 60_000)).await.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, false), "{error}");
            assert!((200..700).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        }
        server.signal(Signal::CONT);
        assert_eq!(info(&store, "lock:b").await, None);
        assert_eq!(info(&store, "lock:a").await, None, "what may have been carried out, was");
        assert!(connections(&server) > before + 1);
    });
}

#[test]
fn who_is_more_patient_than_others_on_the_same_connection_gets_the_answer() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        ask(&store, Request::Ping).await;
        server.signal(Signal::STOP);
        let hasty = async {
            let error = within(&store, 100, inspect("lock:a")).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::TimedOut);
            server.signal(Signal::CONT);
        };
        let patient = within(&store, 10_000, acquire("lock:a", Token::random(), 1_000));
        let (answer, ()) = tokio::join!(patient, hasty);
        fence(answer.unwrap());
    });
}

#[test]
fn batches_that_wait_for_a_connection_count_their_own_time() {
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
fn an_attempt_outlasts_the_impatient_and_is_given_up_for_another_when_it_hangs() {
    run(async {
        // Somebody who takes connections and says nothing; later, who hangs up.
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        mute.set_nonblocking(true).unwrap();
        let store = store(&format!("redis://{}", mute.local_addr().unwrap()));
        for _ in 0..10 {
            let error = within(&store, 20, Request::Ping).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::TimedOut);
        }
        let held = mute.accept().expect("one attempt");
        assert!(mute.accept().is_err(), "the impatient share one attempt");
        let error = within(&store, 10_000, Request::Ping).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::TimedOut, "the attempt has an end of its own");
        drop(held);
        let hang_up = async {
            while mute.accept().is_err() {
                tokio::task::yield_now().await;
            }
        };
        let (answer, ()) = tokio::join!(within(&store, 5_000, Request::Ping), hang_up);
        assert_eq!(answer.unwrap_err().kind, StoreErrorKind::Unreachable, "another attempt, hung up on");
    });
}

#[test]
fn scripts_that_the_server_forgot_are_told_again_and_run_once() {
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
        assert_eq!(connections(&server), before + 2, "on the same connection");
    });
}

#[test]
fn fences_grow_over_a_server_that_lost_everything() {
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
