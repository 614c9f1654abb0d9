//! Reads short texts in replies. Pure.
//!
//! The conversions of redis-rs check a text of any length, and write the whole value into their
//! error if it is no text. A false server could keep the engine's thread busy with that.

use redis::Value;

/// Returns the text in `value`. Returns `None` if `value` is no text or has more than `most` bytes.
pub fn short_text(value: &Value, most: usize) -> Option<&str> {
    match value {
        Value::BulkString(bytes) if bytes.len() <= most => str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } if text.len() <= most => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_not_read() {
        let text = |length| Value::BulkString(vec![b'x'; length]);
        assert_eq!(short_text(&text(3), 3), Some("xxx"));
        assert_eq!(short_text(&text(4), 3), None);
        assert_eq!(short_text(&Value::SimpleString("xxxx".into()), 3), None);
        for other in [Value::BulkString(vec![0xff]), Value::Nil, Value::Array(vec![text(1)])] {
            assert_eq!(short_text(&other, 3), None);
        }
    }
}
