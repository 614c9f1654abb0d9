//! Not a test: how fast it is. `cargo test --release --test store_redis -- --ignored --nocapture measure`

use std::time::Instant;

use leasehold::lease::Token;
use leasehold::store::Store;

use crate::ask::{TIMEOUT, acquire, release, run};
use crate::server::Server;

/// Pairs per second, 256 at a time, and what a pair costs the server.
#[test]
#[ignore = "takes seconds, and says something only in a release build"]
fn measure_pairs() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        let keys: Vec<String> = (0..256).map(|n| format!("lock:{n}")).collect();
        for (name, mixed) in [("256 acquires, then 256 releases", false), ("128 of each, alternating", true)]
        {
            for _ in 0..3 {
                let rounds = 400;
                server.command(&["CONFIG", "RESETSTAT"]);
                let began = Instant::now();
                let mut pairs = 0;
                let mut held: Vec<Token> = Vec::new();
                for round in 0..rounds {
                    let tokens: Vec<Token> = keys.iter().map(|_| Token::random()).collect();
                    let mut batch = Vec::with_capacity(256);
                    if mixed {
                        let (mine, theirs) = if round % 2 == 0 { (0, 128) } else { (128, 0) };
                        for n in 0..128 {
                            batch.push(acquire(&keys[mine + n], tokens[mine + n], 10_000));
                            if let Some(token) = held.get(n) {
                                batch.push(release(&keys[theirs + n], *token));
                            }
                        }
                        held = tokens[mine..mine + 128].to_vec();
                        pairs += 128;
                    } else {
                        batch.extend(
                            keys.iter().zip(&tokens).map(|(key, token)| acquire(key, *token, 10_000)),
                        );
                        let answers = store.clone().execute(batch, TIMEOUT).await;
                        assert!(answers.iter().all(Result::is_ok));
                        batch = keys.iter().zip(&tokens).map(|(key, token)| release(key, *token)).collect();
                        pairs += 256;
                    }
                    let answers = store.clone().execute(batch, TIMEOUT).await;
                    assert!(answers.iter().all(Result::is_ok));
                }
                let took = began.elapsed();
                let calls = server.info("commandstats", "cmdstat_evalsha:calls");
                let cost = usec_of(&server);
                println!(
                    "{name}: {:.0} pairs/s, {:.2} µs of the server per pair in {calls} calls",
                    pairs as f64 / took.as_secs_f64(),
                    cost as f64 / pairs as f64
                );
            }
        }
    });
}

fn usec_of(server: &Server) -> u64 {
    let text = server.command(&["INFO", "commandstats"]);
    let line = text.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("scripts ran");
    line.split_once("usec=").unwrap().1.split(',').next().unwrap().parse().unwrap()
}

/// One acquire, then its release: microseconds for the pair.
#[test]
#[ignore = "takes seconds, and says something only in a release build"]
fn measure_one_at_a_time() {
    run(async {
        let server = Server::start(&[]);
        let store = server.store();
        for _ in 0..3 {
            let mut times: Vec<u128> = Vec::new();
            for _ in 0..10_000 {
                let token = Token::random();
                let began = Instant::now();
                for request in [acquire("lock:a", token, 10_000), release("lock:a", token)] {
                    store.clone().execute(vec![request], TIMEOUT).await.pop().unwrap().unwrap();
                }
                times.push(began.elapsed().as_nanos());
            }
            times.sort_unstable();
            let at = |share: f64| times[(times.len() as f64 * share) as usize] as f64 / 1000.0;
            println!("one pair: p50 {:.1} µs, p99 {:.1} µs", at(0.5), at(0.99));
        }
    });
}
