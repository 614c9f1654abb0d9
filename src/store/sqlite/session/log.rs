//! Keeps the log of a session short.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::owner::Owner;
use super::super::{owners, room, schema};
use super::Session;
use crate::engine::clock;

/// How often a session that is used looks how much room the disk has for the log. If this is
/// larger, the log may fill a disk that others fill; if it is smaller, transactions take longer.
const ROOM_EVERY: Duration = Duration::from_secs(1);

/// The longest log, in bytes, that a store leaves in place when it closes the files. The next store
/// reads a log of this length in less than 1 ms. If this is smaller, closing costs two syncs of the
/// disk more often; if it is larger, the next opening takes longer.
const LONG_LOG: u64 = 256 * 1024;

impl Session {
    /// Empties the log, which may fill a small disk. Returns whether the log is empty now.
    pub(super) fn put_log_back(&self) -> bool {
        let busy = self.connection.query_row(schema::PUT_BACK, [], |row| row.get::<_, i64>(0));
        busy.is_ok_and(|busy| busy == 0)
    }

    /// Limits the log by the room that the disk has now.
    pub(super) fn limit_log(&mut self) {
        self.room_at = clock::now() + ROOM_EVERY;
        let pages = room::log_pages(room::room_for(&self.log()));
        // If this fails, the log has its old limit.
        if pages != self.log_pages && schema::limit_log(&self.connection, pages).is_ok() {
            self.log_pages = pages;
        }
    }

    /// Returns the path of the log.
    fn log(&self) -> PathBuf {
        let mut log = self.path.as_os_str().to_owned();
        log.push("-wal");
        log.into()
    }

    /// Puts a long log back into the database if no other store uses the files. The next store to
    /// open the files would have to read all of the log.
    pub fn shorten_log(&self, owner: &Owner) {
        let is_long = std::fs::metadata(self.log()).is_ok_and(|found| found.len() > LONG_LOG);
        if is_long && !owners::has_others(&self.owners, owner.id()) {
            self.patience.store(0, Ordering::Relaxed);
            // If this fails, the next opening only takes longer.
            self.put_log_back();
        }
    }
}
