//! Compares the server's scripts with the contract's rules: both get the same requests, and must
//! give the same answers at every instant.
//!
//! The sequences are random. A failure prints the command that runs the same sequence again:
//! `LEASEHOLD_SEED=n node scripts/cargo.mjs test --features mutants --test store_redis
//! model::scripts`. A test in which time passes repeats it only if the machine is as fast as it
//! was.

mod ends;
mod lock;
mod model_reply;
mod rules;

use std::time::Duration;

use leasehold::lease::Instant;
use leasehold::store::Request;
use tokio::time::sleep;

use self::ends::{Ends, SPREAD, repaired_until, waits};
use self::lock::Lock;
use self::rules::Rules;
use crate::ask::{Notices, all, run};
use crate::server::Server;

/// How many requests the server and the rules have to answer in the same way, in each test.
const REQUESTS: usize = 10_000;

/// Returns the seed of a test: that of `LEASEHOLD_SEED`, or a random one.
fn seed() -> u64 {
    let given = std::env::var("LEASEHOLD_SEED").ok();
    given.map_or_else(|| fastrand::u64(..), |text| text.parse().expect("LEASEHOLD_SEED is a number"))
}

/// Runs rounds in which no lease ends by itself. Each round is shorter than the shortest time in
/// the rules, so the clock of the rules stands still.
async fn rounds(seed: u64) -> Result<(), String> {
    let server = Server::start(&[]);
    let store = server.store();
    let mut notices = Notices::of(&store);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut count, mut round) = (0, 0);
    while count < REQUESTS {
        round += 1;
        let mut rules = Rules::new(Duration::from_millis(900));
        let mut locks = [format!("lock:{round}"), format!("lock:{{{round}}}:b")]
            .map(|key| Lock::new(key, 6, 5_000..100_000));
        for _ in 0..20 {
            let requests: Vec<_> = (0..random.usize(1..5))
                .map(|_| locks[random.usize(..2)].random_request(&mut random))
                .collect();
            count += requests.len();
            rules.exchange(&store, &mut notices, requests, Instant::from_micros(1)).await?;
        }
    }
    Ok(())
}

/// Runs requests for many locks whose leases and waiters end by time. If a batch takes so long that
/// it is unknown what had ended by then, its answers are not compared, and the test begins again.
async fn in_time(seed: u64) -> Result<(), String> {
    let server = Server::start(&[]);
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut count, mut part) = (0, 0);
    while count < REQUESTS {
        part += 1;
        let (store, mut rules) = (server.store(), Rules::new(SPREAD + Duration::from_millis(5)));
        let mut notices = Notices::of(&store);
        all(&store, vec![Request::Ping]).await;
        // Most locks get requests so seldom that waiters lose their places while the holder keeps
        // its lease.
        let is_rare = |n: usize| !n.is_multiple_of(3);
        let mut locks: Vec<_> = (0..360)
            .map(|n| {
                let key = format!("lock:{part}:{n}");
                let rare = || Lock::new(key.clone(), 2, 3_000..10_000).plainly(n % 3 == 1);
                let lock = if is_rare(n) { rare() } else { Lock::new(key, 4, 200..2_000) };
                (lock, Ends::default())
            })
            .collect();
        let began = std::time::Instant::now();
        let now = || Instant::from_micros(u64::try_from(began.elapsed().as_micros()).unwrap() + 1);
        'part: for _ in 0..80 {
            // Requests for the frequent locks go out together. A request for a rare lock goes out
            // alone, because the scripts have a faster path for one lock.
            let often = (0..locks.len()).filter(|n| !is_rare(*n)).collect();
            let rarely = (0..locks.len()).filter(|n| is_rare(*n) && random.u8(..30) == 0);
            let alone = rarely.flat_map(|n| [vec![n], vec![n]]).collect::<Vec<_>>();
            for group in std::iter::once(often).chain(alone) {
                let (at, mut requests, mut asked) = (now(), Vec::new(), Vec::new());
                for index in group {
                    let (lock, ends) = &mut locks[index];
                    if !ends.are_far(at) {
                        continue;
                    }
                    let most = if is_rare(index) { 1 } else { 3 };
                    let some: Vec<_> =
                        (0..random.usize(1..=most)).map(|_| lock.random_request(&mut random)).collect();
                    let places = some.iter().filter_map(|request| repaired_until(request, at)).collect();
                    asked.push((index, some.iter().any(waits), places));
                    requests.extend(some);
                }
                let sent = requests.len();
                let same = rules.exchange(&store, &mut notices, requests, at).await;
                if now().since(at) > SPREAD {
                    break 'part;
                }
                same?;
                count += sent;
                for (index, queued, places) in asked {
                    let (lock, ends) = &mut locks[index];
                    ends.note(&mut rules, lock, at, queued, places);
                }
            }
            sleep(Duration::from_millis(random.u64(30..80))).await;
        }
    }
    Ok(())
}

/// Runs one of the tests with a seed. A failure prints the seed.
fn check<T: Future<Output = Result<(), String>>>(test: fn(u64) -> T) {
    let seed = seed();
    if let Err(differ) = run(test(seed)) {
        panic!(
            "{differ}\nthe failing sequence: LEASEHOLD_SEED={seed} node scripts/cargo.mjs test --features mutants \
             --test store_redis model::scripts"
        );
    }
}

#[test]
fn scripts_and_rules_give_the_same_answers() {
    check(rounds);
}

#[test]
fn scripts_and_rules_give_the_same_answers_while_leases_and_places_end() {
    check(in_time);
}

/// Shows that the tests find mistakes, with rules that are wrong on purpose.
#[cfg(feature = "mutants")]
mod wrong {
    use leasehold::mutants::{self, Mutant};

    use super::*;

    fn is_found<T: Future<Output = Result<(), String>>>(test: fn(u64) -> T, mutant: Mutant) {
        mutants::set(Some(mutant));
        let result = run(test(seed()));
        mutants::set(None);
        assert!(result.is_err(), "{mutant:?} is not found");
    }

    #[test]
    fn a_release_without_a_token_is_found() {
        is_found(rounds, Mutant::ReleaseWithoutToken);
        is_found(in_time, Mutant::ReleaseWithoutToken);
    }

    #[test]
    fn a_detached_lease_that_gets_later_fences_as_its_own_is_found() {
        is_found(rounds, Mutant::DetachedFenceReplaced);
    }

    #[test]
    fn a_late_detachment_of_a_newer_lease_is_found() {
        is_found(rounds, Mutant::NewerLeaseDetached);
    }

    #[test]
    fn a_lease_that_forgets_the_fence_of_its_grant_is_found() {
        is_found(rounds, Mutant::GrantForgotten);
    }

    #[test]
    fn a_repair_without_a_place_is_found() {
        is_found(rounds, Mutant::RepairDoesNotWait);
        is_found(in_time, Mutant::RepairDoesNotWait);
    }
}
