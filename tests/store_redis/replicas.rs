//! Tests which leases replicas have when the master is gone, and leases that count only when
//! replicas have them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::lease::{Fence, Token};
use leasehold::store::redis::RedisStore;
use leasehold::store::{Access, Reply, Request, Store, StoreErrorKind};
use rustix::process::Signal;

use crate::ask::{
    Notices, RENEWED, accept, acquire, adopt, all, ask, fence, granted, info, inspect, queue, queued,
    release, renew, run, share, within,
};
use crate::server::{Server, store_with};

fn store(server: &Server, min_replicas: u32) -> Rc<RedisStore> {
    store_with(&server.url(), &Access { min_replicas, ..Access::default() })
}

#[test]
fn a_lease_counts_when_enough_replicas_have_it() {
    run(async {
        let master = Server::start(&[]);
        let replica = Server::replica_of(&master);
        let store = store(&master, 1);
        let token = Token::random();
        let first = granted(&store, "lock:a", token).await;
        assert_eq!(ask(&store, accept("lock:a", token, first)).await, Reply::Accepted);
        assert_eq!(replica.command(&["GET", "lock:a"]), token.to_string());
        assert_eq!(ask(&store, renew("lock:a", token, 60_000)).await, RENEWED);
        let answers =
            all(&store, vec![Request::Ping, inspect("lock:a"), acquire("lock:b", token, 60_000)]).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");

        replica.signal(Signal::STOP);
        let began = Instant::now();
        let batch = vec![
            acquire("lock:c", token, 60_000),
            renew("lock:a", token, 60_000),
            accept("lock:a", token, Fence(first.0 + 1)),
            adopt("lock:b", token, Token::random()),
            renew("lock:none", token, 60_000),
            accept("lock:none", token, first),
            inspect("lock:a"),
            acquire("lock:a", Token::random(), 60_000),
        ];
        let answers = store.clone().execute(batch, Duration::from_millis(400)).await;
        assert!((200..390).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        for answer in &answers[..4] {
            let error = answer.as_ref().expect_err("no replica has the lease or its fence");
            assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreplicated, true), "{error}");
            assert!(error.message.contains("fewer than the 1 of minReplicas"), "{error}");
        }
        // Answers that give no lease and no fence count without replicas.
        assert!(answers[4..].iter().all(Result::is_ok), "{answers:?}");
        assert!(matches!(answers[7], Ok(Reply::Busy { .. })), "{answers:?}");

        replica.signal(Signal::CONT);
        // When the request is repeated, the replicas have the lease.
        let again = fence(ask(&store, acquire("lock:c", token, 60_000)).await);
        assert!(again > first);
        assert_eq!(replica.command(&["GET", "lock:c"]), token.to_string());
    });
}

#[test]
fn a_waiter_that_is_handed_a_lease_waits_for_replicas() {
    run(async {
        let master = Server::start(&[]);
        let replica = Server::replica_of(&master);
        let (a, b) = (store(&master, 0), store(&master, 1));
        let mut notices = Notices::of(&b);
        for batch in [1, 2] {
            // Release the lock once in a batch of its own, and once together with another one.
            let (one, two) = (Token::random(), Token::random());
            granted(&a, "lock:a", one).await;
            assert_eq!(queued(ask(&b, queue("lock:a", two, batch)).await), (0, true));
            let releases = [release("lock:a", one), release("lock:other", one)];
            all(&a, releases[..batch as usize].to_vec()).await;
            assert_eq!(notices.granted().await, (batch, None), "the notice has no fence");
            replica.signal(Signal::STOP);
            let error = within(&b, 300, queue("lock:a", two, batch)).await.unwrap_err();
            assert!(error.maybe_done && error.message.contains("fewer than the 1 of minReplicas"), "{error}");
            replica.signal(Signal::CONT);
            fence(ask(&b, queue("lock:a", two, batch)).await);
            assert_eq!(replica.command(&["GET", "lock:a"]), two.to_string());
            assert_eq!(ask(&b, release("lock:a", two)).await, Reply::Released);
        }
    });
}

