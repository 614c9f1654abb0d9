//! Checks that a lease can pass to another token unchanged, and that it outlives its process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::lease::{Fence, Key, Mode, Token};
use leasehold::store::{Absence, Ask, LeaseInfo, Reply, Request, Source};

use super::{LONG, SLACK};
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

pub async fn only_one_of_two_heirs_adopts_a_lease(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    for _ in 0..20 {
        let (key, old) = (fresh_key("k"), Token::random());
        let fence = granted(&clients[0], &key, old, LONG).await;
        let heirs = [Token::random(), Token::random()];
        let adopted_by = |heir| adopt_with_fence(&key, old, heir, LONG, fence);
        let tries = [0, 1].map(|i: usize| ask(&clients[i], adopted_by(heirs[i])));
        let replies = join_all(tries).await;
        let winner = replies.iter().position(Reply::is_adopted).expect("one adopts it");
        assert_eq!(replies[1 - winner], Reply::NotHeld(Absence::Taken), "and only one");
        let (heir, loser) = (heirs[winner], heirs[1 - winner]);
        // Repeated, as after a lost answer.
        assert!(ask(&clients[0], adopted_by(heir)).await.is_adopted());
        assert_eq!(ask(&clients[1], adopted_by(loser)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(lease(&clients[1], &key).await.fence, Some(fence), "the tenure is the same");
        assert_eq!(ask(&clients[0], release(&key, loser)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(ask(&clients[0], release(&key, heir)).await, Reply::Released);
        assert_eq!(ask(&clients[0], adopted_by(heir)).await, Reply::NotHeld(Absence::Missing));
        assert_eq!(info(&clients[0], &key).await, None, "an adoption never creates a lease");
    }
}

pub async fn an_adopted_lease_is_the_heirs_alone(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, old, heir) = (fresh_key("k"), Token::random(), Token::random());
    let fence = granted(&one, &key, old, 5_000).await;
    let waiter = Waiter::exclusive(&one, &key, "waiter");
    waiter.queued().await;
    let adopted_for = |ttl| adopt_with_fence(&key, old, heir, ttl, fence);
    assert!(ask(&other, adopted_for(LONG)).await.is_adopted());
    let taken = Reply::NotHeld(Absence::Taken);
    assert_eq!(ask(&one, renew(&key, old, LONG)).await, taken);
    assert_eq!(ask(&one, release(&key, old)).await, taken);
    assert!(matches!(ask(&one, acquire(&key, old, LONG)).await, Reply::Busy { .. }));
    let now = lease(&one, &key).await;
    assert_eq!((now.holder.as_deref(), now.fence), (Some("heir"), Some(fence)));
    let left = now.remaining.expect("a lease of ours always ends");
    assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
    // It never makes it shorter.
    assert!(ask(&other, adopted_for(10)).await.is_adopted());
    assert!(remaining(&one, &key).await > ttl(LONG).as_duration() - SLACK);
    assert_eq!(ask(&other, renew(&key, heir, LONG)).await, RENEWED);
    assert_eq!(ask(&other, acquire(&key, heir, LONG)).await, Reply::Acquired { fence, waiting: 1 });
    assert_eq!(waiter.queued().await, 0, "those who wait still do");
    assert_eq!(ask(&other, release(&key, heir)).await, Reply::Released);
    assert!(waiter.granted().await > fence);
}

pub async fn a_detached_lease_outlives_its_process(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token, heir) = (fresh_key("k"), Token::random(), Token::random());
    let detach = |token, fence| detach(&key, token, fence, LONG);
    assert_eq!(ask(&one, detach(token, Fence(1))).await, Reply::NotHeld(Absence::Missing));
    let fence = granted(&one, &key, token, 5_000).await;
    assert_eq!(ask(&one, detach(heir, fence)).await, Reply::NotHeld(Absence::Taken));
    for _repeated in 0..2 {
        assert_eq!(ask(&one, detach(token, fence)).await, RENEWED);
    }
    assert!(remaining(&one, &key).await > ttl(LONG).as_duration() - SLACK);
    let waiter = Waiter::exclusive(&other, &key, "waiter");
    waiter.queued().await;
    one.store.close().await;
    // A store that sees that a process is gone has seen it by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(waiter.queued().await, 0, "it is held by nobody who lives, and not free");
    assert_eq!(lease(&other, &key).await.fence, Some(fence));
    assert!(ask(&other, adopt(&key, token, heir, LONG)).await.is_adopted());
    assert_eq!(ask(&other, release(&key, heir)).await, Reply::Released);
    assert!(waiter.granted().await > fence);
}

pub async fn a_detached_lease_keeps_its_ttl_when_its_token_acquires_again(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token, heir) = (fresh_key("k"), Token::random(), Token::random());
    let fence = granted(&one, &key, token, 5_000).await;
    assert_eq!(ask(&one, detach(&key, token, fence, 7_000)).await, RENEWED);
    assert!(matches!(ask(&one, acquire_block(&key, token, 5_000, 3)).await, Reply::Acquired { .. }));
    let Reply::Adopted(lease) = ask(&other, adopt(&key, token, heir, LONG)).await else {
        panic!("the heir does not get the lease")
    };
    assert_eq!((lease.ttl, lease.first), (Some(ttl(7_000)), fence));
}

/// Checks that a request that reserves fences, and arrives after the lease was detached, changes
/// neither the fence of the lease nor the order of the fences.
pub async fn a_detached_lease_keeps_its_fence_when_a_late_block_is_accepted(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, token, heir) = (fresh_key("k"), Token::random(), Token::random());
        let asked = Request::Acquire(Ask { mode, ..asking(&key, token, LONG) });
        let Reply::Acquired { fence, .. } = ask(&one, asked).await else { panic!("the lock is free") };
        // The process has handed the lease on, and detaches it with the third of its fences.
        let fence = Fence(fence.0 + 2);
        assert_eq!(ask(&one, detach(&key, token, fence, 7_000)).await, RENEWED);
        let block = Fence(fence.0 + 1_000_000_000);
        for _repeated in 0..2 {
            assert_eq!(ask(&one, accept(&key, token, block, 64)).await, Reply::Accepted);
            assert_eq!(lease(&other, &key).await.fence, Some(fence));
        }
        let Reply::Adopted(inherited) = ask(&other, adopt(&key, token, heir, LONG)).await else {
            panic!("the heir does not get the lease")
        };
        assert_eq!((inherited.first, inherited.ttl), (fence, Some(ttl(7_000))));
        assert_eq!(lease(&one, &key).await.fence, Some(fence));
        assert_eq!(ask(&other, release(&key, heir)).await, Reply::Released);
        let next = granted(&one, &key, Token::random(), LONG).await;
        assert!(next > block.last_of(64), "{next:?} after {block:?}");
    }
}

