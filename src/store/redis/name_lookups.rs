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
//!
//! If the system has no room for another thread, a store uses the addresses that the last lookup
//! found. A client whose connection was cut then still reaches its server.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::store::own_thread::{self, Start};

/// How many other names the stores of one server look up at the same time. If this is larger, a
/// hostile server uses more threads; if it is smaller, a cluster whose names take long is reached
/// later.
const MOST: usize = 16;

/// The most hosts, other than the one in the URL, whose last addresses are kept. If this is larger,
/// a server that names hosts without end uses more memory; if it is smaller, a client without room
/// for a thread reaches fewer nodes of a large cluster.
const MOST_KEPT: usize = 1000;

/// The addresses, with port 0.
type Addresses = Arc<[SocketAddr]>;
type Found = Result<Addresses, (ErrorKind, Arc<str>)>;
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
    /// The addresses that the last lookup of each host found.
    last: Mutex<HashMap<String, Addresses>>,
    resolve: Resolve,
    start: Start,
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
        let lookups = Self::with(host, |host| Ok((host, 0).to_socket_addrs()?.collect()), own_thread::start);
        of_servers.insert(server, Arc::downgrade(&lookups.0));
        lookups
    }

    /// Returns true if the lookups of both count towards one limit.
    #[cfg(test)]
    pub fn share_a_limit(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn with(host: &str, resolve: Resolve, start: Start) -> Self {
        Self(Arc::new(Inner {
            host: host.to_owned(),
            permits: Arc::new(Semaphore::new(MOST)),
            running: Mutex::default(),
            last: Mutex::default(),
            resolve,
            start,
        }))
    }

    /// Returns the addresses of a host. Takes as long as the system takes.
    ///
    /// # Errors
    /// If the lookup fails. `ResourceBusy` if the system has no room for the thread, and no lookup
    /// of the host has succeeded before.
    pub async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let running = self.0.running().get(host).cloned();
        let lookup = match running {
            Some(lookup) => lookup,
            None => self.start(host).await,
        };
        let found = match lookup.await {
            // No lookup took place, or it did not end. The last addresses may still be right.
            Err((kind @ (ErrorKind::ResourceBusy | ErrorKind::Interrupted), text)) => {
                self.0.last().get(host).cloned().ok_or((kind, text))
            }
            found => found,
        };
        let found = found.map_err(|(kind, text)| io::Error::new(kind, &*text))?;
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
        let (sender, found) = oneshot::channel();
        let ended = |_| Err((ErrorKind::Interrupted, "the lookup was ended".into()));
        let lookup = found.map(move |found| found.unwrap_or_else(ended)).boxed().shared();
        running.insert(host.to_owned(), lookup.clone());
        // If the thread can't be started, `ending` is dropped, and removes the lookup.
        drop(running);
        let ending = RunningLookup { inner: self.0.clone(), name: host.to_owned(), _permit: permit };
        let started = (self.0.start)(Box::new(move || {
            let found = ending.look_up();
            drop(ending);
            let _ = sender.send(found);
        }));
        match started {
            Ok(()) => lookup,
            Err(error) => {
                let why = format!("no thread could be started to look up its address: {error}");
                ready(Err((ErrorKind::ResourceBusy, why.into()))).boxed().shared()
            }
        }
    }
}

/// Ends a lookup when its thread drops this, even after a panic.
struct RunningLookup {
    inner: Arc<Inner>,
    name: String,
    _permit: Option<OwnedSemaphorePermit>,
}

impl RunningLookup {
    fn look_up(&self) -> Found {
        let found =
            (self.inner.resolve)(&self.name).map_err(|error| (error.kind(), error.to_string().into()))?;
        let found = Addresses::from(found);
        let mut last = self.inner.last();
        if last.len() < MOST_KEPT || last.contains_key(&self.name) || self.name == self.inner.host {
            last.insert(self.name.clone(), found.clone());
        }
        Ok(found)
    }
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

    fn last(&self) -> MutexGuard<'_, HashMap<String, Addresses>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
