//! Looks up the IP addresses of servers.
//!
//! The system looks a name up in a thread, and no time-out ends that. All stores of the process
//! share these threads. A server that names a thousand hosts whose names take long would otherwise
//! use all of them, and no other store could connect.
//!
//! So there is a limit for each server in a URL. It applies to all hosts that this server names,
//! and that the named servers name in turn. Stores of the same server share its limit, even if one
//! is opened after another was closed: the lookups of the closed store may still run. A server on
//! another port of the same host has its own limit, because it may belong to someone else. The host
//! in the URL itself does not count towards the limit: a store must be able to connect again
//! although its server names hosts without end.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// How many other names the stores of one server look up at the same time. If this is larger, a
/// hostile server uses more threads; if it is smaller, a cluster whose names take long is reached
/// later.
const MOST: usize = 16;

/// The addresses, with port 0, or the error.
type Found = Result<Arc<[SocketAddr]>, (ErrorKind, Arc<str>)>;
/// The host and the port.
type Server = (String, u16);
type Resolve = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// The lookups of the stores of one server. Copies share their limit.
#[derive(Clone)]
pub struct NameLookups(Arc<Inner>);

struct Inner {
    /// The host in the URLs of the stores.
    host: String,
    permits: Arc<Semaphore>,
    /// The lookups that run. A lookup may run on after its callers have given up, and the next
    /// caller waits for the same one.
    running: Mutex<HashMap<String, Shared<BoxFuture<'static, Found>>>>,
    resolve: Resolve,
}

impl NameLookups {
    /// Returns the lookups of the stores whose URLs name the server at this host and port.
    pub fn of(host: &str, port: u16) -> Self {
        static OF_SERVERS: LazyLock<Mutex<HashMap<Server, Weak<Inner>>>> = LazyLock::new(Mutex::default);
        let mut of_servers = OF_SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        let server = (host.to_owned(), port);
        // A lookup that runs keeps the lookups of its server alive.
        if let Some(inner) = of_servers.get(&server).and_then(Weak::upgrade) {
            return Self(inner);
        }
        of_servers.retain(|_, inner| inner.strong_count() > 0);
        let lookups = Self::with(host, |host| Ok((host, 0).to_socket_addrs()?.collect()));
        of_servers.insert(server, Arc::downgrade(&lookups.0));
        lookups
    }

    /// Returns true if the lookups of both count towards one limit.
    #[cfg(test)]
    pub fn share_a_limit(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn with(host: &str, resolve: Resolve) -> Self {
        let permits = Arc::new(Semaphore::new(MOST));
        Self(Arc::new(Inner { host: host.to_owned(), permits, running: Mutex::default(), resolve }))
    }

    /// Returns the addresses of a host. Takes as long as the system takes.
    pub async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let running = self.0.running().get(host).cloned();
        let lookup = match running {
            Some(lookup) => lookup,
            None => self.start(host).await,
        };
        let found = lookup.await.map_err(|(kind, text)| io::Error::new(kind, &*text))?;
        let with_port = found.iter().map(|address| {
            let mut address = *address;
            address.set_port(port);
            address
        });
        Ok(with_port.collect())
    }

    /// Waits until the lookup may start, and starts it, unless another caller did meanwhile.
    async fn start(&self, host: &str) -> Shared<BoxFuture<'static, Found>> {
        let permit = match host == self.0.host {
            // The stores' own host needs no permit: only one lookup of it runs at a time.
            true => None,
            false => {
                Some(self.0.permits.clone().acquire_owned().await.expect("the semaphore is never closed"))
            }
        };
        let mut running = self.0.running();
        if let Some(lookup) = running.get(host) {
            return lookup.clone();
        }
        let (inner, name) = (self.0.clone(), host.to_owned());
        let thread = spawn_blocking(move || {
            let ending = RunningLookup { inner, name, _permit: permit };
            (ending.inner.resolve)(&ending.name)
                .map(Into::into)
                .map_err(|error| (error.kind(), error.to_string().into()))
        });
        let ended = |_| Err((ErrorKind::Interrupted, "the lookup was ended".into()));
        let lookup = thread.map(move |found| found.unwrap_or_else(ended)).boxed().shared();
        running.insert(host.to_owned(), lookup.clone());
        lookup
    }
}

/// Ends a lookup when its thread drops this, even after a panic.
struct RunningLookup {
    inner: Arc<Inner>,
    name: String,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for RunningLookup {
    fn drop(&mut self) {
        self.inner.running().remove(&self.name);
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<String, Shared<BoxFuture<'static, Found>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All lookups are equal: they say nothing about where an address leads.
impl PartialEq for NameLookups {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for NameLookups {}

impl fmt::Debug for NameLookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameLookups")
    }
}

#[cfg(test)]
#[path = "name_lookups_tests.rs"]
mod tests;
