use std::collections::HashMap;

use super::*;

/// Clients whose stores have one identity share its connections, and these hide the passwords of
/// the store that was opened first.
#[test]
fn stores_of_one_identity_hide_the_same_passwords() {
    const SECRETS: [&str; 3] = ["hunter2", "swordfish", "letmein"];
    let logins = || ["", ":hunter2@", ":swordfish@", "letmein@", "u:hunter2@", "swordfish:hunter2@"];
    let one = |login: &str| {
        let masters = ["redis://L@a", "rediss://L@a/1", "redis+unix://L@/a.sock", "redis-cluster://L@a,b"];
        let masters = masters.map(|url| vec![url.replace("L@", login)]);
        let others = ["redis://:swordfish@b", "redis://:letmein@b", "redis://b"];
        let quorums = others.map(|other| {
            vec![other.to_owned(), format!("redis://{login}a"), format!("redis-sentinel://{login}c/m")]
        });
        let sentinels = vec![format!("redis-sentinel://{login}a,b/m")];
        masters.into_iter().chain([sentinels]).chain(quorums).collect::<Vec<_>>()
    };
    let access = |password: Option<&str>, sentinel_password: Option<&str>| Access {
        password: password.map(String::from),
        sentinel_password: sentinel_password.map(String::from),
        ..Access::default()
    };
    let mut seen: HashMap<String, (Vec<String>, Vec<&str>)> = HashMap::new();
    for mut urls in logins().into_iter().flat_map(one) {
        for sentinel in [None, Some("letmein"), Some("swordfish")] {
            for access in [access(None, sentinel), access(Some("hunter2"), sentinel)] {
                // The order of the nodes of a quorum does not matter.
                urls.rotate_left(1);
                let Ok(spec) = StoreSpec::parse_all(&urls, &access) else { continue };
                let nodes = if let StoreSpec::Quorum(nodes) = &spec { nodes } else { &vec![spec.clone()] };
                let hides = |secret: &str| {
                    nodes.iter().all(|node| match node {
                        StoreSpec::Redis(address) => address.is_secret_in(secret),
                        StoreSpec::RedisCluster(address) => address.seeds()[0].is_secret_in(secret),
                        _ => false,
                    })
                };
                let hidden: Vec<&str> = SECRETS.into_iter().filter(|secret| hides(secret)).collect();
                let (known, before) =
                    seen.entry(spec.identity()).or_insert_with(|| (urls.clone(), hidden.clone()));
                assert_eq!(*before, hidden, "{known:?} and {urls:?}");
            }
        }
    }
    assert!(seen.len() > 40, "{} stores were compared", seen.len());
}

/// Returns the error of a quorum of these stores and a third one.
fn refusal_of(one: &str, other: &str) -> String {
    let urls = [one, "redis://third", other].map(String::from);
    StoreSpec::parse_all(&urls, &Access::default()).expect_err(&format!("{one} and {other}"))
}

#[test]
fn a_quorum_refuses_a_server_that_is_named_twice_in_different_ways() {
    for (one, other) in [
        ("redis://a:hunter2@h:6379", "redis://b:letmein@h"),
        ("redis://:hunter2@h", "redis://hunter2:letmein@h"),
        ("redis://h", "redis://u:hunter2@h"),
        ("redis://h", "redis://h/1"),
        ("redis://h", "rediss://h"),
        ("redis://h", "redis://H."),
        ("redis://[::1]", "redis://[0:0::0001]"),
        ("redis://[FE80::1%25eth0]", "redis://[fe80:0::1%25eth0]"),
        ("redis://127.0.0.1", "redis://[::ffff:127.0.0.1]"),
        ("redis://127.0.0.1", "redis://127.1"),
        ("redis://127.0.0.1", "redis://2130706433"),
        ("redis://127.0.0.1.", "redis://0x7f.0.0.0X1"),
        ("redis://127.0.0.1", "redis://0177.0.01"),
        ("redis://127.000.000.001", "redis://[::ffff:127.0.0.1]"),
        ("redis://127.0.0.1", "redis://0"),
        ("redis://127.1", "redis://0.0.0.0"),
        ("redis://0.0.0.0.", "redis://0x0"),
        ("redis://0", "redis://[::ffff:127.0.0.1]"),
        ("redis://[::]", "redis://127.0.0.1"),
        ("redis://[::1]", "redis://[::]"),
        ("redis://[::0]", "redis://0"),
        ("redis://[::ffff:0.0.0.0]", "redis://127.0.0.1"),
        ("redis+unix:///run/redis.sock", "redis+unix:///run//./redis.sock?db=1"),
        ("redis+unix:///run/redis.sock", "redis+unix:///run/other/../redis.sock"),
        ("redis+unix:///../run/redis.sock", "redis+unix:///run/a/b/.././../redis.sock"),
        ("redis-sentinel://:hunter2@s,t/m", "redis-sentinel://t:26379,u/m?db=1"),
    ] {
        let message = refusal_of(one, other);
        assert!(message.contains("are the same server: the stores of a quorum"), "{one}, {other}: {message}");
        assert!(!message.contains("hunter2") && !message.contains("letmein"), "{message}");
    }
    for (one, other) in [
        ("redis://h", "redis://h:6379/0"),
        ("redis://:hunter2@h", "redis://:letmein@h"),
        ("memory:a", "memory:a"),
        ("sqlite:/tmp/a.db", "sqlite:/tmp/./a.db"),
    ] {
        let message = refusal_of(one, other);
        assert!(message.contains(" is named twice: the stores of a quorum"), "{one}, {other}: {message}");
        assert!(!message.contains("hunter2") && !message.contains("letmein"), "{message}");
    }
}

#[test]
fn a_quorum_takes_servers_that_differ_in_their_place() {
    for (one, other) in [
        ("redis://h:6379", "redis://h:6380"),
        ("redis://127.0.0.1", "redis://127.0.0.2"),
        ("redis://127.0.0.1", "redis://127.257"),
        ("redis://0", "redis://127.0.0.2"),
        ("redis://0:6380", "redis://127.0.0.1"),
        ("redis://0.0.0.1", "redis://127.0.0.1"),
        ("redis://127.0.0.1", "redis://[::1]"),
        ("redis://127.0.0.1", "redis://127.0.0.1.1"),
        ("redis://127.0.0.1", "redis://127.0.0.08"),
        ("redis://127.0.0.1", "redis://127.0.0.0x"),
        ("redis://256.1", "redis://0.1"),
        ("redis://[fe80::1%25eth0]", "redis://[fe80::1%25eth1]"),
        ("redis+unix:///run/a.sock", "redis+unix:///run/b.sock"),
        ("redis+unix:///run/a.sock", "redis+unix:///run/../a.sock"),
        ("redis-sentinel://s,t/m", "redis-sentinel://s,t/n"),
        ("redis-sentinel://s/m", "redis-sentinel://t/m"),
        ("redis-sentinel://s/m", "redis://s:26379"),
    ] {
        let urls = [one, "redis://third", other].map(String::from);
        assert!(StoreSpec::parse_all(&urls, &Access::default()).is_ok(), "{one} and {other}");
    }
}
