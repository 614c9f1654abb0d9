//! Keeps the log of a session short.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::owner::Owner;
use super::super::{owners, room, schema};
use super::Session;
use crate::engine::clock;

/// How often a session that is used looks at the length of the log and at the room on the disk. If
/// this is larger, the log may fill a small disk; if it is smaller, transactions take longer.
const ROOM_EVERY: Duration = Duration::from_millis(20);
/// The time from an attempt to empty the log that a reader prevented to the next look. The reader
/// may be a program that reads the file for long.
const AFTER_READER: Duration = Duration::from_secs(2);
/// How long to wait for others in order to empty the log, which no other store can write to
/// meanwhile. If this is larger, a program that reads the file for long keeps locks from being
/// granted; if it is smaller, the log may get longer on a slow disk.
const EMPTYING: Duration = Duration::from_millis(250);

/// The pause between two attempts to empty the log.
const TRY_AGAIN: Duration = Duration::from_micros(300);

/// The longest log, in bytes, that a store leaves in place when it closes the files. The next store
/// reads a log of this length in less than 1 ms. If this is smaller, closing costs two syncs of the
/// disk more often; if it is larger, the next opening takes longer.
const LONG_LOG: u64 = 256 * 1024;

/// Whether a log was emptied.
#[derive(PartialEq)]
enum Emptied {
    Yes,
    /// The database has all pages of the log, but somebody still reads the log.
    HasReader,
    /// Others were faster, or writing failed.
    No,
}

impl Session {
    /// Empties the log, which may fill a small disk. Returns whether the log is empty now.
    pub(super) fn put_log_back(&self) -> bool {
        self.empty_log() == Emptied::Yes
    }

    fn empty_log(&self) -> Emptied {
        let patience = self.patience.load(Ordering::Relaxed);
        self.patience.store(patience.min((clock::now() + EMPTYING).as_micros()), Ordering::Relaxed);
        let said = self.connection.query_row(schema::PUT_BACK, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        self.patience.store(patience, Ordering::Relaxed);
        match said {
            Ok((0, ..)) => Emptied::Yes,
            Ok((_, pages, copied)) if pages > 0 && pages == copied => Emptied::HasReader,
            _ => Emptied::No,
        }
    }

    /// Limits the log by the room that the disk has now.
    pub(super) fn limit_log(&mut self) {
        let log = self.log();
        let length = || std::fs::metadata(&log).map_or(0, |found| found.len());
        let pages = room::log_pages(room::room_for(&log, length()));
        // If this fails, the log has its old limit.
        if pages != self.log_pages && schema::limit_log(&self.connection, pages).is_ok() {
            self.log_pages = pages;
        }
        // SQLite puts the log back while other stores write. If they always write, it never gets to
        // the end of the log, which can only begin anew from there.
        let until = clock::now() + EMPTYING;
        let mut emptied = Emptied::No;
        while room::is_over(length(), pages) && emptied == Emptied::No && clock::now() < until {
            emptied = self.empty_log();
            if emptied == Emptied::No {
                // Another store is putting the log back, and SQLite does not wait for that.
                std::thread::sleep(TRY_AGAIN);
            }
        }
        self.room_at = clock::now() + if emptied == Emptied::HasReader { AFTER_READER } else { ROOM_EVERY };
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
