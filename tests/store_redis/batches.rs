//! Batches, and the connection that they share.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::lease::Token;
use leasehold::store::{Absence, Reply, Request, Store};

use crate::redis_server::RedisServer;
use crate::support::*;

#[test]
fn five_thousand_mixed_requests_are_answered_in_order() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let leases: Vec<(String, Token)> = (0..500).map(|i| (format!("lock:{i}"), Token::random())).collect();
        // Runs of one kind, longer and shorter than a script call takes, and kinds one by one.
        let mut batch = Vec::new();
        batch.extend(leases.iter().map(|(k, t)| acquire(k, *t, LONG)));
        batch.extend(leases.iter().map(|(k, _)| acquire(k, Token::random(), LONG)));
        batch.extend(leases.iter().rev().map(|(k, t)| renew(k, *t, LONG)));
        batch.extend(leases.iter().rev().map(|(k, _)| inspect(k)));
        for (k, t) in &leases {
            batch.extend([Request::Ping, renew(k, Token::random(), LONG), inspect(k), release(k, *t)]);
        }
        batch.extend(leases.iter().map(|(k, t)| release(k, *t)));
        batch.extend(leases.iter().map(|(k, _)| inspect(k)));
        assert_eq!(batch.len(), 5000);

        let mut answers = replies(&store, batch).await.into_iter();
        let mut fences = Vec::new();
        for answer in answers.by_ref().take(500) {
            let Reply::Acquired { fence } = answer else { panic!("{answer:?}") };
            fences.push(fence);
        }
        assert!(answers.by_ref().take(500).all(|a| matches!(a, Reply::Busy { remaining: Some(_) })));
        assert!(answers.by_ref().take(500).all(|a| a == Reply::Renewed));
        for (answer, fence) in answers.by_ref().take(500).zip(fences.iter().rev()) {
            assert!(matches!(&answer, Reply::Inspected(Some(i)) if i.fence == Some(*fence)), "{answer:?}");
        }
        for fence in &fences {
            assert_eq!(answers.next(), Some(Reply::Ready));
            assert_eq!(answers.next(), Some(Reply::NotHeld(Absence::Taken)));
            let seen = answers.next();
            assert!(matches!(&seen, Some(Reply::Inspected(Some(i))) if i.fence == Some(*fence)));
            assert_eq!(answers.next(), Some(Reply::Released));
        }
        assert!(answers.by_ref().take(500).all(|a| a == Reply::NotHeld(Absence::Missing)));
        assert!(answers.all(|a| a == Reply::Inspected(None)));
    });
}

#[test]
fn big_keys_and_names_are_passed_on_whole() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let leases: Vec<(String, Token)> =
            (0..300).map(|i| (format!("lock:{i}:{}", "\u{1f512}".repeat(1000)), Token::random())).collect();
        let batch = leases.iter().map(|(k, t)| acquire(k, *t, LONG)).collect();
        assert!(replies(&store, batch).await.iter().all(|r| matches!(r, Reply::Acquired { .. })));
        let batch = leases.iter().map(|(k, t)| release(k, *t)).collect();
        assert!(replies(&store, batch).await.iter().all(|r| *r == Reply::Released));
    });
}

#[test]
fn batches_under_way_together_share_one_connection() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        let all = (0..200).map(|i| {
            let (key, token) = (format!("lock:{i}"), Token::random());
            let batch = vec![acquire(&key, token, LONG), Request::Ping, release(&key, token)];
            replies(&store, batch)
        });
        for replies in join_all(all).await {
            assert!(matches!(replies[0], Reply::Acquired { .. }), "{:?}", replies[0]);
            assert_eq!(replies[1..], [Reply::Ready, Reply::Released]);
        }
        assert!(answers(&store, vec![]).await.is_empty());
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
        let stats: String = server.ask(&["INFO", "stats"]);
        // One is the store's, one ours.
        assert!(stats.contains("total_connections_received:2\r"), "{stats}");
    });
}

/// A future that is given up half way does not harm the batches beside it.
#[test]
fn a_batch_that_is_dropped_harms_no_other() {
    run(async {
        let server = RedisServer::start(&[]);
        let store = open(&server.url());
        for connected in [false, true] {
            for _ in 0..20 {
                let mut dropped =
                    store.clone().execute(vec![acquire("lock:d", Token::random(), 10)], TIMEOUT);
                assert!(futures_util::poll!(&mut dropped).is_pending());
                let kept = replies(&store, vec![Request::Ping, inspect("lock:other")]);
                drop(dropped);
                assert_eq!(kept.await, [Reply::Ready, Reply::Inspected(None)]);
            }
            assert_eq!(server.connections(), 1, "connected before: {connected}");
        }
        // Nobody waits for the connection any more.
        let store = open(&server.url());
        let mut dropped = store.clone().execute(vec![Request::Ping], Duration::from_secs(5));
        assert!(futures_util::poll!(&mut dropped).is_pending());
        drop(dropped);
        assert_usable(&store).await;
        assert_eq!(server.connections(), 2);
    });
}
