use std::collections::HashMap;

use super::*;

/// The side key of `lock` with that word.
fn named(lock: &str, word: &str) -> String {
    let fence = side_key(lock, Side::Fence).concat();
    fence.strip_suffix(":fence").unwrap().to_owned() + word
}

/// Generates names of locks, among them names of side keys, and names that only differ in where a
/// brace or a colon stands.
struct Names {
    random: fastrand::Rng,
    last: Vec<String>,
}

impl Names {
    const PREFIXES: [&str; 9] = ["lock:", "", "{", "}", "{app}:", "{}:", "a}:", "{lock:", "ключ:{é}:"];
    const PIECES: [&str; 16] = [
        "{", "}", "{", "}", ":", "{}", "}:", "a", "b", "lock:", "1977", "é", "🔒", ":fence", ":queue", "{b}",
    ];

    fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), last: vec!["a".into()] }
    }

    fn next(&mut self) -> String {
        let known = self.random.choice(&self.last).unwrap().clone();
        let word = self.random.choice(WORDS).unwrap();
        let name = match self.random.u8(..8) {
            // A side key of another lock, and what some map might take for one.
            0 => named(&known, word),
            1 => format!("{{{known}}}{word}"),
            2 => format!("{{{}}}:{known}{word}", self.random.choice(Self::PIECES).unwrap()),
            // The lock whose stem in braces is the stem of `known`, had it no rule for its brace.
            3 => named(&known, "").trim_start_matches('{').trim_end_matches('}').to_owned(),
            4 => format!("lock:{known}"),
            _ => {
                let count = self.random.usize(1..7);
                let pieces = (0..count).map(|_| *self.random.choice(Self::PIECES.iter()).unwrap());
                let key: String = pieces.collect();
                format!("{}{key}", self.random.choice(Self::PREFIXES).unwrap())
            }
        };
        let place = self.random.usize(..64);
        let name = if name.is_empty() || name.len() > 200 { "a".to_owned() } else { name };
        if place < self.last.len() {
            self.last[place].clone_from(&name);
        } else {
            self.last.push(name.clone());
        }
        name
    }
}

#[test]
fn the_side_keys_of_ordinary_locks_are_those_of_all_versions() {
    for (lock, fence) in [
        ("lock:a", "{lock:a}:fence"),
        ("lock:{b", "{lock:{b}:fence"),
        ("lock:a{b}c", "{b}:lock:a{b}c:fence"),
        ("{b}", "{b}:{b}:fence"),
        ("a}b{c}", "{c}:a}b{c}:fence"),
        ("a{{b}", "{{b}:a{{b}:fence"),
    ] {
        assert_eq!(side_key(lock, Side::Fence).concat(), fence);
        assert_eq!(side_key(lock, Side::Queue).concat(), fence.replace(":fence", ":queue"));
    }
}

#[test]
fn a_lock_with_a_brace_but_no_tag_has_the_number_of_its_slot() {
    assert_eq!(named("lock:a}b", ":fence"), "{1977}:lock:a}b:fence");
    assert_eq!(named("{}x", ":broken"), "{19354}:{}x:broken");
    assert_eq!(named("}", ":alive"), "{5305}:}:alive");
}

#[test]
fn two_locks_that_once_shared_their_side_keys_have_their_own() {
    let (one, other) = ("lock:account:{lock:account:x}", "lock:account:x}:lock:account:{lock:account:x");
    assert_eq!(named(one, ":queue"), "{lock:account:x}:lock:account:{lock:account:x}:queue");
    assert_eq!(named(other, ":queue"), format!("{{24358}}:{other}:queue"));
}

#[test]
fn no_two_locks_share_a_side_key_and_none_is_one() {
    let (mut names, mut stems) = (Names::new(16), HashMap::new());
    let (mut refused, mut numbered) = (0, 0);
    for _ in 0..200_000 {
        let name = names.next();
        if let Some(lock) = lock_beside(&name) {
            assert!(WORDS.iter().any(|word| named(lock, word) == name), "{name} is not beside {lock}");
            refused += 1;
        }
        let stem = named(&name, "");
        numbered += usize::from(name.contains('}') && hash_tag(&name).is_none());
        if let Some(other) = stems.insert(stem.clone(), name.clone()) {
            assert_eq!(other, name, "both have {stem}");
        }
        for word in WORDS {
            let side = named(&name, word);
            assert_eq!(lock_beside(&side), Some(&*name), "{side}");
            assert_eq!(slot_of(&side), slot_of(&name), "{side} of {name}");
        }
    }
    assert!(
        stems.len() > 50_000 && refused > 5_000 && numbered > 5_000,
        "{refused} {numbered} {}",
        stems.len()
    );
}

#[test]
fn a_name_that_is_only_like_a_side_key_is_none() {
    for name in [
        "lock:{lock:a}:fence",
        "{a}:fences",
        "{a}b:fence",
        "{}:fence",
        "{a:fence",
        "a}:fence",
        "{app}:order:5:queue",
        "{b}:{a}{b}:fence",
        "{1976}:lock:a}b:fence",
        "{01977}:lock:a}b:fence",
        "{}:a}b:fence",
        ":fence",
        "",
    ] {
        assert_eq!(lock_beside(name), None, "{name}");
    }
}

#[test]
fn the_words_are_those_of_the_rules() {
    let rules = include_str!("scripts/rules.lua");
    let named = rules.split("names .. '").skip(1).filter_map(|rest| rest.split('\'').next());
    let mut named: Vec<String> = named.map(|name| format!(":{name}")).collect();
    let described = rules.lines().filter_map(|line| line.strip_prefix("--   :")?.split(' ').next());
    let mut described: Vec<String> = described.map(|name| format!(":{name}")).collect();
    let mut known = WORDS.map(str::to_owned);
    named.sort_unstable();
    described.sort_unstable();
    known.sort_unstable();
    assert_eq!((&named[..], &described[..]), (&known[..], &known[..]));
    assert!(WORDS.iter().all(|word| word.rfind(':') == Some(0)), "the proof needs that");
}
