//! Tests notices: over which connection they arrive, and what happens to waiters that can't get
//! them.

use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::Token;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Notice, Reply, Request, StoreErrorKind};
use rustix::process::Signal;

use crate::ask::{Notices, acquire, ask, fence, granted, info, queue, queued, release, run, within};
use crate::server::{Server, store};

#[test]
fn waiters_learn_of_a_cut_connection_and_get_notices_over_the_next() {
    run(async {
        let server = Server::start(&[]);
        let (holder, waiter) = (server.store(), server.store());
        let mut notices = Notices::of(&waiter);
        let (token, next) = (Token::random(), Token::random());
        granted(&holder, "lock:a", token).await;
        for round in 0..3 {
            assert_eq!(queued(ask(&waiter, queue("lock:a", next, round)).await), (0, true));
            let ids = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            let last = ids.lines().last().unwrap();
            let id = last.strip_prefix("id=").unwrap().split(' ').next().unwrap();
            assert_eq!(server.command(&["CLIENT", "KILL", "ID", id]), "1");
            // The notice arrives at once, so that waiters poll again. After that, the new
            // connection causes another one.
            assert_eq!(notices.next().await, Notice::Missed);
            queued(ask(&waiter, queue("lock:a", next, 100 + round)).await);
            assert_eq!(notices.next().await, Notice::Missed);
        }
        assert_eq!(ask(&holder, release("lock:a", token)).await, Reply::Released);
        assert_eq!(notices.granted().await.0, 102);
        fence(ask(&waiter, queue("lock:a", next, 102)).await);
        assert!(notices.more().is_empty());
    });
}

#[test]
fn the_first_connection_has_missed_no_notices() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut notices = Notices::of(&store);
        granted(&store, "lock:a", Token::random()).await;
        ask(&store, Request::Ping).await;
        assert!(notices.more().is_empty());
    });
}

/// Tests users without the right to SUBSCRIBE, to use the channel, or to PUBLISH.
#[test]
fn a_user_without_the_right_to_subscribe_can_wait() {
    run(async {
        let server = Server::start(&[]);
        for (name, rules) in [
            ("subscribe", "allchannels +@all -subscribe"),
            ("channel", "resetchannels +@all"),
            ("publish", "allchannels +@all -publish"),
        ] {
            let rules = format!("ACL SETUSER {name} reset on nopass ~* {rules}");
            assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), "OK");
            let silent = store(&server.url().replace("://", &format!("://{name}@")));
            let well = server.store();
            let mut well_notices = wait_in_turn(&silent, &well, &format!("lock:{name}")).await;
            if name == "subscribe" {
                assert_eq!(
                    well_notices.granted().await.0,
                    3,
                    "a user with the right to publish sends notices"
                );
            }
            ask(&well, Request::Ping).await;
            assert!(well_notices.more().is_empty(), "{name}");
        }
    });
}

/// A user that can't find out whether a waiter listens publishes no fence. The waiter polls, as
/// after a notice without a fence.
#[test]
fn a_user_without_the_right_to_count_subscribers_publishes_no_fence() {
    run(async {
        let server = Server::start(&[]);
        for (name, rights, publishes_fence) in
            [("blind", "-pubsub", false), ("seeing", "-pubsub +pubsub|numsub", true)]
        {
            let rules = format!("ACL SETUSER {name} reset on nopass ~* allchannels +@all {rights}");
            assert_eq!(server.command(&rules.split(' ').collect::<Vec<_>>()), "OK");
            let (holder, waiter) =
                (store(&server.url().replace("://", &format!("://{name}@"))), server.store());
            let mut notices = Notices::of(&waiter);
            let (key, token, next) = (format!("lock:{name}"), Token::random(), Token::random());
            let first = granted(&holder, &key, token).await;
            assert_eq!(queued(ask(&waiter, queue(&key, next, 5)).await), (0, true));
            assert_eq!(ask(&holder, release(&key, token)).await, Reply::Released);
            let (number, fence) = notices.granted().await;
            assert_eq!((number, fence.is_some()), (5, publishes_fence));
            let known = crate::ask::fence(ask(&waiter, queue(&key, next, 6)).await);
            assert!(known > first && fence.is_none_or(|fence| fence == known));
        }
    });
}

/// An old proxy may not know HELLO.
#[test]
fn waiters_at_a_server_without_hello_get_no_notices() {
    run(async {
        let server = Server::start(&["--rename-command", "HELLO", ""]);
        let (one, two) = (server.store(), server.store());
        assert!(wait_in_turn(&one, &two, "lock:a").await.more().is_empty());
        assert_eq!(server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]), "");
    });
}

/// Lets a waiter at `silent` and one at `well` behind it have the lock in turn. Returns the notices
/// of `well`.
async fn wait_in_turn(silent: &Rc<RedisStore>, well: &Rc<RedisStore>, key: &str) -> Notices {
    let (mut notices, well_notices) = (Notices::of(silent), Notices::of(well));
    let (token, next, third) = (Token::random(), Token::random(), Token::random());
    granted(silent, key, token).await;
    assert_eq!(queued(ask(silent, queue(key, next, 1)).await), (0, false));
    assert_eq!(queued(ask(well, queue(key, third, 3)).await).0, 1);
    assert_eq!(ask(silent, release(key, token)).await, Reply::Released);
    fence(ask(silent, queue(key, next, 1)).await);
    assert_eq!(ask(silent, release(key, next)).await, Reply::Released);
    // The waiter was handed the lock, even if the release could not send a notice.
    fence(ask(well, queue(key, third, 3)).await);
    assert!(notices.more().is_empty());
    well_notices
}

/// If its answer is lost, an acquire may have been carried out. Repeated over another connection,
/// it gets the same lease or the same place.
#[test]
fn an_acquire_whose_answer_was_lost_is_repeated_over_a_new_connection() {
    run(async {
        let server = Server::start(&[]);
        let (direct, store) = (server.store(), server.store());
        let mut notices = Notices::of(&store);
        let (token, next) = (Token::random(), Token::random());
        ask(&store, Request::Ping).await;
        for request in [acquire("lock:a", token, 60_000), queue("lock:a", next, 7)] {
            ask(&store, Request::Ping).await;
            notices.more();
            server.signal(Signal::STOP);
            let error = within(&store, 100, request.clone()).await.unwrap_err();
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::TimedOut, true), "{error}");
            server.signal(Signal::CONT);
            match (ask(&store, request).await, info(&direct, "lock:a").await) {
                (Reply::Acquired { fence, .. }, Some(held)) => assert_eq!(held.fence, Some(fence)),
                (reply, _) => assert_eq!(queued(reply), (0, true)),
            }
            assert_eq!(notices.next().await, Notice::Missed, "the notice of another connection");
        }
        assert_eq!(server.command(&["ZCARD", "{lock:a}:queue"]), "1");
        assert_eq!(within(&direct, 10_000, release("lock:a", token)).await.unwrap(), Reply::Released);
        let notice = tokio::time::timeout(Duration::from_secs(10), notices.next()).await;
        let notice = notice.expect("the notice arrives over the new connection");
        assert!(matches!(notice, Notice::Granted { number: 7, fence: Some(_) }), "{notice:?}");
    });
}
