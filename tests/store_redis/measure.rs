//! Prints figures about the speed of the store:
//! `cargo test --release --test store_redis -- --ignored --nocapture --test-threads=1 measure`

use std::rc::Rc;
use std::time::Instant;

use futures_util::future::join_all;
use leasehold::lease::{Key, Token};
use leasehold::store::redis::RedisStore;
use leasehold::store::{AcquireRequest, Place, Request, Store};

use crate::ask::{TIMEOUT, acquire, release, run, terms};
use crate::server::Server;

/// Returns the nanoseconds that this thread has run, or 0 if the system does not say.
fn cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

async fn done(store: &Rc<RedisStore>, batch: Vec<Request>) {
    assert!(store.clone().execute(batch, TIMEOUT).await.iter().all(Result::is_ok));
}

/// Acquires and releases `keys`, `rounds` times.
async fn pairs(store: &Rc<RedisStore>, keys: &[Key], rounds: usize) {
    for _ in 0..rounds {
        let mut ends = Vec::with_capacity(keys.len());
        let begin = keys.iter().map(|key| {
            let token = Token::random();
            ends.push(Request::Release { key: key.clone(), token, used: None });
            // Ask with a place, as the engine does.
            let place = Some(Place { number: ends.len() as u64 });
            Request::Acquire(AcquireRequest { key: key.clone(), place, ..terms("", token) })
        });
        let begin = begin.collect();
        done(store, begin).await;
        done(store, ends).await;
    }
}

/// Acquires one half of the keys and releases the other in one batch, alternating.
async fn mixed(store: &Rc<RedisStore>, keys: &[Key], rounds: usize) {
    let (mut free, mut held) = keys.split_at(keys.len() / 2);
    let mut tokens: Vec<Token> = held.iter().map(|_| Token::random()).collect();
    done(store, held.iter().zip(&tokens).map(|(key, token)| acquire(key, *token, 10_000)).collect()).await;
    for _ in 0..2 * rounds {
        let fresh: Vec<Token> = free.iter().map(|_| Token::random()).collect();
        let mut batch = Vec::with_capacity(keys.len());
        for place in 0..free.len() {
            batch.push(acquire(&free[place], fresh[place], 10_000));
            batch.push(release(&held[place], tokens[place]));
        }
        done(store, batch).await;
        (free, held, tokens) = (held, free, fresh);
    }
}

/// Prints pairs per second, 256 at a time, and the time of a pair at the server and in this
/// process.
#[test]
#[ignore = "takes seconds, and is only useful in a release build"]
fn measure_pairs() {
    const ROUNDS: usize = 400;
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let keys: Vec<Key> = (0..256).map(|n| format!("lock:{n}").into()).collect();
        let halves: Vec<&[Key]> = keys.chunks(128).collect();
        for name in ["one batch of 256", "two batches of 128", "128 acquires and 128 releases, mixed"] {
            for _ in 0..3 {
                server.command(&["CONFIG", "RESETSTAT"]);
                let (began, used) = (Instant::now(), cpu());
                match name {
                    "one batch of 256" => pairs(&store, &keys, ROUNDS).await,
                    "two batches of 128" => {
                        join_all(halves.iter().map(|half| pairs(&store, half, ROUNDS))).await;
                    }
                    _ => mixed(&store, &keys, ROUNDS).await,
                }
                let count = (ROUNDS * 256) as f64;
                let scripts = server.command(&["INFO", "commandstats"]);
                let usec = scripts.split_once("cmdstat_evalsha:").unwrap().1.split_once("usec=").unwrap().1;
                let usec: f64 = usec.split(',').next().unwrap().parse().unwrap();
                println!(
                    "{name}: {:.0} pairs/s; per pair {:.2} µs in the server's scripts, {:.2} µs here",
                    count / began.elapsed().as_secs_f64(),
                    usec / count,
                    (cpu() - used) as f64 / 1000.0 / count
                );
            }
        }
    });
}

/// Prints the time of one acquire and its release, in microseconds.
#[test]
#[ignore = "takes seconds, and is only useful in a release build"]
fn measure_one_at_a_time() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        for _ in 0..3 {
            let mut times: Vec<u128> = Vec::new();
            for _ in 0..10_000 {
                let token = Token::random();
                let began = Instant::now();
                done(&store, vec![acquire("lock:a", token, 10_000)]).await;
                done(&store, vec![release("lock:a", token)]).await;
                times.push(began.elapsed().as_nanos());
            }
            times.sort_unstable();
            let at = |share: f64| times[(times.len() as f64 * share) as usize] as f64 / 1000.0;
            println!("one pair: p50 {:.1} µs, p99 {:.1} µs", at(0.5), at(0.99));
        }
    });
}
