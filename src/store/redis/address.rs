//! Where a Redis server is, and who we are there.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::LazyLock;

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 6379;
/// The longest path of a unix socket: `sun_path` has 108 bytes on Linux and 104 elsewhere, one of them NUL.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// The address of one Redis server: where it listens, which database, which user.
///
/// Neither `Display` nor `Debug` shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    pub(super) endpoint: Endpoint,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
}

/// What to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A host name or literal address (IPv6 without brackets), and a port.
    Tcp(String, u16),
    /// The absolute path of a unix socket.
    Unix(PathBuf),
}

impl RedisAddress {
    /// Reads `redis://[user[:password]@]host[:port][/db]` or
    /// `redis+unix://[user[:password]@]/path/to.sock[?db=N]`, where `?db=`, `?user=` and `?pass=` serve as
    /// well. Special characters are percent-encoded. `username` and `password` go before those of the URL.
    ///
    /// Port 1 to 65535, 6379 if not given; database 0 to 2^31 − 1, 0 if not given.
    ///
    /// # Errors
    ///
    /// A message for people that has no part of the password in it.
    pub fn parse(url: &str, username: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("a Redis URL begins with redis://")?;
        let unix = match scheme.to_ascii_lowercase().as_str() {
            "redis" => false,
            "redis+unix" => true,
            "rediss" => return Err("rediss:// (TLS) is not supported yet: TLS comes later".into()),
            _ => return Err("the URL of a Redis server begins with redis:// or redis+unix://".into()),
        };
        let mut parts = Parts::split(rest)?;
        if let Some(name) = username {
            parts.username = Some(name.to_owned());
        }
        if let Some(secret) = password {
            parts.password = Some(secret.to_owned());
        }
        let (endpoint, database) = if unix { parts.unix()? } else { parts.tcp()? };
        let username = parts.username.filter(|name| !name.is_empty());
        // An empty password is none, unless a user is named: `nopass` users log in with anything.
        let password = parts.password.filter(|secret| !secret.is_empty() || username.is_some());
        for text in [&username, &password].into_iter().flatten() {
            if text.contains('\0') {
                return Err("user and password can't contain a NUL character".into());
            }
        }
        Ok(Self { endpoint, username, password, database })
    }

    /// A text that two addresses share only if one connection can serve both. It has a keyed hash of the
    /// password in it, which means something in this process only.
    pub fn identity(&self) -> String {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let secret = self.password.as_ref().map(|secret| KEY.hash_one(secret));
        format!("{self} {:?} {secret:?}", self.username)
    }

    /// The same at another host and port: another node of the cluster that this one belongs to.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        Self { endpoint: Endpoint::Tcp(host.to_owned(), port), ..self.clone() }
    }

    /// Whether the password is in `text`, which then must not be shown.
    pub(super) fn is_secret_in(&self, text: &str) -> bool {
        self.password.as_ref().is_some_and(|secret| !secret.is_empty() && text.contains(secret))
    }
}

/// `redis://user@host:port/db`, without the password.
impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.username.as_deref().unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        match &self.endpoint {
            Endpoint::Tcp(host, port) if host.contains(':') => {
                write!(f, "redis://{user}{at}[{host}]:{port}")?
            }
            Endpoint::Tcp(host, port) => write!(f, "redis://{user}{at}{host}:{port}")?,
            Endpoint::Unix(path) => write!(f, "redis+unix://{user}{at}{}", path.display())?,
        }
        match (&self.endpoint, self.database) {
            (_, 0) => Ok(()),
            (Endpoint::Tcp(..), number) => write!(f, "/{number}"),
            (Endpoint::Unix(_), number) => write!(f, "?db={number}"),
        }
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisAddress({self})")
    }
}

/// What stands behind `://`, taken apart but for host and path.
struct Parts<'a> {
    authority: &'a str,
    path: &'a str,
    username: Option<String>,
    password: Option<String>,
    database: Option<u32>,
}

