//! Tests promises 1 and 7 for locks whose names a store might confuse with data of other locks.

use leasehold::lease::{Key, Token};

use crate::asking::*;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

/// Returns names that differ only in the place of a brace, and that no other test uses.
fn like_names() -> Vec<Key> {
    let (one, two) = (Token::random().to_string(), Token::random().to_string());
    let names = [
        // The first and the second once shared the keys in which a Redis store keeps their data.
        format!("lock:{two}{{lock:{one}}}"),
        format!("lock:{one}}}:lock:{two}{{lock:{one}"),
        format!("lock:{one}"),
        format!("lock:{{{one}"),
        format!("lock:{one}}}"),
        format!("lock:{{{one}}}"),
        format!("{{lock:{one}}}"),
        format!("{{}}lock:{one}"),
        format!("}}lock:{one}{{"),
        format!("lock:{one}:fence"),
        format!("lock:{{{one}}}:queue"),
        format!("{{lock:{one}}}queue"),
        format!("{{{one}}}:lock:{one}:queue"),
    ];
    names.iter().map(|name| name.as_str().into()).collect()
}

pub async fn a_release_serves_waiters_of_its_own_lock_only(place: &dyn Fixture) {
    let (one, other) = (place.open(), place.open());
    let mut locks = Vec::new();
    for key in like_names() {
        let holder = Waiter::exclusive(&one, &key, "holder");
        holder.granted().await;
        locks.push((key, holder));
    }
    let mut waiters = Vec::new();
    for (key, _) in &locks {
        let waiter = Waiter::exclusive(&other, key, "waiter");
        assert_eq!(waiter.queued().await, 0, "{key}");
        waiters.push(waiter);
    }
    for (place, (key, holder)) in locks.iter().enumerate() {
        holder.released().await;
        for waiter in &waiters[place + 1..] {
            let theirs = &waiter.request.key;
            // A notice would arrive before this answer.
            let known = names(&other, theirs).await;
            assert_eq!(known, (vec!["holder".into()], vec!["waiter".into()]), "{theirs}");
            let notice_count = other.notices.of(waiter.number());
            assert_eq!(notice_count, 0, "a waiter for {theirs} got a notice of the release of {key}");
        }
        waiters[place].served().await;
        waiters[place].released().await;
        assert_eq!(info(&one, key).await, None);
    }
}
