//! A digest of everything that happens in a simulated world. Two versions of the code behave alike
//! if the digests of the same schedules are equal.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::{Discriminant, discriminant};

use leasehold::lease::Instant;

/// Digests the messages, answers, notices and outcomes of one schedule, in their order. The default
/// digests nothing, because a digest takes almost as long as the schedule.
#[derive(Clone, Default)]
pub struct History(Option<DefaultHasher>);

impl History {
    /// Returns a history that digests what it records.
    pub fn with_digest() -> Self {
        Self(Some(DefaultHasher::new()))
    }

    /// Adds one thing that happened to `process`. The names of Rust types, variants and fields do
    /// not count, so the digest of renamed code is the same.
    pub fn record<T: Debug>(&mut self, now: Instant, process: usize, things: &[T]) {
        let Some(digest) = &mut self.0 else { return };
        (now, process, things.len()).hash(digest);
        for thing in things {
            let kind: Discriminant<T> = discriminant(thing);
            (kind, without_names(&format!("{thing:?}"))).hash(digest);
        }
    }

    /// Returns the digest of all that was recorded; 0 for the default.
    pub fn digest(&self) -> u64 {
        self.0.as_ref().map_or(0, Hasher::finish)
    }
}

/// Removes every word that has no digit in it.
fn without_names(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if is_word(c) {
            word.push(c);
            continue;
        }
        if word.contains(|c: char| c.is_ascii_digit()) {
            rest.push_str(&word);
        }
        word.clear();
        rest.push(c);
    }
    rest
}

#[test]
fn digests_ignore_names_and_notice_numbers() {
    assert_eq!(without_names("Place { number: 12, heartbeat: 1.5ms }"), " { : 12, : 1.5ms }\n");
    let digest = |fence: u64, kind: Option<u64>| {
        let mut history = History::with_digest();
        history.record(Instant::from_micros(1), 0, &[fence]);
        history.record(Instant::from_micros(2), 1, &[kind]);
        history.digest()
    };
    assert_eq!(digest(1, None), digest(1, None));
    assert_ne!(digest(1, None), digest(2, None));
    assert_ne!(digest(1, None), digest(1, Some(1)));
}
