//! Selects the locks of a listing. Pure.

use std::sync::Arc;

/// A part of the keys of leases that only remember an id (`lib/lock/schedule/once.ts`).
const REMEMBERED: &str = "@once:";

/// Selects the locks that a [`Request::List`](super::Request::List) asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFilter {
    /// The beginning of the keys, literally.
    pub prefix: Arc<str>,
    /// The pattern for the rest of each key: `*` stands for any characters, `?` for one character,
    /// and `\` makes the next character literal.
    pub pattern: Arc<str>,
    /// The largest number of locks.
    pub limit: u32,
}

impl ListFilter {
    /// Returns true if the filter selects `key`. There are soon more remembered ids than held
    /// locks, so a pattern has to name them to select them.
    pub fn matches(&self, key: &str) -> bool {
        key.strip_prefix(&*self.prefix).is_some_and(|rest| {
            is_like(&self.pattern, rest) && (!rest.contains(REMEMBERED) || self.pattern.contains(REMEMBERED))
        })
    }

    /// Returns the literal beginning of the selected keys, as far as it is known.
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

/// Returns true if `text` matches `pattern`. Takes a time at most proportional to the product of
/// their lengths.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut text = text.chars();
    // Where to continue if the text after the last star does not match: the star then takes one
    // more character.
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
            (Some(filter), Some(letter)) => filter == letter,
            (_, None) => return before.clone().all(|filter| filter == '*'),
            (None, Some(_)) => false,
        };
        if !fits {
            let Some((after, from)) = &mut again else { return false };
            from.next();
            (pattern, text) = (after.clone(), from.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stars_question_marks_and_backslashes_have_a_meaning_in_a_pattern() {
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
    fn remembered_ids_are_listed_only_for_a_pattern_that_names_them() {
        let matches = |pattern: &str, key| {
            ListFilter { prefix: "lock:".into(), pattern: pattern.into(), limit: 1 }.matches(key)
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
    fn all_keys_that_match_begin_with_the_head() {
        let head =
            |pattern: &str| ListFilter { prefix: "lock:".into(), pattern: pattern.into(), limit: 1 }.head();
        assert_eq!(head("*"), "lock:");
        assert_eq!(head("mail:*"), "lock:mail:");
        assert_eq!(head("a\\*b?c"), "lock:a*b");
        assert_eq!(head("plain"), "lock:plain");
    }
}
