//! Takes the URL of a Redis server apart.

use std::fmt::Write;
use std::path::PathBuf;

use crate::store::access::Access;

/// The port of a URL that names none.
const DEFAULT_PORT: u16 = 6379;
/// The longest path of a unix socket: `sun_path` has 108 bytes on Linux and 104 elsewhere, one of
/// them NUL.
const MAX_SOCKET_PATH: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Characters that must be percent-encoded in the path of a unix socket.
pub const SPECIAL_IN_PATH: [char; 6] = ['@', '&', '=', ':', ',', ';'];

/// The error for a password with a / ? or # that is not percent-encoded.
pub const UNENCODED: &str = "special characters in the user or password of a Redis URL must be percent-encoded: / is %2F, \
                             ? is %3F, # is %23, @ is %40, & is %26";

const TWO_USERS: &str = "the Redis URL names a user twice, USER@ and ?user=USER; leave one out";
const TWO_PASSWORDS: &str =
    "the Redis URL has a password twice, :PASSWORD@ and ?pass=PASSWORD; leave one out";
const USER_AND_OPTION: &str =
    "the Redis URL names a user, and the option \"username\" another or none; leave one out";
const PASSWORD_AND_OPTION: &str =
    "the Redis URL has a password, and the option \"password\" another or none; leave one out";

/// The parts of a URL after its `://`. The host and the path are still in one text each.
pub struct Parts<'a> {
    authority: &'a str,
    path: &'a str,
    pub username: Option<String>,
    pub password: Option<String>,
    database: Option<u32>,
}

impl<'a> Parts<'a> {
    pub fn split(rest: &'a str) -> Result<Self, String> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        // A password with a bare / ? or # in it ends the authority too early. Say so before any
        // part of it could be taken for, and shown as, a host or port.
        if !authority.is_empty() && !authority.contains('@') && tail.contains('@') {
            return Err(UNENCODED.into());
        }
        if tail.contains('#') {
            return Err("a Redis URL has no #fragment; write # as %23".into());
        }
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        check_shown(path, "path")?;
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let mut parts = Self { authority, path, username: None, password: None, database: None };
        if let Some(user) = user {
            let (name, secret) = user.split_once(':').map_or((user, None), |(n, s)| (n, Some(s)));
            check_shown(name, "user")?;
            parts.username = Some(decode(name, "user")?);
            parts.password = secret.map(|secret| decode(secret, "password")).transpose()?;
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "db" => parts.database = Some(database(value)?),
                "user" => {
                    check_shown(value, "user")?;
                    one_of(&mut parts.username, Some(decode(value, "user")?), TWO_USERS)?;
                }
                "pass" => one_of(&mut parts.password, Some(decode(value, "password")?), TWO_PASSWORDS)?,
                _ => return Err(unknown_parameter(name)),
            }
        }
        Ok(parts)
    }

    /// Takes the user and the password from the options. Returns an error if the URL has others.
    pub fn log_in_as(&mut self, access: &Access) -> Result<(), String> {
        one_of(&mut self.username, access.username.clone(), USER_AND_OPTION)?;
        one_of(&mut self.password, access.password.clone(), PASSWORD_AND_OPTION)
    }

    pub fn unix(&self) -> Result<(PathBuf, u32), String> {
        if cfg!(not(unix)) {
            return Err("redis+unix:// needs unix sockets, which this platform does not have".into());
        }
        if !self.authority.is_empty() {
            return Err(
                "redis+unix:// has no host: write redis+unix:///path/to.sock, with three slashes".into()
            );
        }
        // Refuse what may be a login or a parameter: messages show the path.
        if self.path.contains(SPECIAL_IN_PATH) {
            return Err("the path in the Redis URL contains @ & = : , or ;, as a login or a parameter does: write \
                        redis+unix://:PASSWORD@/path/to.sock?db=1, and percent-encode them in a path, as in %40 \
                        for @"
                .into());
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
        Ok((path.into(), self.database.unwrap_or(0)))
    }

    pub fn tcp(&self) -> Result<(String, u16, u32), String> {
        if self.authority.contains(',') {
            return Err(SEVERAL_HOSTS.into());
        }
        let (host, port) = match self.authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) =
                    rest.split_once(']').ok_or("the IPv6 address in the Redis URL lacks its ]")?;
                let host = decode(host, "host")?;
                // What follows a % names a network interface.
                let literal = host.split('%').next().unwrap_or_default();
                if literal.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err("the brackets in the Redis URL do not contain an IPv6 address".into());
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
            // The password has an @, and then a /.
            rest if rest.contains('@') => return Err(UNENCODED.into()),
            digits => Some(database(digits)?),
        };
        match (in_path, self.database) {
            (Some(one), Some(other)) if one != other => {
                Err("the Redis URL names two databases, /N and ?db=N; leave one out".into())
            }
            (one, other) => Ok((host, port, one.or(other).unwrap_or(0))),
        }
    }
}

