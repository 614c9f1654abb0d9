//! Tests large batches and many keys.

use leasehold::lease::Token;
use leasehold::store::{Absence, Reply, Request};

use crate::ask::{RENEWED, acquire, all, inspect, release, renew, run};
use crate::server::Server;

#[test]
fn five_thousand_mixed_requests_are_answered_in_order() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let leases: Vec<(String, Token)> = (0..500).map(|i| (format!("lock:{i}"), Token::random())).collect();
        // The batch has runs of one kind of request, forwards and backwards, and then kinds in turn
        // for the same key.
        let mut batch = Vec::new();
        batch.extend(leases.iter().map(|(key, token)| acquire(key, *token, 60_000)));
        batch.extend(leases.iter().map(|(key, _)| acquire(key, Token::random(), 60_000)));
        batch.extend(leases.iter().rev().map(|(key, token)| renew(key, *token, 60_000)));
        batch.extend(leases.iter().rev().map(|(key, _)| inspect(key)));
        for (key, token) in &leases {
            let stranger = renew(key, Token::random(), 60_000);
            batch.extend([Request::Ping, stranger, inspect(key), release(key, *token)]);
        }
        batch.extend(leases.iter().map(|(key, token)| release(key, *token)));
        batch.extend(leases.iter().map(|(key, _)| inspect(key)));
        assert_eq!(batch.len(), 5000);

        let mut replies = all(&store, batch).await.into_iter().map(|answer| answer.expect("an answer"));
        let mut next = |count: usize| replies.by_ref().take(count).collect::<Vec<_>>();
        let fences: Vec<_> = next(500)
            .into_iter()
            .map(|reply| match reply {
                Reply::Acquired { fence, .. } => fence,
                other => panic!("expected a lease, got {other:?}"),
            })
            .collect();
        let shows = |reply: &Reply, fence| matches!(reply, Reply::Inspected(Some(i)) if i.leases[0].fence == Some(fence));
        assert!(next(500).iter().all(|reply| matches!(reply, Reply::Busy { remaining: Some(_) })));
        assert!(next(500).iter().all(|reply| *reply == RENEWED));
        assert!(next(500).iter().zip(fences.iter().rev()).all(|(reply, fence)| shows(reply, *fence)));
        for fence in fences {
            let [ready, stranger, seen, released] = &next(4)[..] else { panic!("four replies") };
            assert_eq!((ready, stranger), (&Reply::Ready, &Reply::NotHeld(Absence::Taken)));
            assert!(shows(seen, fence), "{seen:?}");
            assert_eq!(released, &Reply::Released);
        }
        assert!(next(500).iter().all(|reply| *reply == Reply::NotHeld(Absence::Missing)));
        assert!(next(500).iter().all(|reply| *reply == Reply::Inspected(None)));
    });
}

#[test]
fn ten_thousand_released_keys_leave_only_keys_that_expire() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        for thousand in 0..10 {
            let leases: Vec<_> =
                (0..1000).map(|i| (format!("lock:{thousand}-{i}"), Token::random())).collect();
            let acquires = leases.iter().map(|(key, token)| acquire(key, *token, 60_000)).collect();
            assert!(all(&store, acquires).await.iter().all(|a| matches!(a, Ok(Reply::Acquired { .. }))));
            let releases = leases.iter().map(|(key, token)| release(key, *token)).collect();
            assert!(all(&store, releases).await.iter().all(|a| matches!(a, Ok(Reply::Released))));
        }
        assert_eq!(server.command(&["DBSIZE"]), "10000", "the fences are left");
        let lives = "local least, most = math.huge, -1
                     for _, key in ipairs(redis.call('KEYS', '*')) do
                       local left = redis.call('PTTL', key)
                       least, most = math.min(least, left), math.max(most, left)
                     end
                     return { least, most }";
        let lives = server.command(&["EVAL", lives, "0"]);
        let (least, most) = lives.split_once('\n').expect("two numbers");
        let (least, most): (i64, i64) = (least.parse().unwrap(), most.parse().unwrap());
        assert!(least >= 0 && most <= 3_600_000 + 60_000, "{least} to {most} ms");
    });
}