#[test]
fn a_failover_loses_leases_without_a_replica_and_the_fence_still_grows() {
    run(async {
        let mut master = Server::start(&[]);
        let replica = Server::replica_of(&master);
        let token = Token::random();
        let earlier = granted(&store(&master, 0), "lock:a", token).await;
        ask(&store(&master, 0), release("lock:a", token)).await;
        assert_eq!(master.command(&["WAIT", "1", "5000"]), "1");
        // The connection between the two is cut.
        assert_eq!(replica.command(&["REPLICAOF", "127.0.0.1", "1"]), "OK");

        let lost = granted(&store(&master, 0), "lock:a", token).await;
        assert!(lost > earlier);
        // A client that waits for the replica is not granted a lease that the replica does not
        // have.
        let waiting_for_replica = store(&master, 1);
        let error = within(&waiting_for_replica, 300, acquire("lock:b", token, 60_000)).await.unwrap_err();
        assert!(error.maybe_done && error.message.contains("fewer than the 1 of minReplicas"), "{error}");

        master.kill();
        assert_eq!(replica.command(&["REPLICAOF", "NO", "ONE"]), "OK");
        let new = store(&replica, 0);
        assert_eq!(info(&new, "lock:a").await, None, "the new master does not know the lease");
        let next = granted(&new, "lock:a", Token::random()).await;
        assert!(
            next > lost,
            "two clients hold the lock, and only storage that checks fences is safe: {next:?} after {lost:?}"
        );
    });
}

#[test]
fn a_server_without_replicas_grants_no_lease_that_needs_replicas() {
    run(async {
        let server = Server::start(&[]);
        let store = store(&server, 2);
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
        // The server answers within the timeout of the batch. If the client's own timeout ended
        // first, the message would be another one.
        let token = Token::random();
        let error = within(&store, 1_000, acquire("lock:a", token, 60_000)).await.unwrap_err();
        assert!(error.message.contains("fewer than the 2 of minReplicas"), "{error}");
        // A release does not wait for replicas. If it did, it would take the whole timeout of
        // `ask`.
        let began = Instant::now();
        assert_eq!(ask(&store, release("lock:a", token)).await, Reply::Released);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    });
}

/// On some servers (Valkey 8), WAIT ends at once for a connection that has written nothing. A lease
/// that another connection wrote counts only when replicas have it. So every grant, renewal and
/// accepted fence has to write.
#[test]
fn a_repeated_grant_is_written_again() {
    run(async {
        let master = Server::start(&["--repl-ping-replica-period", "3600"]);
        let _replica = Server::replica_of(&master);
        let store = store(&master, 0);
        let written = || {
            let info = master.command(&["INFO", "replication"]);
            let offset = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap();
            offset.trim().parse::<u64>().unwrap()
        };
        let exclusive = |token| acquire("lock:a", token, 1_000);
        let shared = |token| share("lock:b", token, 3, 0);
        let (one, two) = (Token::random(), Token::random());
        let fence_of_one = fence(ask(&store, exclusive(one)).await);
        let fence_of_two = fence(ask(&store, shared(two)).await);
        // These leases end later than the requests below ask for. The same is true in the
        // millisecond in which a lease is handed over.
        for key in ["lock:a", "{lock:a}:fence", "{lock:b}:fence"] {
            assert_eq!(master.command(&["PEXPIRE", key, "7200000"]), "1");
        }
        let ends = master.command(&["ZRANGE", "lock:b", "0", "0", "WITHSCORES"]);
        let later = ends.lines().last().unwrap().parse::<u64>().unwrap() + 7_200_000;
        master.command(&["ZADD", "lock:b", &later.to_string(), &two.to_string()]);
        for (request, what) in [
            (exclusive(one), "an acquire"),
            (shared(two), "a shared acquire"),
            (renew("lock:a", one, 1_000), "a renewal"),
            (renew("lock:b", two, 1_000), "a shared renewal"),
            (accept("lock:a", one, fence_of_one), "an accepted fence"),
            (accept("lock:b", two, fence_of_two), "an accepted fence of a shared lease"),
        ] {
            let before = written();
            assert!(ask(&store, request).await.is_of_lease());
            assert!(written() > before, "{what} wrote nothing");
        }
    });
}
