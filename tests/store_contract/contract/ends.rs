//! Tests promise 10: every request is answered, and a store closes.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::engine::clock;
use leasehold::lease::Token;
use leasehold::store::{Reply, Request};

use super::LONG;
use crate::asking::*;
use crate::fixture::Fixture;

pub async fn requests_end_when_the_server_does_not_answer(place: &dyn Fixture) {
    let client = place.open();
    let key = fresh_key("k");
    ask(&client, Request::Ping).await;
    let Some(stalled) = place.stall() else { return };
    let tokens: Vec<Token> = (0..20).map(|_| Token::random()).collect();
    let timeout = Duration::from_millis(150);
    let before = clock::now();
    let batches = tokens.iter().map(|token| {
        let batch = vec![acquire(&key, *token, LONG), Request::Ping, inspect(&key)];
        client.store.clone().execute(batch, timeout)
    });
    let all = join_all(batches).await;
    let span = clock::now().since(before);
    assert!(span < timeout + Duration::from_millis(500), "answered after {span:?}");
    for answers in &all {
        assert_eq!(answers.len(), 3);
        let error = answers[0].as_ref().expect_err("the server is stalled");
        assert!(error.kind.is_transient(), "{error:?}");
    }
    drop(stalled);
    // A release by its token undoes what an acquire may have done. An acquire that was not carried
    // out has left nothing.
    for (token, answers) in tokens.iter().zip(&all) {
        let maybe_done = answers[0].as_ref().is_err_and(|error| error.maybe_done);
        match ask(&client, release(&key, *token)).await {
            Reply::NotHeld(_) => {}
            Reply::Released => {
                assert!(maybe_done, "the acquire was carried out, but its error said that it was not")
            }
            other => panic!("{other:?}"),
        }
    }
    granted(&client, &key, Token::random(), LONG).await;
}

pub async fn close_ends(place: &dyn Fixture) {
    let client = place.open();
    granted(&client, &fresh_key("k"), Token::random(), LONG).await;
    tokio::time::timeout(Duration::from_secs(2), client.store.close()).await.expect("close ends");
    let unused = place.open();
    tokio::time::timeout(Duration::from_secs(2), unused.store.close()).await.expect("close ends");
}
