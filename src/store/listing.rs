//! Which locks a listing is about, and what it tells. Pure.

use std::sync::Arc;

use super::{Answer, LockInfo, Reply, Request, StoreError, StoreErrorKind};
use crate::lease::Key;

/// What is in the keys of leases that only remember what was done (`lib/once.ts`).
const REMEMBERED: &str = "@once:";

/// The most memory, in bytes, that the locks of a listing take, with all copies up to the objects in
/// JavaScript. If this is larger, a false server can take more memory. If it is smaller, lists of
/// locks with many waiters are not complete. 48 MB are enough for 3000 locks with 60 waiters each.
pub const MOST_TOLD: usize = 48 << 20;
/// The memory of a lease or a waiter, in addition to its name: about 80 bytes here, 50 in the text
/// for JavaScript, and 90 in JavaScript.
const OF_ONE: usize = 220;
/// How many copies of a key or a name are in memory: one here, one in the text for JavaScript, one in
/// the string that JavaScript makes of this text, and one in the object.
const COPIES: usize = 4;

/// Which locks a [`Request::List`] asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What their keys begin with, to the letter.
    pub prefix: Arc<str>,
    /// What the rest of each key is like: `*` stands for any characters, `?` for one, `\` takes the next one to the letter.
    pub pattern: Arc<str>,
    /// How many at most.
    pub limit: u32,
}

impl Wanted {
    /// Whether `key` is one of those. What was done is soon more than what is held: it is listed only for a pattern that names it.
    pub fn matches(&self, key: &str) -> bool {
        key.strip_prefix(&*self.prefix).is_some_and(|rest| {
            is_like(&self.pattern, rest) && (!rest.contains(REMEMBERED) || self.pattern.contains(REMEMBERED))
        })
    }

    /// What the keys begin with, as far as that is known.
    pub fn head(&self) -> String {
        let mut head = self.prefix.to_string();
        let mut pattern = self.pattern.chars();
        while let Some(next) = pattern.next() {
            match next {
                '*' | '?' => break,
                '\\' => head.extend(pattern.next().or(Some('\\'))),
                next => head.push(next),
            }
        }
        head
    }
}

/// Whether `text` is like `pattern`. Takes a time proportional to the product of their lengths at most.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut text = text.chars();
    // Where to go on if what follows the last star does not fit: that star takes one character more.
    let mut again = None;
    loop {
        let (before, rest) = (pattern.clone(), text.clone());
        let fits = match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                again = Some((pattern.clone(), rest.clone()));
                text = rest;
                continue;
            }
            (Some('?'), Some(_)) => true,
            (Some('\\'), Some(letter)) => pattern.next().unwrap_or('\\') == letter,
            (Some(wanted), Some(letter)) => wanted == letter,
            (_, None) => return before.clone().all(|wanted| wanted == '*'),
            (None, Some(_)) => false,
        };
        if !fits {
            let Some((after, from)) = &mut again else { return false };
            from.next();
            (pattern, text) = (after.clone(), from.clone());
        }
    }
}

/// What a store tells of locks that are held.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// Which, in the order of their keys; which of them, if there are too many, is for the store to say.
    pub locks: Vec<(Key, LockInfo)>,
    /// Whether these are all of them.
    pub complete: bool,
    /// About how many bytes the locks take, see [`size_of`].
    told: usize,
}

impl Default for Listing {
    fn default() -> Self {
        Self { locks: Vec::new(), complete: true, told: 0 }
    }
}

impl Listing {
    /// Returns a listing without locks. `complete` says whether all keys were found.
    pub fn begin(complete: bool) -> Self {
        Self { complete, ..Self::default() }
    }

    /// One lock more; `false` if there are as many as are wanted, and so it is one too many.
    pub fn add(&mut self, wanted: &Wanted, key: Key, info: LockInfo) -> bool {
        let fits = self.locks.len() < wanted.limit as usize;
        if fits {
            self.locks.push((key, info));
        } else {
            self.complete = false;
        }
        fits
    }

