//! Where a Redis server is and how to log in: a store URL, taken apart.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use redis::{Cmd, RedisError};
use url::Url;

use super::dial::{self, Wire};

/// The port of a Redis URL that names none.
const DEFAULT_PORT: u16 = 6379;

/// One Redis server, one database of it, and one user. Printing it shows no secret.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RedisAddress {
    place: Place,
    database: u32,
    username: Option<String>,
    password: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Tcp(String, u16),
    Socket(PathBuf),
}

impl RedisAddress {
    /// Reads `redis://[user[:password]@]host[:port][/database]` or
    /// `redis+unix:///path/to.sock[?db=N][&user=…][&pass=…]`. `username` and `password`, where given, take the place
    /// of those in the URL.
    ///
    /// # Errors
    /// For people, and without the password: what is wrong with the URL.
    pub fn parse(url: &str, username: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        // What follows a / or ? in a password would be taken for the path or an option, and shown.
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        if rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@'))
            && !url.starts_with("redis+unix:")
        {
            return Err(
                "the Redis URL has an @ behind a /, ? or #; in a password they are written %2F, %3F and %23"
                    .into(),
            );
        }
        let parsed = Url::parse(url).map_err(|error| format!("the Redis URL is malformed: {error}"))?;
        let mut address = match parsed.scheme() {
            "redis" => Self::tcp(&parsed)?,
            "redis+unix" => Self::socket(&parsed)?,
            "rediss" => return Err("rediss: (TLS) is not supported yet".into()),
            other => return Err(format!("{other}: is not the scheme of a Redis URL")),
        };
        if let Some(fragment) = parsed.fragment() {
            return Err(format!(
                "the Redis URL has a #{}; is there a # in the password? Write it as %23",
                "…".repeat(usize::from(!fragment.is_empty()))
            ));
        }
        if let Some(username) = username {
            address.username = Some(username.into());
        }
        if let Some(password) = password {
            address.password = Some(password.into());
        }
        if address.username.is_some() && address.password.is_none() {
            return Err(
                "the Redis URL has a user but no password; without a user it is redis://:PASSWORD@…".into()
            );
        }
        Ok(address)
    }

    fn tcp(url: &Url) -> Result<Self, String> {
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("the Redis URL names no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        let port = url.port().unwrap_or(DEFAULT_PORT);
        if port == 0 {
            return Err("the Redis URL has port 0".into());
        }
        if let Some((name, _)) = url.query_pairs().next() {
            return Err(format!("the Redis URL has an option {name:?}, which is unknown"));
        }
        let database = match url.path().trim_matches('/') {
            "" => 0,
            path => database(path)?,
        };
        Ok(Self {
            place: Place::Tcp(host, port),
            database,
            username: Some(decode(url.username())?).filter(|user| !user.is_empty()),
            password: url.password().map(decode).transpose()?,
        })
    }

    fn socket(url: &Url) -> Result<Self, String> {
        if url.host_str().is_some_and(|host| !host.is_empty()) {
            return Err(
                "redis+unix: takes an absolute path, with three slashes: redis+unix:///path/to.sock".into()
            );
        }
        let path = decode(url.path())?;
        if path.len() < 2 || path.contains('\0') {
            return Err("redis+unix: names no socket".into());
        }
        let mut address =
            Self { place: Place::Socket(path.into()), database: 0, username: None, password: None };
        for (name, value) in url.query_pairs() {
            match &*name {
                "db" => address.database = database(&value)?,
                "user" => address.username = Some(value.into_owned()),
                "pass" => address.password = Some(value.into_owned()),
                _ => return Err(format!("the Redis URL has an option {name:?}, which is unknown")),
            }
        }
        Ok(address)
    }

    /// Differs whenever a connection to one address can't serve for the other. Has no secret in it.
    pub fn identity(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        format!("{self}#{:016x}", hasher.finish())
    }

    pub(super) async fn dial(&self) -> Result<Wire, RedisError> {
        match &self.place {
            Place::Tcp(host, port) => dial::tcp(host, *port).await,
            Place::Socket(path) => dial::unix(path).await,
        }
    }

    /// The first command on a connection.
    pub(super) fn login(&self) -> Cmd {
        let Some(password) = &self.password else { return redis::cmd("PING") };
        let mut login = redis::cmd("AUTH");
        if let Some(username) = &self.username {
            login.arg(username);
        }
        login.arg(password);
        login
    }

    pub(super) fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// Whether `text` must not be shown.
    pub(super) fn is_secret_in(&self, text: &str) -> bool {
        self.password.as_ref().is_some_and(|password| !password.is_empty() && text.contains(password))
    }

    pub(super) fn database(&self) -> u32 {
        self.database
    }
}

fn decode(part: &str) -> Result<String, String> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !part.split('%').skip(1).all(is_escape) {
        return Err("the Redis URL has a % that is no escape; a % itself is written as %25".into());
    }
    let decoded = percent_decode_str(part).decode_utf8();
    decoded
        .map(|text| text.into_owned())
        .map_err(|_| "the Redis URL is not UTF-8 when it is percent-decoded".into())
}

