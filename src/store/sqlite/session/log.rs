//! Keeps the log of a session short.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use super::super::log_limit::{self, LogLimit};
use super::super::opened_file::OpenedFile;
use super::super::schema;
use crate::engine::clock;
use crate::lease::Instant;

/// How often a session in use checks the length of the log and the free space on the disk. If this
/// is larger, the log may fill a small disk; if it is smaller, transactions take longer.
const ROOM_EVERY: Duration = Duration::from_millis(20);
/// The longest pause after failed attempts to empty the log. The cause may be a program that
/// reads the file for a long time, or a full disk. If this is larger, the log gets longer after the
/// cause has ended; if it is smaller, the attempts delay locks more often.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How long one attempt to empty the log takes. If this is larger, a program that reads the file
/// for a long time delays locks for longer; if it is smaller, the log may get longer on a slow
/// disk.
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

/// The log of an opened file.
#[derive(Debug)]
pub struct SessionLog {
    path: PathBuf,
    /// See [`OpenedFile::patience`].
    patience: Arc<AtomicU64>,
    /// When its limit is due next, and the pause before that.
    due: Instant,
    pause: Duration,
    /// The limit. `None` until one is set.
    limit: Option<LogLimit>,
    /// The length, in bytes, when the log last started again without getting shorter.
    length: u64,
}

impl SessionLog {
    /// Returns the log of `opened`, whose limit is due at `now`.
    pub fn new(opened: &OpenedFile, now: Instant) -> Self {
        let mut path = opened.path.as_os_str().to_owned();
        path.push("-wal");
        let patience = opened.patience.clone();
        Self { path: path.into(), patience, due: now, pause: ROOM_EVERY, limit: None, length: 0 }
    }

    /// Returns when its limit is due next.
    #[cfg(test)]
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Returns true if it is time to call [`limit`](Self::limit).
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Empties the log, which may fill a small disk. Returns whether the log is empty now.
    pub fn put_back(&self, connection: &Connection) -> bool {
        self.empty(connection, schema::PUT_BACK, EMPTYING) == Emptied::Yes
    }

    /// Empties the log with the statement `how`. Waits for readers for `patience`.
    fn empty(&self, connection: &Connection, how: &str, patience: Duration) -> Emptied {
        let before = self.patience.load(Ordering::Relaxed);
        self.patience.store(before.min((clock::now() + patience).as_micros()), Ordering::Relaxed);
        let is_in_use = connection.query_row(how, [], |row| row.get(0));
        self.patience.store(before, Ordering::Relaxed);
        match is_in_use {
            Ok(false) => Emptied::Yes,
            Ok(true) => Emptied::InUse,
            Err(_) => Emptied::Failed,
        }
    }

    /// Limits the log by the room that the disk has now.
    pub fn limit(&mut self, connection: &Connection) {
        let path = self.path.clone();
        let length = || std::fs::metadata(&path).map_or(0, |found| found.len());
        let limit = LogLimit::of(log_limit::room_for(&path, length()));
        // If this fails, the log keeps its old limit.
        if self.limit != Some(limit) && schema::limit_log(connection, limit).is_ok() {
            self.limit = Some(limit);
        }
        // Another store may have shortened it.
        self.length = self.length.min(length());
        // SQLite puts the log back while other stores write. If they write all the time, SQLite
        // never gets to the end of the log. Only then could the log start again at its beginning.
        let patience = Instant::from_micros(self.patience.load(Ordering::Relaxed));
        let until = patience.min(clock::now() + EMPTYING);
        let mut is_in_use = true;
        while is_in_use && limit.is_over(length(), self.length) && clock::now() < until {
            let is_too_long = limit.is_too_long(length());
            let how = if is_too_long { schema::PUT_BACK } else { schema::START_AGAIN };
            is_in_use = match self.empty(connection, how, WAITING) {
                Emptied::Yes => {
                    self.length = if is_too_long { 0 } else { length() };
                    false
                }
                Emptied::InUse => {
                    std::thread::sleep(TRY_AGAIN);
                    true
                }
                Emptied::Failed => break,
            };
        }
        self.pause =
            if limit.is_over(length(), self.length) { LONGEST_PAUSE.min(self.pause * 2) } else { ROOM_EVERY };
        self.due = clock::now() + self.pause;
    }

    /// Returns true if the next store to open the files would have to read a long log.
    pub fn is_long(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|found| found.len() > LONG_LOG)
    }

    /// Puts the log back into the database, but waits for no reader. Call it if no other store uses
    /// the files.
    pub fn shorten(&self, connection: &Connection) {
        self.patience.store(0, Ordering::Relaxed);
        // If this fails, the next opening only takes longer.
        self.put_back(connection);
    }
}
