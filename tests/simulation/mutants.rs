//! Checks that the simulation finds mistakes: each deliberately wrong variant of the rules fails
//! within a number of schedules. A world that breaks the one assumption of a quorum fails, too.
//! `LEASEHOLD_MUTANT=text` runs only the variants whose names contain the text.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use leasehold::mutants::{self, Mutant};

use crate::world::{Shape, World};
use crate::{About, shape_of};

/// A wrong variant has to be found within this number of schedules.
const MOST_SEEDS: u64 = 5_000;

/// A wrong variant.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// Of the rules.
    Rules(Mutant),
    /// Of the world: nodes that have lost their data come back at once.
    Hasty,
}

/// Whether that schedule fails.
fn fails(wrong: Wrong, seed: u64, about: About) -> bool {
    let (mut shape, trouble) = shape_of(seed, about);
    match wrong {
        Wrong::Rules(mutant) => mutants::set(Some(mutant)),
        Wrong::Hasty => shape = Shape { lossy: true, hasty: true, ..shape },
    }
    let result = catch_unwind(AssertUnwindSafe(|| World::new(seed, shape, trouble).run()));
    mutants::set(None);
    result.is_err()
}

/// Returns the first schedule that finds the wrong variant, and its subject.
fn found(wrong: Wrong) -> Option<(u64, About)> {
    let of_one = [About::Store].as_slice();
    let worlds = match wrong {
        // A quorum's notices carry no fence, and its releases name no used fence.
        Wrong::Rules(
            Mutant::GrantFromNotice | Mutant::HandOffsForgotten | Mutant::ExpiredFencesForgotten,
        ) => of_one,
        Wrong::Rules(
            Mutant::GrantFromReply
            | Mutant::RenewalFromReply
            | Mutant::NoDrift
            | Mutant::ReleaseWithoutToken
            | Mutant::NoCleanUp
            | Mutant::GrantAfterStopKept,
        ) => &[About::Store, About::Quorum],
        Wrong::Rules(Mutant::FailedFastKept) => &[About::Breakers],
        _ => &[About::Quorum],
    };
    let schedules = (0..MOST_SEEDS).flat_map(|seed| worlds.iter().map(move |about| (seed, *about)));
    schedules.into_iter().find(|(seed, about)| fails(wrong, *seed, *about))
}

#[test]
fn every_wrong_variant_is_found() {
    let only = std::env::var("LEASEHOLD_MUTANT").unwrap_or_default();
    let all = Mutant::ALL.map(Wrong::Rules).into_iter().chain([Wrong::Hasty]);
    let wrong: Vec<Wrong> = all.filter(|wrong| format!("{wrong:?}").contains(&only)).collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // They are supposed to panic; what each says is of no use here.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(wrong) = wrong.get(next.fetch_add(1, Relaxed)) {
                    match found(*wrong) {
                        Some((seed, about)) => println!("{wrong:?}: found by {seed} of {about:?}"),
                        None => missed.lock().unwrap().push(*wrong),
                    }
                }
            });
        }
    });
    std::panic::set_hook(hook);
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found within {MOST_SEEDS} schedules: {missed:?}");
}
