//! Limits the log of a lock file by the room on the disk.
//!
//! A log that fills the disk can't be put back into a database that has to grow meanwhile. Then no
//! lock is granted until somebody makes room.

/// The size of a page of the database, in bytes.
pub const PAGE: i64 = 4096;

/// The most pages of the log. SQLite's own limit is 1000. If this is larger, the log takes more of
/// the disk; if it is smaller, the disk is synced more often, twice for each time that the log is
/// put back.
const MOST: u32 = 4000;
/// The fewest pages of the log. If this is larger, the log may fill a tiny disk; if it is smaller,
/// almost every transaction puts the log back.
const FEWEST: u32 = 16;
/// The log gets one of so many parts of the room. If this is larger, the log is put back more often
/// on a disk that is almost full; if it is smaller, the database has less room to grow meanwhile.
const PARTS: u64 = 4;

/// Returns how many pages the log may have if `room` bytes are free without it. Changes only when
/// the room has doubled or halved.
pub fn log_pages(room: u64) -> u32 {
    let pages = u32::try_from(room / PARTS / PAGE.cast_unsigned()).unwrap_or(u32::MAX);
    if pages >= MOST { MOST } else { (1 << pages.checked_ilog2().unwrap_or(0)).max(FEWEST) }
}

/// Returns whether a log of `length` bytes is so much longer than its limit of `pages` that putting
/// it back by and by has failed.
pub fn is_over(length: u64, pages: u32) -> bool {
    length > 2 * u64::from(pages) * PAGE.cast_unsigned()
}

/// Returns the bytes that the log at `log`, which has a length of `has`, may have: with what is free
/// on its file system, or less if the process may not write files of that size.
#[cfg(unix)]
#[allow(clippy::unnecessary_cast, reason = "the fields have other types on other systems")]
pub fn room_for(log: &std::path::Path, has: u64) -> u64 {
    use rustix::process::{Resource, getrlimit};
    let Some(directory) = log.parent() else { return u64::MAX };
    let Ok(found) = rustix::fs::statvfs(directory) else { return u64::MAX };
    let free = (found.f_bavail as u64).saturating_mul(found.f_frsize as u64);
    // SQLite calls the error of a file that is too long an I/O error, not a full disk.
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
        let of = |mebibytes: u64| log_pages(mebibytes << 20);
        assert_eq!([0, 1, 5, 16, 62, 63, 1 << 20].map(of), [16, 64, 256, 1024, 2048, 4000, 4000]);
        assert_eq!(log_pages(u64::MAX), MOST);
    }
}
