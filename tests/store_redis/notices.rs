//! Being told: over which connection, and what happens to those who can't be.

use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::Token;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Notice, Reply, Request, StoreErrorKind};
use rustix::process::Signal;

use crate::ask::{Notices, acquire, ask, fence, granted, info, queue, queued, release, run, within};
use crate::server::{Server, store};

#[test]
fn a_connection_that_was_cut_is_told_of_and_its_waiters_are_told_over_the_next() {
    run(async {
        let server = Server::start(&[]);
        let (holder, waiter) = (server.store(), server.store());
        let mut told = Notices::of(&waiter);
        let (token, next) = (Token::random(), Token::random());
        granted(&holder, "lock:a", token).await;
        for round in 0..3 {
            assert_eq!(queued(ask(&waiter, queue("lock:a", next, round)).await), (0, true));
            let ids = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            let last = ids.lines().last().unwrap();
            let id = last.strip_prefix("id=").unwrap().split(' ').next().unwrap();
            assert_eq!(server.command(&["CLIENT", "KILL", "ID", id]), "1");
            // At once, so that whoever waits asks again, and then of the new connection.
            assert_eq!(told.next().await, Notice::Missed);
            queued(ask(&waiter, queue("lock:a", next, 100 + round)).await);
            assert_eq!(told.next().await, Notice::Missed);
        }
        assert_eq!(ask(&holder, release("lock:a", token)).await, Reply::Released);
        assert_eq!(told.granted().await.0, 102);
        fence(ask(&waiter, queue("lock:a", next, 102)).await);
        assert!(told.more().is_empty());
    });
}

#[test]
fn who_is_let_in_for_the_first_time_has_missed_nothing() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut told = Notices::of(&store);
        granted(&store, "lock:a", Token::random()).await;
        ask(&store, Request::Ping).await;
        assert!(told.more().is_empty());
    });
}

/// Without SUBSCRIBE, without the channel, without PUBLISH.
#[test]
fn whose_rights_do_not_suffice_to_be_told_waits_all_the_same() {
    run(async {
        let server = Server::start(&[]);
        for (name, rules) in [
            ("subscribe", "allchannels +@all -subscribe"),
            ("channel", "resetchannels +@all"),
            ("publish", "allchannels +@all -publish"),
        ] {
            let rules = format!("ACL SETUSER {name} reset on nopass ~* {rules}");
            assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), "OK");
            let mute = store(&server.url().replace("://", &format!("://{name}@")));
            let well = server.store();
            let mut heard = wait_in_turn(&mute, &well, &format!("lock:{name}")).await;
            if name == "subscribe" {
                assert_eq!(heard.granted().await.0, 3, "who may publish tells others");
            }
            ask(&well, Request::Ping).await;
            assert!(heard.more().is_empty(), "{name}");
        }
    });
}

/// A fence is told to nobody of whom it is not known that it listens: it looks, as if it had been told none.
#[test]
fn who_may_not_ask_who_listens_tells_no_fence() {
    run(async {
        let server = Server::start(&[]);
        for (name, rights, tells) in [("blind", "-pubsub", false), ("seeing", "-pubsub +pubsub|numsub", true)]
        {
            let rules = format!("ACL SETUSER {name} reset on nopass ~* allchannels +@all {rights}");
            assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), "OK");
            let (holder, waiter) =
                (store(&server.url().replace("://", &format!("://{name}@"))), server.store());
            let mut told = Notices::of(&waiter);
            let (key, token, next) = (format!("lock:{name}"), Token::random(), Token::random());
            let first = granted(&holder, &key, token).await;
            assert_eq!(queued(ask(&waiter, queue(&key, next, 5)).await), (0, true));
            assert_eq!(ask(&holder, release(&key, token)).await, Reply::Released);
            let (number, fence) = told.granted().await;
            assert_eq!((number, fence.is_some()), (5, tells));
            let known = crate::ask::fence(ask(&waiter, queue(&key, next, 6)).await);
            assert!(known > first && fence.is_none_or(|fence| fence == known));
        }
    });
}

/// As an old proxy would.
#[test]
fn a_server_that_knows_no_hello_is_waited_at_without_notices() {
    run(async {
        let server = Server::start(&["--rename-command", "HELLO", ""]);
        let (one, two) = (server.store(), server.store());
        assert!(wait_in_turn(&one, &two, "lock:a").await.more().is_empty());
        assert_eq!(server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]), "");
    });
}

/// Lets two who wait at `mute`, and at `well` behind them, have the lock in turn. The notices of `well`.
async fn wait_in_turn(mute: &Rc<RedisStore>, well: &Rc<RedisStore>, key: &str) -> Notices {
    let (mut told, heard) = (Notices::of(mute), Notices::of(well));
    let (token, next, third) = (Token::random(), Token::random(), Token::random());
    granted(mute, key, token).await;
    assert_eq!(queued(ask(mute, queue(key, next, 1)).await), (0, false));
    assert_eq!(queued(ask(well, queue(key, third, 3)).await).0, 1);
    assert_eq!(ask(mute, release(key, token)).await, Reply::Released);
    fence(ask(mute, queue(key, next, 1)).await);
    assert_eq!(ask(mute, release(key, next)).await, Reply::Released);
    // It was handed the lock, whether the one before could say so or not.
    fence(ask(well, queue(key, third, 3)).await);
    assert!(told.more().is_empty());
    heard
}

/// An answer that is lost is an acquire that may have been done. Asking again, over another connection, is the same
/// lease, or the same place.
#[test]
fn an_acquire_whose_answer_was_lost_is_repeated_over_a_new_connection() {
    run(async {
        let server = Server::start(&[]);
        let (direct, store) = (server.store(), server.store());
        let mut told = Notices::of(&store);
        let (token, next) = (Token::random(), Token::random());
        ask(&store, Request::Ping).await;
        for request in [acquire("lock:a", token, 60_000), queue("lock:a", next, 7)] {
            ask(&store, Request::Ping).await;
            told.more();
            server.signal(Signal::STOP);
            let error = within(&store, 100, request.clone()).await.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, true), "{error}");
            server.signal(Signal::CONT);
            match (ask(&store, request).await, info(&direct, "lock:a").await) {
                (Reply::Acquired { fence, .. }, Some(held)) => assert_eq!(held.fence, Some(fence)),
                (reply, _) => assert_eq!(queued(reply), (0, true)),
            }
            assert_eq!(told.next().await, Notice::Missed, "another connection");
        }
        assert_eq!(server.command(&["ZCARD", "{lock:a}:queue"]), "1");
        assert_eq!(within(&direct, 10_000, release("lock:a", token)).await.unwrap(), Reply::Released);
        let notice = tokio::time::timeout(Duration::from_secs(10), told.next()).await;
        let told = notice.expect("over the new one");
        assert!(matches!(told, Notice::Granted { number: 7, fence: Some(_) }), "{told:?}");
    });
}
