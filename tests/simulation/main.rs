//! The engine's rules over the store in memory, in simulated time: several processes, a network that delays and loses,
//! callers that cancel, release and forget, threads that hang, processes that freeze and die. All randomness comes from
//! one seed, which a failure prints; `LEASEHOLD_SEED=n cargo test --test simulation` replays it alone and
//! `LEASEHOLD_SEEDS=n` runs so many.

mod process;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use world::World;

/// How many schedules are run unless the environment says otherwise.
const SEEDS: u64 = 10_000;
/// Each so many is a long one.
const LONG_EVERY: u64 = 50;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

#[test]
fn no_schedule_overlaps_two_leases_or_forgets_anyone() {
    let seeds = match from_env("LEASEHOLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("LEASEHOLD_SEEDS").unwrap_or(SEEDS),
    };
    let (mut grants, mut hand_offs) = (0, 0);
    for seed in seeds {
        let trouble = Duration::from_millis(if seed % LONG_EVERY == 0 { 10_000 } else { 500 });
        let run = catch_unwind(AssertUnwindSafe(|| World::new(seed, trouble).run()));
        match run {
            Ok((granted, handed_on)) => {
                grants += granted;
                hand_offs += handed_on;
            }
            Err(failure) => {
                eprintln!("the failing schedule: LEASEHOLD_SEED={seed} cargo test --test simulation");
                std::panic::resume_unwind(failure);
            }
        }
    }
    println!("{grants} leases, {hand_offs} of them handed on within a process");
    assert!(grants > 0, "a simulation in which nobody ever gets a lock proves nothing");
}
