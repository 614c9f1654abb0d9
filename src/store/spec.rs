//! Which store a URL names.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::Store;
use super::memory::MemoryStore;
// Renamed, so that a search for the crate of that name finds only the module that may use it.
use super::redis as redis_store;
use super::sqlite::{self, SqliteStore};

/// A store by its URL, checked but not opened.
#[derive(Clone, Debug)]
pub enum StoreSpec {
    /// `memory:NAME`: in this process, shared by its worker threads.
    Memory(String),
    /// `sqlite:PATH`: a file, shared by the processes of this host.
    Sqlite(PathBuf),
    /// `redis://…`, `redis+unix://…`: one Redis server.
    Redis(redis_store::RedisAddress),
    /// `redis-cluster://…`: a Redis Cluster.
    RedisCluster(redis_store::ClusterAddress),
}

impl StoreSpec {
    /// Reads a store URL. User and password, where given, take the place of those in the URL.
    ///
    /// # Errors
    /// For people, and without the password: what is wrong with the URL.
    pub fn parse(url: &str, username: Option<&str>, password: Option<&str>) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(format!("{} is not a store URL: it has no scheme ({KNOWN})", without_secrets(url)));
        };
        let spec = match scheme.to_ascii_lowercase().as_str() {
            "memory" if rest.is_empty() => Err("memory: needs a name, as in memory:jobs".into()),
            "memory" => Ok(Self::Memory(rest.into())),
            "sqlite" => sqlite_path(rest).map(Self::Sqlite),
            "redis" | "rediss" | "redis+unix" => {
                redis_store::RedisAddress::parse(url, username, password).map(Self::Redis)
            }
            "redis-cluster" => {
                redis_store::ClusterAddress::parse(url, username, password).map(Self::RedisCluster)
            }
            "redis-sentinel" | "postgres" | "postgresql" => {
                Err(format!("{scheme}: stores are not supported yet ({KNOWN})"))
            }
            _ => Err(format!("{scheme:?} is not the scheme of a store ({KNOWN})")),
        }?;
        match spec {
            Self::Redis(_) | Self::RedisCluster(_) => Ok(spec),
            _ if username.is_some() || password.is_some() => {
                Err(format!("a {scheme}: store takes no username and no password"))
            }
            _ => Ok(spec),
        }
    }

    /// Opens the store. It connects when it is first asked something.
    pub fn open(&self) -> Rc<dyn Store> {
        match self {
            Self::Memory(_) => MemoryStore::new(),
            Self::Sqlite(path) => SqliteStore::open(path.clone()),
            Self::Redis(address) => redis_store::RedisStore::new(address.clone()),
            Self::RedisCluster(address) => redis_store::ClusterStore::new(address.clone()),
        }
    }

    /// The same for two specifications exactly when they name the same store in the same way. Not for printing.
    pub fn identity(&self) -> String {
        match self {
            Self::Memory(name) => format!("memory:{name}"),
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Redis(address) => format!("redis:{}", address.identity()),
            Self::RedisCluster(address) => format!("redis-cluster:{}", address.identity()),
        }
    }
}

const KNOWN: &str = "known are memory:NAME, sqlite:PATH, redis://…, redis+unix://… and redis-cluster://…";

/// An absolute path, the same for every way in which the file's directory can be named. Empty is the default file.
fn sqlite_path(given: &str) -> Result<PathBuf, String> {
    if given.is_empty() {
        return sqlite::default_path();
    }
    if given.contains('\0') {
        return Err("a path has no NUL character".into());
    }
    let path = given.strip_prefix("//").unwrap_or(given);
    let path = std::path::absolute(path).map_err(|error| format!("sqlite:{given}: {error}"))?;
    let Some(name) = path.file_name() else { return Err(format!("sqlite:{given} names no file")) };
    let directory = path.parent().unwrap_or(Path::new("/"));
    // A directory that isn't there yet is an error of the store, told when it is first used.
    Ok(directory.canonicalize().map_or_else(|_| path.clone(), |directory| directory.join(name)))
}

/// `url` as far as it can be shown: what stands before an `@` may be a password.
fn without_secrets(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, shown)) => format!("\"…@{shown}\""),
        None => format!("{url:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_names_no_store_is_refused_without_its_password() {
        for url in ["", "nonsense", "user:secret@host", "http://user:secret@host", "memory:", "mysql:x"] {
            let said = StoreSpec::parse(url, None, None).expect_err(url);
            assert!(!said.contains("secret"), "{said}");
        }
        assert!(StoreSpec::parse("memory:x", None, Some("secret")).is_err());
    }

    #[test]
    fn the_same_file_has_one_identity() {
        let directory = std::env::temp_dir();
        let a = StoreSpec::parse(&format!("sqlite:{}/x.db", directory.display()), None, None).unwrap();
        let b = StoreSpec::parse(&format!("sqlite:{}/./x.db", directory.display()), None, None).unwrap();
        assert_eq!(a.identity(), b.identity());
    }
}
