//! Tests that no two locks share a side key, even if their names are similar.

use std::collections::HashSet;

use leasehold::lease::Token;
use leasehold::store::redis::lock_beside;
use leasehold::store::{Absence, Reply};

use crate::ask::{Notices, acquire, all, ask, fence, granted, inspect, queue, queued, release, run, share};
use crate::server::Server;

/// Two locks that once had the same side keys.
const PAIR: [&str; 2] = ["lock:account:{lock:account:x}", "lock:account:x}:lock:account:{lock:account:x"];

#[test]
fn a_release_hands_no_lease_to_a_waiter_of_another_lock() {
    run(async {
        for held in [true, false] {
            let server = Server::start(&[]);
            let (holder, waiter) = (server.store(), server.store());
            let mut notices = Notices::of(&waiter);
            let [one, other] = PAIR;
            let (first, second, next) = (Token::random(), Token::random(), Token::random());
            if held {
                granted(&holder, other, second).await;
            }
            granted(&holder, one, first).await;
            assert_eq!(queued(ask(&waiter, queue(one, next, 7)).await), (0, true));
            let expected = if held { Reply::Released } else { Reply::NotHeld(Absence::Missing) };
            assert_eq!(ask(&holder, release(other, second)).await, expected);
            // A notice would arrive over the same connection before this answer.
            assert_eq!(queued(ask(&waiter, queue(one, next, 7)).await), (0, true));
            assert!(notices.more().is_empty(), "the waiter got a notice, but {first} holds the lock");
            assert_eq!(server.command(&["GET", one]), first.to_string());
            assert_eq!(server.command(&["EXISTS", other]), "0");
            assert_eq!(ask(&holder, release(one, first)).await, Reply::Released);
            assert_eq!(notices.granted().await.0, 7);
        }
    });
}

/// Counts the keys at the server: if no two locks share a key, there are as many as the locks need.
#[test]
fn no_two_of_many_locks_share_a_key() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut random = fastrand::Rng::with_seed(5);
        let pieces = ["{", "}", "}:", "a", "b", "lock:", ":fence", ":queue", "é", "{b}"];
        let mut names: HashSet<String> = PAIR.map(String::from).into();
        while names.len() < 2_000 {
            let count = random.usize(1..8);
            let name: String = (0..count).map(|_| *random.choice(&pieces).unwrap()).collect();
            if lock_beside(&name).is_none() {
                names.insert(name);
            }
        }
        let locks: Vec<_> = names.iter().map(|name| (name, Token::random())).collect();
        let granted = locks.iter().map(|(name, token)| acquire(name, *token, 60_000)).collect();
        for answer in all(&store, granted).await {
            fence(answer.unwrap());
        }
        let waiting = locks.iter().map(|(name, _)| queue(name, Token::random(), 1)).collect();
        for answer in all(&store, waiting).await {
            assert_eq!(queued(answer.unwrap()).0, 0);
        }
        assert_eq!(server.command(&["DBSIZE"]), (5 * locks.len()).to_string());
        // Silent waiters lose their places after 3 s, so inspect all locks at once.
        let inspections = locks.iter().map(|(name, _)| inspect(name)).collect();
        for ((name, _), answer) in locks.iter().zip(all(&store, inspections).await) {
            let Reply::Inspected(Some(info)) = answer.unwrap() else { panic!("{name} is not held") };
            assert_eq!(info.waiters.len(), 1, "{name}");
        }
        for (name, token) in &locks {
            assert_eq!(server.command(&["GET", name]), token.to_string(), "{name}");
        }
        server.command(&["FLUSHALL"]);
        let shared = locks.iter().map(|(name, token)| share(name, *token, 2, 1)).collect();
        for answer in all(&store, shared).await {
            fence(answer.unwrap());
        }
        assert_eq!(server.command(&["DBSIZE"]), (3 * locks.len()).to_string());
    });
}
