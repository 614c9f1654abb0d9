//! Collects the held locks that a store lists. Pure.

use super::info::LockInfo;
pub use super::list_filter::ListFilter;
use crate::lease::Key;

/// The most memory, in bytes, that the locks of a listing take, with all copies up to the objects
/// in JavaScript. If this is larger, a false server can take more memory. If it is smaller, lists
/// of locks with many waiters are not complete. 48 MB are enough for 3000 locks with 60 waiters
/// each.
pub const MOST_LISTED: usize = 48 << 20;
/// The memory of a lease or a waiter, in addition to its name: about 80 bytes here, 50 in the text
/// for JavaScript, and 90 in JavaScript.
const OF_ONE: usize = 220;
/// The number of copies of a key or a name in memory: one here, one in the text for JavaScript, one
/// in the string that JavaScript makes of this text, and one in the object.
const COPIES: usize = 4;

/// The held locks that a store lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// The locks, in the order of their keys. If there are too many, the store chooses which of
    /// them it lists.
    pub locks: Vec<(Key, LockInfo)>,
    /// True if these are all the locks.
    pub complete: bool,
    /// About how many bytes the locks take, see [`size_of`].
    told: usize,
}

impl Default for Listing {
    fn default() -> Self {
        Self { locks: Vec::new(), complete: true, told: 0 }
    }
}

impl Listing {
    /// Returns a listing without locks. `complete` says whether all keys were found.
    pub fn begin(complete: bool) -> Self {
        Self { complete, ..Self::default() }
    }

    /// Adds a lock. Returns false if the listing already has as many locks as the filter allows;
    /// then the listing is not complete.
    pub fn add(&mut self, filter: &ListFilter, key: Key, info: LockInfo) -> bool {
        let fits = self.locks.len() < filter.limit as usize;
        if fits {
            self.locks.push((key, info));
        } else {
            self.complete = false;
        }
        fits
    }

    /// Adds a lock as [`add`](Self::add) does. Also returns false if the locks would take more than
    /// [`MOST_LISTED`].
    pub fn add_in_memory(&mut self, filter: &ListFilter, key: Key, info: LockInfo) -> bool {
        self.told += COPIES * key.len() + size_of(&info);
        if self.told > MOST_LISTED && !self.locks.is_empty() {
            self.complete = false;
            return false;
        }
        self.add(filter, key, info)
    }
}

/// Returns about how many bytes `info` takes, with all copies up to the objects in JavaScript.
pub fn size_of(info: &LockInfo) -> usize {
    let names = info.leases.iter().map(|lease| lease.holder.as_ref().map_or(0, |name| name.len()));
    let names = names.chain(info.waiters.iter().map(|waiter| waiter.holder.len()));
    names.map(|name| OF_ONE + COPIES * name).sum()
}
