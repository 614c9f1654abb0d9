//! Tests promises 1 and 7 for shared leases: semaphores, readers and writers.

use leasehold::lease::{Mode, Token};
use leasehold::store::{AcquireRequest, Reply, Request, StoreErrorKind};

use super::LONG;
use crate::asking::*;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

/// The mode of a reader.
const READER: Mode = Mode::Shared { most: u32::MAX };

/// A quorum does not count permits. For a quorum, this checks that it refuses a semaphore.
pub async fn shared_leases_are_granted_up_to_the_limit(place: &dyn Fixture) {
    const MOST: u32 = 3;
    let clients = [place.open(), place.open()];
    let key = fresh_key("k");
    let permit = |i: usize| Waiter::new(&clients[i % 2], &key, &format!("p{i}"), Mode::Shared { most: MOST });
    let permits: Vec<Waiter> = (0..6).map(permit).collect();
    if !place.counts_permits() {
        let request = Request::Acquire(permits[0].request.clone());
        let refused =
            answers(&clients[0], vec![request]).await.remove(0).expect_err("a quorum has no semaphores");
        assert_eq!((refused.kind, refused.maybe_done), (StoreErrorKind::Unsupported, false), "{refused}");
        assert_eq!(info(&clients[1], &key).await, None);
        return;
    }
    let mut fences = Vec::new();
    for permit in &permits[..3] {
        fences.push(permit.granted().await);
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    // A repeated acquire takes no second permit.
    assert_eq!(permits[1].granted().await, fences[1]);
    let without_place = AcquireRequest { place: None, token: Token::random(), ..permits[3].request.clone() };
    let busy = ask(&clients[0], Request::Acquire(without_place.clone())).await;
    assert!(matches!(busy, Reply::Busy { remaining: Some(_) }), "{busy:?}");
    for (ahead, permit) in permits[3..].iter().enumerate() {
        assert_eq!(permit.queued().await as usize, ahead);
    }
    assert_eq!(info(&clients[1], &key).await.expect("held").leases.len(), MOST as usize);
    // One holder releases, and one waiter gets a permit.
    permits[1].released().await;
    assert_eq!((permits[4].queued().await, permits[5].queued().await), (0, 1));
    assert!(permits[3].granted().await > fences[2]);
    assert!(matches!(ask(&clients[0], Request::Acquire(without_place)).await, Reply::Busy { .. }));
    // All other holders release, and all waiters get permits.
    for permit in [&permits[0], &permits[2], &permits[3]] {
        permit.released().await;
    }
    permits[5].granted().await;
    permits[4].granted().await;
    for permit in &permits[4..] {
        permit.released().await;
    }
    assert_eq!(info(&clients[0], &key).await, None);
}

pub async fn shared_and_exclusive_leases_exclude_each_other(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let readers = [Waiter::new(&one, &key, "r1", READER), Waiter::new(&other, &key, "r2", READER)];
    let busy = |reply: Reply| assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}");
    for reader in &readers {
        reader.granted().await;
        busy(ask(&one, acquire(&key, Token::random(), LONG)).await);
    }
    readers[0].released().await;
    busy(ask(&other, acquire(&key, Token::random(), LONG)).await);
    readers[1].released().await;
    let writer = Token::random();
    granted(&other, &key, writer, LONG).await;
    for reader in &readers {
        busy(ask(&one, Request::Acquire(AcquireRequest { place: None, ..reader.request.clone() })).await);
    }
    assert_eq!(ask(&one, release(&key, writer)).await, Reply::Released);
    // The end of a reader's lease makes room for a writer only when all other readers have gone.
    let brief =
        AcquireRequest { ttl: ttl(2 * place.shortest_ttl()), place: None, ..readers[0].request.clone() };
    fence(ask(&one, Request::Acquire(brief)).await);
    readers[1].granted().await;
    tokio::time::sleep(ttl(3 * place.shortest_ttl()).as_duration()).await;
    busy(ask(&one, acquire(&key, Token::random(), LONG)).await);
    assert_eq!(info(&one, &key).await.expect("held").leases.len(), 1);
    readers[1].released().await;
    granted(&one, &key, Token::random(), LONG).await;
}

