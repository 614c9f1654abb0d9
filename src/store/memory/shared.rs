//! Keeps the tables of the stores in memory by name.
//!
//! A table outlives its stores as long as it has valid leases: no client owns a detached lease, or
//! an id that `once` remembers. Every new table gives larger fences than all removed tables.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::LeaseTable;
use crate::lease::{Fence, Instant};

/// A table that all stores of one name use.
pub type SharedTable = Arc<Mutex<LeaseTable>>;

/// Locks a table. A panic does not leave it in a bad state: all of its rules are pure.
pub fn lock(table: &SharedTable) -> MutexGuard<'_, LeaseTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Tables {
    by_name: Option<HashMap<Arc<str>, SharedTable>>,
    /// The largest fence of the removed tables.
    floor: Fence,
}

static TABLES: Mutex<Tables> = Mutex::new(Tables { by_name: None, floor: Fence::NONE });

/// Returns the table called `name`.
pub fn table(name: &str) -> SharedTable {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let Tables { by_name, floor } = &mut *tables;
    let by_name = by_name.get_or_insert_default();
    if let Some(known) = by_name.get(name) {
        return known.clone();
    }
    let name: Arc<str> = name.into();
    let new = LeaseTable::named(name.clone(), *floor);
    by_name.entry(name).or_insert(Arc::new(Mutex::new(new))).clone()
}

/// Forgets the tables that no store uses, if none of their leases is valid at `now`.
pub fn forget_unused(now: Instant) {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let Tables { by_name, floor } = &mut *tables;
    by_name.get_or_insert_default().retain(|_, table| {
        if Arc::strong_count(table) > 1 {
            return true;
        }
        let Some(last) = lock(table).last_fence(now) else { return true };
        *floor = last.max(*floor);
        false
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Key, Token, Ttl};
    use crate::store::{AcquireRequest, Reply, Request};

    const WALL: u64 = 1_700_000_000_000_000;

    fn acquire(table: &SharedTable, now: Instant, wall_us: u64) -> Option<Fence> {
        let ask = AcquireRequest::new(
            Key::from("k"),
            Token::random(),
            Ttl::from_millis(1_000).unwrap(),
            "test".into(),
        );
        match lock(table).apply(Request::Acquire(ask), now, wall_us) {
            Ok(Reply::Acquired { fence, .. }) => Some(fence),
            _ => None,
        }
    }

    #[test]
    fn a_table_is_forgotten_once_it_is_unused_and_its_leases_have_ended() {
        let name = "memory:forgotten-when-unused";
        let at = |ms: u64| Instant::from_micros(ms * 1_000);
        let is_known = || TABLES.lock().unwrap().by_name.as_ref().unwrap().contains_key(name);
        let first = acquire(&table(name), at(0), WALL).unwrap();
        forget_unused(at(900));
        assert!(is_known());
        assert_eq!(acquire(&table(name), at(900), WALL), None, "another client holds the lock");
        let used = table(name);
        forget_unused(at(1_001));
        assert!(is_known(), "a store uses the table");
        drop(used);
        forget_unused(at(1_001));
        assert!(!is_known());
        let next = acquire(&table("memory:another"), at(2_000), WALL - 60_000_000).unwrap();
        assert!(next > first, "fences grow although the clock was set back");
    }
}
