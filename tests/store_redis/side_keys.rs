//! What a lock keeps beside it is its own, whatever its name.

use std::collections::HashSet;

use leasehold::lease::Token;
use leasehold::store::redis::lock_beside;
use leasehold::store::{Absence, Reply};

use crate::ask::{Notices, acquire, all, ask, fence, granted, lock, queue, queued, release, run, share};
use crate::server::Server;

/// Locks of which each once had the side keys of the other.
const PAIR: [&str; 2] = ["lock:account:{lock:account:x}", "lock:account:x}:lock:account:{lock:account:x"];

#[test]
fn a_release_hands_no_waiter_of_another_lock_a_lease() {
    run(async {
        for held in [true, false] {
            let server = Server::start(&[]);
            let (holder, waiter) = (server.store(), server.store());
            let mut told = Notices::of(&waiter);
            let [one, other] = PAIR;
            let (first, second, next) = (Token::random(), Token::random(), Token::random());
            if held {
                granted(&holder, other, second).await;
            }
            granted(&holder, one, first).await;
            assert_eq!(queued(ask(&waiter, queue(one, next, 7)).await), (0, true));
            let expected = if held { Reply::Released } else { Reply::NotHeld(Absence::Missing) };
            assert_eq!(ask(&holder, release(other, second)).await, expected);
            // A notice would come over the same connection before this answer.
            assert_eq!(queued(ask(&waiter, queue(one, next, 7)).await), (0, true));
            assert!(told.more().is_empty(), "it is told that it has what {first} holds");
            assert_eq!(server.command(&["GET", one]), first.to_string());
            assert_eq!(server.command(&["EXISTS", other]), "0");
            assert_eq!(ask(&holder, release(one, first)).await, Reply::Released);
            assert_eq!(told.granted().await.0, 7);
        }
    });
}

/// So many keys lie at the server as the locks need, if no two of them share one.
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
        for (name, token) in &locks {
            assert_eq!(server.command(&["GET", name]), token.to_string(), "{name}");
            assert_eq!(lock(&store, name).await.unwrap().waiters.len(), 1, "{name}");
        }
        server.command(&["FLUSHALL"]);
        let shared = locks.iter().map(|(name, token)| share(name, *token, 2, 1)).collect();
        for answer in all(&store, shared).await {
            fence(answer.unwrap());
        }
        assert_eq!(server.command(&["DBSIZE"]), (3 * locks.len()).to_string());
    });
}
