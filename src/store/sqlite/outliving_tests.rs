//! Leases that outlive their process, tested on rows at chosen instants.

use super::super::super::{Ask, Place, Source};
use super::tests::Ledger;
use super::*;
use crate::lease::Ttl;

fn ttl(ms: u32) -> Ttl {
    Ttl::from_millis(ms).unwrap()
}

fn ask(token: Token, outlives_process: bool, number: Option<u64>) -> Request {
    let ask = Ask::new("k".into(), token, ttl(1_000), "h".into());
    Request::Acquire(Ask { place: number.map(|number| Place { number }), outlives_process, ..ask })
}

fn renew(token: Token) -> Request {
    Request::Renew { key: "k".into(), token, ttl: ttl(1_000), fences: 0 }
}

fn adopt(token: Token, heir: Token, outlives_process: bool) -> Request {
    Request::Adopt {
        key: "k".into(),
        token,
        heir,
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
    let ledger = Ledger::new();
    let (dying, me, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    let token = Token::random();
    ledger.ask(dying.id(), boot, 0, &ask(token, true, None));
    assert_eq!(ledger.ask(dying.id(), boot, 300, &renew(token)), Reply::Renewed { block: None });
    drop(dying);
    let reply = ledger.ask(me.id(), boot, 301, &ask(Token::random(), false, None));
    assert_eq!(remaining(&reply), Some(Duration::from_millis(999)));
    let reply = ledger.ask(me.id(), boot, 1_301, &ask(Token::random(), false, None));
    assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
}

#[test]
fn each_adoption_says_anew_whether_the_lease_outlives_its_process() {
    for outlives_process in [true, false] {
        let ledger = Ledger::new();
        let (dead, dying, me, boot) = (ledger.owner(), ledger.owner(), ledger.owner(), Uuid::new_v4());
        let (token, heir) = (Token::random(), Token::random());
        ledger.ask(dead.id(), boot, 0, &ask(token, true, None));
        drop(dead);
        assert!(ledger.ask(dying.id(), boot, 1, &adopt(token, heir, outlives_process)).is_adopted());
        drop(dying);
        let reply = ledger.ask(me.id(), boot, 2, &ask(Token::random(), false, None));
        assert_eq!(matches!(reply, Reply::Busy { .. }), outlives_process, "{reply:?}");
    }
}

#[test]
fn a_waiter_ends_with_its_process_also_after_it_was_handed_a_lease() {
    for handed in [false, true] {
        let ledger = Ledger::new();
        let (holder, dying, me, boot) = (ledger.owner(), ledger.owner(), ledger.owner(), Uuid::new_v4());
        let (first, next) = (Token::random(), Token::random());
        ledger.ask(holder.id(), boot, 0, &ask(first, false, None));
        ledger.ask(dying.id(), boot, 1, &ask(next, true, Some(7)));
        let release = Request::Release { key: "k".into(), token: first, used: None };
        if handed {
            ledger.ask(holder.id(), boot, 2, &release);
            drop(dying);
        } else {
            drop(dying);
            ledger.ask(holder.id(), boot, 2, &release);
        }
        let reply = ledger.ask(me.id(), boot, 3, &ask(Token::random(), false, None));
        assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
    }
}

#[test]
fn a_waiter_that_took_its_lease_up_keeps_it_for_the_ttl_though_its_process_is_gone() {
    let ledger = Ledger::new();
    let (holder, dying, me, boot) = (ledger.owner(), ledger.owner(), ledger.owner(), Uuid::new_v4());
    let (first, next) = (Token::random(), Token::random());
    ledger.ask(holder.id(), boot, 0, &ask(first, false, None));
    ledger.ask(dying.id(), boot, 1, &ask(next, true, Some(7)));
    ledger.ask(holder.id(), boot, 2, &Request::Release { key: "k".into(), token: first, used: None });
    let reply = ledger.ask(dying.id(), boot, 3, &ask(next, true, Some(8)));
    assert!(matches!(reply, Reply::Acquired { .. }), "{reply:?}");
    drop(dying);
    let reply = ledger.ask(me.id(), boot, 4, &ask(Token::random(), false, None));
    assert_eq!(remaining(&reply), Some(Duration::from_millis(999)));
}
