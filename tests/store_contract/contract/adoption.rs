//! Checks that a lease can pass to another token unchanged, and that it outlives its process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::lease::{Fence, Key, Mode, Token};
use leasehold::store::{Absence, AcquireRequest, LeaseInfo, Reply, Request, Source};

use super::{LONG, SLACK};
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

pub async fn only_one_of_two_adopters_adopts_a_lease(place: &dyn Fixture) {
    let clients = [place.open(), place.open()];
    for _ in 0..20 {
        let (key, old) = (fresh_key("k"), Token::random());
        let fence = granted(&clients[0], &key, old, LONG).await;
        let adopters = [Token::random(), Token::random()];
        let adopted_by = |adopter| adopt_with_fence(&key, old, adopter, LONG, fence);
        let tries = [0, 1].map(|i: usize| ask(&clients[i], adopted_by(adopters[i])));
        let replies = join_all(tries).await;
        let winner = replies.iter().position(Reply::is_adopted).expect("one of them adopts the lease");
        assert_eq!(replies[1 - winner], Reply::NotHeld(Absence::Taken), "only one adopts the lease");
        let (adopter, loser) = (adopters[winner], adopters[1 - winner]);
        // The request is repeated, as after a lost answer.
        assert!(ask(&clients[0], adopted_by(adopter)).await.is_adopted());
        assert_eq!(ask(&clients[1], adopted_by(loser)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(lease(&clients[1], &key).await.fence, Some(fence), "the fence is the same");
        assert_eq!(ask(&clients[0], release(&key, loser)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(ask(&clients[0], release(&key, adopter)).await, Reply::Released);
        assert_eq!(ask(&clients[0], adopted_by(adopter)).await, Reply::NotHeld(Absence::Missing));
        assert_eq!(info(&clients[0], &key).await, None, "an adoption never creates a lease");
    }
}

pub async fn an_adopted_lease_belongs_to_its_adopter_only(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, old, adopter) = (fresh_key("k"), Token::random(), Token::random());
    let fence = granted(&one, &key, old, 5_000).await;
    let waiter = Waiter::exclusive(&one, &key, "waiter");
    waiter.queued().await;
    let adopted_for = |ttl| adopt_with_fence(&key, old, adopter, ttl, fence);
    assert!(ask(&other, adopted_for(LONG)).await.is_adopted());
    let taken = Reply::NotHeld(Absence::Taken);
    assert_eq!(ask(&one, renew(&key, old, LONG)).await, taken);
    assert_eq!(ask(&one, release(&key, old)).await, taken);
    assert!(matches!(ask(&one, acquire(&key, old, LONG)).await, Reply::Busy { .. }));
    let mut now = lease(&one, &key).await;
    // If a node of a quorum has not heard of the adoption yet, and another node does not answer in
    // time, their views are equally common.
    for _ in 0..20 {
        if !place.is_quorum() || now.holder.as_deref() == Some("adopter") {
            break;
        }
        now = lease(&one, &key).await;
    }
    assert_eq!((now.holder.as_deref(), now.fence), (Some("adopter"), Some(fence)));
    let left = now.remaining.expect("each lease of the suite ends");
    assert!(left <= ttl(LONG).as_duration() && left > ttl(LONG).as_duration() - SLACK, "{left:?}");
    // A shorter ttl does not shorten the lease.
    assert!(ask(&other, adopted_for(10)).await.is_adopted());
    assert!(remaining(&one, &key).await > ttl(LONG).as_duration() - SLACK);
    assert_eq!(ask(&other, renew(&key, adopter, LONG)).await, RENEWED);
    assert_eq!(ask(&other, acquire(&key, adopter, LONG)).await, Reply::Acquired { fence, waiting: 1 });
    assert_eq!(waiter.queued().await, 0, "the waiter still waits");
    assert_eq!(ask(&other, release(&key, adopter)).await, Reply::Released);
    assert!(waiter.granted().await > fence);
}

pub async fn a_detached_lease_outlives_its_process(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token, adopter) = (fresh_key("k"), Token::random(), Token::random());
    let detach = |token, fence| detach(&key, token, fence, LONG);
    assert_eq!(ask(&one, detach(token, Fence(1))).await, Reply::NotHeld(Absence::Missing));
    let fence = granted(&one, &key, token, 5_000).await;
    assert_eq!(ask(&one, detach(adopter, fence)).await, Reply::NotHeld(Absence::Taken));
    for _repeated in 0..2 {
        assert_eq!(ask(&one, detach(token, fence)).await, RENEWED);
    }
    assert!(remaining(&one, &key).await > ttl(LONG).as_duration() - SLACK);
    let waiter = Waiter::exclusive(&other, &key, "waiter");
    waiter.queued().await;
    one.store.close().await;
    // A store that detects the end of a process has done so by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(waiter.queued().await, 0, "the lease is held although its process has ended");
    assert_eq!(lease(&other, &key).await.fence, Some(fence));
    assert!(ask(&other, adopt(&key, token, adopter, LONG)).await.is_adopted());
    assert_eq!(ask(&other, release(&key, adopter)).await, Reply::Released);
    assert!(waiter.granted().await > fence);
}

pub async fn a_detached_lease_keeps_its_ttl_when_its_token_acquires_again(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let (key, token, adopter) = (fresh_key("k"), Token::random(), Token::random());
    let fence = granted(&one, &key, token, 5_000).await;
    assert_eq!(ask(&one, detach(&key, token, fence, 7_000)).await, RENEWED);
    assert!(matches!(ask(&one, acquire_block(&key, token, 5_000, 3)).await, Reply::Acquired { .. }));
    let Reply::Adopted(lease) = ask(&other, adopt(&key, token, adopter, LONG)).await else {
        panic!("the adopter does not get the lease")
    };
    assert_eq!((lease.ttl, lease.first), (Some(ttl(7_000)), fence));
}

/// Checks that a request that reserves fences, and arrives after the lease was detached, changes
/// neither the fence of the lease nor the order of the fences.
pub async fn a_detached_lease_keeps_its_fence_when_a_late_block_is_accepted(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, token, adopter) = (fresh_key("k"), Token::random(), Token::random());
        let asked = Request::Acquire(AcquireRequest { mode, ..asking(&key, token, LONG) });
        let Reply::Acquired { fence, .. } = ask(&one, asked).await else { panic!("the lock is free") };
        // The process has handed the lease on, and detaches it with the third of its fences.
        let fence = Fence(fence.0 + 2);
        assert_eq!(ask(&one, detach(&key, token, fence, 7_000)).await, RENEWED);
        let block = Fence(fence.0 + 1_000_000_000);
        for _repeated in 0..2 {
            assert_eq!(ask(&one, accept(&key, token, block, 64)).await, Reply::Accepted);
            assert_eq!(lease(&other, &key).await.fence, Some(fence));
        }
        let Reply::Adopted(adopted_lease) = ask(&other, adopt(&key, token, adopter, LONG)).await else {
            panic!("the adopter does not get the lease")
        };
        assert_eq!((adopted_lease.first, adopted_lease.ttl), (fence, Some(ttl(7_000))));
        assert_eq!(lease(&one, &key).await.fence, Some(fence));
        assert_eq!(ask(&other, release(&key, adopter)).await, Reply::Released);
        let next = granted(&one, &key, Token::random(), LONG).await;
        assert!(next > block.last_of(64), "{next:?} after {block:?}");
    }
}

