//! Reads the URL of a master that sentinels name.

use std::sync::Arc;

use super::super::address::RedisAddress;
use super::super::endpoint::{Endpoint, Sentinels};
use super::super::url::{UNENCODED, check_shown, decode};
use crate::store::Access;

/// The port of a sentinel whose URL names none.
const DEFAULT_PORT: u16 = 26379;

/// Reads the text after `redis-sentinel://`, or after `rediss-sentinel://` if `secure` is true, in
/// the form that [`RedisAddress::parse`] describes.
///
/// # Errors
///
/// Returns a message for users, which contains no part of a password.
pub fn parse_sentinels(rest: &str, secure: bool, access: &Access) -> Result<RedisAddress, String> {
    let scheme = if secure { "rediss" } else { "redis" };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !authority.contains('@') && tail.contains('@') {
        return Err(UNENCODED.into());
    }
    let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    let (path, query) = tail.split_at(tail.find(['?', '#']).unwrap_or(tail.len()));
    // The password may contain both @ and /, not encoded. Messages would show its end as the
    // master's name.
    if path.contains('@') {
        return Err(UNENCODED.into());
    }
    check_shown(path, "path")?;
    let for_master = Access { sentinel_username: None, sentinel_password: None, ..access.clone() };
    let for_sentinels = Access {
        username: access.sentinel_username.clone(),
        password: access.sentinel_password.clone(),
        tls: access.tls.clone(),
        ..Access::default()
    };
    let mut nodes: Vec<RedisAddress> = Vec::new();
    let mut master = None;
    for host in hosts.split(',') {
        // This also finds what is wrong with the login or the query.
        let known = RedisAddress::parse_server(&format!("{scheme}://{login}{host}{query}"), &for_master)?;
        master.get_or_insert(known);
        let bare = host.rsplit_once(']').map_or(host, |(_, port)| port);
        let port = if bare.contains(':') { String::new() } else { format!(":{DEFAULT_PORT}") };
        let node = RedisAddress::parse_server(&format!("{scheme}://{host}{port}"), &for_sentinels)?;
        if !nodes.contains(&node) {
            nodes.push(node);
        }
    }
    let name = decode(path.trim_start_matches('/'), "master's name")?;
    // The characters that sentinel.conf allows. Messages show the name, so any other text, such
    // as a parameter with a password, must not be taken for one.
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || !name.chars().all(fits) {
        return Err("a Sentinel URL ends with the name of the master, as the sentinels call it: letters, \
                    digits, and . _ - alone, as in redis-sentinel://host1,host2,host3/mymaster?db=1"
            .into());
    }
    let Some(master) = master else { return Err("the Redis URL names no host".into()) };
    let secrets = RedisAddress::secrets_of(nodes.iter().chain([&master]));
    for node in &mut nodes {
        node.secrets = secrets.clone();
    }
    // Sentinels say which host the master has, so its lookups count towards a sentinel's limit. The
    // server at the master's port of the first sentinel's host may belong to another store.
    let lookups = nodes[0].lookups.clone();
    let endpoint = Endpoint::Master(Arc::new(Sentinels { nodes, master: name }));
    Ok(RedisAddress { endpoint, secrets, lookups, ..master })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<RedisAddress, String> {
        RedisAddress::parse(url, &Access::default())
    }

    #[test]
    fn every_part_of_a_url_is_read() {
        let address =
            parse("redis-sentinel://us%40er:p,w@One:7000,two,[::1],one:7000/my%2Dmaster?db=3").unwrap();
        assert_eq!(
            address.to_string(),
            "redis-sentinel://us@er@one:7000,two:26379,[::1]:26379/my-master?db=3"
        );
        assert_eq!(address.password.as_deref(), Some("p,w"));
        assert_eq!(address.database, 3);
        let Endpoint::Master(sentinels) = &address.endpoint else { panic!("{address}") };
        // The login is the master's. Most sentinels want none.
        assert!(sentinels.nodes.iter().all(|node| node.username.is_none() && node.password.is_none()));
        let secure = parse("rediss-sentinel://one/m").unwrap();
        assert_eq!(secure.to_string(), "rediss-sentinel://one:26379/m");
        let Endpoint::Master(sentinels) = &secure.endpoint else { panic!("{secure}") };
        assert!(secure.tls.is_some() && sentinels.nodes[0].tls.is_some());
    }

    #[test]
    fn the_names_that_sentinels_say_count_towards_the_limit_of_a_sentinel() {
        let address = parse("redis-sentinel://names.example,names.example:7000/m").unwrap();
        let Endpoint::Master(sentinels) = &address.endpoint else { panic!("{address}") };
        assert!(address.lookups.share_a_limit(&sentinels.nodes[0].lookups));
        // A server on another port of that host may belong to another store.
        let other = RedisAddress::parse("redis://names.example", &Access::default()).unwrap();
        assert!(!address.lookups.share_a_limit(&other.lookups));
    }

    #[test]
    fn the_sentinels_have_a_login_of_their_own() {
        let access = |password: &str| Access {
            sentinel_username: Some("watcher".into()),
            sentinel_password: Some(password.into()),
            ..Access::default()
        };
        let url = "redis-sentinel://:hidden@one/m";
        let address = RedisAddress::parse(url, &access("secret")).unwrap();
        let Endpoint::Master(sentinels) = &address.endpoint else { panic!("{address}") };
        let node = &sentinels.nodes[0];
        assert_eq!((node.username.as_deref(), node.password.as_deref()), (Some("watcher"), Some("secret")));
        assert_eq!((address.username.as_deref(), address.password.as_deref()), (None, Some("hidden")));
        let other = RedisAddress::parse(url, &access("other")).unwrap();
        assert_ne!(address.identity(), other.identity());
        let shown = format!("{address} {address:?} {sentinels:?} {}", address.identity());
        assert!(!shown.contains("hidden") && !shown.contains("secret"), "{shown}");
        let error = RedisAddress::parse("redis://one", &access("secret")).unwrap_err();
        assert!(error.contains("redis-sentinel://") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn an_invalid_url_is_refused_and_its_secret_is_not_shown() {
        for (url, said) in [
            ("redis-sentinel://", "names no host"),
            ("redis-sentinel://:secret@a,,b/m", "names no host"),
            ("redis-sentinel://:secret@a,b", "name of the master"),
            ("redis-sentinel://:secret@a,b/", "name of the master"),
            ("redis-sentinel://:secret@a,b/m/3", "name of the master"),
            ("redis-sentinel://:secret@a:0/m", "port"),
            ("redis-sentinel://:secret@a,b:secret/m", "port"),
            ("redis-sentinel://:secret@a/m?db=x", "database"),
            ("redis-sentinel://:secret@a/m?timeout=1", "unknown parameter"),
            ("redis-sentinel://:sec/secret@a,b/m", "percent-encoded"),
            ("redis-sentinel://a:b@c/secret@host", "percent-encoded"),
            ("redis-sentinel://a/m&pass=secret@", "percent-encoded"),
            ("redis-sentinel://a/m&pass=secret", "write ?"),
            ("redis-sentinel://a/m;password=secret", "write ?"),
            ("redis-sentinel://a/m&sentinelPassword=secret", "name of the master"),
            ("redis-sentinel://a/m&requirepass=secret", "name of the master"),
            ("redis-sentinel://a/m,password:secret", "name of the master"),
            ("redis-sentinel://a/m:secret", "name of the master"),
            ("redis-sentinel://a/m%3Asecret", "name of the master"),
            ("redis-sentinel://a/m%253Fpass%253Dsecret", "write ?"),
            ("redis-sentinel://a/m%25253Fsecret", "name of the master"),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.contains(said) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
