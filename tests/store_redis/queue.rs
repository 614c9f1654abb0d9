//! Tests the queue at the server, and how leases are handed over there.

use std::rc::Rc;
use std::time::Duration;

use leasehold::lease::Token;
use leasehold::store::redis::RedisStore;
use leasehold::store::{Absence, GRANT_TTL, Notice, Reply, Request, Store};

use crate::ask::{
    Notices, acquire, all, ask, fence, granted, info, lock, queue, queued, release, renew, run, share,
};
use crate::server::Server;

/// Ends a lease as its ttl would, and waits until it is gone.
fn expire(server: &Server, key: &str) {
    server.command(&["PEXPIRE", key, "1"]);
    while server.command(&["EXISTS", key]) == "1" {}
}

/// Queues a new token for each of the stores, in order. The numbers are their places.
async fn queue_waiters(stores: &[&Rc<RedisStore>], key: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        let token = Token::random();
        assert_eq!(queued(ask(store, queue(key, token, number as u64)).await), (number as u32, true));
        tokens.push(token);
    }
    tokens
}

#[test]
fn a_release_hands_the_lock_to_the_first_waiter_and_notifies_no_other() {
    run(async {
        let server = Server::start(&[]);
        let (holder, one, two) = (server.store(), server.store(), server.store());
        let mut notified = [Notices::of(&one), Notices::of(&two)];
        let first = Token::random();
        let mut last = granted(&holder, "lock:a", first).await;
        let tokens = queue_waiters(&[&one, &two, &one], "lock:a").await;
        let mut owner = first;
        for (number, token) in tokens.iter().enumerate() {
            assert_eq!(ask(&holder, release("lock:a", owner)).await, Reply::Released);
            assert_eq!(
                server.command(&["GET", "lock:a"]),
                token.to_string(),
                "the waiter owns the lock at once"
            );
            let left: i64 = server.command(&["PTTL", "lock:a"]).parse().unwrap();
            let grant = GRANT_TTL.as_millis() as i64;
            assert!((grant / 2..=grant).contains(&left), "{left}");
            let (number_of_notice, fence) = notified[number % 2].granted().await;
            assert_eq!(number_of_notice, number as u64);
            assert!(fence > Some(last), "{fence:?} after {last:?}");
            let handed = info(&holder, "lock:a").await.unwrap();
            assert_eq!((handed.holder.as_deref(), handed.fence), (Some("a test"), fence));
            // No other client gets the lock in between.
            let newcomer = ask(&holder, acquire("lock:a", Token::random(), 1_000)).await;
            assert!(matches!(newcomer, Reply::Busy { .. }), "{newcomer:?}");
            match ask(&one, queue("lock:a", *token, 99)).await {
                Reply::Acquired { fence: same, waiting } => {
                    assert_eq!(Some(same), fence);
                    assert_eq!(waiting as usize, tokens.len() - 1 - number);
                    last = same;
                }
                other => panic!("{other:?}"),
            }
            let left: i64 = server.command(&["PTTL", "lock:a"]).parse().unwrap();
            assert!(left > 50_000, "{left}");
            assert_eq!(info(&holder, "lock:a").await.unwrap().fence, Some(last));
            owner = *token;
        }
        assert_eq!(ask(&holder, release("lock:a", owner)).await, Reply::Released);
        assert_eq!(server.command(&["KEYS", "*"]), "{lock:a}:fence");
        ask(&one, Request::Ping).await;
        ask(&two, Request::Ping).await;
        assert!(notified[0].more().is_empty() && notified[1].more().is_empty());
    });
}

