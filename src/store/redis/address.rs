//! Where a Redis server is, and who we are there.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use super::sentinel::address::Sentinels;
use super::url::{Parts, encode};
use crate::store::printable::printable;
use crate::store::{Access, Tls};

/// The most characters of a host that a server names. No host has a longer name.
const MOST_HOST: usize = 255;

/// The address of one Redis server: where it listens, which database, which user, and whom to trust.
///
/// Neither `Display` nor `Debug` shows a secret, even if a server names a host that contains the
/// password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    pub(super) endpoint: Endpoint,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
    /// `None`: in plain.
    pub(super) tls: Option<Tls>,
    /// How many replicas must have a lease before it counts.
    pub(super) min_replicas: u32,
    /// True if a server named the host, and the host contains the password.
    pub(super) hides_host: bool,
}

/// What stands for a host that contains the password.
const HIDDEN_HOST: &str = "***";
/// What stands for a host that is too long. It is not valid, so no connection leads there.
const TOO_LONG: &str = "(a host that is too long)";

/// What to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A host name or literal address (IPv6 without brackets), and a port.
    Tcp(String, u16),
    /// The absolute path of a unix socket.
    Unix(PathBuf),
    /// Whichever server the sentinels name as the master.
    Master(Arc<Sentinels>),
}

/// Returns a host that a server names, as the client shows it and connects to it. A host with a
/// control character is not valid, and stays invalid with the escape. A host that is too long is not cut,
/// because the rest could be a part of the password that [`RedisAddress::is_secret_in`] does not find.
pub(super) fn told_host(host: &str) -> String {
    if host.chars().count() > MOST_HOST { TOO_LONG.into() } else { printable(host, MOST_HOST) }
}