fn database(number: &str) -> Result<u32, String> {
    let wrong =
        || format!("{number:?} is not a database number, which is 0 or more: redis://host:port/NUMBER");
    number.parse::<u32>().ok().filter(|n| *n <= i32::MAX as u32).ok_or_else(wrong)
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp(host, port) if host.contains(':') => write!(f, "redis://[{host}]:{port}")?,
            Place::Tcp(host, port) => write!(f, "redis://{host}:{port}")?,
            Place::Socket(path) => write!(f, "redis+unix://{}", path.display())?,
        }
        match self.database {
            0 => Ok(()),
            database => write!(f, " database {database}"),
        }
    }
}

impl fmt::Debug for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> RedisAddress {
        RedisAddress::parse(url, None, None).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn every_part_of_a_url_is_read() {
        let address = parse("redis://us%40er:p%2Fw@example.org:7000/3");
        assert_eq!(address.place, Place::Tcp("example.org".into(), 7000));
        assert_eq!((address.username.as_deref(), address.password.as_deref()), (Some("us@er"), Some("p/w")));
        assert_eq!(address.database, 3);
        assert_eq!(parse("redis://localhost").place, Place::Tcp("localhost".into(), 6379));
        assert_eq!(parse("redis://[::1]:7").place, Place::Tcp("::1".into(), 7));
        let socket = parse("redis+unix:///run/redis%20one.sock?db=2&pass=x");
        assert_eq!(socket.place, Place::Socket("/run/redis one.sock".into()));
        assert_eq!((socket.database, socket.password.as_deref()), (2, Some("x")));
    }

    #[test]
    fn what_can_not_be_meant_is_refused_without_the_secret() {
        for url in [
            "redis://",
            "redis://:secret@",
            "redis://:secret@host:0",
            "redis://:secret@host:99999",
            "redis://:secret@host/x",
            "redis://:secret@host/-1",
            "redis://:secret@host/1/2",
            "redis://:secret@host/99999999999",
            "redis://:secret@host?timeout=3",
            "redis://:sec#secret@host",
            "redis://user@host",
            "redis://:%zzsecret@host",
            "redis://user:12/34secret@host",
            "redis://user:/secret@host",
            "redis://user:99?secret@host",
            "rediss://:secret@host",
            "redis+unix://relative.sock",
            "redis+unix:///",
            "redis+unix:///a.sock?secret=1x",
        ] {
            let said = RedisAddress::parse(url, None, None).expect_err(url);
            assert!(
                !said.contains("secret@") && !said.contains(":secret") && !said.contains("34secret"),
                "{said}"
            );
        }
    }

    #[test]
    fn options_take_the_place_of_the_urls_and_make_another_identity() {
        let url = "redis://a:b@host";
        let other = RedisAddress::parse(url, Some("c"), Some("d")).unwrap();
        assert_eq!((other.username.as_deref(), other.password.as_deref()), (Some("c"), Some("d")));
        assert_ne!(other.identity(), parse(url).identity());
        assert_eq!(parse(url).identity(), parse(url).identity());
        assert!(!format!("{other:?} {other} {}", other.identity()).contains("c:d"));
    }
}