#[test]
fn the_keys_of_waiters_expire_by_themselves() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        granted(&store, "lock:a", Token::random()).await;
        for (number, key) in ["lock:a", "lock:b", "lock:c{d}e"].into_iter().enumerate() {
            let token = Token::random();
            if key != "lock:a" {
                // Another library holds the lock and leaves no fence.
                server.command(&["SET", key, "theirs", "NX", "PX", "60000"]);
            }
            let requests = vec![queue(key, token, 7), queue(key, Token::random(), 8)];
            for (ahead, answer) in all(&store, requests).await.into_iter().enumerate() {
                assert_eq!(queued(answer.unwrap()), (ahead as u32, true));
            }
            let side = |name: &str| match number {
                2 => format!("{{d}}:lock:c{{d}}e:{name}"),
                _ => format!("{{{key}}}:{name}"),
            };
            assert_eq!(server.command(&["ZRANK", &side("queue"), &token.to_string()]), "0");
            assert_ne!(server.command(&["ZSCORE", &side("alive"), &token.to_string()]), "(nil)");
            let known = server.command(&["HGET", &side("waiters"), &token.to_string()]);
            let begins = format!("0 7 {} leasehold:", GRANT_TTL.as_millis());
            assert!(known.starts_with(&begins) && known.ends_with(" a test"), "{known}");
            assert!(!known.contains(&token.to_string()));
            assert_eq!(server.command(&["GETRANGE", &side("fence"), "0", "0"]), "q");
            for name in ["queue", "alive", "waiters"] {
                let left: i64 = server.command(&["PTTL", &side(name)]).parse().unwrap();
                assert!((1..=5_000).contains(&left), "{name}: {left}");
            }
        }
        assert_eq!(server.immortal(), Vec::<String>::new());
        // A lock that is free again, and whose queue is gone, is like any other.
        server.command(&["DEL", "lock:a", "{lock:a}:queue", "{lock:a}:alive", "{lock:a}:waiters"]);
        let token = Token::random();
        let first = granted(&store, "lock:a", token).await;
        assert_eq!(server.command(&["GET", "{lock:a}:fence"]), format!("{} {token} a test", first.0));
    });
}

#[test]
fn any_request_that_finds_an_expired_lease_hands_it_over() {
    run(async {
        let server = Server::start(&[]);
        let (store, other) = (server.store(), server.store());
        let mut notified = Notices::of(&other);
        for (find, expected) in [
            (acquire as fn(&str, Token, u32) -> Request, "busy"),
            (|key, token, _| queue(key, token, 5), "queued first"),
            (renew, "taken"),
            (|key, token, _| release(key, token), "taken"),
        ] {
            let key = format!("lock:{expected}-{}", Token::random());
            granted(&store, &key, Token::random()).await;
            let first = queue_waiters(&[&other], &key).await[0];
            expire(&server, &key);
            let reply = ask(&store, find(&key, Token::random(), 60_000)).await;
            match expected {
                "busy" => assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}"),
                "taken" => assert_eq!(reply, Reply::NotHeld(Absence::Taken)),
                _ => assert_eq!(queued(reply), (0, true)),
            }
            assert_eq!(notified.granted().await.0, 0);
            assert_eq!(server.command(&["GET", &key]), first.to_string());
        }
    });
}

#[test]
fn a_waiter_gets_the_lock_of_another_library_when_it_is_free() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        server.command(&["SET", "lock:a", "theirs", "NX"]);
        let token = queue_waiters(&[&store], "lock:a").await[0];
        match ask(&store, queue("lock:a", token, 0)).await {
            Reply::Queued { remaining: None, ahead: 0, notified: true, .. } => {}
            other => panic!("{other:?}"),
        }
        server.command(&["DEL", "lock:a"]);
        fence(ask(&store, queue("lock:a", token, 0)).await);
    });
}

