//! Promises 2 to 4: what a token and its fence are good for.

use std::time::Duration;

use leasehold::lease::{Fence, Token};
use leasehold::store::{Absence, Reply, Request};

use super::{LONG, SLACK};
use crate::fixture::*;

// 2. Fences grow.

pub async fn fences_grow_over_release_expiry_and_handles(place: &dyn Fixture) {
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
        let fence = granted(&stores[i % 2], &key, Token::random(), 10).await;
        assert!(fence > last, "{fence:?} after {last:?}");
        let token = Token::random();
        let (fence, _) = granted_in_the_end(&stores[i % 2], &key, token).await;
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
        ask(&stores[0], release(&key, token)).await;
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
        store = place.reopen(vec![store]).await;
    }
}

// 3. Idempotence.

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
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, Reply::Renewed);
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, Reply::Renewed);
    let left = remaining(&store, &key).await;
    assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
    assert_eq!(ask(&store, release(&key, a)).await, Reply::Released);
    assert_eq!(ask(&store, release(&key, a)).await, Reply::NotHeld(Absence::Missing));
    assert_eq!(ask(&store, release(&fresh_key("never"), a)).await, Reply::NotHeld(Absence::Missing));
}

pub async fn an_old_token_cannot_touch_the_next_lease(place: &dyn Fixture) {
    let store = place.open();
    let (key, a, b) = (fresh_key("k"), Token::random(), Token::random());
    granted(&store, &key, a, 10).await;
    let (fence, _) = granted_in_the_end(&store, &key, b).await;
    assert_eq!(ask(&store, renew(&key, a, 10)).await, Reply::NotHeld(Absence::Taken));
    assert_eq!(ask(&store, release(&key, a)).await, Reply::NotHeld(Absence::Taken));
    assert!(matches!(ask(&store, acquire(&key, a, 10)).await, Reply::Busy { .. }));
    assert_eq!(info(&store, &key).await.expect("held").fence, Some(fence));
    assert!(remaining(&store, &key).await > SLACK);
}

// 4. No resurrection.

pub async fn a_renewal_never_creates_a_lease(place: &dyn Fixture) {
    let store = place.open();
    let (key, a) = (fresh_key("k"), Token::random());
    let missing = Reply::NotHeld(Absence::Missing);
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, missing, "never held");
    granted(&store, &key, a, LONG).await;
    ask(&store, release(&key, a)).await;
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, missing, "released");
    granted(&store, &key, a, 10).await;
    tokio::time::sleep(Duration::from_millis(12)).await;
    assert_eq!(ask(&store, renew(&key, a, LONG)).await, missing, "run out");
    assert_eq!(ask(&store, release(&key, a)).await, missing);
    assert_eq!(info(&store, &key).await, None);
    granted(&store, &key, Token::random(), LONG).await;
}

pub async fn inspect_tells_the_holder(place: &dyn Fixture) {
    let store = place.open();
    let (key, token) = (fresh_key("k"), Token::random());
    assert_eq!(info(&store, &key).await, None);
    for holder in ["", "web-1 (pid 7) \u{1f512} ' \" \\ \n", &"n".repeat(2000)] {
        let request = Request::Acquire { key: key.clone(), token, ttl: ttl(LONG), holder: holder.into() };
        let fence = fence(ask(&store, request).await);
        let info = info(&store, &key).await.expect("held");
        assert_eq!((info.holder.as_deref(), info.fence), (Some(holder), Some(fence)));
        let left = info.remaining.expect("a lease of ours always ends");
        assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
        ask(&store, release(&key, token)).await;
    }
}
