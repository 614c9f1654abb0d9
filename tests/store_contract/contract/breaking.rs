//! Tests promise 8: an administrator can end a lease of another client.

use leasehold::lease::{Key, Mode, Token};
use leasehold::store::{Absence, AcquireRequest, Reply, Request};

use super::LONG;
use super::repairs::{is_refused, repair};
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

pub async fn a_broken_lease_does_not_belong_to_its_holder_any_more(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token) = (fresh_key("k"), Token::random());
    assert_eq!(ask(&other, break_all(&key)).await, Reply::NotHeld(Absence::Missing));
    let fence = granted(&one, &key, token, LONG).await;
    assert_eq!(ask(&other, break_all(&key)).await, Reply::Released);
    assert_eq!(info(&one, &key).await, None);
    assert_eq!(ask(&one, renew(&key, token, LONG)).await, Reply::NotHeld(Absence::Missing));
    assert_eq!(ask(&other, break_all(&key)).await, Reply::NotHeld(Absence::Missing), "the lock is free");
    let next = Token::random();
    assert!(granted(&other, &key, next, LONG).await > fence);
    assert_eq!(
        ask(&one, release(&key, token)).await,
        Reply::NotHeld(Absence::Taken),
        "the next lease is not released"
    );
    // Break many locks together, of which some are held.
    let keys: Vec<_> = (0..5).map(|_| fresh_key("k")).collect();
    for key in keys.iter().step_by(2) {
        granted(&one, key, Token::random(), LONG).await;
    }
    let answers = replies(&other, keys.iter().map(break_all).collect()).await;
    for (i, answer) in answers.into_iter().enumerate() {
        let expected = if i % 2 == 0 { Reply::Released } else { Reply::NotHeld(Absence::Missing) };
        assert_eq!(answer, expected, "{i}");
    }
}

pub async fn a_broken_lock_goes_to_the_first_in_the_queue(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let holder = Waiter::exclusive(&one, &key, "holder");
    let fence = holder.granted().await;
    let waiters = [Waiter::exclusive(&one, &key, "first"), Waiter::exclusive(&other, &key, "second")];
    for (ahead, waiter) in waiters.iter().enumerate() {
        assert_eq!(waiter.queued().await as usize, ahead);
    }
    assert_eq!(ask(&other, break_all(&key)).await, Reply::Released);
    waiters[0].client.notices.granted(waiters[0].number()).await;
    assert_eq!(names(&other, &key).await, (vec!["first".into()], vec!["second".into()]));
    assert_eq!(ask(&one, renew(&key, holder.request.token, LONG)).await, Reply::NotHeld(Absence::Taken));
    let first = waiters[0].granted().await;
    assert!(first > fence, "{first:?} after {fence:?}");
    assert_eq!(waiters[1].client.notices.of(waiters[1].number()), 0, "one break hands over one lease");
    assert_eq!(ask(&one, break_all(&key)).await, Reply::Released);
    waiters[1].client.notices.granted(waiters[1].number()).await;
    assert!(waiters[1].granted().await > first);
    waiters[1].released().await;
}

pub async fn all_shared_leases_are_broken_together(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let reader = |name| Waiter::new(&one, &key, name, Mode::Shared { most: u32::MAX });
    let readers = [reader("r1"), reader("r2"), reader("r3")];
    for reader in &readers {
        reader.granted().await;
    }
    let writer = Waiter::exclusive(&other, &key, "writer");
    assert_eq!(writer.queued().await, 0);
    assert_eq!(ask(&other, break_all(&key)).await, Reply::Released);
    writer.client.notices.granted(writer.number()).await;
    writer.granted().await;
    for reader in &readers {
        assert_eq!(reader.release().await, Reply::NotHeld(Absence::Taken));
    }
    // Waiting readers are granted leases together.
    for reader in &readers {
        assert_eq!(
            ask(&one, Request::Release { key: key.clone(), token: reader.request.token, used: None }).await,
            Reply::NotHeld(Absence::Taken)
        );
        reader.queued().await;
    }
    assert_eq!(ask(&one, break_all(&key)).await, Reply::Released);
    for reader in &readers {
        reader.client.notices.granted(reader.number()).await;
        reader.granted().await;
    }
    assert_eq!(names(&other, &key).await.0, ["r1", "r2", "r3"]);
}

pub async fn a_broken_lock_is_not_repaired(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let [held, free] = [fresh_key("held"), fresh_key("free")];
    let token = Token::random();
    granted(&one, &held, token, LONG).await;
    granted(&one, &free, token, LONG).await;
    ask(&one, release(&free, token)).await;
    granted_to(&one, repair(&free, token)).await;
    ask(&one, release(&free, token)).await;
    assert_eq!(ask(&other, break_as_node(&held)).await, Reply::Released);
    assert_eq!(ask(&other, break_as_node(&free)).await, Reply::NotHeld(Absence::Missing));
    for key in [&held, &free] {
        let reply = ask(&one, repair(key, token)).await;
        assert!(matches!(reply, Reply::Busy { remaining: Some(_) }), "{reply:?}");
        assert_eq!(info(&one, key).await, None);
        granted(&other, key, Token::random(), LONG).await;
    }
}

pub async fn a_reader_is_repaired_before_a_waiting_writer(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let key = fresh_key("k");
    let reader = |name| Waiter::new(&one, &key, name, Mode::Shared { most: u32::MAX });
    reader("first").granted().await;
    let writer = Waiter::exclusive(&other, &key, "writer");
    writer.queued().await;
    assert_eq!(reader("late").queued().await, 1);
    let (mode, token) = (Mode::Shared { most: u32::MAX }, Token::random());
    let ask_shared = AcquireRequest {
        mode,
        repairs: true,
        ..AcquireRequest::new(key.clone(), token, ttl(LONG), "second".into())
    };
    granted_to(&one, Request::Acquire(ask_shared)).await;
    let reply = ask(&one, repair(&key, Token::random())).await;
    assert!(is_refused(&reply), "an exclusive lease is not granted while readers hold the lock: {reply:?}");
}

/// Returns the request by which a quorum breaks a lock at a node.
fn break_as_node(key: &Key) -> Request {
    Request::Break { key: key.clone(), bars_repairs: true }
}

/// Sends `request` and expects a grant.
async fn granted_to(client: &Client, request: Request) {
    let reply = ask(client, request).await;
    assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
}
