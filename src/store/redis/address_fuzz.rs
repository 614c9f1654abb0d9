//! A fuzz target: the URLs of Redis servers, sentinels and clusters.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::address::RedisAddress;
use super::cluster::ClusterAddress;
use super::url::decode;
use crate::fuzzing::fuzz;
use crate::store::{Access, Tls, TlsTexts};

/// The password in the URLs.
const SECRET: &str = "hunter2";
/// The password in the options.
const OTHER_SECRET: &str = "swordfish";
const WORDS: &[&str] = &[
    "hunter2",
    ":hunter2@",
    "?pass=hunter2",
    "redis://",
    "rediss://",
    "redis+unix://",
    "redis-sentinel://",
    "redis-cluster://",
    "/",
    "//",
    "?",
    "#",
    "@",
    ":",
    ",",
    "&",
    "=",
    "%",
    "%2F",
    "%40",
    "%25",
    "%00",
    "%0a",
    "%zz",
    "[",
    "]",
    "[::1]",
    "?db=1",
    "?user=a",
    "0",
    "65535",
    "2147483648",
    "é",
    " ",
    "***",
];

/// Generates URLs. Their parts, such as login and host, need not fit together.
fn urls() -> impl Strategy<Value = Vec<u8>> {
    let scheme = select(
        &[
            "redis",
            "rediss",
            "redis+unix",
            "redis-sentinel",
            "rediss-sentinel",
            "redis-cluster",
            "rediss-cluster",
        ][..],
    );
    let login = select(
        &["", "user:hunter2@", ":hunter2@", "us%40er:hunter2@", "%3a%2f:a%20hunter2@", "hunter2@"][..],
    );
    let host = select(&["host", "Example.org:1", "[::1]", "[fe80::1%25e]:7", "127.0.0.1:65535", ""][..]);
    let path = "(/[a-z%0-9 @.?#]{0,12}){0,2}";
    let query = vec(select(&["db=1", "db=0", "user=a", "pass=hunter2", "pass=a%26hunter2", "x"][..]), 0..3);
    (scheme, login, vec(host, 1..3), path, query).prop_map(|(scheme, login, hosts, path, query)| {
        let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        format!("{scheme}://{login}{}{path}{query}", hosts.join(",")).into_bytes()
    })
}

/// Returns true if [`SECRET`] is only where users write a password: after the `:` of a login, or
/// after `pass=`. Special characters around it, not encoded, may end the login too early.
fn is_meant_as_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    // A path may have anything in it, so the login before one ends with the first `@/`. Without an
    // authority there is no login.
    let end =
        if url.to_ascii_lowercase().starts_with("redis+unix") { rest.find("@/") } else { rest.rfind('@') };
    let end = end.filter(|_| !rest.starts_with('/')).unwrap_or(0);
    let (login, tail) = rest.split_at(end);
    let in_login = login.split_once(':').map_or("", |(_, password)| password);
    let in_query = tail.split(['?', '&']).skip(1).filter_map(|pair| pair.strip_prefix("pass="));
    let count = |text: &str| decode(text, "").unwrap_or(text.into()).to_lowercase().matches(SECRET).count();
    let meant: usize = in_query.chain([in_login]).map(count).sum();
    meant > 0 && meant >= count(url)
}

/// Returns true if the name of the user contains the password. The address shows this name.
fn is_in_user(address: &RedisAddress) -> bool {
    address.username.as_ref().is_some_and(|user| user.to_lowercase().contains(SECRET))
}

/// Asserts that the text `shown` about a URL has neither password in it.
fn assert_hidden(url: &str, shown: &str) {
    assert!(!shown.contains(OTHER_SECRET), "{url}: {shown}");
    let lower = shown.to_lowercase();
    assert!(!is_meant_as_password(url) || !lower.contains(SECRET), "{url}: {shown}");
}

/// Asserts that addresses hide their passwords, and that each displays as a URL of itself.
fn check_address(url: &str, access: &Access) {
    match RedisAddress::parse(url, access) {
        Ok(address) => {
            if !is_in_user(&address) {
                assert_hidden(url, &format!("{address} {address:?} {}", address.identity()));
            }
            let has_secret = address.password.as_ref().is_some_and(|secret| !secret.is_empty());
            let shown = address.to_string();
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
            let is_hidden = address.username == address.password;
            if has_secret && !is_hidden {
                let named =
                    RedisAddress::parse(&shown, &Access { username: None, password: None, ..access.clone() });
                let named = named.unwrap_or_else(|error| panic!("{shown}: {error}"));
                assert_eq!(named.username, address.username, "{shown}");
            }
            let bare = address.without_login();
            let options = Access { username: None, password: None, ..access.clone() };
            let again = RedisAddress::parse(&bare.to_string(), &options);
            // Without its login, an address still knows which texts must not be shown.
            assert_eq!(again.map(|again| again.identity()), Ok(bare.identity()), "{url}");
        }
        Err(error) => assert_hidden(url, &error),
    }
    match ClusterAddress::parse(url, access) {
        Ok(address) => {
            let shown = address.to_string();
            if !address.seeds().iter().any(is_in_user) {
                assert_hidden(url, &format!("{address} {address:?} {}", address.identity()));
            }
            let again =
                ClusterAddress::parse(&shown, access).unwrap_or_else(|error| panic!("{shown}: {error}"));
            let nodes = |address: ClusterAddress| -> Vec<String> {
                address.seeds().iter().map(|seed| seed.clone().without_login().identity()).collect()
            };
            assert_eq!(nodes(again), nodes(address), "{shown}");
        }
        Err(error) => assert_hidden(url, &error),
    }
}

/// No URL makes the client panic or show a password, and each address displays as its own URL.
#[test]
fn no_url_shows_its_password_or_displays_as_another() {
    let plain = Access::default();
    let tls = Access { tls: Some(Tls::parse(&TlsTexts::default()).unwrap()), ..Access::default() };
    let login = Access {
        username: Some("user".into()),
        password: Some(OTHER_SECRET.into()),
        sentinel_password: None,
        ..Access::default()
    };
    let sentinel = Access { sentinel_password: Some(OTHER_SECRET.into()), ..Access::default() };
    fuzz("urls", 20_000, WORDS, urls(), |bytes| {
        let url = String::from_utf8_lossy(bytes);
        for access in [&plain, &tls, &login, &sentinel] {
            check_address(&url, access);
        }
    });
}
