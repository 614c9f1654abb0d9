//! Tests promise 2 when a quorum tells a store the fence of a lease: [`Request::Accept`].

use leasehold::engine::clock;
use leasehold::lease::{Fence, Key, Mode, Token};
use leasehold::store::{Absence, Reply, Request};

use super::LONG;
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

/// The number of fences that are accepted together.
const COUNT: u32 = 50;
/// Farther ahead of the clock than any fence that a store grants by itself: 1000 s, in µs.
const AHEAD: u64 = 1_000_000_000;

/// Returns the first and the last of many fences far ahead.
fn block_after(fence: Fence) -> (Fence, Fence) {
    let first = Fence(fence.0 + AHEAD);
    (first, first.last_of(COUNT))
}

/// Makes the store accept `fence` and its block for `token`. Returns the last fence of the block.
async fn accepted(client: &Client, key: &Key, token: Token, fence: Fence) -> Fence {
    assert_eq!(ask(client, accept(key, token, fence, COUNT)).await, Reply::Accepted);
    fence.last_of(COUNT)
}

pub async fn an_accepted_fence_is_that_of_the_lease(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token) = (fresh_key("k"), Token::random());
    let granted_fence = granted(&one, &key, token, 5_000).await;
    let (first, _) = block_after(granted_fence);
    for _repeated in 0..2 {
        accepted(&other, &key, token, first).await;
        assert_eq!(lease(&one, &key).await.fence, Some(first));
    }
    // The holder gets the fence, too, and it is the same lease.
    assert_eq!(granted(&one, &key, token, LONG).await, first);
    let now = lease(&other, &key).await;
    assert_eq!((now.holder.as_deref(), now.fence), (Some("contract"), Some(first)));
    assert_eq!(ask(&one, renew(&key, token, LONG)).await, RENEWED);
    assert_eq!(lease(&one, &key).await.fence, Some(first));
    assert_eq!(ask(&one, release(&key, token)).await, Reply::Released);
    assert_eq!(info(&other, &key).await, None);
}

pub async fn an_accepted_fence_is_below_every_later_grant(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token) = (fresh_key("k"), Token::random());
    let (first, _) = block_after(granted(&one, &key, token, LONG).await);
    let last = accepted(&one, &key, token, first).await;
    // The same lease gets more fences.
    let Reply::Renewed { block: Some((block, _)) } = ask(&other, renew_block(&key, token, LONG, COUNT)).await
    else {
        panic!("the lease is not held")
    };
    assert!(block > last, "{block:?} after {last:?}");
    let last = accepted(&one, &key, token, Fence(block.0 + 7)).await;
    // Test the next lease after a release and after an expiry.
    assert_eq!(ask(&one, release(&key, token)).await, Reply::Released);
    let brief = Token::random();
    let next = granted(&other, &key, brief, 10 * place.shortest_ttl()).await;
    assert!(next > last, "{next:?} after {last:?}");
    let last = accepted(&other, &key, brief, Fence(next.0 + 7)).await;
    let got = granted_in_the_end(&one, &key).await;
    assert!(got.fence > last, "{:?} after {last:?}", got.fence);
}

pub async fn an_accepted_fence_is_below_that_of_the_next_waiter(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    let fence = holder.granted().await;
    let waiters = ["w0", "w1"].map(|name| Waiter::exclusive(&other, &key, name));
    for (ahead, waiter) in waiters.iter().enumerate() {
        assert_eq!(waiter.queued().await as usize, ahead);
    }
    let (first, _) = block_after(fence);
    let mut last = accepted(&one, &key, holder.request.token, first).await;
    assert_eq!(names(&one, &key).await, (vec!["holder".into()], vec!["w0".into(), "w1".into()]));
    holder.released().await;
    for waiter in &waiters {
        waiter.client.notices.granted(waiter.number()).await;
        let notified = waiter.client.notices.fences_of(waiter.number());
        let shown = lease(&one, &key).await.fence.expect("a lease that was handed over has a fence");
        assert!(
            notified.iter().chain([&shown]).all(|fence| *fence > last),
            "{notified:?}, {shown:?} after {last:?}"
        );
        let taken_up = waiter.granted().await;
        assert!(taken_up > last, "{taken_up:?} after {last:?}");
        // A lease that was handed over accepts a fence, too.
        last = accepted(&other, &key, waiter.request.token, Fence(taken_up.0 + 7)).await;
        assert_eq!(lease(&one, &key).await.fence, Some(Fence(taken_up.0 + 7)));
        waiter.released().await;
    }
    assert!(granted(&one, &key, Token::random(), LONG).await > last);
}

pub async fn a_smaller_accepted_fence_does_not_lower_later_fences(place: &dyn Fixture) {
    let client = place.open();
    let (key, token) = (fresh_key("k"), Token::random());
    let fence = granted(&client, &key, token, LONG).await;
    let (first, _) = block_after(fence);
    let last = accepted(&client, &key, token, first).await;
    // Such a request may arrive late.
    assert_eq!(ask(&client, accept(&key, token, fence, 1)).await, Reply::Accepted);
    assert_eq!(lease(&client, &key).await.fence, Some(fence));
    assert_eq!(ask(&client, release(&key, token)).await, Reply::Released);
    let next = granted(&client, &key, Token::random(), LONG).await;
    assert!(next > last, "{next:?} after {last:?}");
}