    /// Adds the locks of `keys` that are held. `answers` are those to the [`inspections`] of `keys`,
    /// which have to be in order. Returns false if a lock does not fit: the listing has as many locks
    /// as are wanted, or as [`MOST_TOLD`] allows.
    ///
    /// # Errors
    /// The first error that does not mean that there is something else under the key.
    pub fn take(
        &mut self,
        wanted: &Wanted,
        keys: &[Key],
        answers: impl IntoIterator<Item = Answer>,
    ) -> Result<bool, StoreError> {
        for (key, answer) in keys.iter().zip(answers) {
            match answer {
                Ok(Reply::Inspected(Some(info))) => {
                    self.told += COPIES * key.len() + size_of(&info);
                    if self.told > MOST_TOLD && !self.locks.is_empty() {
                        self.complete = false;
                        return Ok(false);
                    }
                    if !self.add(wanted, key.clone(), info) {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind != StoreErrorKind::WrongType => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }
}

/// Returns about how many bytes `info` takes, with all copies up to the objects in JavaScript.
pub fn size_of(info: &LockInfo) -> usize {
    let names = info.leases.iter().map(|lease| lease.holder.as_ref().map_or(0, |name| name.len()));
    let names = names.chain(info.waiters.iter().map(|waiter| waiter.holder.len()));
    names.map(|name| OF_ONE + COPIES * name).sum()
}

/// The questions who holds each of `keys`.
pub fn inspections(keys: &[Key]) -> Vec<Request> {
    keys.iter().map(|key| Request::Inspect { key: key.clone() }).collect()
}

/// The listings that are asked for in `batch`, and where.
pub fn asked(batch: &[Request]) -> Vec<(usize, &Wanted)> {
    let requests = batch.iter().enumerate();
    let listings = requests.filter_map(|(index, request)| match request {
        Request::List(wanted) => Some((index, wanted)),
        _ => None,
    });
    listings.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_matched_to_the_letter_but_for_stars_question_marks_and_backslashes() {
        let like = [
            ("*", ""),
            ("*", "a:b/c"),
            ("a*", "a"),
            ("*a", "bca"),
            ("a*b*c", "aXbYbZc"),
            ("a?c", "aéc"),
            ("\\*", "*"),
            ("a\\\\b", "a\\b"),
            ("[ab]", "[ab]"),
            ("", ""),
            ("**a**", "a"),
        ];
        for (pattern, text) in like {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        let unlike = [
            ("", "a"),
            ("a", ""),
            ("a*b", "abc"),
            ("?", ""),
            ("\\*", "a"),
            ("[ab]", "a"),
            ("A", "a"),
            ("a\\", "a"),
        ];
        for (pattern, text) in unlike {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn what_was_done_is_listed_only_for_a_pattern_that_names_it() {
        let matches = |pattern: &str, key| {
            Wanted { prefix: "lock:".into(), pattern: pattern.into(), limit: 1 }.matches(key)
        };
        assert!(matches("*", "lock:mail") && !matches("*", "lock:mail@once:7"));
        assert!(!matches("mail*", "lock:mail@once:7"));
        assert!(matches("mail@once:*", "lock:mail@once:7") && matches("*@once:*", "lock:mail@once:7"));
        assert!(!matches("*@once:*", "lock:mail"));
    }

    #[test]
    fn stars_cost_no_more_than_the_product_of_the_lengths() {
        let (pattern, text) = ("*a".repeat(200) + "b", "a".repeat(1_000));
        assert!(!is_like(&pattern, &text));
    }

    #[test]
    fn the_head_is_what_all_that_match_begin_with() {
        let head =
            |pattern: &str| Wanted { prefix: "lock:".into(), pattern: pattern.into(), limit: 1 }.head();
        assert_eq!(head("*"), "lock:");
        assert_eq!(head("mail:*"), "lock:mail:");
        assert_eq!(head("a\\*b?c"), "lock:a*b");
        assert_eq!(head("plain"), "lock:plain");
    }
}
