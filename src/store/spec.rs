//! Tells which store a URL names.

use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::breaker::Limits;
use super::breaker_store::BreakerStore;
use super::memory::MemoryStore;
use super::quorum::{self, QuorumStore};
use super::{Access, Store};
// The new name lets a search for the crate `redis` find only the module that may use it.
use super::redis as redis_store;
use super::sqlite::{self, LockFile, SqliteStore};

/// A store by its URL, checked but not opened.
#[derive(Clone, Debug)]
pub enum StoreSpec {
    /// `memory:NAME`: in this process, shared by its worker threads.
    Memory(String),
    /// `sqlite:PATH`: a file, shared by the processes of this host.
    Sqlite(Arc<LockFile>),
    /// `redis://…`, `rediss://…`, `redis+unix://…`: one Redis server. `redis-sentinel://…`: the
    /// server that sentinels name.
    Redis(redis_store::RedisAddress),
    /// `redis-cluster://…`: a Redis Cluster.
    RedisCluster(redis_store::ClusterAddress),
    /// Several stores, of which a majority makes a lease.
    Quorum(Vec<StoreSpec>),
}

impl StoreSpec {
    /// Reads a store URL. `access` adds a user and a password that the URL lacks. If both have
    /// them, they must be the same.
    ///
    /// # Errors
    /// Says what is wrong with the URL, for people. The text has no part that may be a password.
    pub fn parse(url: &str, access: &Access) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(format!("the store URL has no scheme ({KNOWN})"));
        };
        let scheme = scheme.to_ascii_lowercase();
        if let Some(like) = after_slashes(&scheme).filter(|_| !rest.starts_with("//")) {
            return Err(format!("the store URL lacks the slashes of {scheme}://{like}"));
        }
        let spec = match scheme.as_str() {
            "memory" if rest.is_empty() => Err("memory: needs a name, as in memory:jobs".into()),
            "memory" if has_login(rest, &[]) => {
                Err("a memory: store has no user, password or host: write memory:NAME, or a server's URL"
                    .into())
            }
            "memory" => Ok(Self::Memory(rest.into())),
            "sqlite" => sqlite_path(rest).map(|path| Self::Sqlite(LockFile::at(path))),
            "redis" | "rediss" | "redis+unix" | "redis-sentinel" | "rediss-sentinel" => {
                redis_store::RedisAddress::parse(url, access).map(Self::Redis)
            }
            "redis-cluster" | "rediss-cluster" => {
                redis_store::ClusterAddress::parse(url, access).map(Self::RedisCluster)
            }
            "postgres" | "postgresql" => Err(format!("{scheme}: stores are not supported yet ({KNOWN})")),
            // The text before the first colon may be a password, so the message does not show it.
            _ => Err(format!("the store URL does not begin with the scheme of a store ({KNOWN})")),
        }?;
        match (&spec, access.given().next()) {
            (Self::Memory(_) | Self::Sqlite(_), Some(name)) => {
                Err(format!("a {scheme}: store takes no {name}"))
            }
            _ => Ok(spec),
        }
    }

    /// Reads the URL of a store, or the URLs of the nodes of a quorum. All nodes get the same
    /// credentials.
    ///
    /// # Errors
    /// As [`StoreSpec::parse`]. Also fails if there are too few nodes or too many, or if one is
    /// named twice.
    pub fn parse_all(urls: &[String], access: &Access) -> Result<Self, String> {
        if let [url] = urls {
            return Self::parse(url, access);
        }
        if !(quorum::FEWEST..=quorum::MOST).contains(&urls.len()) {
            return Err(format!(
                "a quorum has {} to {} stores, better an odd number; {} were given",
                quorum::FEWEST,
                quorum::MOST,
                urls.len()
            ));
        }
        let nodes = urls.iter().map(|url| Self::parse(url, access));
        let nodes = share_secrets(nodes.collect::<Result<Vec<_>, _>>()?);
        for (index, node) in nodes.iter().enumerate() {
            if let Self::RedisCluster(_) = node {
                return Err(format!(
                    "{node} can't be a node of a quorum: its masters are not one server that fails or not"
                ));
            }
            if let Some(other) = nodes[..index].iter().find(|other| other.is_same_server(node)) {
                let (one, two) = (other.to_string(), node.to_string());
                let what = if one == two {
                    format!("{one} is named twice")
                } else {
                    format!("{one} and {two} are the same server")
                };
                return Err(format!("{what}: the stores of a quorum have to be independent"));
            }
        }
        Ok(Self::Quorum(nodes))
    }

    /// Opens the store. The store connects at its first request.
    pub fn open(&self) -> Rc<dyn Store> {
        match self {
            Self::Memory(name) => MemoryStore::named(&format!("memory:{name}")),
            Self::Sqlite(file) => SqliteStore::open(file.path().into()),
            Self::Redis(address) => {
                let store = redis_store::RedisStore::new(address.clone());
                BreakerStore::new(store, address.to_string(), Limits::default())
            }
            Self::RedisCluster(address) => redis_store::ClusterStore::new(address.clone()),
            Self::Quorum(nodes) => {
                QuorumStore::new(nodes.iter().map(|node| (node.to_string().into(), node.open())).collect())
            }
        }
    }

    /// Returns the largest number of requests to send in one batch. If this is larger, the store is
    /// idle while answers are on their way; if it is smaller, each request bears more of the cost
    /// of a round trip. A quorum itself collects the requests for each node, and answers a request
    /// as soon as a majority of the nodes has. So its requests come one by one, and none waits for
    /// another.
    pub fn batch(&self) -> usize {
        match self {
            Self::Quorum(_) => 1,
            _ => BATCH,
        }
    }

    /// Returns the servers behind circuit breakers, as the breakers name them: URLs without
    /// passwords.
    pub fn servers(&self) -> Vec<String> {
        match self {
            // The nodes of a cluster come and go. Each node has its own rule for failures.
            Self::Memory(_) | Self::Sqlite(_) | Self::RedisCluster(_) => Vec::new(),
            Self::Redis(address) => vec![address.to_string()],
            Self::Quorum(nodes) => nodes.iter().flat_map(Self::servers).collect(),
        }
    }

    /// Returns true if both certainly name the same memory, file or server, whatever the logins.
    fn is_same_server(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Redis(address), Self::Redis(other)) => address.is_same_server(other),
            _ => self.identity() == other.identity(),
        }
    }

    /// Returns a string that is the same for all specifications that name the same store in the
    /// same way, and for no others. Clients whose strings are the same hide the same passwords, so
    /// they may share connections. Does not use the file system, which may hang. Not for printing.
    pub fn identity(&self) -> String {
        match self {
            Self::Memory(name) => format!("memory:{name}"),
            Self::Sqlite(file) => format!("sqlite:{}", file.path().display()),
            Self::Redis(address) => format!("redis:{}", address.identity()),
            Self::RedisCluster(address) => format!("redis-cluster:{}", address.identity()),
            Self::Quorum(nodes) => {
                // The order in which the nodes were named does not matter.
                let mut nodes: Vec<String> = nodes.iter().map(Self::identity).collect();
                nodes.sort_unstable();
                format!("quorum:{nodes:?}")
            }
        }
    }
}

