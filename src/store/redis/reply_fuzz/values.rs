//! Generates values as a server writes them.

use proptest::collection::vec;
use proptest::prelude::*;

/// Returns values as a server writes them.
pub fn values() -> BoxedStrategy<Vec<u8>> {
    let text = |pattern, kind| {
        proptest::string::string_regex(pattern)
            .unwrap()
            .prop_map(move |text: String| format!("{kind}{text}\r\n").into_bytes())
    };
    let leaf = prop_oneof![
        proptest::sample::select(&["_\r\n", "#t\r\n", ",1.5\r\n", "$-1\r\n", "*-1\r\n"][..])
            .prop_map(|text| text.as_bytes().to_vec()),
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        (1_732_374_000_000_000..1_832_374_000_000_000_i64)
            .prop_map(|fence| format!(":{fence}\r\n").into_bytes()),
        text("[a-z\r]{0,9}", '+'),
        text("(ERR|NOPERM|MOVED|ASK|READONLY) [0-9]{1,6} [a-z\r\u{1b}]{0,9}:[0-9]{1,6}", '-'),
        vec(any::<u8>(), 0..20)
            .prop_map(|text| [format!("${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat()),
        "[a-z ]{0,9}".prop_map(|text| format!("={}\r\ntxt:{text}\r\n", text.len() + 4).into_bytes()),
    ];
    let tree = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (proptest::sample::select(&["*", "~"][..]), vec(inner.clone(), 0..4))
                .prop_map(|(kind, items)| list(kind, items.len(), items)),
            vec((inner.clone(), inner.clone()), 0..3).prop_map(|pairs| {
                list("%", pairs.len(), pairs.into_iter().flat_map(|(key, value)| [key, value]))
            }),
            vec(inner, 0..3).prop_map(|items| {
                list(">", items.len() + 1, std::iter::once(b"+message\r\n".to_vec()).chain(items))
            }),
        ]
    });
    tree.boxed()
}

fn list(kind: &str, count: usize, items: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut bytes = format!("{kind}{count}\r\n").into_bytes();
    bytes.extend(items.into_iter().flatten());
    bytes
}
