//! The rules for one lock under random schedules, in simulated time: tokens that ask, wait, take up, renew, hand down,
//! release, give up, hang and die, over a network that delays, loses and repeats. All randomness comes from one seed,
//! which a failure prints; `LEASEHOLD_SEED=n cargo test --test rules` replays it alone and `LEASEHOLD_SEEDS=n` runs so many.

mod actor;
mod checker;
mod sabotage;
mod world;

use sabotage::Sabotage;
use world::World;

/// How many schedules are run unless the environment says otherwise: some seconds' worth in a debug build.
const SEEDS: u64 = 10_000;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

#[test]
fn no_schedule_breaks_a_rule_or_forgets_anyone() {
    let seeds = match from_env("LEASEHOLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("LEASEHOLD_SEEDS").unwrap_or(SEEDS),
    };
    let mut seen = world::Seen::default();
    for seed in seeds.clone() {
        match World::new(seed, None).run() {
            Ok(of_this) => seen.add(&of_this),
            Err(broken) => {
                panic!("{broken}\nthe failing schedule: LEASEHOLD_SEED={seed} cargo test --test rules")
            }
        }
    }
    println!("{seen:?}");
    if seeds.end - seeds.start >= 1_000 {
        seen.assert_all(seeds.end - seeds.start);
    }
}

/// A checker that finds nothing proves nothing.
#[test]
fn whatever_is_broken_is_found() {
    for sabotage in Sabotage::ALL {
        let found = (0..200).filter(|seed| World::new(*seed, Some(sabotage)).run().is_err()).count();
        assert!(found > 20, "{sabotage:?} was found in {found} of 200 schedules");
    }
}
