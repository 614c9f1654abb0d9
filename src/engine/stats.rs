//! What a client did, in numbers that any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one client since it was opened. The engine counts, anyone reads.
        #[derive(Debug, Default)]
        pub struct Stats { $($(#[$doc])* pub $name: Counter,)* }

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
    /// Leases lost.
    lost,
    /// Looks at the store that found the lock held by somebody else.
    contended,
    /// Acquires that ended because their `wait` was over.
    timeouts,
    /// Acquires that the caller aborted.
    aborted,
    /// Successful renewals.
    renewals,
    /// Requests that the store answered with an error, or not at all.
    errors,
}

/// A number that one thread changes and any thread reads.
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

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
