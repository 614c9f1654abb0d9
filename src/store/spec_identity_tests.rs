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