/// Checks that the time of a ticket is over when an heir has the lease. A node of a quorum keeps
/// the time of the ticket, because an heir may give the lease back.
pub async fn the_ttl_of_an_heir_takes_the_place_of_the_tickets(place: &dyn Fixture) {
    if place.is_quorum() {
        return;
    }
    let (one, other) = (place.open(), place.open());
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, token, heir) = (fresh_key("k"), Token::random(), Token::random());
        let asked = Request::Acquire(Ask { mode, ..asking(&key, token, 5_000) });
        let Reply::Acquired { fence, .. } = ask(&one, asked).await else { panic!("the lock is free") };
        assert_eq!(ask(&one, detach(&key, token, fence, LONG)).await, RENEWED);
        let lives = |ms: u32| ttl(ms).as_duration();
        assert!(ask(&other, adopt(&key, token, heir, 5_000)).await.is_adopted());
        let left = remaining(&one, &key).await;
        assert!(left <= lives(5_000) && left > lives(5_000) - SLACK, "{left:?}");
        assert_eq!(ask(&other, renew(&key, heir, 20_000)).await, RENEWED);
        // A late adoption does not shorten the lease, and a late renewal of the ticket has no
        // effect.
        assert!(ask(&other, adopt(&key, token, heir, 10)).await.is_adopted());
        assert_eq!(ask(&one, renew(&key, token, LONG)).await, Reply::NotHeld(Absence::Taken));
        let left = remaining(&one, &key).await;
        assert!(left <= lives(20_000) && left > lives(20_000) - SLACK, "{left:?}");
        // The decision of a quorum that arrives at one of its nodes does not shorten it either.
        let source = Source::Quorum(fence);
        let (key, holder) = (key.clone(), "heir".into());
        let late = Token::random();
        let ttl = ttl(5_000);
        let passed = Request::Adopt {
            key: key.clone(),
            token: heir,
            heir: late,
            ttl,
            holder,
            outlives_process: false,
            source,
        };
        assert!(ask(&other, passed).await.is_adopted());
        assert!(remaining(&one, &key).await > lives(20_000) - SLACK);
    }
}