impl RedisAddress {
    /// Reads `redis://[user[:password]@]host[:port][/db]`, the same with `rediss://` for TLS, or
    /// `redis+unix://[user[:password]@]/path/to.sock[?db=N]`, where `?db=`, `?user=` and `?pass=` serve as
    /// well. Or `redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/MASTER[?db=N]`, `rediss-sentinel://` for
    /// TLS: the hosts are sentinels, with port 26379 if not given, the login is the master's. Special characters are
    /// percent-encoded. User and password may be those of `access`, but not others than in the URL.
    ///
    /// Port 1 to 65535, 6379 if not given; database 0 to 2^31 − 1, 0 if not given.
    ///
    /// # Errors
    ///
    /// A message for people that has no part of the password in it.
    pub fn parse(url: &str, access: &Access) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("a Redis URL begins with redis://")?;
        let scheme = scheme.to_ascii_lowercase();
        if let "redis-sentinel" | "rediss-sentinel" = &*scheme {
            return Sentinels::parse(rest, scheme.starts_with("rediss"), access);
        }
        if access.sentinel_username.is_some() || access.sentinel_password.is_some() {
            return Err("sentinelUsername and sentinelPassword are for redis-sentinel:// alone".into());
        }
        let (unix, secure) = match &*scheme {
            "redis" => (false, false),
            "rediss" => (false, true),
            "redis+unix" => (true, false),
            _ => {
                return Err(
                    "the URL of a Redis server begins with redis://, rediss:// or redis+unix://".into()
                );
            }
        };
        let tls = match &access.tls {
            Some(_) if unix => return Err("a unix socket needs no tls: leave it out".into()),
            Some(_) if !secure => {
                return Err(
                    "tls is given, but the URL begins with redis://, which is in plain: write rediss://"
                        .into(),
                );
            }
            given => secure.then(|| given.clone().unwrap_or_default()),
        };
        let mut parts = Parts::split(rest)?;
        parts.log_in_as(access)?;
        let (endpoint, database) = if unix { parts.unix()? } else { parts.tcp()? };
        let username = parts.username.filter(|name| !name.is_empty());
        // An empty password is none, unless a user is named: `nopass` users log in with anything.
        let password = parts.password.filter(|secret| !secret.is_empty() || username.is_some());
        for text in [&username, &password].into_iter().flatten() {
            if text.contains('\0') {
                return Err("user and password can't contain a NUL character".into());
            }
        }
        if let (Some(tls), Endpoint::Tcp(host, _)) = (&tls, &endpoint) {
            tls.server_name(host)?;
        }
        Ok(Self {
            endpoint,
            username,
            password,
            database,
            tls,
            min_replicas: access.min_replicas,
            hides_host: false,
        })
    }

    /// A text that two addresses share only if one connection can serve both. It has keyed hashes of the
    /// secrets in it, which mean something in this process only.
    pub fn identity(&self) -> String {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let secret = self.password.as_ref().map(|secret| KEY.hash_one(secret));
        let sentinels = match &self.endpoint {
            Endpoint::Master(sentinels) => sentinels.identity(),
            _ => String::new(),
        };
        let tls = self.tls.as_ref().map(Tls::digest);
        format!("{self} {:?} {secret:?} {tls:?} {} {sentinels}", self.username, self.min_replicas)
    }

    /// Returns the same address at a host and port that a server names. If they contain the password,
    /// messages do not show the host, unless the URL names it, too.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let hides_host = !self.names(host) && self.is_secret_in(&format!("{host}:{port}"));
        Self { endpoint: Endpoint::Tcp(host.to_owned(), port), hides_host, ..self.clone() }
    }

    /// Returns true if the user gave that host as the server's or as a sentinel's.
    fn names(&self, host: &str) -> bool {
        match &self.endpoint {
            Endpoint::Tcp(known, _) => known == host,
            Endpoint::Unix(_) => false,
            Endpoint::Master(sentinels) => sentinels.nodes.iter().any(|node| node.names(host)),
        }
    }

    /// Returns the host and port as messages show them.
    pub(super) fn place(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp(_, port) if self.hides_host => format!("{HIDDEN_HOST}:{port}"),
            Endpoint::Tcp(host, port) if host.contains(':') => format!("[{}]:{port}", encode(host, "")),
            Endpoint::Tcp(host, port) => format!("{host}:{port}"),
            Endpoint::Unix(path) => encode(&path.to_string_lossy(), "?#&@"),
            Endpoint::Master(sentinels) => sentinels.to_string(),
        }
    }

    /// Returns the same address without user and password.
    pub(super) fn without_login(self) -> Self {
        Self { username: None, password: None, ..self }
    }

    /// Returns true if `text` contains the password, or one that the sentinels want, as it is or escaped
    /// for messages. Messages must not show such a text.
    pub(super) fn is_secret_in(&self, text: &str) -> bool {
        let own = self.password.as_deref().is_some_and(|secret| {
            !secret.is_empty() && (text.contains(secret) || text.contains(&printable(secret, usize::MAX)))
        });
        match &self.endpoint {
            Endpoint::Master(sentinels) => own || sentinels.nodes.iter().any(|node| node.is_secret_in(text)),
            Endpoint::Tcp(..) | Endpoint::Unix(_) => own,
        }
    }
}

/// `redis://user@host:port/db` (or `rediss://…`), without the password; `***@` for a user who has none, which may be a password
/// in the wrong place. Characters that have another meaning in a URL are percent-encoded, so
/// two servers never have the same text, unless it hides a host that a server named.
impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_password = self.password.as_ref().is_some_and(|secret| !secret.is_empty());
        let user = self.username.as_deref().map_or("", |user| if has_password { user } else { "***" });
        let user = encode(user, ":/?#");
        let at = if user.is_empty() { "" } else { "@" };
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let kind = match &self.endpoint {
            Endpoint::Tcp(..) => "",
            Endpoint::Unix(_) => "+unix",
            Endpoint::Master(_) => "-sentinel",
        };
        write!(f, "{scheme}{kind}://{user}{at}{}", self.place())?;
        match (&self.endpoint, self.database) {
            (_, 0) => Ok(()),
            (Endpoint::Tcp(..), number) => write!(f, "/{number}"),
            (Endpoint::Unix(_) | Endpoint::Master(_), number) => write!(f, "?db={number}"),
        }
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisAddress({self})")
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
