//! Simulates the engine's rules over stores in memory, in simulated time. Processes freeze and die,
//! their threads hang, their callers cancel and release, and the network delays and loses messages.
//! All randomness comes from one seed. A failure prints the command that replays its schedule:
//! `LEASEHOLD_SEED=n node scripts/cargo.mjs test --features mutants --test simulation TEST`.
//! Without the feature, tokens do not depend on the seed. Without the name of the test, the command
//! runs the seed in all kinds of schedules, and searches for all mutants, too. `LEASEHOLD_SEEDS=n`
//! runs n schedules of each kind. `LEASEHOLD_MUTANT=text` searches for the mutants whose names
//! contain the text (`mutants.rs`).

mod campaign;
mod history;
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
const SEEDS: u64 = 3_000;
/// How many schedules with a quorum each change has to pass. They take the longest.
const QUORUM_SEEDS: u64 = 600;
/// How many schedules with circuit breakers each change has to pass.
const BREAKER_SEEDS: u64 = 400;
/// A schedule is a long one if its seed is a multiple of this number.
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
    /// One store or a quorum, with circuit breakers that open and close, and acquires that fail
    /// fast.
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

/// Returns the shape of a schedule's world, and how long the trouble in it lasts.
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
        (Shape { nodes, lossy, rolling, returns_early: false, breakers }, trouble)
    } else {
        (
            Shape { nodes: 1, lossy: false, rolling: false, returns_early: false, breakers },
            if is_long { 10_000 } else { 500 },
        )
    };
    (shape, Duration::from_millis(trouble))
}

/// Returns the world of a schedule.
fn world_of(seed: u64, about: About) -> World {
    let (shape, trouble) = shape_of(seed, about);
    #[cfg(feature = "mutants")]
    leasehold::mutants::seed_tokens(seed);
    World::new(seed, shape, trouble)
}

/// Runs one schedule.
fn run(seed: u64, about: About) -> Counts {
    let world = world_of(seed, about);
    match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(counts) => counts,
        Err(failure) => {
            eprintln!(
                "the failing schedule: LEASEHOLD_SEED={seed} node scripts/cargo.mjs test --features mutants --test simulation {}",
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
        handed_on_by_thread: sum.handed_on_by_thread + counts.handed_on_by_thread,
        on_notice: sum.on_notice + counts.on_notice,
        terms: sum.terms + counts.terms,
        failed_fast: sum.failed_fast + counts.failed_fast,
        history: sum.history.wrapping_add(counts.history),
    }
}

/// Runs the schedules that the environment variables name, or `count` of them. Returns their number
/// and the sum of their counts.
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
    let Counts { leases, hand_offs, handed_on_by_thread, on_notice, terms, failed_fast, history: _ } = counts;
    println!(
        "{leases} leases, {hand_offs} of them handed on within a process, {handed_on_by_thread} of those by its JavaScript thread, \
         {on_notice} taken up on a notice, {terms} of workers; {failed_fast} acquires failed fast"
    );
    assert!(leases > 0, "a simulation in which nobody ever gets a lock proves nothing");
    assert!(terms > 0 || seeds.end - seeds.start < 100, "nor one in which no worker ever works");
    (seeds.end - seeds.start, counts)
}

#[test]
fn no_schedule_overlaps_two_leases_or_forgets_anyone() {
    let (seeds, Counts { handed_on_by_thread, on_notice, .. }) = run_all(SEEDS, About::Store);
    let some = seeds > 100;
    assert!(on_notice > 0 || !some, "a simulation in which no lease is taken up on a notice proves nothing");
    assert!(handed_on_by_thread > 0 || !some, "nor one in which no thread hands a lease on by itself");
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

/// Prints a digest for each kind of schedule. `node scripts/cargo.mjs test --features mutants
/// --test simulation -- --ignored digests --nocapture` prints the same before and after a change
/// that must not change behavior.
#[cfg(feature = "mutants")]
#[test]
#[ignore = "prints digests to compare by hand"]
fn prints_the_digests_of_the_histories() {
    let seeds = from_env("LEASEHOLD_SEEDS").unwrap_or(200);
    for about in [About::Store, About::Quorum, About::Breakers] {
        let sum =
            (1..=seeds).map(|seed| world_of(seed, about).with_digest().run()).fold(Counts::default(), add);
        println!("{about:?}, seeds 1 to {seeds}: {:016x}, {} leases", sum.history, sum.leases);
    }
}
