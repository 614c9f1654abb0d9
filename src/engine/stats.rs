//! Counts what each client did. Any thread may read the counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::store::breaker::Health;

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one client since it was opened. The engine counts. A JavaScript thread
        /// counts the hand-offs that it carries out.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)*
            /// The health of the store's servers.
            pub servers: ServersHealth,
        }

        impl Stats {
            /// Returns every counter with its name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name.get()),)*].into_iter()
            }
        }
    };
}

stats! {
    /// Leases held now.
    held,
    /// Acquires that are pending now.
    waiting,
    /// Leases granted.
    acquired,
    /// Leases released by their holder.
    released,
    /// Leases detached: another client may adopt them, or they end by their ttl.
    detached,
    /// Leases lost.
    lost,
    /// Requests to the store that found the lock held. Later polls of the same queue entry do not
    /// count.
    contended,
    /// Leases granted to waiters that had to wait in the queue.
    waited,
    /// The total time that these waiters waited, in ms.
    wait_ms,
    /// The longest time that one of these waiters waited, in ms.
    longest_wait_ms,
    /// Leases handed on within the process.
    local_hand_offs,
    /// Leases that the store handed to a waiter.
    remote_hand_offs,
    /// Acquires that ended because their `wait` was over.
    timeouts,
    /// Acquires that the caller aborted.
    aborted,
    /// Successful renewals.
    renewals,
    /// Requests that the store answered with an error, or did not answer.
    errors,
}

impl Stats {
    /// Counts a lease whose waiter has waited for `span`.
    pub fn waited_for(&self, span: Duration) {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.waited.up();
        self.wait_ms.add(ms);
        self.longest_wait_ms.raise_to(ms);
    }

    /// Counts a lease that was handed on within the process, to a waiter that has waited for
    /// `span`.
    pub fn handed_on(&self, span: Duration) {
        self.local_hand_offs.up();
        self.waited_for(span);
    }
}

/// The health of a store's servers, as their circuit breakers see it.
#[derive(Debug, Default)]
pub struct ServersHealth(Mutex<Vec<Arc<Health>>>);

impl ServersHealth {
    /// Notes the health of one server.
    pub fn tell(&self, health: Arc<Health>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter_mut().find(|known| known.store == health.store) {
            Some(known) => *known = health,
            None => known.push(health),
        }
    }

    /// Returns the health of all servers.
    pub fn all(&self) -> Vec<Arc<Health>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A number that any thread may change and read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Raises the number to `least` if it is smaller.
    pub fn raise_to(&self, least: u64) {
        self.0.fetch_max(least, Ordering::Relaxed);
    }

    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
