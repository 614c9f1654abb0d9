//! Figures, for whoever changes the store:
//! `cargo test --release --test sqlite_store -- --ignored --nocapture --exact measure::pairs_per_second`.

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{Reply, Request, Store};

use crate::child::Process;
use crate::support::*;

const SPAN: Duration = Duration::from_secs(2);

/// Acquires and releases `at_once` keys again and again. Returns pairs per second and the time of each round.
pub async fn pairs(path: &Path, at_once: usize) -> (f64, Vec<Duration>) {
    let store = SqliteStore::open(path.into());
    ask(&store, Request::Ping).await;
    let keys: Vec<(String, Token)> =
        (0..at_once).map(|_| (Token::random().to_string(), Token::random())).collect();
    let (start, mut rounds) = (Instant::now(), Vec::new());
    while start.elapsed() < SPAN {
        let begin = Instant::now();
        let batch: Vec<Request> = keys.iter().map(|(key, token)| acquire(key, *token, 10_000)).collect();
        let replies = store.clone().execute(batch, SPAN).await;
        assert!(replies.iter().all(|reply| matches!(reply, Ok(Reply::Acquired { .. }))));
        let batch: Vec<Request> = keys.iter().map(|(key, token)| release(key, *token)).collect();
        let replies = store.clone().execute(batch, SPAN).await;
        assert!(replies.iter().all(|reply| matches!(reply, Ok(Reply::Released))));
        rounds.push(begin.elapsed());
    }
    let rate = (rounds.len() * at_once) as f64 / start.elapsed().as_secs_f64();
    store.close().await;
    rounds.sort();
    (rate, rounds)
}

#[test]
#[ignore = "prints figures, proves nothing"]
fn pairs_per_second() {
    for at_once in [1, 256] {
        for processes in [1, 2] {
            let folder = Folder::fresh();
            let mut all: Vec<Process> =
                (0..processes).map(|_| Process::start(&format!("measure {at_once}"), &folder.db())).collect();
            let said: Vec<String> = all.iter_mut().map(Process::hear).collect();
            println!("{at_once} at once, {processes} processes: {}", said.join(" | "));
        }
    }
}