/// Shows the URL without a password.
impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(name) => write!(f, "memory:{name}"),
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.path().display()),
            Self::Redis(address) => address.fmt(f),
            Self::RedisCluster(address) => address.fmt(f),
            Self::Quorum(nodes) => {
                f.write_str("a quorum of ")?;
                for (index, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
        }
    }
}

/// Lets each node of a quorum hide the passwords of all nodes: a server may repeat the password of
/// another one.
fn share_secrets(nodes: Vec<StoreSpec>) -> Vec<StoreSpec> {
    let addresses = nodes.iter().filter_map(|node| match node {
        StoreSpec::Redis(address) => Some(address),
        _ => None,
    });
    let secrets = redis_store::RedisAddress::secrets_of(addresses);
    let share = |node| match node {
        StoreSpec::Redis(address) => StoreSpec::Redis(address.hiding(&secrets)),
        other => other,
    };
    nodes.into_iter().map(share).collect()
}

/// See [`StoreSpec::batch`].
const BATCH: usize = 64;

const KNOWN: &str = "known are memory:NAME, sqlite:PATH, redis://…, rediss://…, redis+unix://…, redis-sentinel://… and \
     redis-cluster://…";

/// Returns what follows the slashes in a URL of that scheme, or `None` if such a URL has no
/// slashes.
fn after_slashes(scheme: &str) -> Option<&'static str> {
    Some(match scheme {
        "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => "HOST:6379",
        "redis+unix" => "/PATH",
        "redis-sentinel" | "rediss-sentinel" => "HOST:26379/MASTER",
        _ => return None,
    })
}

