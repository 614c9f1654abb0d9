//! Reads the replies and the messages of a sentinel. Pure.
//!
//! A sentinel may be hostile, and send as much as the store's budget allows. So this module reads
//! only the beginning of a reply, and only short texts.

use redis::Value;

use super::super::short_text::short_text;

/// The most other sentinels that the client reads of one reply. Sentinels remember those that are
/// gone, and the client listens to 16 and lets 16 more wait. If this is smaller, the client may
/// miss a sentinel behind many that are gone; if it is larger, a hostile sentinel takes more of the
/// engine's time.
const MOST_OTHERS: usize = 64;
/// The most fields of a sentinel or a master that the client reads. Sentinels send up to 30. If
/// this is smaller, the client may miss a field; if it is larger, a hostile sentinel takes more of
/// the engine's time.
const MOST_FIELDS: usize = 64;
/// The most bytes of a text that the client reads. Sentinels cut off their messages after 1023
/// bytes, and a host has at most 255 characters. If this is smaller, the client may miss messages;
/// if it is larger, a hostile sentinel takes more of the engine's time.
const MOST_TEXT: usize = 1_024;

/// Another sentinel, as a sentinel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherSentinel<'a> {
    pub host: &'a str,
    pub port: u16,
    /// Its id, if the sentinel told it.
    pub id: Option<&'a str>,
}

/// Returns the sentinels in a reply to `SENTINEL SENTINELS`, at most [`MOST_OTHERS`] of them.
pub fn others(reply: &Value) -> impl Iterator<Item = OtherSentinel<'_>> {
    let others = match reply {
        Value::Array(others) => &others[..],
        _ => &[],
    };
    others.iter().take(MOST_OTHERS).filter_map(|other| {
        let (host, port) = (field(other, "ip")?, field(other, "port")?.parse().ok()?);
        Some(OtherSentinel { host, port, id: field(other, "runid") })
    })
}

/// Returns a field of a sentinel or a master. Sentinels describe them as a map in RESP3, and as a
/// list of names and values in RESP2.
pub fn field<'a>(described: &'a Value, name: &str) -> Option<&'a str> {
    let is_it = |said: &Value| text(said) == Some(name);
    let value = match described {
        Value::Map(fields) => {
            fields.iter().take(MOST_FIELDS).find(|(said, _)| is_it(said)).map(|(_, value)| value)
        }
        Value::Array(words) => {
            let mut fields = words.chunks_exact(2).take(MOST_FIELDS);
            fields.find(|field| is_it(&field[0])).map(|field| &field[1])
        }
        _ => None,
    };
    value.and_then(text)
}

/// Returns the host and port in a reply to `SENTINEL get-master-addr-by-name`.
pub fn place(reply: &Value) -> Option<(&str, &str)> {
    let Value::Array(parts) = reply else { return None };
    let [host, port] = &parts[..] else { return None };
    Some((text(host)?, text(port)?))
}

/// Returns a text of a sentinel: a message, its channel, or an id.
pub fn text(value: &Value) -> Option<&str> {
    short_text(value, MOST_TEXT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn list(words: &[&str]) -> Value {
        Value::Array(words.iter().map(|word| said(word)).collect())
    }

    #[test]
    fn only_the_first_sentinels_of_a_reply_are_read() {
        let reply = Value::Array(vec![list(&["ip", "host", "port", "7", "runid", "a"]); 100_000]);
        assert_eq!(others(&reply).count(), MOST_OTHERS);
        assert_eq!(others(&reply).next(), Some(OtherSentinel { host: "host", port: 7, id: Some("a") }));
        // Sentinels that the client can't read count, too.
        let mut entries = vec![list(&["ip", "host", "port", "x"]); MOST_OTHERS];
        entries.push(list(&["ip", "host", "port", "7"]));
        assert_eq!(others(&Value::Array(entries)).count(), 0);
        assert_eq!(others(&Value::Nil).count(), 0);
    }

    #[test]
    fn only_the_first_fields_are_read() {
        let fields = |count: usize| {
            let junk = (0..count).map(|number| (said(&number.to_string()), said("")));
            junk.chain([(said("flags"), said("master"))]).collect::<Vec<_>>()
        };
        for (count, flags) in [(MOST_FIELDS - 1, Some("master")), (MOST_FIELDS, None), (100_000, None)] {
            let map = Value::Map(fields(count));
            let list =
                Value::Array(fields(count).into_iter().flat_map(|(name, value)| [name, value]).collect());
            assert_eq!((field(&map, "flags"), field(&list, "flags")), (flags, flags), "{count}");
        }
    }

    #[test]
    fn a_long_text_is_not_read() {
        for (length, is_read) in [(MOST_TEXT, true), (MOST_TEXT + 1, false)] {
            let host = "x".repeat(length);
            let reply = Value::Array(vec![list(&["ip", &host, "port", "7"])]);
            assert_eq!(others(&reply).count(), usize::from(is_read));
            assert_eq!(place(&list(&[&host, "7"])).is_some(), is_read);
        }
        assert_eq!(place(&list(&["host", "7", "8"])), None);
    }
}