pub async fn a_writer_is_not_starved_by_later_readers(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let reader = Waiter::new(&one, &key, "reader", READER);
    reader.granted().await;
    let writer = Waiter::exclusive(&other, &key, "writer");
    assert_eq!(writer.queued().await, 0);
    let late = [Waiter::new(&one, &key, "late-1", READER), Waiter::new(&other, &key, "late-2", READER)];
    for (i, reader) in late.iter().enumerate() {
        let without_place = AcquireRequest { place: None, token: Token::random(), ..reader.request.clone() };
        let reply = ask(&one, Request::Acquire(without_place)).await;
        assert!(matches!(reply, Reply::Busy { .. }), "a reader without a place overtakes: {reply:?}");
        assert_eq!(reader.queued().await as usize, i + 1);
    }
    // The reader keeps its lease.
    reader.granted().await;
    reader.released().await;
    writer.granted().await;
    assert_eq!((late[0].queued().await, late[1].queued().await), (0, 1));
    writer.released().await;
    late[1].granted().await;
    late[0].granted().await;
}

pub async fn one_release_hands_leases_to_all_readers_in_front(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    let key = fresh_key("k");
    let writer = Waiter::exclusive(&clients[0], &key, "writer");
    writer.granted().await;
    let modes = [READER, READER, READER, Mode::Exclusive, READER];
    let waiter = |(i, mode): (usize, &Mode)| Waiter::new(&clients[i % 2], &key, &format!("w{i}"), *mode);
    let waiters: Vec<Waiter> = modes.iter().enumerate().map(waiter).collect();
    for (ahead, waiter) in waiters.iter().enumerate() {
        assert_eq!(waiter.queued().await as usize, ahead);
    }
    writer.released().await;
    let (holders, waiting) = names(&clients[1], &key).await;
    assert_eq!(holders.len(), 3, "{holders:?}");
    assert_eq!(waiting, ["w3", "w4"]);
    for waiter in &waiters[..3] {
        waiter.client.notices.granted(waiter.number()).await;
        waiter.granted().await;
    }
    let notice_counts = || waiters.iter().map(|w| w.client.notices.of(w.number())).collect::<Vec<_>>();
    for reader in [&waiters[2], &waiters[0], &waiters[1]] {
        assert_eq!(waiters[3].queued().await, 0);
        assert_eq!(notice_counts(), [1, 1, 1, 0, 0]);
        reader.released().await;
    }
    waiters[3].client.notices.granted(waiters[3].number()).await;
    waiters[3].granted().await;
    assert_eq!(waiters[4].queued().await, 0);
    waiters[3].released().await;
    waiters[4].client.notices.granted(waiters[4].number()).await;
    waiters[4].granted().await;
    assert_eq!(notice_counts(), [1; 5]);
}

pub async fn a_writer_that_gives_up_makes_way_for_the_readers_behind_it(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let reader = Waiter::new(&one, &key, "reader", READER);
    reader.granted().await;
    let writer = Waiter::exclusive(&one, &key, "writer");
    let behind = [Waiter::new(&one, &key, "b1", READER), Waiter::new(&other, &key, "b2", READER)];
    assert_eq!(
        (writer.queued().await, behind[0].queued().await, behind[1].queued().await),
        (0, 1, 2),
        "no reader overtakes the writer"
    );
    assert!(matches!(writer.release().await, Reply::NotHeld(_)));
    for waiter in &behind {
        waiter.client.notices.granted(waiter.number()).await;
        waiter.granted().await;
    }
    let info = info(&one, &key).await.expect("held");
    assert!(info.shared && info.leases.len() == 3 && info.waiters.is_empty(), "{info:?}");
}
