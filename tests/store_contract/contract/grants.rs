//! Tests promise 7: first come, first served. These tests check how a lease passes from one client
//! to the next.

use std::time::Duration;

use leasehold::engine::clock;
use leasehold::lease::Token;
use leasehold::store::{AcquireRequest, GRANT_TTL, Place, Reply, Request};

use super::{GRAIN, LONG, SLACK};
use crate::asking::*;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

pub async fn a_release_hands_the_lease_to_one_waiter_with_one_notice(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&clients[0], &key, "holder");
    let mut last = holder.granted().await;
    let mut waiters = Vec::new();
    for i in 0..6 {
        let waiter = Waiter::exclusive(&clients[i % 2], &key, &format!("w{i}"));
        assert_eq!(waiter.queued().await as usize, i);
        waiters.push(waiter);
    }
    let notice_counts = || waiters.iter().map(|w| w.client.notices.of(w.number())).collect::<Vec<_>>();
    holder.released().await;
    for i in 0..waiters.len() {
        let waiter = &waiters[i];
        waiter.client.notices.granted(waiter.number()).await;
        let (holders, waiting) = names(&clients[i % 2], &key).await;
        assert_eq!(holders, [&*waiter.request.holder], "the waiter has the lease before its next request");
        assert_eq!(waiting.len(), waiters.len() - i - 1);
        let notified = waiter.client.notices.fences_of(waiter.number());
        let shown = lease(&clients[0], &key).await.fence.expect("a lease that was handed over has a fence");
        assert!(shown > last, "{shown:?} shown, after {last:?}");
        let renewal = renew(&key, waiter.request.token, LONG);
        assert_eq!(ask(&waiter.client, renewal).await, Reply::Renewed { block: None });
        let fence = if place.notices_have_fences() {
            // The fence is recorded: neither a renewal nor a repeated acquire changes it.
            assert_eq!(notified, [shown]);
            assert_eq!(lease(&clients[0], &key).await.fence, Some(shown));
            assert_eq!(waiter.granted().await, shown);
            shown
        } else {
            assert_eq!(notified, []);
            waiter.granted().await
        };
        assert!(fence > last, "{fence:?} after {last:?}");
        assert_eq!(lease(&clients[0], &key).await.fence, Some(fence));
        last = fence;
        // A repeated release hands nothing over.
        for _repeated in 0..2 {
            holder.release().await;
        }
        // A wrong notice would arrive before these answers.
        for client in &clients {
            ask(client, Request::Ping).await;
        }
        let expected: Vec<usize> = (0..waiters.len()).map(|j| usize::from(j <= i)).collect();
        assert_eq!(notice_counts(), expected);
        waiter.released().await;
    }
}

pub async fn a_notice_reaches_the_process_that_waits(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&other, &key, "holder");
    holder.granted().await;
    // Every process numbers its waiters by itself.
    let mut waiters = [Waiter::exclusive(&one, &key, "first"), Waiter::exclusive(&other, &key, "second")];
    if !one.shares_process_with(&other) {
        waiters[1].request.place = Some(Place { number: waiters[0].number() });
    }
    for (ahead, waiter) in waiters.iter().enumerate() {
        assert_eq!(waiter.queued().await as usize, ahead);
    }
    let mut turns = [0, 0];
    holder.released().await;
    for i in 0..2 {
        waiters[i].client.notices.granted(waiters[i].number()).await;
        turns[i] = 1;
        waiters[i].granted().await;
        assert_eq!([0, 1].map(|j: usize| waiters[j].client.notices.of(waiters[j].number())), turns);
        waiters[i].released().await;
    }
}

pub async fn a_waiter_takes_up_its_lease_by_repeating_the_acquire(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    let first = holder.granted().await;
    let waiter = Waiter::exclusive(&other, &key, "waiter");
    waiter.queued().await;
    holder.released().await;
    let left = remaining(&one, &key).await;
    assert!(left <= GRANT_TTL, "handed over for {left:?}");
    let fence = waiter.granted().await;
    assert!(fence > first, "{fence:?} after {first:?}");
    let left = remaining(&one, &key).await;
    assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
    assert_eq!(waiter.granted().await, fence, "a repeated acquire gets the same lease");
    assert_eq!(lease(&one, &key).await.fence, Some(fence));
    waiter.released().await;
    assert_eq!(info(&one, &key).await, None);
}

pub async fn a_notice_names_the_last_acquire_of_its_waiter(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    holder.granted().await;
    let mut waiter = Waiter::exclusive(&other, &key, "waiter");
    let mut numbers = vec![waiter.number()];
    waiter.queued().await;
    for _poll in 0..3 {
        // This number is unused: a waiter may change the number of its place with each acquire.
        let number = Waiter::exclusive(&other, &key, "nobody").number();
        waiter.request.place = Some(Place { number });
        assert_eq!(waiter.queued().await, 0, "the waiter keeps its place");
        numbers.push(number);
    }
    holder.released().await;
    waiter.client.notices.granted(waiter.number()).await;
    let fence = lease(&one, &key).await.fence.expect("the lease has a fence");
    let notices = &waiter.client.notices;
    let times: Vec<_> = numbers.iter().map(|number| notices.of(*number)).collect();
    assert_eq!(times, [0, 0, 0, 1]);
    let notified = if place.notices_have_fences() { vec![fence] } else { vec![] };
    assert_eq!(notices.fences_of(waiter.number()), notified);
}

