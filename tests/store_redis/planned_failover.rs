//! Tests planned failovers of Sentinel: leases and releases of that time are at the next master.

use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::lease::{Fence, Token};
use leasehold::store::redis::RedisStore;
use leasehold::store::{Reply, StoreErrorKind};

use crate::ask::{accept, acquire, ask, fence, granted, info, release, run, within};
use crate::group::{Group, NAME};
use crate::server::store;

#[test]
fn a_lease_granted_during_a_planned_failover_is_at_the_next_master() {
    run(async {
        let group = Group::start();
        let url = format!("redis-sentinel://{}/{NAME}", group.sentinels[1].place());
        let store = store(&url);
        granted(&store, "lock:first", Token::random()).await;
        group.heard_by(1).await;
        let old = group.servers[0].port();
        let (mut held, mut refused, mut longest) = (Vec::new(), 0, Duration::ZERO);
        let mut last = Instant::now();
        group.fail_over();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            let (key, token) = (format!("lock:{}", held.len() + refused), Token::random());
            match within(&store, 3_000, acquire(&key, token, 60_000)).await {
                Ok(reply) => {
                    fence(reply);
                    held.push((key, token));
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                }
                Err(error) => {
                    assert!(error.kind == StoreErrorKind::ReadOnly || error.maybe_done, "{error}");
                    refused += 1;
                }
            }
        }
        let promoted = group.promoted(old).await;
        let missing: Vec<_> =
            held.iter().filter(|(key, token)| promoted.command(&["GET", key]) != token.to_string()).collect();
        assert!(missing.is_empty(), "{} of {} are not at the next master", missing.len(), held.len());
        assert!(held.len() > 100 && refused < 20, "{} granted, {refused} refused", held.len());
        assert!(longest < Duration::from_secs(2), "nothing was granted for {longest:?}");
    });
}

/// A quorum tells its nodes the fence of a lease right after the grant. The grant may come before
/// the failover, and the fence after it.
#[test]
fn a_fence_accepted_during_a_planned_failover_is_at_the_next_master() {
    run(async {
        let group = Group::start();
        let (a, b) = (group.store(), group.store());
        let leases = leases_at_all(&group, &a, &b).await;
        let old = group.servers[0].port();
        group.fail_over();
        let (mut accepted, mut refused) = (Vec::new(), 0);
        for (number, (key, token)) in leases.iter().enumerate() {
            let fence = Fence(8_000_000_000_000_000 + number as u64);
            match within(&a, 3_000, accept(key, *token, fence)).await {
                Ok(reply) => {
                    assert_eq!(reply, Reply::Accepted);
                    accepted.push((key, fence));
                }
                Err(error) => {
                    assert!(error.kind == StoreErrorKind::ReadOnly || error.maybe_done, "{error}");
                    refused += 1;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let promoted = store(&group.promoted(old).await.url());
        let mut missing = 0;
        for (key, fence) in &accepted {
            missing += usize::from(info(&promoted, key).await.and_then(|lease| lease.fence) != Some(*fence));
        }
        assert_eq!(missing, 0, "of {} accepted fences are not at the next master", accepted.len());
        assert!(accepted.len() > 30 && refused < 20, "{} accepted, {refused} refused", accepted.len());
    });
}

/// Acquires 60 locks by `a` and one by `b`. Returns the leases of `a` when all servers of the group
/// have them and both stores get notices of failovers.
async fn leases_at_all(group: &Group, a: &Rc<RedisStore>, b: &Rc<RedisStore>) -> Vec<(String, Token)> {
    let leases: Vec<_> = (0..60).map(|number| (format!("lock:{number}"), Token::random())).collect();
    for (key, token) in &leases {
        granted(a, key, *token).await;
    }
    granted(b, "lock:b", Token::random()).await;
    group.heard_by(2).await;
    assert_eq!(group.servers[0].command(&["WAIT", "2", "5000"]), "2");
    leases
}

#[test]
fn a_lease_released_during_a_planned_failover_is_free_at_the_next_master() {
    run(async {
        let group = Group::start();
        let (a, b) = (group.store(), group.store());
        let leases = leases_at_all(&group, &a, &b).await;
        group.fail_over();
        let began = Instant::now();
        for (key, token) in &leases {
            // Releases do not wait for the failover.
            assert_eq!(within(&a, 300, release(key, *token)).await.unwrap(), Reply::Released);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        group.promoted(group.servers[0].port()).await;
        let switched = Instant::now();
        for (key, _) in &leases {
            while let Reply::Busy { .. } = ask(&b, acquire(key, Token::random(), 60_000)).await {
                assert!(switched.elapsed() < Duration::from_secs(1), "{key} is not free");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
}

#[test]
fn a_release_is_repeated_until_the_next_master_carries_it_out() {
    run(async {
        let group = Group::start();
        let (a, b) = (group.store(), group.store());
        let leases = leases_at_all(&group, &a, &b).await;
        // The next master refuses scripts on these locks for a while.
        for replica in &group.servers[1..] {
            assert_eq!(replica.command(&["ACL", "SETUSER", "default", "resetkeys", "~other:*"]), "OK");
        }
        group.fail_over();
        let mut released = Vec::new();
        for (key, token) in &leases {
            match within(&a, 300, release(key, *token)).await {
                Ok(reply) => assert_eq!(reply, Reply::Released),
                // This one was sent to the new master.
                Err(_) => break,
            }
            released.push(key);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(released.len() > 5, "{}", released.len());
        group.promoted(group.servers[0].port()).await;
        // More time than one attempt takes.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        for server in &group.servers {
            assert_eq!(server.command(&["ACL", "SETUSER", "default", "allkeys"]), "OK");
        }
        let mended = Instant::now();
        for key in released {
            while let Reply::Busy { .. } = ask(&b, acquire(key, Token::random(), 60_000)).await {
                assert!(mended.elapsed() < Duration::from_secs(3), "{key} is not free");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
}