#[test]
fn a_waiter_without_a_connection_is_handed_the_lock_for_a_short_time_and_then_skipped() {
    run(async {
        let server = Server::start(&[]);
        let (holder, gone, alive) = (server.store(), server.store(), server.store());
        let mut notified = Notices::of(&alive);
        let token = Token::random();
        granted(&holder, "lock:a", token).await;
        let tokens = queue_waiters(&[&gone, &alive], "lock:a").await;
        gone.close().await;
        while server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count() > 2 {}
        assert_eq!(ask(&holder, release("lock:a", token)).await, Reply::Released);
        assert_eq!(server.command(&["GET", "lock:a"]), tokens[0].to_string(), "the waiter may connect again");
        assert!(server.command(&["PTTL", "lock:a"]).parse::<u64>().unwrap() <= 200);
        let poll_notice = Notice::Granted { number: 1, fence: None };
        assert_eq!(notified.next().await, poll_notice, "the next waiter is to poll when that grant ends");
        match ask(&alive, queue("lock:a", tokens[1], 1)).await {
            Reply::Queued { remaining: Some(left), ahead: 1, .. } => {
                assert!(left <= Duration::from_millis(200))
            }
            other => panic!("{other:?}"),
        }

        // The first waiter does not come back. The next request hands the lease to the next waiter.
        expire(&server, "lock:a");
        assert!(matches!(ask(&holder, acquire("lock:a", token, 1_000)).await, Reply::Busy { .. }));
        assert_eq!(notified.granted().await.0, 1);
        assert_eq!(server.command(&["GET", "lock:a"]), tokens[1].to_string());

        // The first waiter has lost its turn, but not its place.
        let third = Token::random();
        queued(ask(&alive, queue("lock:a", third, 2)).await);
        assert_eq!(ask(&alive, release("lock:a", tokens[1])).await, Reply::Released);
        assert_eq!(notified.granted().await.0, 2);
        let back = server.store();
        assert_eq!(queued(ask(&back, queue("lock:a", tokens[0], 0)).await), (0, true));
        assert_eq!(ask(&alive, release("lock:a", third)).await, Reply::Released);
        fence(ask(&back, queue("lock:a", tokens[0], 0)).await);
        assert_eq!(ask(&back, release("lock:a", tokens[0])).await, Reply::Released);
        assert_eq!(server.command(&["EXISTS", "lock:a", "{lock:a}:queue"]), "0", "the queue is empty");
        back.close().await;
        granted(&holder, "lock:a", token).await;

        // Two waiters are gone when the client asks.
        let lost = [Token::random(), Token::random()];
        for lost in lost {
            let ghost = server.store();
            queued(ask(&ghost, queue("lock:a", lost, 1)).await);
            ghost.close().await;
        }
        while server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count() > 2 {}
        expire(&server, "lock:a");
        match ask(&holder, acquire("lock:a", token, 60_000)).await {
            Reply::Acquired { waiting: 2, .. } => {}
            other => panic!("{other:?}"),
        }
        // The lost waiters keep their places, in case they come back.
        assert_eq!(queued(ask(&holder, queue("lock:a", lost[0], 1)).await), (0, true));
        assert!(notified.more().is_empty());
    });
}

#[test]
fn a_silent_waiter_loses_its_place_anywhere_in_the_queue() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut notified = Notices::of(&store);
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        let tokens = queue_waiters(&[&store, &store, &store], "lock:a").await;
        for dead in [1, 0] {
            // The place of this waiter expired a moment ago.
            server.command(&["ZADD", "{lock:a}:alive", "1", &tokens[dead].to_string()]);
        }
        assert_eq!(
            queued(ask(&store, queue("lock:a", tokens[1], 1)).await),
            (1, true),
            "the waiter is at the end of the queue"
        );
        assert_eq!(ask(&store, release("lock:a", token)).await, Reply::Released);
        assert_eq!(notified.granted().await.0, 2);
        for name in ["queue", "alive"] {
            assert_eq!(server.command(&["ZCARD", &format!("{{lock:a}}:{name}")]), "1");
        }
        assert_eq!(server.command(&["HLEN", "{lock:a}:waiters"]), "1");
    });
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let token = Token::random();
        granted(&store, "lock:a", token).await;
        let tokens = queue_waiters(&[&store, &store], "lock:a").await;
        let batch = vec![release("lock:a", tokens[0]), release("lock:a", tokens[0])];
        for answer in all(&store, batch).await {
            assert_eq!(answer.unwrap(), Reply::NotHeld(Absence::Taken));
        }
        assert_eq!(queued(ask(&store, queue("lock:a", tokens[1], 1)).await), (0, true));
        assert_eq!(lock(&store, "lock:a").await.unwrap().waiters.len(), 1);
        ask(&store, release("lock:a", tokens[1])).await;
        assert_eq!(server.command(&["EXISTS", "{lock:a}:queue", "{lock:a}:alive", "{lock:a}:waiters"]), "0");
    });
}