/// Checks that copies of an acquire and of a detachment, which arrive after the ticket was adopted
/// and released, do not make a second lease of the ticket.
pub async fn a_late_detachment_does_not_detach_a_newer_lease(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, token, adopter) = (fresh_key("k"), Token::random(), Token::random());
        let acquire = Request::Acquire(AcquireRequest { mode, ..asking(&key, token, LONG) });
        let fence = fence(ask(&one, acquire.clone()).await);
        let detach = detach(&key, token, fence, LONG);
        assert_eq!(ask(&one, detach.clone()).await, RENEWED);
        assert!(ask(&other, adopt_with_fence(&key, token, adopter, LONG, fence)).await.is_adopted());
        assert_eq!(ask(&other, release(&key, adopter)).await, Reply::Released);
        let stranger = Token::random();
        assert!(granted(&other, &key, stranger, LONG).await > fence);
        assert_eq!(ask(&other, detach.clone()).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(ask(&other, release(&key, stranger)).await, Reply::Released);
        assert!(matches!(ask(&one, acquire).await, Reply::Acquired { .. }));
        assert_eq!(ask(&one, detach.clone()).await, Reply::NotHeld(Absence::Taken));
        // A quorum releases the leases of the token when it learns that the lease is lost.
        assert!(matches!(ask(&one, detach).await, Reply::NotHeld(_)));
        let again = adopt_with_fence(&key, token, Token::random(), LONG, fence);
        if let Reply::Adopted(adopted_lease) = ask(&other, again).await {
            assert!(!adopted_lease.is_of_ticket(fence), "{adopted_lease:?} for a ticket with {fence:?}");
        }
    }
}

