//! Tests leases that outlive their process, on rows at chosen instants.

use super::super::super::{AcquireRequest, Place, Source};
use super::tests::TestDatabase;
use super::*;
use crate::lease::Ttl;

fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

fn ask(token: Token, outlives_process: bool, number: Option<u64>) -> Request {
    let ask = AcquireRequest::new("k".into(), token, ttl(1_000), "h".into());
    Request::Acquire(AcquireRequest { place: number.map(|number| Place { number }), outlives_process, ..ask })
}

fn renew(token: Token) -> Request {
    Request::Renew { key: "k".into(), token, ttl: ttl(1_000), fences: 0 }
}

fn adopt(token: Token, adopter: Token, outlives_process: bool) -> Request {
    Request::Adopt {
        key: "k".into(),
        token,
        adopter,
        ttl: ttl(1_000),
        holder: "i".into(),
        outlives_process,
        source: Source::Ticket { fence: Fence(1), with_ttl: false },
    }
}

fn remaining(reply: &Reply) -> Option<Duration> {
    match reply {
        Reply::Busy { remaining } => *remaining,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_that_outlives_its_process_ends_by_its_ttl_alone_also_after_a_renewal() {
    let database = TestDatabase::new();
    let (dying, me, boot) = (database.owner(), database.owner(), Uuid::new_v4());
    let token = Token::random();
    database.ask(dying.id(), boot, 0, &ask(token, true, None));
    assert_eq!(database.ask(dying.id(), boot, 300, &renew(token)), Reply::Renewed { block: None });
    drop(dying);
    let reply = database.ask(me.id(), boot, 301, &ask(Token::random(), false, None));
    assert_eq!(remaining(&reply), Some(Duration::from_millis(999)));
    let reply = database.ask(me.id(), boot, 1_301, &ask(Token::random(), false, None));
    assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
}

#[test]
fn each_adoption_decides_again_whether_the_lease_outlives_its_process() {
    for outlives_process in [true, false] {
        let database = TestDatabase::new();
        let (dead, dying, me, boot) = (database.owner(), database.owner(), database.owner(), Uuid::new_v4());
        let (token, adopter) = (Token::random(), Token::random());
        database.ask(dead.id(), boot, 0, &ask(token, true, None));
        drop(dead);
        assert!(database.ask(dying.id(), boot, 1, &adopt(token, adopter, outlives_process)).is_adopted());
        drop(dying);
        let reply = database.ask(me.id(), boot, 2, &ask(Token::random(), false, None));
        assert_eq!(matches!(reply, Reply::Busy { .. }), outlives_process, "{reply:?}");
    }
}

#[test]
fn a_waiter_ends_with_its_process_also_after_it_was_handed_a_lease() {
    for handed in [false, true] {
        let database = TestDatabase::new();
        let (holder, dying, me, boot) =
            (database.owner(), database.owner(), database.owner(), Uuid::new_v4());
        let (first, next) = (Token::random(), Token::random());
        database.ask(holder.id(), boot, 0, &ask(first, false, None));
        database.ask(dying.id(), boot, 1, &ask(next, true, Some(7)));
        let release = Request::Release { key: "k".into(), token: first, used: None };
        if handed {
            database.ask(holder.id(), boot, 2, &release);
            drop(dying);
        } else {
            drop(dying);
            database.ask(holder.id(), boot, 2, &release);
        }
        let reply = database.ask(me.id(), boot, 3, &ask(Token::random(), false, None));
        assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
    }
}

#[test]
fn a_waiter_that_took_its_lease_up_keeps_it_for_the_ttl_though_its_process_is_gone() {
    let database = TestDatabase::new();
    let (holder, dying, me, boot) = (database.owner(), database.owner(), database.owner(), Uuid::new_v4());
    let (first, next) = (Token::random(), Token::random());
    database.ask(holder.id(), boot, 0, &ask(first, false, None));
    database.ask(dying.id(), boot, 1, &ask(next, true, Some(7)));
    database.ask(holder.id(), boot, 2, &Request::Release { key: "k".into(), token: first, used: None });
    let reply = database.ask(dying.id(), boot, 3, &ask(next, true, Some(8)));
    assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
    drop(dying);
    let reply = database.ask(me.id(), boot, 4, &ask(Token::random(), false, None));
    assert_eq!(remaining(&reply), Some(Duration::from_millis(999)));
}
