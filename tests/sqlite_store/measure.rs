//! Prints figures about the speed of the store:
//! `cargo test --release --test sqlite_store -- --ignored --nocapture --test-threads=1 measure`

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::lease::{Mode, Token};
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{Reply, Request, Store};

use crate::child::Process;
use crate::support::*;
use crate::waiter::Waiter;

const SPAN: Duration = Duration::from_secs(2);

/// Acquires and releases `at_once` keys again and again. Returns pairs per second and the time of
/// each round.
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
#[ignore = "prints figures and tests nothing"]
fn pairs_per_second() {
    for at_once in [1, 256] {
        for processes in [1, 2] {
            let folder = Folder::fresh();
            let mut all: Vec<Process> =
                (0..processes).map(|_| Process::start(&format!("measure {at_once}"), &folder.db())).collect();
            let lines: Vec<String> = all.iter_mut().map(Process::read_line).collect();
            println!("{at_once} at once, {processes} processes: {}", lines.join(" | "));
        }
    }
}

/// Measures the time from the release in one process until the other has the lease. `after` is how
/// long the other has waited.
#[test]
#[ignore = "prints figures and tests nothing"]
fn hand_over() {
    for (after, rounds) in [(Duration::ZERO, 300), (Duration::from_millis(300), 30)] {
        let folder = Folder::fresh();
        let (mut one, mut other) = (Waiter::start(&folder.db()), Waiter::start(&folder.db()));
        one.hold(Mode::Exclusive, 60_000);
        let mut delays = Vec::new();
        for _ in 0..rounds {
            other.queue(Mode::Exclusive);
            std::thread::sleep(after);
            let released = one.release();
            delays.push(Duration::from_micros(other.lease().at - released));
            std::mem::swap(&mut one, &mut other);
        }
        delays.sort();
        let (p50, p99) = (delays[rounds / 2], delays[rounds * 99 / 100]);
        println!("after {after:?}: p50 {p50:?}, p99 {p99:?}, max {:?}", delays[rounds - 1]);
    }
}

/// Measures how long it takes to open the files again after a rest, with other live owners.
#[test]
#[ignore = "prints figures and tests nothing"]
fn reopening() {
    for others in [0, 300] {
        let folder = Folder::fresh();
        run(async {
            let stores: Vec<_> = (0..others).map(|_| SqliteStore::open(folder.db())).collect();
            for store in &stores {
                ask(store, Request::Ping).await;
            }
            let store = SqliteStore::open(folder.db());
            let (mut opened, mut again) = (Vec::new(), Vec::new());
            for _ in 0..9 {
                for delays in [&mut opened, &mut again] {
                    let begin = Instant::now();
                    ask(&store, Request::Ping).await;
                    delays.push(begin.elapsed());
                }
                // The files are closed two seconds after the last request.
                tokio::time::sleep(Duration::from_millis(2_500)).await;
            }
            for delays in [&mut opened, &mut again] {
                // The first opening also creates the owner.
                delays.remove(0);
                delays.sort();
            }
            println!("{others} others: p50 {:?}, max {:?}; open: p50 {:?}", opened[4], opened[7], again[4]);
            for store in stores {
                store.close().await;
            }
        });
    }
}

/// Measures how much processor time a process uses while one of its waiters waits.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "prints figures and tests nothing"]
fn cost_of_waiting() {
    let spent = |id: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
        let nanos = texts.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok());
        Duration::from_nanos(nanos.sum())
    };
    for busy in [false, true] {
        let folder = Folder::fresh();
        let (mut holder, mut waiter) = (Waiter::start(&folder.db()), Waiter::start(&folder.db()));
        holder.hold(Mode::Exclusive, 60_000);
        waiter.queue(Mode::Exclusive);
        // This process changes the file again and again.
        let mut other = busy.then(|| Process::start("measure 1", &folder.db()));
        let (start, before) = (Instant::now(), spent(waiter.id()));
        match &mut other {
            Some(other) => println!("meanwhile: {}", other.read_line()),
            None => std::thread::sleep(Duration::from_secs(10)),
        }
        let share = (spent(waiter.id()) - before).as_secs_f64() / start.elapsed().as_secs_f64();
        println!(
            "a waiter, the file {}: {:.2} % of a core",
            if busy { "busy" } else { "quiet" },
            share * 100.0
        );
    }
}

/// Measures the time from the death of the holder's process until the waiter has the lease.
#[test]
#[ignore = "prints figures and tests nothing"]
fn hand_over_after_a_kill() {
    let folder = Folder::fresh();
    let mut delays = Vec::new();
    let mut holder = Waiter::start(&folder.db());
    holder.hold(Mode::Exclusive, 60_000);
    for _ in 0..30 {
        let mut next = Waiter::start(&folder.db());
        next.queue(Mode::Exclusive);
        let killed = leasehold::engine::clock::now().as_micros();
        holder.kill();
        delays.push(Duration::from_micros(next.lease().at.saturating_sub(killed)));
        holder = next;
    }
    delays.sort();
    println!("after a kill: p50 {:?}, max {:?}", delays[15], delays[29]);
}
