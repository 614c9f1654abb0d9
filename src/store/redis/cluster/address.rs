//! The address of a cluster: nodes and the login.

use std::fmt;

use super::super::address::RedisAddress;
use super::slots::NodeAddress;
use crate::store::Access;

/// The address of a Redis Cluster: some of its nodes, which name the others, and the login.
///
/// Neither `Display` nor `Debug` shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterAddress {
    /// The nodes that the URL names, at least one.
    seeds: Vec<RedisAddress>,
}

impl ClusterAddress {
    /// Reads `redis-cluster://[user[:password]@]host[:port][,host[:port]…]`, or
    /// `rediss-cluster://…` for TLS. The parts are as in [`RedisAddress::parse`]. All nodes have
    /// the same user and password. A cluster has only database 0.
    ///
    /// # Errors
    ///
    /// Returns a message for users, which contains no part of the password.
    pub fn parse(url: &str, access: &Access) -> Result<Self, String> {
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("redis-cluster") => ("redis", rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("rediss-cluster") => ("rediss", rest),
            _ => {
                return Err(
                    "the URL of a Redis Cluster begins with redis-cluster:// or rediss-cluster://".into()
                );
            }
        };
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let mut seeds: Vec<RedisAddress> = Vec::new();
        for host in hosts.split(',') {
            let seed = RedisAddress::parse(&format!("{scheme}://{login}{host}{tail}"), access)?;
            if seed.database != 0 {
                return Err("a Redis Cluster has no database but 0; leave it out of the URL".into());
            }
            if !seeds.contains(&seed) {
                seeds.push(seed);
            }
        }
        Ok(Self { seeds })
    }

    /// The nodes that the URL names, at least one.
    pub fn seeds(&self) -> &[RedisAddress] {
        &self.seeds
    }

    /// Returns the address of the node at `place`, with the login of the cluster.
    pub fn at(&self, place: &NodeAddress) -> RedisAddress {
        let seed = self.seeds.iter().find(|seed| NodeAddress::of_address(seed).as_ref() == Some(place));
        seed.cloned().unwrap_or_else(|| self.seeds[0].at(&place.host, place.port))
    }

    /// Returns a text that is the same for two addresses only if they name the same nodes and the
    /// same login. See [`RedisAddress::identity`].
    pub fn identity(&self) -> String {
        let mut seeds: Vec<_> = self.seeds.iter().map(RedisAddress::identity).collect();
        seeds.sort_unstable();
        seeds.join(",")
    }
}

/// Writes `redis-cluster://user@host:port,host:port` (or `rediss-cluster://…`), without the
/// password.
impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.seeds[0].tls.is_some() { "rediss" } else { "redis" };
        write!(f, "{scheme}-cluster://")?;
        for (index, seed) in self.seeds.iter().enumerate() {
            let shown = seed.to_string();
            let shown = shown.split_once("://").map_or(&*shown, |(_, rest)| rest);
            match shown.rsplit_once('@') {
                Some((_, host)) if index > 0 => write!(f, ",{host}")?,
                _ if index > 0 => write!(f, ",{shown}")?,
                _ => f.write_str(shown)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<ClusterAddress, String> {
        ClusterAddress::parse(url, &Access::default())
    }

    #[test]
    fn every_node_of_a_url_is_read() {
        let address = parse("redis-cluster://us%40er:p,w@One:7000,two,[::1]:7002,one:7000").unwrap();
        assert_eq!(address.to_string(), "redis-cluster://us@er@one:7000,two:6379,[::1]:7002",);
        assert!(address.seeds.iter().all(|seed| seed.password.as_deref() == Some("p,w")));
        let other = parse("redis-cluster://us%40er:p,w@[::1]:7002,two,one:7000/0").unwrap();
        assert_eq!(address.identity(), other.identity());
        assert_ne!(address.identity(), parse("redis-cluster://us%40er:p,w@two").unwrap().identity());
        let access = Access { password: Some("hidden".into()), ..Access::default() };
        let hidden = ClusterAddress::parse("redis-cluster://a", &access).unwrap();
        assert!(!format!("{hidden} {hidden:?} {}", hidden.identity()).contains("hidden"));
    }

    #[test]
    fn an_invalid_url_is_refused_and_its_secret_is_not_shown() {
        for (url, said) in [
            ("redis://host", "begins with redis-cluster://"),
            ("redis-cluster://", "names no host"),
            ("redis-cluster://:secret@a,,b", "names no host"),
            ("redis-cluster://:secret@a,b/1", "no database but 0"),
            ("redis-cluster://:secret@a:0", "port"),
            ("redis-cluster://:secret@a,b:secret", "port"),
            ("redis-cluster://:sec/secret@a,b", "percent-encoded"),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.contains(said) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
