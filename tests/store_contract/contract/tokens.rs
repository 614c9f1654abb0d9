//! Tests promises 2 to 4, about tokens and fences.

use std::time::Duration;

use leasehold::engine::clock;
use leasehold::lease::{Fence, Mode, Token};
use leasehold::store::{Absence, AcquireRequest, Reply, Request};

use super::{GRAIN, LONG, SLACK};
use crate::asking::*;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

// Promise 2: fences grow.

pub async fn fences_grow_over_releases_expiries_and_clients(place: &dyn Fixture) {
    let stores = [place.open(), place.open()];
    let key = fresh_key("k");
    let mut last = Fence(0);
    for i in 0..20 {
        let token = Token::random();
        let fence = granted(&stores[i % 2], &key, token, LONG).await;
        assert!(fence > last && fence <= Fence::MAX, "{fence:?} after {last:?}");
        last = fence;
        assert_eq!(ask(&stores[(i + 1) % 2], release(&key, token)).await, Reply::Released);
    }
    for i in 0..3 {
        let fence = granted(&stores[i % 2], &key, Token::random(), place.shortest_ttl()).await;
        assert!(fence > last, "{fence:?} after {last:?}");
        let Granted { fence, token, .. } = granted_in_the_end(&stores[i % 2], &key).await;
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        ask(&stores[0], release(&key, token)).await;
    }
}

/// Waits until the wall clock is past `fence`. A real restart takes at least a microsecond for each
/// fence; replacing a store in memory may be faster.
async fn clock_is_past(fence: Fence) {
    while clock::wall_us() <= fence.0 {
        tokio::task::yield_now().await;
    }
}

pub async fn fences_grow_over_a_restart(place: &dyn Fixture) {
    let key = fresh_key("k");
    let mut last = Fence(0);
    let mut store = place.open();
    for _ in 0..4 {
        let token = Token::random();
        let fence = granted(&store, &key, token, LONG).await;
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        ask(&store, release(&key, token)).await;
        clock_is_past(last).await;
        store = place.reopen(vec![store]).await;
    }
}

pub async fn a_block_of_fences_is_below_every_later_grant(place: &dyn Fixture) {
    const BLOCK: u32 = 50;
    let stores = [place.open(), place.open()];
    let key = fresh_key("k");
    let mut end = Fence(0);
    for i in 0..6 {
        let token = Token::random();
        let count = if i % 3 == 2 { 1 } else { BLOCK };
        let first = fence(ask(&stores[i % 2], acquire_block(&key, token, LONG, count)).await);
        assert!(first > end, "{first:?} after {end:?}");
        end = Fence(first.0 + u64::from(count) - 1);
        if count > 1 {
            // If the answer was lost, the fences of a block may have been used, so the next block
            // is another one.
            let again = fence(ask(&stores[i % 2], acquire_block(&key, token, LONG, count)).await);
            assert!(again > end, "{again:?} after {end:?}");
            end = Fence(again.0 + u64::from(count) - 1);
        }
        assert_eq!(ask(&stores[(i + 1) % 2], release(&key, token)).await, Reply::Released);
    }
    // Test a hand-over, too, and a restart.
    let holder = granted(&stores[0], &key, Token::random(), 2 * place.shortest_ttl()).await;
    assert!(holder > end, "{holder:?} after {end:?}");
    let mut waiter = Waiter::exclusive(&stores[1], &key, "waiter");
    waiter.request.fences = BLOCK;
    let first = waiter.served().await;
    assert!(first > holder, "{first:?} after {holder:?}");
    let end = Fence(first.0 + u64::from(BLOCK) - 1);
    waiter.released().await;
    clock_is_past(end).await;
    let store = place.reopen(stores.into()).await;
    let next = granted(&store, &key, Token::random(), LONG).await;
    assert!(next > end, "{next:?} after {end:?}");
}

pub async fn a_renewal_reserves_fences_and_returns_the_number_of_waiters(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token) = (fresh_key("k"), Token::random());
    let reserved = |reply: Reply| match reply {
        Reply::Renewed { block: Some((first, waiting)) } => (first, waiting),
        other => panic!("expected a block of fences, got {other:?}"),
    };
    let first = granted(&one, &key, token, LONG).await;
    let (block, waiting) = reserved(ask(&one, renew_block(&key, token, LONG, 20)).await);
    assert!(block > first && waiting == 0, "{block:?}, {waiting}");
    let waiters = [("a", &one), ("b", &other), ("c", &one)].map(|(n, of)| Waiter::exclusive(of, &key, n));
    for (ahead, waiter) in waiters.iter().enumerate() {
        assert_eq!(waiter.queued().await as usize, ahead);
    }
    let (next, waiting) = reserved(ask(&one, renew_block(&key, token, LONG, 20)).await);
    assert!(next.0 >= block.0 + 20 && waiting == 3, "{next:?} after {block:?}, {waiting}");
    assert_eq!(ask(&one, renew(&key, token, LONG)).await, RENEWED);
    assert_eq!(
        ask(&other, renew_block(&key, Token::random(), LONG, 20)).await,
        Reply::NotHeld(Absence::Taken)
    );
    waiters[1].release().await;
    let Reply::Acquired { waiting, .. } = ask(&one, acquire(&key, token, LONG)).await else {
        panic!("the lease is held")
    };
    assert_eq!(waiting, 2);
    assert_eq!(ask(&one, release(&key, token)).await, Reply::Released);
    let Reply::Acquired { fence, waiting } = waiters[0].ask().await else {
        panic!("the lease was handed over")
    };
    assert!(fence.0 >= next.0 + 20 && waiting == 1, "{fence:?} after {next:?}, {waiting}");
}

