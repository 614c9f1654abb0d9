use super::*;

/// Returns the side key of `lock` that ends with `word`.
fn named(lock: &str, word: &str) -> String {
    let fence = side_key(lock, Side::Fence).concat();
    fence.strip_suffix(":fence").unwrap().to_owned() + word
}

#[test]
fn the_side_keys_of_ordinary_locks_are_those_of_all_versions() {
    for (lock, fence) in [
        ("lock:a", "{lock:a}:fence"),
        ("lock:{b", "{lock:{b}:fence"),
        ("lock:a{b}c", "{b}:lock:a{b}c:fence"),
        ("{b}", "{b}:{b}:fence"),
        ("a}b{c}", "{c}:a}b{c}:fence"),
        ("a{{b}", "{{b}:a{{b}:fence"),
    ] {
        assert_eq!(side_key(lock, Side::Fence).concat(), fence);
        assert_eq!(side_key(lock, Side::Queue).concat(), fence.replace(":fence", ":queue"));
    }
}

#[test]
fn a_lock_with_a_brace_but_no_tag_has_the_number_of_its_slot() {
    assert_eq!(named("lock:a}b", ":fence"), "{1977}:lock:a}b:fence");
    assert_eq!(named("{}x", ":broken"), "{19354}:{}x:broken");
    assert_eq!(named("}", ":alive"), "{5305}:}:alive");
}

#[test]
fn two_locks_that_once_shared_their_side_keys_have_their_own() {
    let (one, other) = ("lock:account:{lock:account:x}", "lock:account:x}:lock:account:{lock:account:x");
    assert_eq!(named(one, ":queue"), "{lock:account:x}:lock:account:{lock:account:x}:queue");
    assert_eq!(named(other, ":queue"), format!("{{24358}}:{other}:queue"));
}

#[test]
fn a_name_that_only_looks_like_a_side_key_is_none() {
    for name in [
        "lock:{lock:a}:fence",
        "{a}:fences",
        "{a}b:fence",
        "{}:fence",
        "{a:fence",
        "a}:fence",
        "{app}:order:5:queue",
        "{b}:{a}{b}:fence",
        "{1976}:lock:a}b:fence",
        "{01977}:lock:a}b:fence",
        "{}:a}b:fence",
        ":fence",
        "",
    ] {
        assert_eq!(lock_beside(name), None, "{name}");
    }
}

#[test]
fn the_words_are_those_of_the_scripts() {
    let rules = include_str!("scripts/parts/rules.lua");
    let parts =
        [rules, include_str!("scripts/parts/acquisition.lua"), include_str!("scripts/parts/ending.lua")];
    let named = parts.iter().flat_map(|part| part.split("names .. '").skip(1));
    let named = named.filter_map(|rest| rest.split('\'').next());
    let mut named: Vec<String> = named.map(|name| format!(":{name}")).collect();
    let described = rules.lines().filter_map(|line| line.strip_prefix("--   :")?.split(' ').next());
    let mut described: Vec<String> = described.map(|name| format!(":{name}")).collect();
    let mut known = WORDS.map(str::to_owned);
    named.sort_unstable();
    named.dedup();
    described.sort_unstable();
    known.sort_unstable();
    assert_eq!((&named[..], &described[..]), (&known[..], &known[..]));
    assert!(WORDS.iter().all(|word| word.rfind(':') == Some(0)), "the proof in `side_keys` needs this");
}
