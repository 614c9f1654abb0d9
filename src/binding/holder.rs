//! Joins and splits the holder's name at a store: the client's name and, if the acquire was traced,
//! its `traceparent`. To stores and to the engine, this is one text.

/// Separates the two parts. `lib/util/arguments.ts` refuses names that contain it.
const SEPARATOR: char = '\u{1f}';

/// Returns the text for a client's name and a W3C `traceparent`.
pub fn join(name: &str, trace: &str) -> String {
    let mut holder = String::with_capacity(name.len() + 1 + trace.len());
    holder.push_str(name);
    holder.push(SEPARATOR);
    holder.push_str(trace);
    holder
}

/// Returns the name and the `traceparent` of such a text. Leaves out a malformed `traceparent`.
pub fn split(holder: &str) -> (&str, Option<&str>) {
    let (name, trace) = holder.rsplit_once(SEPARATOR).unwrap_or((holder, ""));
    (name, is_traceparent(trace).then_some(trace))
}

/// Returns whether `text` is a `traceparent` of version 00: `00-TRACE-SPAN-FLAGS`, in lower-case
/// hexadecimal digits, neither id all zeros (<https://www.w3.org/TR/trace-context/>).
fn is_traceparent(text: &str) -> bool {
    let is_hex = |part: &str, digits| {
        part.len() == digits && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |part: &str, digits| is_hex(part, digits) && part.bytes().any(|byte| byte != b'0');
    let mut parts = text.split('-');
    let mut part = || parts.next().unwrap_or_default();
    part() == "00" && is_id(part(), 32) && is_id(part(), 16) && is_hex(part(), 2) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::{join, split};

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_name_and_a_trace_that_were_joined_are_split_into_the_same() {
        for name in ["host:42", "", "-", "naïve ☃ name", "00-"] {
            assert_eq!(split(&join(name, TRACE)), (name, Some(TRACE)));
        }
    }

    #[test]
    fn a_record_without_a_trace_is_a_name_as_it_stands() {
        for holder in ["host:42", "", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a b-c"] {
            assert_eq!(split(holder), (holder, None));
        }
    }

    #[test]
    fn what_only_resembles_a_trace_is_not_shown() {
        for tail in [
            "",
            "x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c8031é-b7ad6b7169203331-01",
        ] {
            let holder = join("name", tail);
            assert_eq!(split(&holder), ("name", None), "{tail}");
        }
    }
}
