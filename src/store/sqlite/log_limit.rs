//! Limits the log of a lock file by the room on the disk.
//!
//! If the log fills the disk and the database has to grow, SQLite can't put the log back into the
//! database. Then the store grants no lock until the operator frees space.

/// The size of a page of the database, in bytes.
pub const PAGE: i64 = 4096;

/// The most pages of the log. SQLite's own limit is 1000. If this is larger, the log takes more of
/// the disk; if it is smaller, the disk is synced more often, twice for each time that the log is
/// put back.
const MOST: u32 = 4000;
/// The fewest pages of the log. If this is larger, the log may fill a tiny disk; if it is smaller,
/// almost every transaction puts the log back.
const FEWEST: u32 = 16;
/// The divisor of the free space: the log gets this fraction of it. If this is larger, the log is
/// put back more often on a disk that is almost full; if it is smaller, the database has less room
/// to grow.
const PARTS: u64 = 4;

/// The least room, in bytes, with which a log that grew keeps its length, up to [`LONGEST`]. If
/// this is larger, logs get shorter on more disks. Node's `fs.cpSync` may never return if a file
/// gets shorter while it is copied. If it is smaller, long logs take a larger part of a disk.
const PLENTY: u64 = 1 << 30;
/// The longest log, in bytes, that keeps its length. If this is larger, logs take more of the disk
/// for good; if it is smaller, logs get shorter more often.
const LONGEST: u64 = 128 << 20;

/// Limits a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogLimit {
    /// The number of pages from which SQLite puts the log back into the database.
    pub pages: u32,
    /// Whether a log that grew longer keeps its length.
    pub keeps_length: bool,
}

impl LogLimit {
    /// Returns the limit if `room` bytes are free, including those of the log. The number of pages
    /// changes only when the room has doubled or halved.
    pub fn of(room: u64) -> Self {
        let pages = u32::try_from(room / PARTS / PAGE.cast_unsigned()).unwrap_or(u32::MAX);
        let pages = if pages >= MOST { MOST } else { (1 << pages.checked_ilog2().unwrap_or(0)).max(FEWEST) };
        Self { pages, keeps_length: room >= PLENTY }
    }

    /// Returns the limit in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.pages) * PAGE.cast_unsigned()
    }

    /// Returns true if a log of `length` bytes is more than twice as long as its limit, and longer
    /// than `known`, the length that it kept. Then SQLite has not managed to put the log back while
    /// other stores write.
    pub fn is_over(self, length: u64, known: u64) -> bool {
        let known = if self.is_too_long(known) { 0 } else { known };
        length > known.max(2 * self.bytes())
    }

    /// Returns true if a log of `length` bytes has to get shorter.
    pub fn is_too_long(self, length: u64) -> bool {
        !self.keeps_length || length > LONGEST
    }
}

/// Returns how many bytes the log at `log` may have: its length `has` plus the free space of its
/// file system, or less if the process may not write files of that size.
#[cfg(unix)]
#[allow(clippy::unnecessary_cast, reason = "the fields have other types on other systems")]
pub fn room_for(log: &std::path::Path, has: u64) -> u64 {
    use rustix::process::{Resource, getrlimit};
    let Some(directory) = log.parent() else { return u64::MAX };
    let Ok(found) = rustix::fs::statvfs(directory) else { return u64::MAX };
    let free = (found.f_bavail as u64).saturating_mul(found.f_frsize as u64);
    // SQLite reports a file that is too long as an I/O error, not as a full disk.
    let longest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    has.saturating_add(free).min(longest)
}

/// Returns `u64::MAX`: on other systems, the log has the same limit on every disk.
#[cfg(not(unix))]
pub fn room_for(_: &std::path::Path, _: u64) -> u64 {
    u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gets_a_quarter_of_the_room_within_bounds() {
        let of = |mebibytes: u64| LogLimit::of(mebibytes << 20).pages;
        assert_eq!([0, 1, 5, 16, 62, 63, 1 << 20].map(of), [16, 64, 256, 1024, 2048, 4000, 4000]);
        assert_eq!(LogLimit::of(u64::MAX).pages, MOST);
    }

    #[test]
    fn a_log_gets_shorter_if_the_disk_is_small_or_the_log_very_long() {
        let (small, large) = (LogLimit::of(PLENTY - 1), LogLimit::of(PLENTY));
        assert!(small.is_too_long(1) && !large.is_too_long(LONGEST) && large.is_too_long(LONGEST + 1));
        let limit = large.bytes();
        assert!(!large.is_over(2 * limit, 0) && large.is_over(2 * limit + 1, 0));
        assert!(!large.is_over(3 * limit, 3 * limit) && large.is_over(3 * limit + 1, 3 * limit));
        assert!(small.is_over(3 * limit, 3 * limit), "the disk became small");
    }
}
