//! Escapes text from other programs for people to read. Pure.
//!
//! The texts and addresses that a server sends get into messages, events, logs and terminals. A
//! control character in them could clear a screen or forge a line of a log. So the store escapes
//! such text when it receives the text. The messages of errors may also have paths, which other
//! users of the machine may have named, so an error escapes its whole message.

use std::borrow::Cow;
use std::sync::Arc;

/// Returns the whole of `text`, escaped as [`printable`] does it.
pub fn printable_message(text: impl Into<Arc<str>>) -> Arc<str> {
    let text = text.into();
    if has_control(&text) { printable(&text, usize::MAX).into() } else { text }
}

/// Returns the whole of `text`, escaped as [`printable`] does it. Copies only a text that changes.
pub fn printable_whole(text: &str) -> Cow<'_, str> {
    if has_control(text) { printable(text, usize::MAX).into() } else { text.into() }
}

/// Returns `text` with a visible escape in the place of each character that would control a
/// terminal, cut off after `most` characters. Escaping the result again does not change it.
pub fn printable(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    for (index, letter) in text.chars().enumerate() {
        if index == most {
            shown.push('…');
            break;
        }
        match letter {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if is_control(letter) => shown.extend(letter.escape_unicode()),
            _ => shown.push(letter),
        }
    }
    shown
}

/// Returns true if [`printable`] escapes a character of `text`.
fn has_control(text: &str) -> bool {
    // Most texts are ASCII. For these, a look at the bytes is enough, and fast.
    !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.chars().any(is_control)
}

/// Returns true for control characters, line separators, and marks that change the text direction.
fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped_once() {
        let text = "\u{1b}[2J\r\n\ta\u{7f}\u{9b}31m\u{202e}b\u{2066}\u{200e}\u{61c}\u{2028}\0 é 日 \\n";
        let shown = "\\u{1b}[2J\\r\\n\\ta\\u{7f}\\u{9b}31m\\u{202e}b\\u{2066}\\u{200e}\\u{61c}\\u{2028}\\u{0} é 日 \\n";
        assert_eq!(printable(text, 100), shown);
        assert_eq!(printable(shown, 200), shown);
        for letter in (0..0x20).chain(0x7f..0xa0).filter_map(char::from_u32) {
            assert!(printable(&letter.to_string(), 1).is_ascii(), "{letter:?}");
        }
        for text in [text, shown, "", "plain", "é 日", "\u{202e}"] {
            assert_eq!(printable_whole(text), printable(text, usize::MAX));
        }
    }

    #[test]
    fn the_text_is_cut_off_after_the_given_number_of_characters() {
        assert_eq!(printable("ééé", 3), "ééé");
        assert_eq!(printable("éééé", 3), "ééé…");
        assert_eq!(printable(&"\u{1b}".repeat(1_000_000), 2), "\\u{1b}\\u{1b}…");
    }
}
