//! Checks that the simulation finds mistakes: each mutant fails within a number of schedules. A
//! world that breaks the one assumption of a quorum fails, too. `LEASEHOLD_MUTANT=text` runs only
//! the mutants whose names contain the text.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use leasehold::mutants::{self, Mutant};

use crate::world::{Shape, World};
use crate::{About, shape_of};

/// The simulation has to find each mutant within this number of schedules.
const MOST_SEEDS: u64 = 5_000;
/// A variant that is first found with this seed or a later one has to stand in [`seed_of_rare`]. If
/// this is larger, more variants may be missing there, and a search for one took as long as all
/// others together. If it is smaller, the table is longer.
const RARE_FROM: u64 = 100;

/// What the simulation has to find.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// A wrong rule.
    Rules(Mutant),
    /// A wrong world: nodes that have lost their data come back at once.
    EarlyReturn,
}

/// Returns true if the schedule fails with the mutant.
fn fails(wrong: Wrong, seed: u64, about: About) -> bool {
    let (mut shape, trouble) = shape_of(seed, about);
    mutants::seed_tokens(seed);
    match wrong {
        Wrong::Rules(mutant) => mutants::set(Some(mutant)),
        Wrong::EarlyReturn => shape = Shape { lossy: true, returns_early: true, ..shape },
    }
    let result = catch_unwind(AssertUnwindSafe(|| World::new(seed, shape, trouble).run()));
    mutants::set(None);
    result.is_err()
}

/// Returns a schedule that has found a rare variant. Trying it first saves most of the search.
/// After a change of the rules or of the world, another schedule may find the variant. The test
/// fails with its seed, which this table then has to name.
fn seed_of_rare(wrong: Wrong) -> Option<u64> {
    match wrong {
        Wrong::Rules(Mutant::GrantFromReply) => Some(111),
        Wrong::Rules(Mutant::RenewalFromReply) => Some(146),
        Wrong::Rules(Mutant::NoDrift) => Some(179),
        // The first schedules of a quorum find it, but each of them then runs for seconds.
        Wrong::Rules(Mutant::NoCleanUp) => Some(93),
        Wrong::Rules(Mutant::GrantFromNotice) => Some(1400),
        Wrong::Rules(Mutant::RepairKeptAfterRelease) => Some(274),
        Wrong::Rules(Mutant::DetachedTooSoon) => Some(1275),
        Wrong::Rules(Mutant::GrantAfterStopKept) => Some(136),
        Wrong::EarlyReturn => Some(341),
        _ => None,
    }
}

/// Returns the first schedule that finds the mutant, and its subject.
fn found(wrong: Wrong) -> Option<(u64, About)> {
    let of_one = [About::Store].as_slice();
    let worlds = match wrong {
        // A quorum's notices carry no fence, and its releases name no used fence.
        Wrong::Rules(
            Mutant::GrantFromNotice
            | Mutant::HandOffsForgotten
            | Mutant::ExpiredFencesForgotten
            | Mutant::NewerLeaseDetached
            | Mutant::GrantForgotten,
        ) => of_one,
        Wrong::Rules(
            Mutant::GrantFromReply
            | Mutant::RenewalFromReply
            | Mutant::NoDrift
            | Mutant::ReleaseWithoutToken
            | Mutant::NoCleanUp
            | Mutant::GrantAfterStopKept,
        ) => &[About::Store, About::Quorum],
        // Schedules of a quorum without breakers find these variants much more rarely.
        Wrong::Rules(Mutant::FailedFastKept | Mutant::DetachedTooSoon) => &[About::Breakers],
        _ => &[About::Quorum],
    };
    if let Some(seed) = seed_of_rare(wrong)
        && let Some(about) = worlds.iter().find(|about| fails(wrong, seed, **about))
    {
        return Some((seed, *about));
    }
    let schedules = (0..MOST_SEEDS).flat_map(|seed| worlds.iter().map(move |about| (seed, *about)));
    schedules.into_iter().find(|(seed, about)| fails(wrong, *seed, *about))
}

#[test]
fn every_mutant_is_found() {
    let only = std::env::var("LEASEHOLD_MUTANT").unwrap_or_default();
    let all = Mutant::ALL.map(Wrong::Rules).into_iter().chain([Wrong::EarlyReturn]);
    let wrong: Vec<Wrong> = all.filter(|wrong| format!("{wrong:?}").contains(&only)).collect();
    assert!(!wrong.is_empty(), "no mutant of the list is called {only}");
    let (next, missed, rare) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    // Schedules of mutants are expected to panic, so print no messages.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(wrong) = wrong.get(next.fetch_add(1, Relaxed)) {
                    match found(*wrong) {
                        Some((seed, about)) => {
                            println!("{wrong:?}: found by {seed} of {about:?}");
                            if seed >= RARE_FROM && seed_of_rare(*wrong) != Some(seed) {
                                rare.lock().unwrap().push((*wrong, seed));
                            }
                        }
                        None => missed.lock().unwrap().push(*wrong),
                    }
                }
            });
        }
    });
    std::panic::set_hook(hook);
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found within {MOST_SEEDS} schedules: {missed:?}");
    let rare = rare.into_inner().unwrap();
    assert!(rare.is_empty(), "found late; name these seeds in `seed_of_rare`: {rare:?}");
}