/// Checks that a late acquire, which raises the fence of the valid lease, does not prevent the
/// holder from detaching the lease with its smaller fence.
pub async fn a_late_acquire_does_not_prevent_a_detachment(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let modes = [Mode::Exclusive, Mode::Shared { most: u32::MAX }];
    for (mode, outlives_process) in modes.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let (key, token, adopter) = (fresh_key("k"), Token::random(), Token::random());
        let acquire = |fences| {
            Request::Acquire(AcquireRequest { mode, fences, outlives_process, ..asking(&key, token, LONG) })
        };
        let fence = fence(ask(&one, acquire(3)).await);
        for _late in 0..2 {
            assert!(matches!(ask(&one, acquire(64)).await, Reply::Acquired { .. }));
        }
        let shown = lease(&one, &key).await;
        assert_eq!(shown.holder.as_deref(), Some("holder"));
        assert!(shown.fence > Some(fence));
        for _repeated in 0..2 {
            assert_eq!(ask(&one, detach(&key, token, Fence(fence.0 + 2), 7_000)).await, RENEWED);
            assert_eq!(lease(&one, &key).await.holder.as_deref(), Some("holder"));
            assert!(matches!(ask(&one, acquire(64)).await, Reply::Acquired { .. }));
        }
        let Reply::Adopted(adopted_lease) = ask(&other, adopt(&key, token, adopter, LONG)).await else {
            panic!("the adopter does not get the lease")
        };
        assert_eq!((adopted_lease.first, adopted_lease.ttl), (Fence(fence.0 + 2), Some(ttl(7_000))));
    }
}