impl<'a> Parts<'a> {
    fn split(rest: &'a str) -> Result<Self, String> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        // A password with a bare / ? or # in it ends the authority too early. Say so before any part of it
        // could be taken for, and shown as, a host or port.
        if !authority.is_empty() && !authority.contains('@') && tail.contains('@') {
            return Err("special characters in the user or password of a Redis URL must be \
                        percent-encoded: / is %2F, ? is %3F, # is %23, @ is %40"
                .into());
        }
        if tail.contains('#') {
            return Err("a Redis URL has no #fragment; write # as %23".into());
        }
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let mut parts = Self { authority, path, username: None, password: None, database: None };
        if let Some(user) = user {
            let (name, secret) = user.split_once(':').map_or((user, None), |(n, s)| (n, Some(s)));
            parts.username = Some(decode(name, "user")?);
            parts.password = secret.map(|secret| decode(secret, "password")).transpose()?;
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "db" => parts.database = Some(database(value)?),
                "user" => parts.username = Some(decode(value, "user")?),
                "pass" => parts.password = Some(decode(value, "password")?),
                _ => {
                    return Err(format!(
                        "the Redis URL has an unknown parameter {name:?}; db, user, pass are known"
                    ));
                }
            }
        }
        Ok(parts)
    }

    fn unix(&self) -> Result<(Endpoint, u32), String> {
        if cfg!(not(unix)) {
            return Err("redis+unix:// needs unix sockets, which this platform does not have".into());
        }
        if !self.authority.is_empty() {
            return Err(
                "redis+unix:// has no host: write redis+unix:///path/to.sock, with three slashes".into()
            );
        }
        let path = decode(self.path, "path")?;
        if path.len() < 2 || path.contains('\0') {
            return Err(
                "redis+unix:// needs the absolute path of a socket: redis+unix:///path/to.sock".into()
            );
        }
        if path.len() > MAX_SOCKET_PATH {
            return Err(format!("the path of the unix socket is longer than {MAX_SOCKET_PATH} bytes"));
        }
        Ok((Endpoint::Unix(path.into()), self.database.unwrap_or(0)))
    }

    fn tcp(&self) -> Result<(Endpoint, u32), String> {
        let (host, port) = match self.authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) =
                    rest.split_once(']').ok_or("the IPv6 address in the Redis URL lacks its ]")?;
                let host = decode(host, "host")?;
                // What follows a % names a network interface.
                let literal = host.split('%').next().unwrap_or_default();
                if literal.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err(format!("[{literal}] in the Redis URL is no IPv6 address"));
                }
                (host, port)
            }
            None => {
                let (host, port) =
                    self.authority.split_at(self.authority.find(':').unwrap_or(self.authority.len()));
                if port[port.len().min(1)..].contains(':') {
                    return Err(
                        "an IPv6 address in a Redis URL stands in brackets: redis://[::1]:6379".into()
                    );
                }
                (host.to_ascii_lowercase(), port)
            }
        };
        if host.is_empty() {
            return Err("the Redis URL names no host: write redis://host:6379".into());
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        if let Some(wrong) = host.chars().find(|&c| !fits(c)) {
            return Err(format!("{wrong:?} can't be in the host name of a Redis URL"));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => DEFAULT_PORT,
            digits => digits
                .and_then(number)
                .and_then(|port| u16::try_from(port).ok())
                .filter(|&port| port > 0)
                .ok_or("the port in the Redis URL must be a number from 1 to 65535")?,
        };
        let in_path = match self.path.trim_start_matches('/') {
            "" => None,
            digits => Some(database(digits)?),
        };
        match (in_path, self.database) {
            (Some(one), Some(other)) if one != other => {
                Err("the Redis URL names two databases, /N and ?db=N; leave one out".into())
            }
            (one, other) => Ok((Endpoint::Tcp(host, port), one.or(other).unwrap_or(0))),
        }
    }
}

/// The database that `digits` name.
fn database(digits: &str) -> Result<u32, String> {
    number(digits).filter(|&number| number <= i32::MAX as u32).ok_or_else(|| {
        "the database in the Redis URL must be a number, 0 or more, as in redis://host:6379/0".into()
    })
}

/// `digits` as a number: digits only, where `str::parse` would take a sign.
fn number(digits: &str) -> Option<u32> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// `text` with its percent-encoding undone.
fn decode(text: &str, what: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let hex = |byte: &u8| char::from(*byte).to_digit(16);
        match tail {
            [high, low, tail @ ..] if hex(high).is_some() && hex(low).is_some() => {
                bytes.push((hex(high).unwrap_or(0) * 16 + hex(low).unwrap_or(0)) as u8);
                rest = tail;
            }
            _ => {
                return Err(format!(
                    "the {what} in the Redis URL has a % without two hex digits; write % as %25"
                ));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("the {what} in the Redis URL is no UTF-8 text when decoded"))
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
