//! The engine's rules over the store in memory, in simulated time: several processes, a network that delays and loses,
//! callers that cancel, release and forget, threads that hang, processes that freeze and die. All randomness comes from
//! one seed, which a failure prints. `LEASEHOLD_SEED=n cargo test --test simulation` replays that schedule,
//! `LEASEHOLD_SEEDS=n cargo test --profile developer --features mutants --test simulation` runs n schedules of each kind.

mod campaign;
#[cfg(feature = "mutants")]
mod mutants;
mod node;
mod process;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use world::{Counts, Shape, World};

/// How many schedules each change has to pass. `npm run test:long` runs many more.
const SEEDS: u64 = 6_000;
/// How many schedules with a quorum each change has to pass. They take the longest.
const QUORUM_SEEDS: u64 = 2_000;
/// How many schedules with circuit breakers each change has to pass.
const BREAKER_SEEDS: u64 = 1_000;
/// Each so many is a long one.
const LONG_EVERY: u64 = 50;

fn from_env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

/// The subject of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// One store.
    Store,
    /// A quorum.
    Quorum,
    /// Either, with circuit breakers that open and close, and acquires that fail fast.
    Breakers,
}

impl About {
    /// Returns a part of the name of the test that runs these schedules.
    fn test(self) -> &'static str {
        match self {
            Self::Store => "no_schedule_overlaps",
            Self::Quorum => "of_a_quorum",
            Self::Breakers => "with_breakers",
        }
    }
}

/// The world of a schedule, and for how long there is trouble in it.
fn shape_of(seed: u64, about: About) -> (Shape, Duration) {
    let quorum = about == About::Quorum || about == About::Breakers && (seed / 8) % 2 == 1;
    let breakers = about == About::Breakers;
    let is_long = seed.is_multiple_of(LONG_EVERY);
    let (shape, trouble) = if quorum {
        let nodes = [3, 3, 4, 5, 5][seed as usize % 5];
        let (lossy, rolling) = (matches!(seed % 16, 8..12), matches!(seed % 16, 4 | 8));
        let trouble = if rolling {
            15_000
        } else if is_long || lossy {
            10_000
        } else {
            1_000
        };
        (Shape { nodes, lossy, rolling, hasty: false, breakers }, trouble)
    } else {
        (
            Shape { nodes: 1, lossy: false, rolling: false, hasty: false, breakers },
            if is_long { 10_000 } else { 500 },
        )
    };
    (shape, Duration::from_millis(trouble))
}

/// Runs one schedule.
fn run(seed: u64, about: About) -> Counts {
    let (shape, trouble) = shape_of(seed, about);
    #[cfg(feature = "mutants")]
    leasehold::mutants::seed_tokens(seed);
    match catch_unwind(AssertUnwindSafe(|| World::new(seed, shape, trouble).run())) {
        Ok(counts) => counts,
        Err(failure) => {
            eprintln!(
                "the failing schedule: LEASEHOLD_SEED={seed} cargo test --test simulation {}",
                about.test()
            );
            resume_unwind(failure);
        }
    }
}

fn add(sum: Counts, counts: Counts) -> Counts {
    Counts {
        leases: sum.leases + counts.leases,
        hand_offs: sum.hand_offs + counts.hand_offs,
        relayed: sum.relayed + counts.relayed,
        early: sum.early + counts.early,
        tenures: sum.tenures + counts.tenures,
        failed_fast: sum.failed_fast + counts.failed_fast,
    }
}

/// Runs the schedules that the environment wants, or so many, and adds up what they came to.
fn run_all(count: u64, about: About) -> (u64, Counts) {
    let seeds = match from_env("LEASEHOLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..from_env("LEASEHOLD_SEEDS").unwrap_or(count),
    };
    let (next, end) = (AtomicU64::new(seeds.start), seeds.end);
    let work = || {
        let mine = std::iter::from_fn(|| Some(next.fetch_add(1, Relaxed)).filter(|seed| *seed < end));
        mine.map(|seed| run(seed, about)).fold(Counts::default(), add)
    };
    let counts = std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let counts =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
        counts.fold(Counts::default(), add)
    });
    let Counts { leases, hand_offs, relayed, early, tenures, failed_fast } = counts;
    println!(
        "{leases} leases, {hand_offs} of them handed on within a process, {relayed} of those by its JavaScript thread, \
         {early} taken up on a notice, {tenures} of workers; {failed_fast} acquires failed fast"
    );
    assert!(leases > 0, "a simulation in which nobody ever gets a lock proves nothing");
    assert!(tenures > 0 || seeds.end - seeds.start < 100, "nor one in which no worker ever works");
    (seeds.end - seeds.start, counts)
}

#[test]
fn no_schedule_overlaps_two_leases_or_forgets_anyone() {
    let (seeds, Counts { relayed, early, .. }) = run_all(SEEDS, About::Store);
    let some = seeds > 100;
    assert!(early > 0 || !some, "a simulation in which no lease is taken up on a notice proves nothing");
    assert!(relayed > 0 || !some, "nor one in which no thread hands a lease on by itself");
}

#[test]
fn no_schedule_of_a_quorum_overlaps_two_leases_or_forgets_anyone() {
    run_all(QUORUM_SEEDS, About::Quorum);
}

#[test]
fn no_schedule_with_breakers_overlaps_two_leases_or_forgets_anyone() {
    let (seeds, Counts { failed_fast, .. }) = run_all(BREAKER_SEEDS, About::Breakers);
    assert!(failed_fast > 0 || seeds < 100, "a simulation in which no acquire fails fast proves nothing");
}
