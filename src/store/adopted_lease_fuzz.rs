//! A fuzz target: the tokens of tickets, and the names of holders with the notes of their leases.

use proptest::prelude::*;

use super::{split_note, with_note};
use crate::fuzzing::{fuzz, hash};
use crate::lease::{Token, Ttl};

const WORDS: &[&str] = &[
    "\u{1f}",
    "\u{1f}10",
    "\u{1f}10000",
    "\u{1f}g10",
    "\u{1f}-1",
    "\u{1f}+10",
    "\u{1f}4294967296",
    "-",
    "0",
    "a",
    "A",
    "{",
    "}",
    "urn:uuid:",
    "01234567-89ab-4def-8123-456789abcdef",
    "é",
];

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Only a UUID is a token, and only digits after a separator are a note.
#[test]
fn no_text_is_taken_for_another_token_or_note() {
    let generated = prop_oneof![
        "[ -~é\u{1f}]{0,40}",
        "[0-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "[a-z:0-9]{0,9}\u{1f}[0-9]{1,11}",
    ];
    fuzz("holders", 5_000, WORDS, generated.prop_map(String::into_bytes), |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Some(token) = Token::parse(&text) {
            let digits = |text: &str| -> String {
                let text = text.to_ascii_lowercase();
                text.strip_prefix("urn:uuid:").unwrap_or(&text).replace(['-', '{', '}'], "")
            };
            assert_eq!(digits(&text), digits(&token.to_string()), "{text}");
            assert_eq!(Token::parse(&token.to_string()), Some(token));
        }
        let (name, noted) = split_note(&text);
        assert!(text.starts_with(name), "{text:?}");
        let mut notes = text[name.len()..].split('\u{1f}').skip(1).collect::<Vec<_>>();
        if let Some(noted) = noted {
            let note = notes.pop().unwrap();
            assert!(is_number(note), "{text:?}");
            assert_eq!(note.parse::<u32>(), Ok(noted.as_millis()), "{text:?}");
        }
        assert!(notes.into_iter().all(|note| note.strip_prefix('g').is_some_and(is_number)), "{text:?}");
        let ttl = Ttl::from_millis(10 + (hash(bytes) % 1_000_000) as u32);
        assert!(ttl.is_some());
        assert_eq!(split_note(&with_note(&text, ttl)), (name, ttl), "{text:?}");
        assert_eq!(&*with_note(&with_note(&text, ttl), None), &*with_note(&text, None));
    });
}