#[test]
fn a_batch_of_releases_hands_over_locks_with_waiters_and_keeps_the_order_of_one_lock() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut notified = Notices::of(&store);
        let leases: Vec<_> = (0..64).map(|n| (format!("lock:{n}"), Token::random())).collect();
        let acquires = leases.iter().map(|(key, token)| acquire(key, *token, 60_000)).collect();
        all(&store, acquires).await.into_iter().for_each(|answer| assert!(fence(answer.unwrap()).0 > 0));
        let waiter = Token::random();
        queued(ask(&store, queue("lock:40", waiter, 40)).await);
        let mut batch: Vec<_> = leases.iter().map(|(key, token)| release(key, *token)).collect();
        for answer in all(&store, std::mem::take(&mut batch)).await {
            assert_eq!(answer.unwrap(), Reply::Released);
        }
        assert_eq!(notified.granted().await.0, 40);
        assert_eq!(server.command(&["KEYS", "lock:*"]), "lock:40");

        let token = Token::random();
        granted(&store, "lock:0", token).await;
        batch = vec![release("lock:0", token), release("lock:0", waiter), release("lock:1", token)];
        let answers: Vec<_> = all(&store, batch).await.into_iter().map(Result::unwrap).collect();
        let missing = Reply::NotHeld(Absence::Missing);
        assert_eq!(answers, [Reply::Released, missing.clone(), missing]);
    });
}

#[test]
fn a_lease_ends_although_it_can_not_be_handed_over() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        for make in [acquire as fn(&str, Token, u32) -> Request, |key, token, _| share(key, token, 2, 0)] {
            let (key, token) = (format!("lock:{}", Token::random()), Token::random());
            fence(ask(&store, make(&key, token, 60_000)).await);
            assert_eq!(queued(ask(&store, queue(&key, Token::random(), 1)).await), (0, true));
            let waiters = format!("{{{key}}}:waiters");
            server.commands(&[&["DEL", &waiters], &["LPUSH", &waiters, "not ours"]]);
            assert_eq!(ask(&store, release(&key, token)).await, Reply::Released);
            assert_eq!(server.command(&["EXISTS", &key]), "0");
        }
    });
}

/// Returns the number of commands that the server's scripts have run.
fn commands(server: &Server) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls =
        stats.lines().filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

#[test]
fn the_cost_of_a_hand_over_does_not_grow_with_the_queue() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut notified = Notices::of(&store);
        let mut costs = Vec::new();
        for waiters in [2, 20, 200] {
            let key = format!("lock:{waiters}");
            let token = Token::random();
            granted(&store, &key, token).await;
            let tokens: Vec<_> = (0..waiters).map(|_| Token::random()).collect();
            let batch = tokens.iter().enumerate().map(|(n, token)| queue(&key, *token, n as u64)).collect();
            all(&store, batch).await.into_iter().for_each(|answer| assert!(queued(answer.unwrap()).1));
            server.command(&["CONFIG", "RESETSTAT"]);
            assert_eq!(ask(&store, release(&key, token)).await, Reply::Released);
            assert_eq!(notified.granted().await.0, 0);
            fence(ask(&store, queue(&key, tokens[0], 0)).await);
            costs.push(commands(&server));
        }
        // There is one more command if a millisecond has passed since the fence was written,
        // because the script then prolongs its life.
        let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
        assert!(most - least <= 1 && *most <= 36, "{costs:?}");
    });
}
