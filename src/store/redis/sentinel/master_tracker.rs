//! Keeps what a store and the tasks that listen to its sentinels know about the master: where it
//! is, and whether a failover is under way.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::super::address::RedisAddress;
use super::super::endpoint::Endpoint;
use super::failover::Failover;
use super::survey::{MasterClaim, Survey};

/// How long the client ignores a sentinel that still names the replaced master. Sentinels tell each
/// other of a new master every 2 s. If this is smaller, clients return to the old master because
/// one sentinel is late. If it is larger, clients take longer to find a server that is the master
/// again if they missed the event.
const DEPOSED_FOR: Duration = Duration::from_secs(10);

/// Holds the knowledge about the master. See the module.
#[derive(Default)]
pub struct MasterTracker {
    failover: RefCell<Failover>,
    survey: RefCell<Survey>,
    /// The master, by the last connection or the last switch, whichever came later.
    master: RefCell<Option<Endpoint<RedisAddress>>>,
    /// The master before the last switch, and the time of that switch.
    deposed: RefCell<Option<(Endpoint<RedisAddress>, Instant)>>,
    /// The server to which the last connection leads.
    connected: RefCell<Option<Endpoint<RedisAddress>>>,
    /// The number of switches that sentinels told of or that a new connection showed.
    switches: Cell<u64>,
    /// Wakes the tasks that wait for the end of a failover, for the sentinels' answers, or for a
    /// master.
    changed: Notify,
}

impl MasterTracker {
    /// Applies `change` to the knowledge about failovers, and wakes the tasks that wait for the end
    /// of one.
    pub fn note(&self, change: impl FnOnce(&mut Failover, Instant)) {
        change(&mut self.failover.borrow_mut(), Instant::now());
        self.changed.notify_waiters();
    }

    /// Applies `change` to the survey of the sentinels, and wakes the tasks that wait for its end.
    pub fn survey<T>(&self, change: impl FnOnce(&mut Survey) -> T) -> T {
        let result = change(&mut self.survey.borrow_mut());
        self.changed.notify_waiters();
        result
    }

    /// Returns true if each sentinel that the client can reach has said whether a failover is under
    /// way, and the client would have heard of one that began later.
    pub fn is_surveyed(&self) -> bool {
        self.survey.borrow().is_complete()
    }

    /// Waits until [`MasterTracker::is_surveyed`], or until `deadline`.
    pub async fn surveyed(&self, deadline: Instant) {
        loop {
            let changed = self.changed.notified();
            if self.is_surveyed() || timeout_at(deadline, changed).await.is_err() {
                return;
            }
        }
    }

    /// Waits until the sentinel with that number has to be asked: a master is known, and the
    /// sentinel has not said yet whether a failover is under way.
    pub async fn is_due(&self, sentinel: usize) {
        loop {
            let changed = self.changed.notified();
            if self.knows_master() && self.survey.borrow().is_pending(sentinel) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the server that a sentinel named as the master and that is certainly newer than the
    /// last known one.
    pub fn newer_master(&self) -> Option<MasterClaim> {
        self.survey.borrow().newer().cloned()
    }

    /// Returns true if that sentinel was heard to lead a failover and was not heard to end it.
    pub fn leads(&self, sentinel: usize) -> bool {
        self.failover.borrow().leads(sentinel)
    }

    /// Returns true if a failover is under way, so that no grant counts.
    pub fn is_unsettled(&self) -> bool {
        self.failover.borrow().until(Instant::now()).is_some()
    }

    /// Waits until no failover is under way, or until `deadline`. Returns true if no failover is
    /// under way.
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

    /// Returns true if any server is known to be or to have been the master.
    pub fn knows_master(&self) -> bool {
        self.master.borrow().is_some()
    }

    /// Returns true if the last known master is at that host and port.
    pub fn is_master(&self, host: &str, port: u16) -> bool {
        matches!(&*self.master.borrow(), Some(Endpoint::Tcp(known, at)) if known == host && *at == port)
    }

    /// Notes that the master is at that host and port from now on. `epoch` is the epoch in which
    /// this server became the master, if a sentinel named the epoch.
    pub fn switch(&self, master: (String, u16), epoch: Option<u64>) {
        self.survey.borrow_mut().switched(&master, epoch);
        let (host, port) = master;
        let old = self.master.replace(Some(Endpoint::Tcp(host, port)));
        self.deposed.replace(old.map(|old| (old, Instant::now())));
        self.switches.set(self.switches.get() + 1);
        self.note(|failover, _| failover.switched());
    }

    /// Returns the number of switches that sentinels told of or that a new connection showed.
    pub fn switches(&self) -> u64 {
        self.switches.get()
    }

    /// Returns true if the server at that host and port was replaced as the master less than
    /// [`DEPOSED_FOR`] ago. A sentinel that still names this server has not heard of the switch.
    pub fn is_deposed(&self, host: &str, port: u16) -> bool {
        self.deposed.borrow().as_ref().is_some_and(|(endpoint, since)| {
            since.elapsed() < DEPOSED_FOR && *endpoint == Endpoint::Tcp(host.to_owned(), port)
        })
    }

    /// Notes that a connection leads to the master `server`. Returns true if the connection before
    /// led to another server. Counts a switch if no sentinel told of it. The client then asks the
    /// sentinels again: the fault that broke the connection before may also have broken those to
    /// the sentinels.
    pub fn connected(&self, server: &Endpoint<RedisAddress>) -> bool {
        let known = self.master.replace(Some(server.clone()));
        let before = self.connected.replace(Some(server.clone()));
        let is_other = before.as_ref().is_some_and(|before| before != server);
        if is_other && known.as_ref() != Some(server) {
            self.switches.set(self.switches.get() + 1);
        }
        self.survey(|survey| {
            if known.is_some_and(|known| known != *server) {
                survey.lost_track();
            }
            survey.repeat();
        });
        is_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "10.0.0.1";
    const NEW: &str = "10.0.0.2";

    fn at(host: &str) -> Endpoint<RedisAddress> {
        Endpoint::Tcp(host.to_owned(), 6379)
    }

    #[test]
    fn a_new_master_counts_as_one_switch_whether_or_not_a_sentinel_told_of_it() {
        for is_told in [true, false] {
            let master_tracker = MasterTracker::default();
            assert!(!master_tracker.connected(&at(OLD)));
            assert!(!master_tracker.connected(&at(OLD)));
            assert_eq!(master_tracker.switches(), 0);
            if is_told {
                master_tracker.switch((NEW.to_owned(), 6379), None);
            }
            assert!(master_tracker.connected(&at(NEW)));
            assert_eq!(master_tracker.switches(), 1);
        }
    }
}
