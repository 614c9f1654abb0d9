//! Promises 1 and 7 for locks whose names may be mixed up with what a store keeps of other locks.

use leasehold::lease::{Key, Token};

use crate::asking::*;
use crate::fixture::Fixture;
use crate::waiter::Waiter;

/// Returns names that only differ in where a brace stands, and none that any test uses.
fn like_names() -> Vec<Key> {
    let (one, two) = (Token::random().to_string(), Token::random().to_string());
    let names = [
        // The first and the second once shared the keys that a Redis store keeps beside them.
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
    let mut lines = Vec::new();
    for key in like_names() {
        let holder = Waiter::exclusive(&one, &key, "holder");
        holder.granted().await;
        lines.push((key, holder));
    }
    let mut waiters = Vec::new();
    for (key, _) in &lines {
        let waiter = Waiter::exclusive(&other, key, "waiter");
        assert_eq!(waiter.queued().await, 0, "{key}");
        waiters.push(waiter);
    }
    for (place, (key, holder)) in lines.iter().enumerate() {
        holder.released().await;
        for waiter in &waiters[place + 1..] {
            let theirs = &waiter.wants.key;
            // A notice comes before this answer.
            let known = names(&other, theirs).await;
            assert_eq!(known, (vec!["holder".into()], vec!["waiter".into()]), "{theirs}");
            let told = other.notices.of(waiter.number());
            assert_eq!(told, 0, "a waiter for {theirs} was told of the release of {key}");
        }
        waiters[place].served().await;
        waiters[place].released().await;
        assert_eq!(info(&one, key).await, None);
    }
}