/// Returns true if `text` contains a URL that may have a password in its login or its query, or
/// what may be a login without a scheme. The password of a URL may have a `/`. Elsewhere, one of
/// the `separators` ends a login: in a path, a `:` and an `@` may be in the names of different
/// directories.
fn has_login(text: &str, separators: &[char]) -> bool {
    // The URL may be encoded, because it was a part of another one.
    let text = text.replace("%3A", ":").replace("%3a", ":").replace("%2F", "/").replace("%2f", "/");
    let text = text.replace("%40", "@");
    let follows = |text: &str, before: &str, sign: char| {
        text.split_once(before).is_some_and(|(_, rest)| rest.contains(sign))
    };
    let url = text.split_once("://").map_or("", |(_, url)| url);
    url.contains('@') || follows(url, "?", '=') || text.split(separators).any(|part| follows(part, ":", '@'))
}

/// Returns an absolute path, which is the same for all ways to name the file's directory. An empty
/// path is the default file.
fn sqlite_path(given: &str) -> Result<PathBuf, String> {
    if given.is_empty() {
        return sqlite::default_path();
    }
    if given.contains('\0') {
        return Err("a path has no NUL character".into());
    }
    if given == ":memory:" {
        return Err(
            "sqlite::memory: would be a file of that name; write memory:NAME for a store in this process"
                .into(),
        );
    }
    let rest = given.strip_prefix("//");
    // A password would be in all messages about the file.
    if rest.is_some_and(|rest| rest.split('/').next().is_some_and(|host| host.contains('@')))
        || has_login(given, &['/', '\\'])
    {
        return Err("a lock file has no user, password or host: write sqlite:/PATH, or a server's URL".into());
    }
    let path = rest.unwrap_or(given);
    let path = std::path::absolute(path).map_err(|error| format!("sqlite:{given}: {error}"))?;
    let Some(name) = path.file_name() else { return Err(format!("sqlite:{given} names no file")) };
    sqlite::check_name(&path).map_err(|error| error.to_string())?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    // If the directory does not exist yet, or is a link that is refused, the store reports that at
    // its first request.
    Ok(sqlite::resolve(directory).map_or_else(|_| path.clone(), |directory| directory.join(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_quorum_hide_the_passwords_of_all_nodes() {
        let urls = ["redis://:hunter2@a", "redis://:swordfish@b", "redis-sentinel://:letmein@c/m"];
        let urls: Vec<String> = urls.map(String::from).into();
        let Ok(StoreSpec::Quorum(nodes)) = StoreSpec::parse_all(&urls, &Access::default()) else { panic!() };
        for node in nodes {
            let StoreSpec::Redis(address) = node else { panic!() };
            for secret in ["hunter2", "swordfish", "letmein"] {
                assert!(address.is_secret_in(&format!("ERR {secret}")), "{address} shows {secret}");
            }
        }
    }

    #[test]
    fn the_database_in_memory_of_other_programs_is_no_file() {
        let message = StoreSpec::parse("sqlite::memory:", &Access::default()).unwrap_err();
        assert!(message.ends_with("write memory:NAME for a store in this process"), "{message}");
    }

    #[test]
    fn a_url_that_names_no_store_is_refused_without_its_password() {
        for url in
            ["", "secret", "secret:x", "secret@host:6379", "user:secret@host", "http://user:secret@host"]
        {
            let message = StoreSpec::parse(url, &Access::default()).expect_err(url);
            assert!(message.contains("known are memory:NAME") && !message.contains("secret"), "{message}");
        }
        for url in ["sqlite://:secret@host/x.db", "sqlite://user:secret@/x.db"] {
            let message = StoreSpec::parse(url, &Access::default()).expect_err(url);
            assert!(message.contains("write sqlite:/PATH") && !message.contains("secret"), "{message}");
        }
        for url in [
            "memory:redis://:secret@host",
            "memory:jobs at rediss://u:se/secret@host",
            "memory:redis:/:se/secret@host",
            "memory:redis://:secret%40host",
            "memory:redis%3a%2f%2fu%3Asecret%40host",
            "memory:redis://host?password=secret",
            "memory:app:secret@host:6379",
        ] {
            let message = StoreSpec::parse(url, &Access::default()).expect_err(url);
            assert!(message.contains("write memory:NAME") && !message.contains("secret"), "{message}");
        }
        for url in [
            "sqlite:redis://:secret@host",
            "sqlite:/tmp/redis://u:se/secret@host",
            "sqlite:redis:/:secret@host",
            r"sqlite:redis:\\:secret@host",
            "sqlite:redis%3A%2F%2F:se/secret%40host",
            "sqlite:redis://host?password=secret",
            "sqlite:app:secret@host:6379",
        ] {
            let message = StoreSpec::parse(url, &Access::default()).expect_err(url);
            assert!(message.contains("write sqlite:/PATH") && !message.contains("secret"), "{message}");
        }
        for url in [
            "memory:a@b",
            "memory:a%40b:c",
            "memory:http://host",
            "sqlite:/tmp/a@b.db",
            "sqlite:/tmp/12:30/a@b.db",
            r"sqlite:C:\Users\a@b\x.db",
        ] {
            assert!(StoreSpec::parse(url, &Access::default()).is_ok(), "{url}");
        }
        for (url, like) in [
            ("redis:/secret", "redis://HOST:6379"),
            ("RedisS:/u:secret@host", "rediss://HOST:6379"),
            ("redis+unix:/a?pass=secret", "redis+unix:///PATH"),
            ("redis:/u:secret?secret@h", "redis://HOST:6379"),
            ("redis-sentinel:h/m", "redis-sentinel://HOST:26379/MASTER"),
            ("redis-cluster:secret", "redis-cluster://HOST:6379"),
        ] {
            let message = StoreSpec::parse(url, &Access::default()).expect_err(url);
            assert!(message.ends_with(like) && !message.contains("secret"), "{message}");
        }
        let access = Access { password: Some("secret".into()), ..Access::default() };
        let message = StoreSpec::parse("memory:x", &access).unwrap_err();
        assert!(message.contains("password") && !message.contains("secret"), "{message}");
    }

    #[test]
    fn the_same_file_has_one_identity() {
        let directory = std::env::temp_dir();
        let a =
            StoreSpec::parse(&format!("sqlite:{}/x.db", directory.display()), &Access::default()).unwrap();
        let b =
            StoreSpec::parse(&format!("sqlite:{}/./x.db", directory.display()), &Access::default()).unwrap();
        assert_eq!(a.identity(), b.identity());
    }

    #[cfg(unix)]
    #[test]
    fn an_identity_does_not_change_after_the_url_was_read() {
        let directory = std::env::temp_dir().join(format!("leasehold-spec-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&directory).unwrap();
        let spec = |name: &str| {
            StoreSpec::parse(&format!("sqlite:{}", directory.join(name).display()), &Access::default())
                .unwrap()
        };
        std::os::unix::fs::symlink("x.db", directory.join("link.db")).unwrap();
        let (link, target) = (spec("link.db"), spec("x.db"));
        assert_eq!(link.identity(), target.identity());
        let before = link.identity();
        std::fs::remove_file(directory.join("link.db")).unwrap();
        std::os::unix::fs::symlink("y.db", directory.join("link.db")).unwrap();
        assert_eq!(link.identity(), before, "the file system is not asked again");
        assert_ne!(spec("x.db").identity(), spec("link.db").identity());
        std::fs::remove_dir_all(directory).unwrap();
    }
}

#[cfg(test)]
#[path = "spec_identity_tests.rs"]
mod identity_tests;
