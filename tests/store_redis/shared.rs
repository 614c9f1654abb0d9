//! Tests shared leases, blocks of fences, and adoptions.

use leasehold::lease::Token;
use leasehold::store::{Absence, AcquireRequest, Reply, Request};

use crate::ask::{
    Notices, RENEWED, acquire, adopt, all, ask, fence, info, inspect, lock, queue, queued, release, renew,
    run, share, terms,
};
use crate::server::Server;

#[test]
fn shared_leases_are_one_set_that_excludes_other_leases() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut notices = Notices::of(&store);
        let tokens: Vec<_> = (0..5).map(|_| Token::random()).collect();
        let mut fences = Vec::new();
        for token in &tokens[..3] {
            fences.push(fence(ask(&store, share("lock:s", *token, 3, 0)).await));
        }
        assert!(fences.is_sorted(), "{fences:?}");
        assert_eq!(server.command(&["ZCARD", "lock:s"]), "3");
        assert_eq!(
            server.command(&["HGET", "{lock:s}:holders", &tokens[1].to_string()]),
            format!("{} a test", fences[1].0)
        );
        assert_eq!(server.command(&["SET", "lock:s", "theirs", "NX", "PX", "20000"]), "(nil)");
        assert!(matches!(ask(&store, acquire("lock:s", tokens[4], 1_000)).await, Reply::Busy { .. }));
        assert_eq!(queued(ask(&store, share("lock:s", tokens[3], 3, 3)).await), (0, true));
        assert_eq!(queued(ask(&store, queue("lock:s", tokens[4], 4)).await), (1, true));
        // A newcomer waits even if there is room for its lease.
        assert_eq!(queued(ask(&store, share("lock:s", Token::random(), 9, 5)).await), (2, true));
        let known = lock(&store, "lock:s").await.unwrap();
        assert!(known.shared && known.leases.len() == 3);
        assert_eq!(known.waiters.iter().map(|waiter| waiter.shared).collect::<Vec<_>>(), [true, false, true]);

        // The key lives as long as the last of its leases.
        assert_eq!(ask(&store, renew("lock:s", tokens[0], 90_000)).await, RENEWED);
        let left = |key: &str| server.command(&["PTTL", key]).parse::<i64>().unwrap();
        assert!(left("lock:s") > 80_000 && left("{lock:s}:holders") > 80_000);
        assert_eq!(ask(&store, release("lock:s", tokens[0])).await, Reply::Released);
        assert!((50_000..=60_000).contains(&left("lock:s")), "{}", left("lock:s"));
        assert_eq!(notices.granted().await.0, 3);
        fences.push(fence(ask(&store, share("lock:s", tokens[3], 3, 3)).await));
        assert!(fences.is_sorted(), "{fences:?}");

        // An expired lease makes room, too, and its data is removed.
        server.command(&["ZADD", "lock:s", "1", &tokens[1].to_string()]);
        assert_eq!(ask(&store, renew("lock:s", tokens[1], 1_000)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(server.command(&["HEXISTS", "{lock:s}:holders", &tokens[1].to_string()]), "0");
        for token in &tokens[2..4] {
            assert_eq!(ask(&store, release("lock:s", *token)).await, Reply::Released);
        }
        assert_eq!(notices.granted().await.0, 4);
        assert_eq!(server.command(&["TYPE", "lock:s"]), "string");
        assert_eq!(server.immortal(), Vec::<String>::new());
    });
}

#[test]
fn blocks_of_fences_do_not_overlap() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let mut last = 0;
        for _ in 0..50 {
            let token = Token::random();
            let block = |fences| Request::Acquire(AcquireRequest { fences, ..terms("lock:a", token) });
            let first = fence(ask(&store, block(100)).await).0;
            assert!(first > last, "{first} after {last}");
            assert_eq!(info(&store, "lock:a").await.unwrap().fence.unwrap().0, first);
            assert_eq!(fence(ask(&store, block(1)).await).0, first, "the same lease");
            let second = fence(ask(&store, block(10)).await).0;
            assert!(second > first + 99, "{second}");
            let ttl = terms("lock:a", token).ttl;
            match ask(&store, Request::Renew { key: "lock:a".into(), token, ttl, fences: 1000 }).await {
                Reply::Renewed { block: Some((third, 0)) } => {
                    assert!(third.0 > second + 9, "{third:?}");
                    last = third.0 + 999;
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(
                info(&store, "lock:a").await.unwrap().fence.unwrap().0,
                second,
                "a renewal changes nothing"
            );
            assert_eq!(ask(&store, release("lock:a", token)).await, Reply::Released);
        }
    });
}

#[test]
fn one_of_two_adopters_wins() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        for make in
            [|key: &str, token| acquire(key, token, 10_000), |key: &str, token| share(key, token, 2, 0)]
        {
            let key = format!("lock:{}", Token::random());
            let (token, adopters) = (Token::random(), [Token::random(), Token::random()]);
            let fence = fence(ask(&store, make(&key, token)).await);
            let batch =
                adopters.iter().chain(&adopters).map(|adopter| adopt(&key, token, *adopter)).collect();
            let answers: Vec<_> = all(&store, batch).await.into_iter().map(Result::unwrap).collect();
            let taken = Reply::NotHeld(Absence::Taken);
            let adopted: Vec<bool> = answers.iter().map(Reply::is_adopted).collect();
            assert_eq!(adopted, [true, false, true, false]);
            assert_eq!([&answers[1], &answers[3]], [&taken, &taken]);
            let known = info(&store, &key).await.unwrap();
            assert_eq!((known.holder.as_deref(), known.fence), (Some("an adopter"), Some(fence)));
            assert!(known.remaining.unwrap().as_secs() > 50);
            assert_eq!(ask(&store, renew(&key, token, 1_000)).await, taken);
            assert_eq!(ask(&store, release(&key, token)).await, taken);
            assert_eq!(ask(&store, renew(&key, adopters[0], 1_000)).await, RENEWED);
            assert_eq!(ask(&store, release(&key, adopters[0])).await, Reply::Released);
            assert_eq!(ask(&store, inspect(&key)).await, Reply::Inspected(None));
        }
    });
}