pub async fn fences_grow_beyond_used_fences_and_blocks_of_broken_leases(place: &dyn Fixture) {
    const BLOCK: u32 = 64;
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let held = async |token| fence(ask(&one, acquire_block(&key, token, LONG, BLOCK)).await);
    for count in [1, 2, BLOCK / 2, BLOCK] {
        let token = Token::random();
        let used = held(token).await.last_of(count);
        assert_eq!(ask(&one, give_back(&key, token, used)).await, Reply::Released);
        let next = Token::random();
        let fence = granted(&other, &key, next, LONG).await;
        assert!(fence > used, "{fence:?} after {count} of {BLOCK}, {used:?}");
        // The release is repeated. The next holder releases, too.
        assert_eq!(ask(&one, give_back(&key, token, used)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(ask(&other, give_back(&key, next, fence)).await, Reply::Released);
    }
    // The holder gets more fences, and a waiter is in the queue.
    let token = Token::random();
    held(token).await;
    let Reply::Renewed { block: Some((more, _)) } = ask(&one, renew_block(&key, token, LONG, BLOCK)).await
    else {
        panic!("the lease is held")
    };
    let waiter = Waiter::exclusive(&other, &key, "waiter");
    waiter.queued().await;
    let used = more.last_of(3);
    assert_eq!(ask(&one, give_back(&key, token, used)).await, Reply::Released);
    let handed = waiter.granted().await;
    assert!(handed > used, "{handed:?} after {used:?}");
    waiter.released().await;
    // A holder that does not know that its lease was broken still hands it on.
    let token = Token::random();
    let last = held(token).await.last_of(BLOCK);
    assert_eq!(ask(&other, break_all(&key)).await, Reply::Released);
    let next = granted(&other, &key, Token::random(), LONG).await;
    assert!(next > last, "{next:?} after {last:?}");
}

// Promise 3: repeated requests have no further effect.

pub async fn a_repeated_acquire_keeps_its_fence_and_gets_the_full_ttl(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, a) = (fresh_key("k"), Token::random());
    let fence = granted(&one, &key, a, 10_000).await;
    assert_eq!(granted(&one, &key, a, LONG).await, fence);
    assert!(remaining(&one, &key).await > Duration::from_secs(20));
    assert_eq!(granted(&other, &key, a, LONG).await, fence);
    assert_eq!(ask(&one, release(&key, a)).await, Reply::Released);
    assert_eq!(info(&other, &key).await, None);
}

pub async fn a_repeated_release_or_renewal_is_harmless(place: &dyn Fixture) {
    let store = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    granted(&store, &key, a, 10_000).await;
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, RENEWED);
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, RENEWED);
    let left = remaining(&store, &key).await;
    assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
    assert_eq!(ask(&store, release(&key, a)).await, Reply::Released);
    assert_eq!(ask(&store, release(&key, a)).await, Reply::NotHeld(Absence::Missing));
    assert_eq!(ask(&store, release(&fresh_key("never"), a)).await, Reply::NotHeld(Absence::Missing));
}

pub async fn an_old_token_cannot_touch_the_next_lease(place: &dyn Fixture) {
    let store = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    granted(&store, &key, a, place.shortest_ttl()).await;
    let fence = granted_in_the_end(&store, &key).await.fence;
    assert_eq!(ask(&store, renew(&key, a, 10)).await, Reply::NotHeld(Absence::Taken));
    assert_eq!(ask(&store, release(&key, a)).await, Reply::NotHeld(Absence::Taken));
    match ask(&store, acquire(&key, a, LONG)).await {
        Reply::Busy { .. } => {}
        // The next lease began when the old one had ended at most nodes, but perhaps not at all of
        // them.
        Reply::Split if !place.has_one_order() => drop(ask(&store, release(&key, a)).await),
        other => panic!("another client holds the lock: {other:?}"),
    }
    assert_eq!(lease(&store, &key).await.fence, Some(fence));
    assert!(remaining(&store, &key).await > SLACK);
}

