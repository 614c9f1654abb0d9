//! Tests repairs: a node of a quorum gets back a lease that it does not know.

use std::time::Duration;

use leasehold::lease::{Key, Mode, Token};
use leasehold::store::{Absence, AcquireRequest, Reply, Request};

use super::LONG;
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

/// Returns the request by which a quorum repairs a lease at a node.
pub fn repair(key: &Key, token: Token) -> Request {
    repair_for(key, token, LONG)
}

fn repair_for(key: &Key, token: Token, ms: u32) -> Request {
    let ask = AcquireRequest::new(key.clone(), token, ttl(ms), "repaired".into());
    Request::Acquire(AcquireRequest { repairs: true, ..ask })
}

/// Returns true for the answer to a repair that another lease excludes. A quorum does not repair,
/// so it answers as it answers an acquire.
pub fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Queued { ahead: 0, .. } | Reply::Busy { .. })
}

/// Holds a lock for which another client waits, and tries to repair a lease of `token` there.
async fn refused(client: &Client, key: &Key, token: Token) -> [Waiter; 2] {
    let [holder, waiter] = ["holder", "waiter"].map(|name| Waiter::exclusive(client, key, name));
    holder.granted().await;
    assert_eq!(waiter.queued().await, 0);
    let reply = ask(client, repair(key, token)).await;
    assert!(is_refused(&reply), "{reply:?}");
    [holder, waiter]
}

pub async fn a_refused_repair_is_next(place: &dyn Fixture) {
    if !place.has_one_order() {
        return;
    }
    let (one, other) = (place.open(), place.open());
    let (key, token, former) = (fresh_key("k"), Token::random(), Token::random());
    let [holder, waiter] = refused(&one, &key, former).await;
    // The newest repair is that of the valid lease.
    assert!(is_refused(&ask(&other, repair(&key, token)).await));
    assert_eq!(names(&other, &key).await, (vec!["holder".into()], vec!["waiter".into()]));
    assert_eq!(waiter.queued().await, 2);
    holder.released().await;
    assert_eq!(names(&other, &key).await.0, ["repaired"]);
    assert_eq!(ask(&other, renew(&key, token, LONG)).await, Reply::Renewed { block: None });
    assert_eq!(waiter.client.notices.of(waiter.number()), 0);
    assert_eq!(ask(&other, release(&key, token)).await, Reply::Released);
    assert_eq!(ask(&other, release(&key, former)).await, Reply::Released, "the former lease was next");
    waiter.client.notices.granted(waiter.number()).await;
    waiter.granted().await;
    // A release of the repaired lease ends its place, and so does a break.
    for ends in [release(&key, token), break_all(&key)] {
        assert!(is_refused(&ask(&other, repair(&key, token)).await));
        assert_ne!(ask(&other, ends).await, Reply::Ready);
        ask(&one, release(&key, waiter.request.token)).await;
        assert_eq!(info(&other, &key).await, None);
        waiter.granted().await;
    }
    // A reader that finds a writer is also next, and does not exclude other readers.
    let (mode, token) = (Mode::Shared { most: u32::MAX }, Token::random());
    let ask_shared = AcquireRequest {
        mode,
        repairs: true,
        ..AcquireRequest::new(key.clone(), token, ttl(LONG), "reader".into())
    };
    assert!(is_refused(&ask(&other, Request::Acquire(ask_shared)).await));
    waiter.released().await;
    assert_eq!(ask(&other, renew(&key, token, LONG)).await, Reply::Renewed { block: None });
    Waiter::new(&one, &key, "other reader", mode).granted().await;
}

pub async fn a_refused_repair_is_next_for_a_while(place: &dyn Fixture) {
    if !place.has_one_order() {
        return;
    }
    let client = place.open();
    let [key, handed] = [fresh_key("k"), fresh_key("handed")];
    let token = Token::random();
    let [holder, waiter] = refused(&client, &key, Token::random()).await;
    let first = Waiter::exclusive(&client, &handed, "first");
    first.granted().await;
    for key in [&key, &handed] {
        ask(&client, release(key, token)).await;
        assert!(is_refused(&ask(&client, repair_for(key, token, 300)).await));
    }
    first.released().await;
    assert_eq!(names(&client, &handed).await.0, ["repaired"]);
    tokio::time::sleep(Duration::from_millis(320)).await;
    assert_eq!(info(&client, &handed).await, None, "the lease ends when the place would have ended");
    // The other repair, whose place lasts longer, is next.
    holder.released().await;
    assert_eq!(ask(&client, renew(&key, token, LONG)).await, Reply::NotHeld(Absence::Taken));
    assert_eq!(ask(&client, break_all(&key)).await, Reply::Released);
    waiter.client.notices.granted(waiter.number()).await;
    waiter.granted().await;
}

pub async fn a_move_ends_the_place_of_a_repair(place: &dyn Fixture) {
    if !place.has_one_order() {
        return;
    }
    let client = place.open();
    let key = fresh_key("k");
    let [ticket, adopter] = [Token::random(), Token::random()];
    let [holder, waiter] = refused(&client, &key, ticket).await;
    let request = Request::Move {
        key: key.clone(),
        token: ticket,
        to: Token::claim(ticket, adopter),
        adopter,
        most: None,
    };
    assert_eq!(ask(&client, request).await, Reply::NotHeld(Absence::Taken));
    holder.released().await;
    waiter.client.notices.granted(waiter.number()).await;
    waiter.granted().await;
}