/// Checks that the ttl of a ticket has no effect any more when an adopter has the lease. A node of
/// a quorum keeps the ttl of the ticket, because an adopter may give the lease back.
pub async fn the_ttl_of_an_adopter_replaces_that_of_the_ticket(place: &dyn Fixture) {
    if place.is_quorum() {
        return;
    }
    let (one, other) = (place.open(), place.open());
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, token, adopter) = (fresh_key("k"), Token::random(), Token::random());
        let asked = Request::Acquire(AcquireRequest { mode, ..asking(&key, token, 5_000) });
        let Reply::Acquired { fence, .. } = ask(&one, asked).await else { panic!("the lock is free") };
        assert_eq!(ask(&one, detach(&key, token, fence, LONG)).await, RENEWED);
        let lives = |ms: u32| ttl(ms).as_duration();
        assert!(ask(&other, adopt(&key, token, adopter, 5_000)).await.is_adopted());
        let left = remaining(&one, &key).await;
        assert!(left <= lives(5_000) && left > lives(5_000) - SLACK, "{left:?}");
        assert_eq!(ask(&other, renew(&key, adopter, 20_000)).await, RENEWED);
        // A late adoption does not shorten the lease, and a late renewal of the ticket has no
        // effect.
        assert!(ask(&other, adopt(&key, token, adopter, 10)).await.is_adopted());
        assert_eq!(ask(&one, renew(&key, token, LONG)).await, Reply::NotHeld(Absence::Taken));
        let left = remaining(&one, &key).await;
        assert!(left <= lives(20_000) && left > lives(20_000) - SLACK, "{left:?}");
        // The decision of a quorum that arrives late at one of its nodes does not shorten the lease
        // either.
        let source = Source::Quorum(fence);
        let (key, holder) = (key.clone(), "adopter".into());
        let late = Token::random();
        let ttl = ttl(5_000);
        let passed = Request::Adopt {
            key: key.clone(),
            token: adopter,
            adopter: late,
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
pub async fn a_move_changes_only_the_token_and_a_reply_names_the_claim(place: &dyn Fixture) {
    if place.is_quorum() {
        return;
    }
    let (one, other) = (place.open(), place.open());
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, ticket) = (fresh_key("k"), Token::random());
        let adopters = [Token::random(), Token::random()];
        let claims = adopters.map(|adopter| Token::claim(ticket, adopter));
        let claim = |i: usize| moved(&key, ticket, claims[i], adopters[i]);
        assert_eq!(ask(&one, claim(0)).await, Reply::NotHeld(Absence::Missing));
        let fence =
            match ask(&one, Request::Acquire(AcquireRequest { mode, ..asking(&key, ticket, 5_000) })).await {
                Reply::Acquired { fence, .. } => fence,
                reply => panic!("{reply:?}"),
            };
        if mode.is_shared() {
            let reader = Request::Acquire(AcquireRequest { mode, ..asking(&key, Token::random(), 5_000) });
            assert!(matches!(ask(&one, reader).await, Reply::Acquired { .. }));
        }
        let before = fingerprint(&one, &key).await;
        for _repeated in 0..2 {
            assert!(ask(&other, claim(0)).await.is_adopted());
        }
        assert_eq!(ask(&one, claim(1)).await, Reply::Claimed { by: claims[0] });
        let taken = Reply::NotHeld(Absence::Taken);
        assert_eq!(ask(&one, renew(&key, ticket, LONG)).await, taken);
        // The first adopter gives the lease back to the ticket, and the second adopter claims it.
        assert!(ask(&other, moved(&key, claims[0], ticket, ticket)).await.is_adopted());
        assert!(
            ask(&other, moved(&key, claims[0], ticket, ticket)).await.is_adopted(),
            "a repeated move changes nothing"
        );
        let told = match ask(&one, claim(1)).await {
            Reply::Adopted(lease) => lease.remaining.expect("the second adopter does not have the lease"),
            reply => panic!("{reply:?}"),
        };
        assert!(told <= ttl(5_000).as_duration() && told > SLACK, "{told:?}");
        assert_eq!(fingerprint(&one, &key).await, before, "the name and the fence stay the same");
        // The moves did not prolong the lease.
        let given = lease_of(&one, &key, fence).await.remaining.unwrap();
        assert!(given <= ttl(5_000).as_duration(), "{given:?}");
        assert!(ask(&one, adopt(&key, claims[1], adopters[1], LONG)).await.is_adopted());
        assert_eq!(
            ask(&other, claim(0)).await,
            taken,
            "the second adopter has the lease, so the first one gets Taken"
        );
        match ask(&other, claim(1)).await {
            Reply::Adopted(lease) => assert_eq!(lease.remaining, None, "the second adopter has the lease"),
            reply => panic!("{reply:?}"),
        }
        let (now, adopter) = (lease_of(&one, &key, fence).await, Some("adopter"));
        assert_eq!(now.holder.as_deref(), adopter);
        // The second adopter gives the lease back to the ticket, which has 3 s left.
        let limited = |most| {
            let request = moved(&key, adopters[1], ticket, ticket);
            let Request::Move { key, token, to, adopter, .. } = request else { unreachable!() };
            Request::Move { key, token, to, adopter, most: Some(Duration::from_millis(most)) }
        };
        for most in [3_000, 100_000] {
            assert!(ask(&other, limited(most)).await.is_adopted());
            let (left, limit) = (lease_of(&one, &key, fence).await.remaining.unwrap(), ttl(3_000));
            assert!(left <= limit.as_duration() && left > limit.as_duration() - SLACK, "{left:?}");
        }
        assert_eq!(ask(&other, release(&key, ticket)).await, Reply::Released);
    }
}