pub async fn a_waiter_that_takes_up_a_lease_gets_its_block_of_fences(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    let held = holder.granted().await;
    let mut waiter = Waiter::exclusive(&other, &key, "waiter");
    waiter.request.fences = 64;
    waiter.queued().await;
    holder.released().await;
    waiter.client.notices.granted(waiter.number()).await;
    let notified = waiter.client.notices.fences_of(waiter.number());
    assert_eq!(notified.len(), usize::from(place.notices_have_fences()));
    let shown = lease(&one, &key).await.fence.expect("a lease that was handed over has a fence");
    let block = waiter.granted().await;
    assert!(shown > held && block > shown, "{block:?} after {shown:?} after {held:?}");
    assert!(
        notified.iter().all(|notified| *notified == shown),
        "{notified:?} in the notice, {shown:?} shown"
    );
    waiter.released().await;
    let next = Waiter::exclusive(&one, &key, "next").granted().await;
    assert!(next.0 >= block.0 + 64, "{next:?} after the 64 from {block:?} on");
}

pub async fn a_lease_that_was_handed_over_has_its_own_ttl(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    holder.granted().await;
    let mut waiter = Waiter::exclusive(&other, &key, "waiter");
    let ms = 10 * place.shortest_ttl();
    let brief = ttl(ms).as_duration();
    waiter.request.ttl = ttl(ms);
    waiter.queued().await;
    holder.released().await;
    let before = clock::now();
    waiter.granted().await;
    // A crash blocks the lock for one ttl, even if that is shorter than a grant.
    let left = remaining(&one, &key).await;
    assert!(left <= brief, "{left:?} of {brief:?}");
    let span = granted_in_the_end(&one, &key).await.known.since(before);
    assert!(span + GRAIN >= brief && span < brief + SLACK, "the lease ended too early or too late: {span:?}");
}

pub async fn a_lease_not_taken_up_goes_to_the_next(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    holder.granted().await;
    let dead = Waiter::exclusive(&other, &key, "dead");
    let next = Waiter::exclusive(&one, &key, "next");
    let last = Waiter::exclusive(&other, &key, "last");
    assert_eq!((dead.queued().await, next.queued().await, last.queued().await), (0, 1, 2));
    let before = clock::now();
    holder.released().await;
    let released = clock::now();
    assert!(next.queued_for().await <= GRANT_TTL, "the reply says when to poll again");
    let fence = next.served().await;
    let (early, late) = (clock::now().since(before), clock::now().since(released));
    assert!(
        early + GRAIN >= GRANT_TTL,
        "the next waiter was served {early:?} after the release, before the grant ended"
    );
    assert!(late < GRANT_TTL + SLACK, "{late:?}");
    assert_eq!(lease(&other, &key).await.fence, Some(fence));
    // A waiter that comes too late has lost its turn.
    assert_eq!((last.queued().await, dead.queued().await), (0, 1));
}

pub async fn an_expired_lease_goes_to_the_first_in_the_queue(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, gone) = (fresh_key("k"), Token::random());
    let before = clock::now();
    let brief = ttl(15 * place.shortest_ttl()).as_duration();
    let first_fence = granted(&one, &key, gone, 15 * place.shortest_ttl()).await;
    let first = Waiter::exclusive(&other, &key, "first");
    let second = Waiter::exclusive(&one, &key, "second");
    let left = first.queued_for().await;
    assert!(left <= brief, "{left:?} of {brief:?}");
    second.queued().await;
    let fence = first.served().await;
    let span = clock::now().since(before);
    assert!(span + GRAIN >= brief && span < brief + SLACK, "{span:?}");
    assert!(fence > first_fence);
    assert!(matches!(ask(&one, renew(&key, gone, LONG)).await, Reply::NotHeld(_)));
    assert_eq!(second.queued().await, 0);

    // Even if the second waiter is the first to poll, the first one gets the lease.
    let (key, gone) = (fresh_key("k"), Token::random());
    granted(&one, &key, gone, 15 * place.shortest_ttl()).await;
    let first = Waiter::exclusive(&other, &key, "first");
    let second = Waiter::exclusive(&one, &key, "second");
    first.queued().await;
    let left = second.queued_for().await;
    tokio::time::sleep(left + Duration::from_millis(2)).await;
    assert_eq!(second.queued().await, 0, "the first waiter holds the lock, and is not in the queue");
    first.client.notices.granted(first.number()).await;
    first.granted().await;
}

pub async fn a_waiter_that_gives_up_its_grant_passes_it_on(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    let fence = holder.granted().await;
    let quitter = Waiter::exclusive(&other, &key, "quitter");
    let next = Waiter::exclusive(&one, &key, "next");
    quitter.queued().await;
    next.queued().await;
    holder.released().await;
    let before = clock::now();
    assert_eq!(quitter.release().await, Reply::Released);
    next.client.notices.granted(next.number()).await;
    assert!(next.granted().await > fence);
    let span = clock::now().since(before);
    assert!(span < GRANT_TTL, "the next waiter was served only after {span:?}");
    // An acquire that arrives after the waiter's release gets a place at the end, and no lease.
    let AcquireRequest { ref key, .. } = quitter.request;
    assert_eq!(quitter.queued().await, 0);
    assert_eq!(names(&one, key).await.0, ["next"]);
}