/// Checks [`Request::Move`]. A quorum sends this request to its nodes and never receives one, so
/// the contract of a quorum leaves it out.
pub async fn a_lease_is_moved_as_it_is_and_whoever_claims_it_is_told_of(place: &dyn Fixture) {
    if place.is_quorum() {
        return;
    }
    let (one, other) = (place.open(), place.open());
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, ticket) = (fresh_key("k"), Token::random());
        let heirs = [Token::random(), Token::random()];
        let claims = heirs.map(|heir| Token::claim(ticket, heir));
        let claim = |i: usize| moved(&key, ticket, claims[i], heirs[i]);
        assert_eq!(ask(&one, claim(0)).await, Reply::NotHeld(Absence::Missing));
        let fence = match ask(&one, Request::Acquire(Ask { mode, ..asking(&key, ticket, 5_000) })).await {
            Reply::Acquired { fence, .. } => fence,
            reply => panic!("{reply:?}"),
        };
        if mode.is_shared() {
            let reader = Request::Acquire(Ask { mode, ..asking(&key, Token::random(), 5_000) });
            assert!(matches!(ask(&one, reader).await, Reply::Acquired { .. }));
        }
        let told = fingerprint(&one, &key).await;
        for _repeated in 0..2 {
            assert!(ask(&other, claim(0)).await.is_adopted());
        }
        assert_eq!(ask(&one, claim(1)).await, Reply::Claimed { by: claims[0] });
        let taken = Reply::NotHeld(Absence::Taken);
        assert_eq!(ask(&one, renew(&key, ticket, LONG)).await, taken);
        // The first heir gives the lease back to the ticket, and the second heir claims it.
        assert!(ask(&other, moved(&key, claims[0], ticket, ticket)).await.is_adopted());
        assert!(
            ask(&other, moved(&key, claims[0], ticket, ticket)).await.is_adopted(),
            "a repeated move changes nothing"
        );
        assert!(ask(&one, claim(1)).await.is_adopted());
        assert_eq!(fingerprint(&one, &key).await, told, "its name and its fence stay");
        // The moves did not prolong the lease.
        let given = lease_of(&one, &key, fence).await.remaining.unwrap();
        assert!(given <= ttl(5_000).as_duration(), "{given:?}");
        assert!(ask(&one, adopt(&key, claims[1], heirs[1], LONG)).await.is_adopted());
        assert_eq!(
            ask(&other, claim(0)).await,
            taken,
            "the second heir has the lease, so it is taken for the first one"
        );
        assert!(ask(&other, claim(1)).await.is_adopted(), "the second heir has the lease already");
        let (now, heir) = (lease_of(&one, &key, fence).await, Some("heir"));
        assert_eq!(now.holder.as_deref(), heir);
        assert_eq!(ask(&other, release(&key, heirs[1])).await, Reply::Released);
    }
}

/// Checks a lock of readers that a node of a quorum has given to a ticket and to its heir.
pub async fn an_heir_of_a_reader_keeps_its_own_lease(place: &dyn Fixture) {
    if place.is_quorum() {
        return;
    }
    let client = place.open();
    let [ticket, heir] = [Token::random(), Token::random()];
    for request in [moved as fn(&Key, Token, Token, Token) -> Request, |key, ticket, _, heir| {
        adopt(key, ticket, heir, LONG)
    }] {
        let key = fresh_key("k");
        for token in [ticket, heir] {
            let ask_for = Ask { mode: Mode::Shared { most: u32::MAX }, ..asking(&key, token, 5_000) };
            assert!(matches!(ask(&client, Request::Acquire(ask_for)).await, Reply::Acquired { .. }));
        }
        assert!(ask(&client, request(&key, ticket, heir, heir)).await.is_adopted());
        assert_eq!(info(&client, &key).await.expect("it is held").leases.len(), 2);
        for token in [ticket, heir] {
            assert_eq!(ask(&client, release(&key, token)).await, Reply::Released);
        }
        assert!(info(&client, &key).await.is_none());
    }
}

/// Returns the holder and the fence of each lease of `key`.
async fn fingerprint(client: &Client, key: &Key) -> Vec<(Option<Arc<str>>, Option<Fence>)> {
    let leases = info(client, key).await.expect("it is held").leases;
    leases.into_iter().map(|lease| (lease.holder, lease.fence)).collect()
}

async fn lease_of(client: &Client, key: &Key, fence: Fence) -> LeaseInfo {
    let leases = info(client, key).await.expect("it is held").leases;
    leases.into_iter().find(|lease| lease.fence == Some(fence)).expect("the lease keeps its fence")
}

fn moved(key: &Key, token: Token, to: Token, heir: Token) -> Request {
    Request::Move { key: key.clone(), token, to, heir }
}

fn asking(key: &Key, token: Token, ttl_ms: u32) -> Ask {
    Ask::new(key.clone(), token, ttl(ttl_ms), "holder".into())
}
