//! Tests promise 9: held locks can be listed.

use leasehold::lease::{Key, Mode, Token};
use leasehold::store::listing::{ListFilter, Listing};
use leasehold::store::{Reply, Request};

use super::LONG;
use crate::asking::*;
use crate::client::Client;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

async fn list(client: &Client, prefix: &str, pattern: &str, limit: u32) -> Listing {
    let wanted = ListFilter { prefix: prefix.into(), pattern: pattern.into(), limit };
    match ask(client, Request::List(wanted)).await {
        Reply::Listed(listing) => listing,
        other => panic!("expected a listing, got {other:?}"),
    }
}

fn keys(listing: &Listing) -> Vec<&str> {
    listing.locks.iter().map(|(key, _)| &**key).collect()
}

pub async fn a_listing_has_the_held_locks_with_a_prefix(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    // The prefix has the special characters of all kinds of patterns.
    let prefix = format!("lock:[x]*?\\^%_'{}:", Token::random());
    let key = |rest: &str| Key::from(format!("{prefix}{rest}"));
    assert_eq!(list(&one, &prefix, "*", 100).await, Listing::default());
    let holder = Waiter::exclusive(&one, &key("b"), "holder");
    let fence = holder.granted().await;
    let waiter = Waiter::exclusive(&other, &key("b"), "waiter");
    waiter.queued().await;
    for name in ["r1", "r2"] {
        Waiter::new(&one, &key("a:ü"), name, Mode::Shared { most: u32::MAX }).granted().await;
    }
    // These locks have another prefix, were released, or have expired.
    granted(&one, &format!("{}b", &prefix[..prefix.len() - 1]).as_str().into(), Token::random(), LONG).await;
    let (gone, brief) = (Token::random(), 2 * place.shortest_ttl());
    granted(&one, &key("gone"), gone, LONG).await;
    assert_eq!(ask(&one, release(&key("gone"), gone)).await, Reply::Released);
    granted(&one, &key("over"), Token::random(), brief).await;
    tokio::time::sleep(ttl(brief + 10).as_duration()).await;

    let all = list(&other, &prefix, "*", 100).await;
    assert_eq!((keys(&all), all.complete), (vec![&*key("a:ü"), &*key("b")], true));
    let (shared, held) = (&all.locks[0].1, &all.locks[1].1);
    assert!(shared.shared && shared.leases.len() == 2, "{shared:?}");
    assert_eq!((held.leases[0].holder.as_deref(), held.leases[0].fence), (Some("holder"), Some(fence)));
    assert_eq!(held.waiters.iter().map(|waiter| &*waiter.holder).collect::<Vec<_>>(), ["waiter"]);
    for (pattern, expected) in
        [("b", vec![key("b")]), ("a:?", vec![key("a:ü")]), ("?", vec![key("b")]), ("\\*", vec![])]
    {
        let found = list(&one, &prefix, pattern, 100).await;
        assert_eq!(keys(&found), expected.iter().map(|key| &**key).collect::<Vec<_>>(), "{pattern}");
    }
}

pub async fn a_listing_is_limited_and_says_so(place: &dyn Fixture) {
    const COUNT: u32 = 300;
    let client = place.open();
    let prefix = format!("lock:{}:", Token::random());
    let all: Vec<Key> = (0..COUNT).map(|i| format!("{prefix}{i:04}").into()).collect();
    replies(&client, all.iter().map(|key| acquire(key, Token::random(), LONG)).collect()).await;
    let whole = list(&client, &prefix, "*", COUNT).await;
    assert_eq!((keys(&whole), whole.complete), (all.iter().map(|key| &**key).collect(), true));
    let part = list(&client, &prefix, "*", COUNT - 1).await;
    assert!(part.locks.len() < COUNT as usize && !part.complete, "{} locks", part.locks.len());
    assert!(keys(&part).is_sorted() && keys(&part).iter().all(|key| key.starts_with(&prefix)));
    // The limit counts only locks that match the pattern.
    let one = list(&client, &prefix, "*299", 1).await;
    assert_eq!((keys(&one), one.complete), (vec![&*all[299]], true));
}
