//! A fuzz target: no two locks share a side key.

use std::cell::RefCell;
use std::collections::HashMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::cluster::{hash_tag, slot_of};
use super::side_keys::{Side, WORDS, lock_beside, side_key};
use crate::fuzzing::fuzz;

const PREFIXES: &[&str] = &["lock:", "", "{", "}", "{app}:", "{}:", "a}:", "{lock:", "ключ:{é}:"];
const PIECES: &[&str] = &[
    "{", "}", "{", "}", ":", "{}", "}:", "a", "b", "lock:", "1977", "é", "🔒", ":fence", ":queue", ":alive",
    ":waiters", ":holders", ":broken", "{b}",
];
/// The longest name, in bytes, for which the test tries every lock that could have it as a side
/// key.
const SHORT: usize = 48;

/// How many stems the test keeps. They take about 200 MB.
const MOST_STEMS: usize = 1_000_000;

/// Has what the test has seen so far.
#[derive(Default)]
struct Seen {
    /// The locks by their stems.
    stems: HashMap<String, String>,
    /// How many names are side keys.
    refused: usize,
    /// How many locks have the number of their slot in the names of their side keys.
    numbered: usize,
}

/// Returns the side key of `lock` that ends with `word`.
fn named(lock: &str, word: &str) -> String {
    let fence = side_key(lock, Side::Fence).concat();
    fence.strip_suffix(":fence").unwrap().to_owned() + word
}

/// Generates names of locks, among them names of side keys, and names that differ only in the place
/// of a brace or a colon.
fn names() -> impl Strategy<Value = Vec<u8>> {
    let key = vec(select(PIECES), 1..7).prop_map(|pieces| pieces.concat());
    let lock = (select(PREFIXES), key).prop_map(|(prefix, key)| format!("{prefix}{key}"));
    let name = (lock, select(&WORDS[..]), select(PIECES), 0..8_u8).prop_map(|(lock, word, piece, kind)| {
        match kind {
            // A side key of another lock, and names that a wrong map could take for one.
            0 => named(&lock, word),
            1 => format!("{{{lock}}}{word}"),
            2 => format!("{{{piece}}}:{lock}{word}"),
            // The lock that would share the stem of `lock` if every stem were `{LOCK}`.
            3 => named(&lock, "").trim_start_matches('{').trim_end_matches('}').to_owned(),
            4 => format!("lock:{lock}"),
            _ => lock,
        }
    });
    name.prop_map(String::into_bytes)
}

/// Returns the lock that has `name` as a side key. Tries every lock that it could be.
fn found_beside(name: &str) -> Option<&str> {
    let places: Vec<usize> = name.char_indices().map(|(place, _)| place).chain([name.len()]).collect();
    let word = WORDS.iter().find(|word| name.ends_with(**word))?;
    let pairs = places.iter().flat_map(|&start| places.iter().map(move |&end| (start, end)));
    let mut locks = pairs.filter(|(start, end)| start < end).map(|(start, end)| &name[start..end]);
    locks.find(|lock| named(lock, word) == name)
}

/// Each lock has its own side keys, in its slot, and each name of a side key is known as one.
#[test]
fn no_two_locks_share_a_side_key_and_none_is_one() {
    let seen = RefCell::new(Seen::default());
    fuzz("locks", 20_000, PIECES, names(), |bytes| {
        let name = String::from_utf8_lossy(bytes).into_owned();
        let mut seen = seen.borrow_mut();
        let lock = lock_beside(&name);
        if let Some(lock) = lock {
            assert!(WORDS.iter().any(|word| named(lock, word) == name), "{name} is not beside {lock}");
            seen.refused += 1;
        }
        if name.len() <= SHORT {
            assert_eq!(lock, found_beside(&name), "{name}");
        }
        // No store accepts an empty name.
        if name.is_empty() {
            return;
        }
        for word in WORDS {
            let side = named(&name, word);
            assert_eq!(lock_beside(&side), Some(&*name), "{side}");
            assert_eq!(slot_of(&side), slot_of(&name), "{side} of {name}");
        }
        seen.numbered += usize::from(name.contains('}') && hash_tag(&name).is_none());
        let stem = named(&name, "");
        if let Some(other) = seen.stems.get(&stem) {
            assert_eq!(*other, name, "both have {stem}");
        } else if seen.stems.len() < MOST_STEMS {
            seen.stems.insert(stem, name);
        }
    });
    let Seen { stems, refused, numbered } = seen.into_inner();
    let stems = stems.len();
    // A long run with few kinds of names would prove little. A short one may miss some.
    assert!(stems < 10_000 || refused > 200 && numbered > 200, "{stems} {refused} {numbered}");
}