pub async fn a_fence_is_accepted_for_the_holder_only(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token) = (fresh_key("k"), Token::random());
    let (taken, missing) = (Reply::NotHeld(Absence::Taken), Reply::NotHeld(Absence::Missing));
    let far = Fence(clock::wall_us() + AHEAD);
    assert_eq!(ask(&one, accept(&key, token, far, COUNT)).await, missing, "never held");
    assert_eq!(info(&one, &key).await, None, "accepting a fence never creates a lease");
    let fence = granted(&one, &key, token, LONG).await;
    let waiter = Waiter::exclusive(&other, &key, "waiter");
    waiter.queued().await;
    for stranger in [Token::random(), waiter.request.token] {
        assert_eq!(ask(&other, accept(&key, stranger, far, COUNT)).await, taken);
    }
    assert_eq!(lease(&one, &key).await.fence, Some(fence));
    // A former holder is a stranger.
    assert_eq!(ask(&one, release(&key, token)).await, Reply::Released);
    assert_eq!(ask(&one, accept(&key, token, far, COUNT)).await, taken);
    let next = waiter.granted().await;
    assert!(next > fence && next < far, "a refused fence has no effect: {next:?}");
    waiter.released().await;
    assert_eq!(ask(&one, accept(&key, token, far, COUNT)).await, missing, "released");
    // An expired lease accepts no fence.
    let brief = Token::random();
    granted(&one, &key, brief, place.shortest_ttl()).await;
    let got = granted_in_the_end(&other, &key).await;
    assert_eq!(ask(&one, accept(&key, brief, far, COUNT)).await, taken);
    assert_eq!(lease(&one, &key).await.fence, Some(got.fence));
    assert!(got.fence < far, "{:?}", got.fence);
}

pub async fn a_shared_lease_accepts_a_fence_of_its_own(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let reader = Mode::Shared { most: u32::MAX };
    let readers = [("r0", &one), ("r1", &other)].map(|(name, of)| Waiter::new(of, &key, name, reader));
    let fences = [readers[0].granted().await, readers[1].granted().await];
    let (first, _) = block_after(fences[1]);
    let last = accepted(&other, &key, readers[0].request.token, first).await;
    let shown = async || {
        let leases = info(&one, &key).await.expect("held").leases;
        leases.into_iter().map(|lease| (lease.holder.unwrap().to_string(), lease.fence)).collect::<Vec<_>>()
    };
    // The leases are in the order of their fences.
    assert_eq!(shown().await, [("r1".into(), Some(fences[1])), ("r0".into(), Some(first))]);
    assert_eq!(readers[0].granted().await, first);
    assert_eq!(readers[1].granted().await, fences[1], "the other reader keeps its own fence");
    let late = Waiter::new(&other, &key, "r2", reader);
    let fence = late.granted().await;
    assert!(fence > last, "{fence:?} after {last:?}");
    assert_eq!(ask(&one, accept(&key, Token::random(), first, 1)).await, Reply::NotHeld(Absence::Taken));
    for reader in readers.iter().chain([&late]) {
        reader.released().await;
    }
    let writer = granted(&one, &key, Token::random(), LONG).await;
    assert!(writer > fence, "{writer:?} after {fence:?}");
}

pub async fn many_fences_are_accepted_in_one_batch(place: &dyn Fixture) {
    let client = place.open();
    let leases: Vec<(Key, Token)> = (0..100).map(|_| (fresh_key("k"), Token::random())).collect();
    let all = |one: &dyn Fn(usize, &Key, Token) -> Request| -> Vec<Request> {
        leases.iter().enumerate().map(|(i, (key, token))| one(i, key, *token)).collect()
    };
    // A third of the locks is free, a third is held, and a third is held and has a waiter.
    let held = |i: usize| i % 3 != 2;
    let mut batch = all(&|_, key, token| acquire(key, token, LONG));
    let mut i = 0;
    batch.retain(|_| (held(i), i += 1).0);
    let mut fences = replies(&client, batch).await.into_iter().map(fence);
    let fences: Vec<Fence> =
        (0..leases.len()).map(|i| if held(i) { fences.next().unwrap() } else { Fence(1) }).collect();
    let mut waiters = Vec::new();
    for (key, _) in leases.iter().step_by(3) {
        let waiter = Waiter::exclusive(&client, key, "waiter");
        waiter.queued().await;
        waiters.push(waiter);
    }
    // Each lease accepts its own fence and its own number of fences.
    let of = |i: usize| (Fence(fences[i].0 + AHEAD + 1_000 * i as u64), 1 + i as u32);
    let accept_replies = replies(&client, all(&|i, key, token| accept(key, token, of(i).0, of(i).1))).await;
    let seen = replies(&client, all(&|_, key, _| inspect(key))).await;
    replies(&client, all(&|_, key, token| release(key, token))).await;
    let next = replies(
        &client,
        all(&|i, key, _| match i % 3 {
            0 => Request::Acquire(waiters[i / 3].request.clone()),
            _ => acquire(key, Token::random(), LONG),
        }),
    )
    .await;
    for (i, next) in next.into_iter().enumerate() {
        let ((first, count), next) = (of(i), fence(next));
        match held(i) {
            true => {
                assert_eq!(accept_replies[i], Reply::Accepted, "{i}");
                let Reply::Inspected(Some(info)) = &seen[i] else { panic!("{i}: {:?}", seen[i]) };
                assert_eq!(info.leases[0].fence, Some(first), "{i}");
                assert!(next > first.last_of(count), "{i}: {next:?} after {count} from {first:?} on");
            }
            false => {
                assert_eq!(accept_replies[i], Reply::NotHeld(Absence::Missing), "{i}");
                assert_eq!(seen[i], Reply::Inspected(None), "{i}");
            }
        }
    }
}