// Promise 4: an ended lease does not come back.

pub async fn a_renewal_never_creates_a_lease(place: &dyn Fixture) {
    let store = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    let missing = Reply::NotHeld(Absence::Missing);
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, missing, "never held");
    granted(&store, &key, a, LONG).await;
    ask(&store, release(&key, a)).await;
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, missing, "released");
    let a = Token::random();
    granted(&store, &key, a, place.shortest_ttl()).await;
    tokio::time::sleep(ttl(place.shortest_ttl() + 2).as_duration()).await;
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, missing, "run out");
    assert_eq!(ask(&store, release(&key, a)).await, missing);
    assert_eq!(info(&store, &key).await, None);
    granted(&store, &key, Token::random(), LONG).await;
}

pub async fn an_inspection_shows_the_holder(place: &dyn Fixture) {
    let store = place.open();
    let (key, token) = (fresh_key("k"), Token::random());
    assert_eq!(info(&store, &key).await, None);
    for holder in ["", "web-1 (pid 7) \u{1f512} ' \" \\ \n", &"n".repeat(320)] {
        let request = Request::Acquire(AcquireRequest::new(key.clone(), token, ttl(LONG), holder.into()));
        let fence = fence(ask(&store, request).await);
        let info = info(&store, &key).await.expect("held");
        assert!(!info.shared && info.waiters.is_empty());
        let [lease] = &info.leases[..] else { panic!("one lease, not {:?}", info.leases) };
        assert_eq!((lease.holder.as_deref(), lease.fence), (Some(holder), Some(fence)));
        let left = lease.remaining.expect("each lease of the suite ends");
        assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
        ask(&store, release(&key, token)).await;
    }
}

pub async fn an_inspection_shows_a_waiter_under_its_last_name(place: &dyn Fixture) {
    let client = place.open();
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&client, &key, "holder");
    holder.granted().await;
    let mut waiter = Waiter::exclusive(&client, &key, "first");
    waiter.queued().await;
    waiter.request.holder = "second".into();
    waiter.queued().await;
    let inspected = info(&client, &key).await.expect("held");
    assert_eq!(inspected.waiters.iter().map(|waiter| &*waiter.holder).collect::<Vec<_>>(), ["second"]);
    holder.released().await;
    waiter.granted().await;
    let inspected = info(&client, &key).await.expect("held");
    assert_eq!(inspected.leases[0].holder.as_deref(), Some("second"));
}

pub async fn an_inspection_shows_leases_and_waiters_with_their_ages(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let reader = Mode::Shared { most: u32::MAX };
    let holders = [("h1", &one), ("h2", &other)].map(|(name, of)| Waiter::new(of, &key, name, reader));
    let fences = [holders[0].granted().await, holders[1].granted().await];
    let came = clock::now();
    let writer = Waiter::exclusive(&one, &key, "writer ' \" \u{1f512}");
    assert_eq!(writer.queued().await, 0);
    let behind = Waiter::new(&other, &key, "", reader);
    assert_eq!(behind.queued().await, 1);
    let both_came = clock::now();
    tokio::time::sleep(Duration::from_millis(60)).await;
    // A poll does not change the age of a waiter.
    assert_eq!((writer.queued().await, behind.queued().await), (0, 1));
    for client in [&one, &other] {
        let before = clock::now();
        let info = info(client, &key).await.expect("held");
        let after = clock::now();
        assert!(info.shared);
        let leases = info.leases.iter().map(|lease| (lease.holder.as_deref(), lease.fence));
        assert_eq!(
            leases.collect::<Vec<_>>(),
            [(Some("h1"), Some(fences[0])), (Some("h2"), Some(fences[1]))]
        );
        for lease in &info.leases {
            let left = lease.remaining.expect("each lease of the suite ends");
            assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
        }
        let waiters = info.waiters.iter().map(|waiter| (&*waiter.holder, waiter.shared));
        assert_eq!(waiters.collect::<Vec<_>>(), [(&*writer.request.holder, false), ("", true)]);
        for waiter in &info.waiters {
            assert!(waiter.age + GRAIN >= before.since(both_came), "{:?}: too young", waiter);
            assert!(waiter.age <= after.since(came) + GRAIN, "{:?}: too old", waiter);
        }
        assert!(info.waiters[0].age >= info.waiters[1].age);
    }
    // A lease that was handed over and not taken up yet is shown as a lease.
    holders[0].released().await;
    holders[1].released().await;
    let info = info(&one, &key).await.expect("handed over");
    assert!(!info.shared);
    assert_eq!(info.leases[0].holder.as_deref(), Some(&*writer.request.holder));
    assert!(info.leases[0].fence > Some(fences[1]), "{:?} after {fences:?}", info.leases[0]);
    assert_eq!((info.leases.len(), info.waiters.len()), (1, 1));
}
