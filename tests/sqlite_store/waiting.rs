//! Tests processes that hand a lock to each other, and the queue when one of them dies or freezes.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::engine::clock;
use leasehold::lease::{Fence, Mode, Token, Ttl};
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{GRANT_TTL, LockInfo, Notice, Reply, Request, Source, Store, WAITER_LIFE};

use crate::support::*;
use crate::waiter::{KEY, Waiter, listen, queue_request};

const X: Mode = Mode::Exclusive;
const S: Mode = Mode::Shared { most: 1_000 };

/// The promise is 200 ms. The rest allows for a busy machine.
const SOON: u64 = 400_000;

fn now() -> u64 {
    clock::now().as_micros()
}

/// Returns the number of leases and of waiters in the file.
fn rows(path: &Path) -> (u32, u32) {
    let file = rusqlite::Connection::open(path).unwrap();
    let count =
        |table| file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
    (count("leases"), count("waiters"))
}

/// Inspects the lock until it is as expected.
async fn inspect_until(store: &std::rc::Rc<SqliteStore>, expected: impl Fn(&Option<LockInfo>) -> bool) {
    let start = Instant::now();
    loop {
        let reply = ask(store, Request::Inspect { key: KEY.into() }).await;
        let Reply::Inspected(found) = reply else { panic!("{reply:?}") };
        if expected(&found) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{found:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn waiters(found: &Option<LockInfo>) -> usize {
    found.as_ref().map_or(0, |found| found.waiters.len())
}

#[test]
fn two_processes_hand_a_lock_to_each_other_by_notice() {
    let folder = Folder::fresh();
    let (mut one, mut other) = (Waiter::start(&folder.db()), Waiter::start(&folder.db()));
    let mut last = one.hold(X, 60_000).fence;
    let mut delays = Vec::new();
    for _ in 0..30 {
        assert_eq!(other.queue(X), 0);
        let released = one.release();
        let lease = other.lease();
        assert!(lease.by_notice && lease.fence > last, "{lease:?} after {last:?}");
        last = lease.fence;
        delays.push(lease.at - released);
        std::mem::swap(&mut one, &mut other);
    }
    delays.sort();
    assert!(delays[15] < 30_000, "{delays:?} µs");
    one.release();
    assert_eq!(rows(&folder.db()), (0, 0));
    one.end();
    other.end();
    assert_eq!(std::fs::read_dir(folder.join("locks.db.owners")).unwrap().count(), 0);
}

#[test]
fn the_lease_of_a_killed_holder_goes_to_the_first_waiter() {
    let folder = Folder::fresh();
    let [mut holder, mut first, mut second] = [(); 3].map(|()| Waiter::start(&folder.db()));
    let fence = holder.hold(X, 60_000).fence;
    assert_eq!((first.queue(X), second.queue(X)), (0, 1));
    let killed = now();
    holder.kill();
    let next = first.lease();
    assert!(next.by_notice && next.fence > fence && next.at - killed < SOON, "{next:?}, killed at {killed}");
    run(async {
        let store = SqliteStore::open(folder.db());
        inspect_until(&store, |found| waiters(found) == 1).await;
    });
    let killed = now();
    first.kill();
    let last = second.lease();
    assert!(
        last.by_notice && last.fence > next.fence && last.at - killed < SOON,
        "{last:?}, killed at {killed}"
    );
    second.release();
    assert_eq!(rows(&folder.db()), (0, 0));
    let owners = std::fs::read_dir(folder.join("locks.db.owners")).unwrap().count();
    assert_eq!(owners, 1, "the files of the dead owners are deleted");
}

#[test]
fn a_holder_that_ends_normally_hands_its_lease_over() {
    let folder = Folder::fresh();
    let [mut holder, mut first] = [(); 2].map(|()| Waiter::start(&folder.db()));
    holder.hold(X, 60_000);
    first.queue(X);
    holder.end();
    assert!(first.lease().by_notice);
}

#[test]
fn a_waiter_killed_before_its_grant_is_skipped() {
    let folder = Folder::fresh();
    let [mut holder, mut first, mut second] = [(); 3].map(|()| Waiter::start(&folder.db()));
    holder.hold(X, 60_000);
    assert_eq!((first.queue(X), second.queue(X)), (0, 1));
    first.kill();
    let released = holder.release();
    let lease = second.lease();
    assert!(lease.by_notice && lease.at - released < SOON, "{lease:?}, released at {released}");
    assert_eq!(rows(&folder.db()), (1, 0));
}

#[cfg(unix)]
#[test]
fn a_waiter_killed_between_its_grant_and_the_notice_is_skipped() {
    let folder = Folder::fresh();
    let [mut holder, mut first, mut second] = [(); 3].map(|()| Waiter::start(&folder.db()));
    holder.hold(X, 60_000);
    assert_eq!((first.queue(X), second.queue(X)), (0, 1));
    first.freeze();
    holder.release();
    assert_eq!(rows(&folder.db()), (1, 1), "the frozen waiter was handed the lease");
    let killed = now();
    first.kill();
    let lease = second.lease();
    assert!(lease.by_notice && lease.at - killed < SOON, "{lease:?}, killed at {killed}");
}

#[cfg(unix)]
#[test]
fn a_frozen_waiter_delays_the_queue_for_no_longer_than_its_grant() {
    let folder = Folder::fresh();
    let [mut holder, mut first, mut second] = [(); 3].map(|()| Waiter::start(&folder.db()));
    holder.hold(X, 60_000);
    assert_eq!((first.queue(X), second.queue(X)), (0, 1));
    first.freeze();
    let released = holder.release();
    let lease = second.lease();
    let waited = lease.at - released;
    let grant = GRANT_TTL.as_micros() as u64;
    assert!(waited >= grant && waited < grant + SOON, "{waited} µs");
    // The waiter asks again when it goes on, and is then at the end of the queue.
    first.thaw();
    let released = second.release();
    let late = first.lease();
    assert!(late.fence > lease.fence && late.at > released);
}

#[cfg(unix)]
#[test]
fn a_frozen_waiter_loses_its_place_and_gets_another_later() {
    let folder = Folder::fresh();
    let [mut holder, mut first, mut second] = [(); 3].map(|()| Waiter::start(&folder.db()));
    holder.hold(X, 60_000);
    assert_eq!((first.queue(X), second.queue(X)), (0, 1));
    first.freeze();
    let frozen = Instant::now();
    run(async {
        let store = SqliteStore::open(folder.db());
        inspect_until(&store, |found| waiters(found) == 1).await;
        assert!(frozen.elapsed() > WAITER_LIFE - Duration::from_millis(600), "{:?}", frozen.elapsed());
        first.thaw();
        inspect_until(&store, |found| waiters(found) == 2).await;
        let released = holder.release();
        let lease = second.lease();
        assert!(lease.at - released < SOON, "{lease:?}, released at {released}");
        second.release();
        assert!(first.lease().fence > lease.fence);
    });
}

#[cfg(unix)]
#[test]
fn the_lease_of_a_frozen_holder_is_handed_over_when_it_ends_without_a_request() {
    let folder = Folder::fresh();
    let mut holder = Waiter::start(&folder.db());
    run(async {
        let store = SqliteStore::open(folder.db());
        let mut notices = listen(&store);
        ask(&store, Request::Ping).await;
        let held = holder.hold(X, 500);
        holder.freeze();
        let token = Token::random();
        assert!(matches!(
            ask(&store, queue_request(KEY, token, 7)).await,
            Reply::Queued { notified: true, ahead: 0, .. }
        ));
        let notified = notices.recv().await;
        assert!(matches!(notified, Some(Notice::Granted { number: 7, fence: None })), "{notified:?}");
        let waited = now() - held.at;
        assert!(waited > 400_000 && waited < 500_000 + SOON, "{waited} µs");
        assert!(matches!(ask(&store, queue_request(KEY, token, 7)).await, Reply::Acquired { .. }));
        assert_eq!(notices.try_recv().ok(), None, "the waiter gets one notice");
    });
}

#[test]
fn waiters_of_one_process_get_one_notice_each_in_order() {
    let folder = Folder::fresh();
    run(async {
        let store = SqliteStore::open(folder.db());
        let mut notices = listen(&store);
        let tokens: Vec<Token> = (0..3).map(|_| Token::random()).collect();
        granted(&store, KEY, tokens[0], 60_000).await;
        for number in [1, 2] {
            let reply = ask(&store, queue_request(KEY, tokens[number], number as u64)).await;
            let ahead = number as u32 - 1;
            assert!(matches!(reply, Reply::Queued { ahead: found, .. } if found == ahead), "{reply:?}");
        }
        for number in [1, 2] {
            assert_eq!(ask(&store, release(KEY, tokens[number - 1])).await, Reply::Released);
            let notified = notices.recv().await;
            assert!(
                matches!(notified, Some(Notice::Granted { number: n, .. }) if n == number as u64),
                "{notified:?}"
            );
            let reply = ask(&store, queue_request(KEY, tokens[number], number as u64)).await;
            assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
        }
        assert_eq!(ask(&store, release(KEY, tokens[2])).await, Reply::Released);
        store.close().await;
        assert_eq!(notices.recv().await, None, "no waiter got a second notice");
        assert_eq!(rows(&folder.db()), (0, 0));
    });
}

#[test]
fn readers_and_writers_of_many_processes_keep_their_order() {
    let folder = Folder::fresh();
    let [mut holder, mut one, mut two, mut writer, mut three] = [(); 5].map(|()| Waiter::start(&folder.db()));
    holder.hold(X, 60_000);
    assert_eq!([&mut one, &mut two].map(|reader| reader.queue(S)), [0, 1]);
    assert_eq!((writer.queue(X), three.queue(S)), (2, 3));
    holder.release();
    let (a, b) = (one.lease(), two.lease());
    run(async {
        let store = SqliteStore::open(folder.db());
        inspect_until(&store, |found| waiters(found) == 2).await;
        one.release();
        // The writer fits with no reader, and blocks the waiter behind it.
        inspect_until(&store, |found| {
            found
                .as_ref()
                .is_some_and(|found| found.shared && found.leases.len() == 1 && found.waiters.len() == 2)
        })
        .await;
    });
    two.release();
    let written = writer.lease();
    assert!(written.fence > a.fence.max(b.fence));
    assert_eq!(rows(&folder.db()), (1, 1));
    writer.release();
    assert!(three.lease().fence > written.fence);
    three.release();
    assert_eq!(rows(&folder.db()), (0, 0));
}

#[test]
fn a_semaphore_never_has_more_holders_than_permits() {
    let folder = Folder::fresh();
    let two = Mode::Shared { most: 2 };
    let [mut a, mut b, mut c] = [(); 3].map(|()| Waiter::start(&folder.db()));
    a.hold(two, 60_000);
    b.hold(two, 60_000);
    c.queue(two);
    b.kill();
    let killed = now();
    let lease = c.lease();
    assert!(lease.by_notice && lease.at.saturating_sub(killed) < SOON, "{lease:?}, killed at {killed}");
    a.release();
    c.release();
    assert_eq!(rows(&folder.db()), (0, 0));
}

#[test]
fn a_detached_lease_outlives_its_process_and_ends_with_that_of_its_adopter() {
    let folder = Folder::fresh();
    for how in ["ends", "is killed"] {
        let [mut old, mut adopter, mut next] = [(); 3].map(|()| Waiter::start(&folder.db()));
        old.hold(X, 60_000);
        let token = old.detach(60_000);
        next.queue(X);
        if how == "ends" {
            old.end();
        } else {
            old.kill();
        }
        run(async {
            let store = SqliteStore::open(folder.db());
            assert!(is_busy(&store, KEY).await, "{how}");
            adopter.adopt(token);
            let (ttl, holder) = (Ttl::from_millis(60_000).unwrap(), "late".into());
            let late = Request::Adopt {
                key: KEY.into(),
                token,
                adopter: Token::random(),
                ttl,
                holder,
                outlives_process: false,
                source: Source::Ticket { fence: Fence(1), with_ttl: false },
            };
            assert!(matches!(ask(&store, late).await, Reply::NotHeld(_)), "a lease has one adopter");
            assert!(is_busy(&store, KEY).await, "{how}");
            let killed = now();
            adopter.kill();
            let lease = next.lease();
            assert!(lease.by_notice && lease.at - killed < SOON, "{lease:?}, killed at {killed}");
        });
        next.release();
        next.end();
        assert_eq!(rows(&folder.db()), (0, 0));
    }
}

#[test]
fn a_detached_lease_without_an_adopter_is_handed_over_when_its_ttl_ends() {
    let folder = Folder::fresh();
    let [mut old, mut next] = [(); 2].map(|()| Waiter::start(&folder.db()));
    let held = old.hold(X, 1_000);
    old.detach(1_000);
    next.queue(X);
    old.kill();
    let lease = next.lease();
    let waited = lease.at - held.at;
    assert!((990_000..1_000_000 + 2 * SOON).contains(&waited), "{waited} µs");
}

#[test]
fn waiters_in_a_replaced_file_get_a_notice_to_ask_again() {
    let folder = Folder::fresh();
    run(async {
        let store = SqliteStore::open(folder.db());
        let mut notices = listen(&store);
        granted(&store, KEY, Token::random(), 60_000).await;
        let token = Token::random();
        assert!(matches!(ask(&store, queue_request(KEY, token, 1)).await, Reply::Queued { .. }));
        for end in ["", "-wal", "-shm"] {
            let mut path = folder.db().into_os_string();
            path.push(end);
            std::fs::remove_file(path).unwrap();
        }
        // No store grants the lock before this notice is dropped.
        assert!(matches!(notices.recv().await, Some(Notice::Lost(_))));
        assert!(matches!(ask(&store, queue_request(KEY, token, 1)).await, Reply::Acquired { .. }));
    });
}
