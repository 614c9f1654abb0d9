//! The map from a lock to its side keys: the keys at the server that keep what else is known of the
//! lock.
//!
//! A side key is a stem and a [word](WORDS). The stem of a LOCK (its whole name, with the prefix) is
//!
//! - `{LOCK}` if the lock has no `}`: `{lock:a}:fence`;
//! - else `{TAG}:LOCK`, where TAG is the lock's [hash tag]: `{b}:lock:a{b}c:fence`. If a lock has a
//!   `}`, but no hash tag, TAG is the number that [`tag_in`] names for the lock's slot:
//!   `{1977}:lock:a}b:fence`.
//!
//! **No two locks share a side key, no lock is a side key, and a side key lies in its lock's slot.**
//!
//! 1. A word begins with its only `:`. So the last `:` of a side key divides it into stem and word.
//! 2. Neither a TAG nor a lock without `}` has a `}`. So the first `}` of a stem is the one behind
//!    TAG or LOCK. If it ends the stem, LOCK stands before it. If not, `:LOCK` follows.
//! 3. So a side key names one lock and one word: different locks, or different words, have different
//!    side keys.
//! 4. Redis Cluster hashes what stands between the first `{` of a key and the next `}`, unless
//!    nothing does ("Redis cluster specification", hash tags). In a side key, that is TAG, or a LOCK
//!    without `}`. A lock is not empty. It is hashed by its hash tag if it has one, else as a whole,
//!    and the number of [`tag_in`] has the same slot.
//! 5. By 1 and 2, a name can be the side key of one lock only. [`lock_beside`] finds that lock and
//!    maps it again. If the result is the name, it is a side key, and clients refuse it as a key.
//!
//! All versions must map in the same way, because they find a lock's waiters and its last fence by
//! its side keys alone. Builds from before 0.1.0 mapped a lock with a `}` but no hash tag to
//! `{LOCK}`, which may be the stem of a lock with a hash tag.
//!
//! [hash tag]: super::cluster::hash_tag

use std::borrow::Cow;

use super::cluster::{hash_tag, slot_of, tag_in};

/// How side keys end. `scripts/rules.lua` says what each is for.
pub const WORDS: [&str; 6] = [":fence", ":queue", ":alive", ":waiters", ":holders", ":broken"];

/// The side keys that scripts are given. The scripts make the names of the others from these.
#[derive(Clone, Copy)]
pub enum Side {
    /// What is known of the fences.
    Fence,
    /// Who waits.
    Queue,
}

/// Returns the side key of `lock`, in pieces.
pub fn side_key(lock: &str, side: Side) -> [Cow<'_, str>; 5] {
    let word = match side {
        Side::Fence => ":fence",
        Side::Queue => ":queue",
    };
    let (divider, rest) = if lock.contains('}') { ("}:", lock) } else { ("}", "") };
    ["{".into(), tag_of(lock), divider.into(), rest.into(), word.into()]
}

/// Returns what stands between the braces of the stem.
fn tag_of(lock: &str) -> Cow<'_, str> {
    match hash_tag(lock) {
        Some(tag) => tag.into(),
        None if lock.contains('}') => tag_in(slot_of(lock)).into(),
        None => lock.into(),
    }
}

/// Returns the lock that has `name` as a side key, or `None` if no lock has.
pub fn lock_beside(name: &str) -> Option<&str> {
    let inner = name.strip_prefix('{')?;
    let stem = WORDS.iter().find_map(|word| inner.strip_suffix(word))?;
    let (tag, rest) = stem.split_once('}')?;
    if rest.is_empty() {
        return Some(tag).filter(|lock| !lock.is_empty());
    }
    rest.strip_prefix(':').filter(|lock| lock.contains('}') && tag_of(lock) == tag)
}

#[cfg(test)]
#[path = "side_keys_tests.rs"]
mod tests;
