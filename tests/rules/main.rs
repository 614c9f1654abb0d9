//! Tests the rules for one lock under random schedules, in simulated time. The owners of tokens
//! acquire, wait, take up, renew, hand on, release, give up, hang and die, over a network that
//! delays, loses and repeats messages. All randomness comes from one seed, which a failure prints.
//!
//! `LEASEHOLD_SEED=n node scripts/cargo.mjs test --features mutants --test rules no_schedule`
//! replays one seed. `LEASEHOLD_SEEDS=n` sets the number of seeds.

mod actor;
mod checker;
mod mutants;
mod world;

use mutants::Mutant;
use world::World;

/// The number of schedules unless the environment sets another. They take some seconds in a debug
/// build.
const SEEDS: u64 = 10_000;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

#[test]
fn no_schedule_breaks_a_rule_or_forgets_a_waiter() {
    let seeds = match from_env("LEASEHOLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("LEASEHOLD_SEEDS").unwrap_or(SEEDS),
    };
    let mut seen = world::Seen::default();
    for seed in seeds.clone() {
        match World::new(seed, None).run() {
            Ok(of_this) => seen.add(&of_this),
            Err(broken) => {
                panic!(
                    "{broken}\nthe failing schedule: LEASEHOLD_SEED={seed} node scripts/cargo.mjs test --features mutants \
                     --test rules no_schedule"
                )
            }
        }
    }
    println!("{seen:?}");
    if seeds.end - seeds.start >= 1_000 {
        seen.assert_all(seeds.end - seeds.start);
    }
}

/// Shows that the checker finds mistakes.
#[test]
fn every_mutant_is_found() {
    for mutant in Mutant::ALL {
        let found = (0..200).filter(|seed| World::new(*seed, Some(mutant)).run().is_err()).count();
        assert!(found > 20, "{mutant:?} was found in {found} of 200 schedules");
    }
}