/// Checks that a move from a claim finds no claim of another adopter. Both claims have the first
/// bits of one token: the adopter of the first claim, which is the ticket of the second claim.
pub async fn a_move_from_a_claim_finds_no_claim_to_the_next_ticket(place: &dyn Fixture) {
    if place.is_quorum() {
        return;
    }
    let client = place.open();
    for mode in [Mode::Exclusive, Mode::Shared { most: u32::MAX }] {
        let (key, [ticket, next, adopter]) = (fresh_key("k"), [(); 3].map(|()| Token::random()));
        let (earlier, later) = (Token::claim(ticket, next), Token::claim(next, adopter));
        let ask_for = AcquireRequest { mode, ..asking(&key, ticket, 5_000) };
        assert!(matches!(ask(&client, Request::Acquire(ask_for)).await, Reply::Acquired { .. }));
        for (token, to) in [(ticket, next), (next, later)] {
            assert!(ask(&client, moved(&key, token, to, to)).await.is_adopted());
        }
        let unused = Token::random();
        assert_eq!(ask(&client, moved(&key, earlier, unused, unused)).await, Reply::NotHeld(Absence::Taken));
        assert_eq!(
            ask(&client, moved(&key, next, unused, unused)).await,
            Reply::Claimed { by: later },
            "a move from the next ticket finds its claim"
        );
        assert_eq!(ask(&client, release(&key, later)).await, Reply::Released);
    }
}

/// Checks a lock of readers that a node of a quorum has given to a ticket and to its adopter.
pub async fn an_adopter_of_a_reader_keeps_its_own_lease(place: &dyn Fixture) {
    if place.is_quorum() {
        return;
    }
    let client = place.open();
    let [ticket, adopter] = [Token::random(), Token::random()];
    for request in [moved as fn(&Key, Token, Token, Token) -> Request, |key, ticket, _, adopter| {
        adopt(key, ticket, adopter, LONG)
    }] {
        let key = fresh_key("k");
        for token in [ticket, adopter] {
            let ask_for =
                AcquireRequest { mode: Mode::Shared { most: u32::MAX }, ..asking(&key, token, 5_000) };
            assert!(matches!(ask(&client, Request::Acquire(ask_for)).await, Reply::Acquired { .. }));
        }
        assert!(ask(&client, request(&key, ticket, adopter, adopter)).await.is_adopted());
        assert_eq!(info(&client, &key).await.expect("the lock is held").leases.len(), 2);
        for token in [ticket, adopter] {
            assert_eq!(ask(&client, release(&key, token)).await, Reply::Released);
        }
        assert!(info(&client, &key).await.is_none());
    }
}

/// Returns the holder and the fence of each lease of `key`.
async fn fingerprint(client: &Client, key: &Key) -> Vec<(Option<Arc<str>>, Option<Fence>)> {
    let leases = info(client, key).await.expect("the lock is held").leases;
    leases.into_iter().map(|lease| (lease.holder, lease.fence)).collect()
}

async fn lease_of(client: &Client, key: &Key, fence: Fence) -> LeaseInfo {
    let leases = info(client, key).await.expect("the lock is held").leases;
    leases.into_iter().find(|lease| lease.fence == Some(fence)).expect("the lease keeps its fence")
}

fn moved(key: &Key, token: Token, to: Token, adopter: Token) -> Request {
    Request::Move { key: key.clone(), token, to, adopter, most: None }
}

fn asking(key: &Key, token: Token, ttl_ms: u32) -> AcquireRequest {
    AcquireRequest::new(key.clone(), token, ttl(ttl_ms), "holder".into())
}
