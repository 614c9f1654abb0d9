//! Where the master is, as far as a store and the tasks that listen to sentinels know.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::super::address::Endpoint;
use super::failover::Failover;

/// How long a master that was replaced is not believed to be the master again just because a sentinel says so. Sentinels tell
/// each other of a new one every 2 s. A larger value keeps clients away for longer from a master that is one again and of which
/// no event told.
const DISTRUST: Duration = Duration::from_secs(10);

/// What is known of the master.
#[derive(Default)]
pub struct Lookout {
    failover: RefCell<Failover>,
    /// The master: what the last connection led to, or the last switch.
    master: RefCell<Option<Endpoint>>,
    /// The one before, and when it was replaced.
    deposed: RefCell<Option<(Endpoint, Instant)>>,
    /// To which server the last connection led.
    connected: RefCell<Option<Endpoint>>,
    /// How many times a switch was heard.
    switches: Cell<u64>,
    changed: Notify,
}

impl Lookout {
    /// Changes what is known of failovers.
    pub fn note(&self, change: impl FnOnce(&mut Failover, Instant)) {
        change(&mut self.failover.borrow_mut(), Instant::now());
        self.changed.notify_waiters();
    }

    /// Returns true if that sentinel was heard to lead a failover whose end is not known.
    pub fn leads(&self, sentinel: usize) -> bool {
        self.failover.borrow().leads(sentinel)
    }

    /// Returns true if a failover is under way, so that no grant counts.
    pub fn is_unsettled(&self) -> bool {
        self.failover.borrow().until(Instant::now()).is_some()
    }

    /// Waits until no failover is under way, but not beyond `deadline`. Returns true if none is.
    pub async fn settled(&self, deadline: Instant) -> bool {
        loop {
            let changed = self.changed.notified();
            let now = Instant::now();
            let Some(until) = self.failover.borrow().until(now) else { return true };
            if now >= deadline {
                return false;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(until.min(deadline)) => {}
            }
        }
    }

    /// Returns true if the master is taken to be at that host and port.
    pub fn is_master(&self, host: &str, port: u16) -> bool {
        matches!(&*self.master.borrow(), Some(Endpoint::Tcp(known, at)) if known == host && *at == port)
    }

    /// Notes that the master is at that host and port from now on.
    pub fn switch(&self, host: String, port: u16) {
        let old = self.master.replace(Some(Endpoint::Tcp(host, port)));
        self.deposed.replace(old.map(|old| (old, Instant::now())));
        self.switches.set(self.switches.get() + 1);
        self.note(|failover, _| failover.switched());
    }

    /// Returns how many times a switch was heard.
    pub fn switches(&self) -> u64 {
        self.switches.get()
    }

    /// Returns true if the server at that host and port was replaced as the master a moment ago. A sentinel that still names it
    /// has not heard of that.
    pub fn is_deposed(&self, host: &str, port: u16) -> bool {
        self.deposed.borrow().as_ref().is_some_and(|(endpoint, since)| {
            since.elapsed() < DISTRUST && *endpoint == Endpoint::Tcp(host.to_owned(), port)
        })
    }

    /// Notes that a connection leads to `server`. Returns true if the one before led to another.
    pub fn connected(&self, server: &Endpoint) -> bool {
        self.master.replace(Some(server.clone()));
        self.connected.replace(Some(server.clone())).is_some_and(|before| before != *server)
    }
}
