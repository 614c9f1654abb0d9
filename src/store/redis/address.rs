//! The address of a Redis server, with the login.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};

use super::endpoint::{Endpoint, Sentinels};
use super::name_lookups::NameLookups;
use super::url::{Parts, encode};
use crate::store::printable::{printable, printable_whole};
use crate::store::{Access, Tls};

/// The most characters of a host that a server names. No host has a longer name.
const MOST_HOST: usize = 255;
/// The most bytes of such a host. A character has at most four.
pub(super) const MOST_HOST_BYTES: usize = 4 * MOST_HOST;

/// The address of one Redis server: its endpoint, the login, the database and the TLS settings.
///
/// Neither `Display` nor `Debug` shows a secret, even if a server names a host that contains the
/// password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisAddress {
    pub(super) endpoint: Endpoint<RedisAddress>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
    /// The TLS settings. `None` for a connection without TLS.
    pub(super) tls: Option<Tls>,
    /// How many replicas must have a lease before it counts.
    pub(super) min_replicas: u32,
    /// True if a server named the host, and the host contains the password.
    pub(super) hides_host: bool,
    /// All passwords of the store, also those of the sentinels if this is a master, and that of the
    /// master if this is a sentinel. Any server may repeat a text from another server. The list
    /// leaves out [numbers that any text may contain](is_common_number).
    pub(super) secrets: Arc<[String]>,
    /// The lookups of host names. Addresses that a server names share those of the host in the
    /// URL.
    pub(super) lookups: NameLookups,
}

/// Messages show this text in place of a host that contains the password.
const HIDDEN_HOST: &str = "***";
/// Replaces a host that is too long. This text is not a valid host, so no connection leads to it.
const TOO_LONG: &str = "(a host that is too long)";

/// The most digits of a password that texts may show. A port has at most that many. If this is
/// larger, a server can show longer passwords; if it is smaller, the client hides ports.
const MOST_COMMON_DIGITS: usize = 5;