/// Refuses a path or a user name that contains a parameter with a password, percent-encoded once,
/// several times or not at all. Messages show paths and user names.
pub fn check_shown(text: &str, what: &str) -> Result<(), String> {
    let mut decoded = decode(text, what)?;
    // Each decoding makes the text shorter, unless nothing is encoded any more.
    while let Ok(again) = decode(&decoded, what)
        && again != decoded
    {
        decoded = again;
    }
    let decoded = decoded.to_ascii_lowercase();
    let mut names = decoded.split('=').rev().skip(1);
    let is_password = |text: &str| {
        let name = text.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        name.starts_with("pass") || matches!(name, "pwd" | "auth" | "secret")
    };
    if names.any(is_password) {
        return Err(format!(
            "the {what} in the Redis URL contains a parameter: write ? before the first parameter and & before \
             each later one, as in ?db=1&pass=PASSWORD"
        ));
    }
    Ok(())
}

/// Sets `place` to the `given` value, if there is one. Returns the error `two` if `place` already
/// has another value that is not empty.
fn one_of(place: &mut Option<String>, given: Option<String>, two: &str) -> Result<(), String> {
    match (&*place, given) {
        (_, None) => Ok(()),
        (Some(there), Some(given)) if !there.is_empty() && *there != given => Err(two.into()),
        (_, given) => {
            *place = given;
            Ok(())
        }
    }
}

/// The error for several hosts in a `redis://` URL. The user may mean any of the three stores.
const SEVERAL_HOSTS: &str = "a redis:// URL names one host: write redis-cluster://a,b,c for a Redis Cluster, \
                             redis-sentinel://a,b,c/MASTER for Sentinel, or a list of URLs for a quorum: \
                             [\"redis://a\", \"redis://b\", \"redis://c\"]";

/// Parameters that users of other libraries write, with the advice for each.
const ELSEWHERE: [(&str, &str); 24] = [
    ("password", "write pass"),
    ("auth", "write pass"),
    ("pwd", "write pass"),
    ("username", "write user"),
    ("database", "write db"),
    ("tls", "write rediss:// in place of redis://"),
    ("ssl", "write rediss:// in place of redis://"),
    ("ssl_cert_reqs", "write rediss:// in place of redis://, and give tls in the options"),
    ("protocol", "leave it out: the client finds out which protocol the server speaks"),
    ("family", "leave it out: the client tries all addresses of the host"),
    ("timeout", "give storeTimeout in the options"),
    ("connecttimeout", "give storeTimeout in the options"),
    ("connect_timeout", "give storeTimeout in the options"),
    ("commandtimeout", "give storeTimeout in the options"),
    ("socket_timeout", "give storeTimeout in the options"),
    ("storetimeout", "give it in the options"),
    ("ttl", "give it in the options"),
    ("wait", "give it in the options"),
    ("name", "give it in the options"),
    ("prefix", "give it in the options"),
    ("keyprefix", "give prefix in the options"),
    ("minreplicas", "give it in the options"),
    ("sentinelpassword", "give it in the options"),
    ("sentinelusername", "give it in the options"),
];

/// Returns the error for an unknown parameter. Shows only the names in [`ELSEWHERE`]: any other
/// name may be a part of a password behind an `&`.
fn unknown_parameter(name: &str) -> String {
    const KNOWN: &str = "db, user, pass are known, and & in a password is %26";
    let name = name.to_ascii_lowercase();
    match ELSEWHERE.iter().find(|(known, _)| *known == name) {
        Some((known, advice)) => {
            format!("the Redis URL has an unknown parameter {known:?}: {advice}; {KNOWN}")
        }
        None => format!("the Redis URL has an unknown parameter; {KNOWN}"),
    }
}

/// Returns the number of the database that `digits` name.
fn database(digits: &str) -> Result<u32, String> {
    number(digits).filter(|&number| number <= i32::MAX as u32).ok_or_else(|| {
        "the database in the Redis URL must be a number, 0 or more, as in redis://host:6379/0".into()
    })
}

/// Reads a number that consists of digits only. `str::parse` would accept a sign.
fn number(digits: &str) -> Option<u32> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Returns `text` with `%`, control characters and the characters in `special` percent-encoded.
/// [`decode`] undoes this.
pub fn encode(text: &str, special: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    let mut bytes = [0; 4];
    for letter in text.chars() {
        if letter == '%' || letter.is_control() || special.contains(letter) {
            for byte in letter.encode_utf8(&mut bytes).bytes() {
                // Writing to a string does not fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        } else {
            encoded.push(letter);
        }
    }
    encoded
}

/// Returns `text` without its percent-encoding. Messages call the text `what`.
pub fn decode(text: &str, what: &str) -> Result<String, String> {
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
