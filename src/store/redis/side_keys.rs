//! Maps a lock to its side keys: the keys at the server that keep the lock's other data, such as
//! its last fence and its queue.
//!
//! A side key consists of a stem and a [word](WORDS). The stem of a LOCK (its whole name, with the
//! prefix) is
//!
//! - `{LOCK}` if the lock has no `}`: `{lock:a}:fence`;
//! - otherwise `{TAG}:LOCK`, where TAG is the lock's [hash tag]: `{b}:lock:a{b}c:fence`. If a lock
//!   has a `}`, but no hash tag, TAG is the number that [`tag_in`] returns for the lock's slot:
//!   `{1977}:lock:a}b:fence`.
//!
//! **No two locks share a side key, no client locks a name that is a side key, and a side key lies
//! in its lock's slot.**
//!
//! 1. A word begins with its only `:`. So the last `:` of a side key divides it into stem and word.
//! 2. Neither a TAG nor a lock without `}` has a `}`. So the first `}` of a stem is the one after
//!    TAG or LOCK. If this `}` ends the stem, LOCK is before it. Otherwise, `:LOCK` follows.
//! 3. So a side key names one lock and one word: different locks, or different words, have
//!    different side keys.
//! 4. Redis Cluster hashes the text between the first `{` of a key and the next `}`, unless that
//!    text is empty ("Redis cluster specification", hash tags). In a side key, this is TAG, or a
//!    LOCK without `}`; neither is empty. Redis Cluster hashes a lock by its hash tag if it has
//!    one, and otherwise as a whole. The number that [`tag_in`] returns has the same slot.
//! 5. Because of 1 and 2, a name can be the side key of only one lock. [`lock_beside`] finds that
//!    lock and maps it again. If the result is the name, the name is a side key, and clients refuse
//!    the name as a key (`lib/lock/side-keys.ts`).
//!
//! All versions must map in the same way, because they find a lock's waiters and its last fence
//! only by the names of its side keys. Builds from before 0.1.0 mapped a lock with a `}` but no
//! hash tag to `{LOCK}`, which may be the stem of a lock with a hash tag.
//!
//! [hash tag]: super::cluster::hash_tag

use std::borrow::Cow;

use super::cluster::{hash_tag, slot_of, tag_in};

/// The words that side keys end with. `scripts/parts/rules.lua` describes each of them.
pub const WORDS: [&str; 6] = [":fence", ":queue", ":alive", ":waiters", ":holders", ":broken"];

/// The side keys that scripts are given. The scripts make the names of the others from these.
#[derive(Clone, Copy)]
pub enum Side {
    /// The last fence, and the client that got it.
    Fence,
    /// The tokens that wait.
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

/// Returns the text between the braces of the stem.
fn tag_of(lock: &str) -> Cow<'_, str> {
    match hash_tag(lock) {
        Some(tag) => tag.into(),
        None if lock.contains('}') => tag_in(slot_of(lock)).into(),
        None => lock.into(),
    }
}

/// Returns the lock that has `name` as a side key, or `None` if there is none.
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