/// Returns true if `secret` is a number that texts contain by chance: a port, a version, a part of
/// an IP address or of a size. The client does not look for such a password in texts. Hiding a text
/// would say that the password is a number in it, and the rest of the text often shows which
/// number. A message with a port reveals nothing to readers who do not know that the password is
/// equal to it.
fn is_common_number(secret: &str) -> bool {
    secret.len() <= MOST_COMMON_DIGITS && secret.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns a host that a server names, in the form that the client shows and connects to. A host
/// with a control character is invalid, and stays invalid after the escape. A host that is too long
/// is replaced as a whole. If it were cut, it could still show a part of the password, which
/// [`RedisAddress::is_secret_in`] would not find.
pub(super) fn named_host(host: &str) -> String {
    if host.chars().nth(MOST_HOST).is_some() { TOO_LONG.into() } else { printable(host, MOST_HOST) }
}

impl RedisAddress {
    /// Reads the URL of one server, in the forms that [`RedisAddress::parse`] describes.
    pub(super) fn parse_server(url: &str, access: &Access) -> Result<Self, String> {
        let (scheme, rest) = split_scheme(url)?;
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
        let (endpoint, database) = if unix {
            let (path, database) = parts.unix()?;
            (Endpoint::Unix(path), database)
        } else {
            let (host, port, database) = parts.tcp()?;
            (Endpoint::Tcp(host, port), database)
        };
        let username = parts.username.filter(|name| !name.is_empty());
        // An empty password counts as none, unless the URL names a user: a user with `nopass` logs
        // in with any password.
        let password = parts.password.filter(|secret| !secret.is_empty() || username.is_some());
        for text in [&username, &password].into_iter().flatten() {
            if text.contains('\0') {
                return Err("user and password can't contain a NUL character".into());
            }
        }
        if let (Some(tls), Endpoint::Tcp(host, _)) = (&tls, &endpoint) {
            tls.server_name(host)?;
        }
        let is_hidden = |secret: &&String| !secret.is_empty() && !is_common_number(secret);
        let secrets = password.iter().filter(is_hidden).cloned().collect();
        let lookups = match &endpoint {
            Endpoint::Tcp(host, port) => NameLookups::of(host, *port),
            _ => NameLookups::of("", 0),
        };
        Ok(Self {
            secrets,
            endpoint,
            username,
            password,
            database,
            tls,
            min_replicas: access.min_replicas,
            hides_host: false,
            lookups,
        })
    }

    /// Returns the secrets of all these addresses.
    pub fn secrets_of<'a>(addresses: impl IntoIterator<Item = &'a Self>) -> Arc<[String]> {
        let all: BTreeSet<&String> =
            addresses.into_iter().flat_map(|address| address.secrets.iter()).collect();
        all.into_iter().cloned().collect()
    }

    /// Returns the same address, whose messages hide `secrets`. These have to include the secrets
    /// of the address itself.
    pub fn hiding(self, secrets: &Arc<[String]>) -> Self {
        let endpoint = match self.endpoint {
            Endpoint::Master(sentinels) => {
                let hiding = |node: &Self| node.clone().hiding(secrets);
                let nodes = sentinels.nodes.iter().map(hiding).collect();
                Endpoint::Master(Arc::new(Sentinels { nodes, master: sentinels.master.clone() }))
            }
            other => other,
        };
        Self { endpoint, secrets: secrets.clone(), ..self }
    }

    /// Returns a text that is the same for two addresses only if one connection can serve both. It
    /// contains keyed hashes of the secrets. The key is different in each process.
    pub fn identity(&self) -> String {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let secret = self.password.as_ref().map(|secret| KEY.hash_one(secret));
        let sentinels = match &self.endpoint {
            Endpoint::Master(sentinels) => identities(sentinels),
            _ => String::new(),
        };
        let tls = self.tls.as_ref().map(Tls::digest);
        let user = self.username.as_ref().map(|name| KEY.hash_one(name));
        format!("{self} {user:?} {secret:?} {tls:?} {} {sentinels}", self.min_replicas)
    }

    /// Returns the same address at a host and port that a server names. If they contain the
    /// password, messages do not show the host, unless the URL names the same host.
    pub(super) fn at(&self, host: &str, port: u16) -> Self {
        let hides_host = !self.names(host) && self.is_secret_in(&format!("{host}:{port}"));
        Self { endpoint: Endpoint::Tcp(host.to_owned(), port), hides_host, ..self.clone() }
    }

    /// Returns true if the URL names `host` as the server or as a sentinel.
    fn names(&self, host: &str) -> bool {
        match &self.endpoint {
            Endpoint::Tcp(known, _) => known == host,
            Endpoint::Unix(_) => false,
            Endpoint::Master(sentinels) => sentinels.nodes.iter().any(|node| node.names(host)),
        }
    }

    /// Returns the host and port, the socket's path, or the sentinels, as messages show them.
    pub(super) fn place(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp(_, port) if self.hides_host => format!("{HIDDEN_HOST}:{port}"),
            Endpoint::Tcp(host, port) if host.contains(':') => format!("[{}]:{port}", encode(host, "")),
            Endpoint::Tcp(host, port) => format!("{host}:{port}"),
            Endpoint::Unix(path) => encode(&path.to_string_lossy(), "?#@&=:,;"),
            Endpoint::Master(sentinels) => sentinels.to_string(),
        }
    }

    /// Returns the user as messages show it: `***` if the name is a password, or may be one.
    fn shown_user(&self) -> &str {
        let Some(user) = &self.username else { return "" };
        let has_password = self.password.as_ref().is_some_and(|secret| !secret.is_empty());
        let is_secret = self.password.as_ref() == Some(user) || self.secrets.contains(user);
        if has_password && !is_secret { user } else { "***" }
    }

    /// Returns the same address without user and password.
    pub(super) fn without_login(self) -> Self {
        Self { username: None, password: None, ..self }
    }

    /// Returns true if `text` contains a password of the store, either unchanged or escaped for
    /// messages. The escape may also create a password: `\t` is the escape of a tab. Messages must
    /// not show such a text.
    pub fn is_secret_in(&self, text: &str) -> bool {
        if self.secrets.is_empty() {
            return false;
        }
        let shown = printable_whole(text);
        self.secrets.iter().any(|secret| {
            let shown_secret = printable_whole(secret);
            // Without an escape, the other searches would be the same as the first one.
            text.contains(&**secret)
                || (matches!(shown, Cow::Owned(_)) && shown.contains(&**secret))
                || (matches!(shown_secret, Cow::Owned(_)) && shown.contains(&*shown_secret))
        })
    }
}

/// Returns the lower-case scheme of a URL, and the text after `://`.
pub(super) fn split_scheme(url: &str) -> Result<(String, &str), String> {
    let (scheme, rest) = url.split_once("://").ok_or("a Redis URL begins with redis://")?;
    Ok((scheme.to_ascii_lowercase(), rest))
}

/// Returns a text that is the same only for the same sentinels with the same login, in the same
/// order.
fn identities(sentinels: &Sentinels<RedisAddress>) -> String {
    sentinels.nodes.iter().map(RedisAddress::identity).collect::<Vec<_>>().join(",")
}

/// Writes `redis://user@host:port/db` (or `rediss://…`), without the password. Writes `***@` for a
/// user without a password, and for a user whose name is a password of the store. In both cases,
/// the name may be a password in the wrong place. Percent-encodes characters that have another
/// meaning in a URL. So two servers never have the same text, unless the text hides a host that a
/// server named.
impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = encode(self.shown_user(), ":/?#");
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
