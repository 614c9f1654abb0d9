//! Reads replies to `INFO`. Pure.

use std::borrow::Cow;
use std::collections::HashMap;

/// The most bytes of a reply to `INFO` that the client reads. Servers send some 10 kB, and the
/// sections that the client uses come first. If this is larger, a false server takes more of the
/// engine's time; if it is smaller, the client may miss replicas of a large server.
const MOST: usize = 256 << 10;

/// The fields in a reply to `INFO`.
#[derive(Default)]
pub struct Info<'a> {
    /// The first value of each field. The fields of replicas are not here.
    fields: HashMap<&'a str, &'a str>,
    /// What `INFO` says of each replica: `ip=127.0.0.1,port=6380,state=online,offset=0,lag=0`.
    pub replicas: Vec<&'a str>,
}

impl<'a> Info<'a> {
    /// Reads the text that [`text_in`] returns. Goes through its lines once.
    pub fn read(text: &'a str) -> Self {
        let mut info = Self::default();
        for (name, said) in text.lines().filter_map(|line| line.split_once(':')) {
            match name.strip_prefix("slave") {
                Some(number) if is_number(number) => info.replicas.push(said),
                _ => {
                    info.fields.entry(name).or_insert(said.trim());
                }
            }
        }
        info
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.fields.get(name).copied()
    }
}

/// Returns the part of a reply that the client reads: its first [`MOST`] bytes.
pub fn text_in(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)])
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_long_reply_is_read() {
        let text = format!("role:master\r\n{}loading:1\r\n", "x\n".repeat(MOST));
        let text = text_in(text.as_bytes());
        let info = Info::read(&text);
        assert_eq!((info.get("role"), info.get("loading")), (Some("master"), None));
        assert_eq!(text_in(&vec![0xff; 2 * MOST]).chars().count(), MOST);
    }

    #[test]
    fn the_first_value_of_a_field_counts() {
        let info = Info::read("role:master\r\nrole:slave\r\nslave0:ip=::1,port=7\r\nslave_priority:1\r\n");
        assert_eq!(info.get("role"), Some("master"));
        assert_eq!(info.get("slave_priority"), Some("1"));
        assert_eq!(info.replicas, ["ip=::1,port=7"]);
    }
}
