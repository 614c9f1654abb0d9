//! What a client did, in numbers that any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::store::breaker::Health;

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one client since it was opened. The engine counts, and who hands on for it; anyone reads.
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)*
            /// How the store's servers are.
            pub servers: Servers,
        }

        impl Stats {
            /// Every counter with its name.
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
    /// Leases given back by their holder.
    released,
    /// Leases left to the store by their holder, for somebody to adopt or to run out.
    detached,
    /// Leases lost.
    lost,
    /// Looks at the store that found the lock held by somebody else.
    contended,
    /// Leases granted after waiting for them.
    waited,
    /// How long those waited in all, in ms.
    wait_ms,
    /// How long the one of them waited that waited longest, in ms.
    longest_wait_ms,
    /// Leases that were handed on within the process.
    local_hand_offs,
    /// Leases that the store handed over.
    remote_hand_offs,
    /// Acquires that ended because their `wait` was over.
    timeouts,
    /// Acquires that the caller aborted.
    aborted,
    /// Successful renewals.
    renewals,
    /// Requests that the store answered with an error, or not at all.
    errors,
}

impl Stats {
    /// A lease was granted to somebody who had waited for so long.
    pub fn waited_for(&self, span: Duration) {
        let ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.waited.up();
        self.wait_ms.add(ms);
        self.longest_wait_ms.raise_to(ms);
    }

    /// A lease was handed on within the process to somebody who had waited for so long.
    pub fn handed_on(&self, span: Duration) {
        self.local_hand_offs.up();
        self.waited_for(span);
    }
}

/// How servers are that have circuit breakers.
#[derive(Debug, Default)]
pub struct Servers(Mutex<Vec<Arc<Health>>>);

impl Servers {
    /// One of them is like that now.
    pub fn tell(&self, health: Arc<Health>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.iter_mut().find(|known| known.store == health.store) {
            Some(known) => *known = health,
            None => known.push(health),
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Health>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A number that any thread changes or reads.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// At least so many.
    pub fn raise_to(&self, least: u64) {
        self.0.fetch_max(least, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
