//! Where the sentinels are, and which master they are asked for.

use std::fmt;
use std::sync::Arc;

use super::super::address::{Endpoint, RedisAddress};
use super::super::url::{UNENCODED, check_shown, decode, encode};
use crate::store::Access;

/// The port of a sentinel whose URL names none.
const DEFAULT_PORT: u16 = 26379;

/// Those who know which server is the master, and what they call it.
///
/// Neither `Display` nor `Debug` shows a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Sentinels {
    /// At least one, each with the login that sentinels want.
    pub nodes: Vec<RedisAddress>,
    /// The name of the master.
    pub master: String,
}

impl Sentinels {
    /// What follows `redis-sentinel://` or `rediss-sentinel://` (`secure`), as [`RedisAddress::parse`] takes it.
    ///
    /// # Errors
    ///
    /// A message for people that has no part of a password in it.
    pub fn parse(rest: &str, secure: bool, access: &Access) -> Result<RedisAddress, String> {
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
            // Also what is wrong with the login or the query is told by this.
            let known = RedisAddress::parse(&format!("{scheme}://{login}{host}{query}"), &for_master)?;
            master.get_or_insert(known);
            let bare = host.rsplit_once(']').map_or(host, |(_, port)| port);
            let port = if bare.contains(':') { String::new() } else { format!(":{DEFAULT_PORT}") };
            let node = RedisAddress::parse(&format!("{scheme}://{host}{port}"), &for_sentinels)?;
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        let name = decode(path.trim_start_matches('/'), "master's name")?;
        if name.is_empty() || name.contains(['/', ' ', '\0', '\r', '\n']) {
            return Err("a Sentinel URL ends with the name of the master, as the sentinels call it: \
                        redis-sentinel://host1,host2,host3/mymaster"
                .into());
        }
        let Some(master) = master else { return Err("the Redis URL names no host".into()) };
        Ok(RedisAddress { endpoint: Endpoint::Master(Arc::new(Self { nodes, master: name })), ..master })
    }

    /// A text that is the same only for the same sentinels with the same login, in the same order.
    pub fn identity(&self) -> String {
        self.nodes.iter().map(RedisAddress::identity).collect::<Vec<_>>().join(",")
    }
}

/// `host:port,host:port/name`.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            let shown = node.to_string();
            let shown = shown.split_once("://").map_or(&*shown, |(_, rest)| rest);
            let host = shown.rsplit_once('@').map_or(shown, |(_, host)| host);
            write!(f, "{}{host}", if index > 0 { "," } else { "" })?;
        }
        write!(f, "/{}", encode(&self.master, "?#@&"))
    }
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sentinels({self})")
    }
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
        // The login is the master's; sentinels mostly want none.
        assert!(sentinels.nodes.iter().all(|node| node.username.is_none() && node.password.is_none()));
        let secure = parse("rediss-sentinel://one/m").unwrap();
        assert_eq!(secure.to_string(), "rediss-sentinel://one:26379/m");
        let Endpoint::Master(sentinels) = &secure.endpoint else { panic!("{secure}") };
        assert!(secure.tls.is_some() && sentinels.nodes[0].tls.is_some());
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
    fn what_can_not_be_meant_is_refused_without_the_secret() {
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
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.contains(said) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
