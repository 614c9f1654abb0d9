//! Keeps the log of a session short.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::owner::Owner;
use super::super::room::{self, Limit};
use super::super::{owners, schema};
use super::Session;
use crate::engine::clock;
use crate::lease::Instant;

/// How often a session in use checks the length of the log and the free space on the disk. If this
/// is larger, the log may fill a small disk; if it is smaller, transactions take longer.
pub(super) const ROOM_EVERY: Duration = Duration::from_millis(20);
/// The longest pause after failed attempts to empty the log. The cause may be a program that
/// reads the file for a long time, or a full disk. If this is larger, the log gets longer after the
/// cause has ended; if it is smaller, the attempts delay locks more often.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long one attempt to empty the log takes. If this is larger, a program that reads the file
/// for a long time delays locks for longer; if it is smaller, the log may get longer on a slow disk.
const EMPTYING: Duration = Duration::from_millis(250);
/// How long an attempt waits for the readers of the log at a time. No store can write meanwhile. If
/// this is larger, a reader delays the locks of all processes for longer; if it is smaller, the log
/// is emptied less often while many stores read.
const WAITING: Duration = Duration::from_millis(2);

/// The pause after [`WAITING`]. If this is larger, an attempt is less likely to find no reader; if
/// it is smaller, other stores, which try once per ms, may not get to write.
const TRY_AGAIN: Duration = Duration::from_millis(2);

/// The longest log, in bytes, that a store leaves in place when it closes the files. The next store
/// reads a log of this length in less than 1 ms. If this is smaller, closing costs two syncs of the
/// disk more often; if it is larger, the next opening takes longer.
const LONG_LOG: u64 = 256 * 1024;

/// Says whether the log was emptied.
#[derive(PartialEq)]
enum Emptied {
    Yes,
    /// Another connection reads the log, or puts it back into the database.
    InUse,
    /// Writing failed.
    Failed,
}

impl Session {
    /// Empties the log, which may fill a small disk. Returns whether the log is empty now.
    pub fn put_log_back(&self) -> bool {
        self.empty_log(schema::PUT_BACK, EMPTYING) == Emptied::Yes
    }

    /// Empties the log with the statement `how`. Waits for readers for `patience`.
    fn empty_log(&self, how: &str, patience: Duration) -> Emptied {
        let before = self.patience.load(Ordering::Relaxed);
        self.patience.store(before.min((clock::now() + patience).as_micros()), Ordering::Relaxed);
        let is_in_use = self.connection.query_row(how, [], |row| row.get(0));
        self.patience.store(before, Ordering::Relaxed);
        match is_in_use {
            Ok(false) => Emptied::Yes,
            Ok(true) => Emptied::InUse,
            Err(_) => Emptied::Failed,
        }
    }

    /// Limits the log by the room that the disk has now.
    pub(super) fn limit_log(&mut self) {
        let log = self.log();
        let length = || std::fs::metadata(&log).map_or(0, |found| found.len());
        let limit = Limit::of(room::room_for(&log, length()));
        // If this fails, the log keeps its old limit.
        if self.log_limit != Some(limit) && schema::limit_log(&self.connection, limit).is_ok() {
            self.log_limit = Some(limit);
        }
        // Another store may have shortened it.
        self.log_length = self.log_length.min(length());
        // SQLite puts the log back while other stores write. If they write all the time, SQLite
        // never gets to the end of the log. Only then could the log start again at its beginning.
        let patience = Instant::from_micros(self.patience.load(Ordering::Relaxed));
        let until = patience.min(clock::now() + EMPTYING);
        let mut is_in_use = true;
        while is_in_use && limit.is_over(length(), self.log_length) && clock::now() < until {
            let is_too_long = limit.is_too_long(length());
            let how = if is_too_long { schema::PUT_BACK } else { schema::START_AGAIN };
            is_in_use = match self.empty_log(how, WAITING) {
                Emptied::Yes => {
                    self.log_length = if is_too_long { 0 } else { length() };
                    false
                }
                Emptied::InUse => {
                    std::thread::sleep(TRY_AGAIN);
                    true
                }
                Emptied::Failed => break,
            };
        }
        self.room_pause = if limit.is_over(length(), self.log_length) {
            LONGEST_PAUSE.min(self.room_pause * 2)
        } else {
            ROOM_EVERY
        };
        self.room_at = clock::now() + self.room_pause;
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
