//! The reasons why a transaction was not carried out.

use std::path::Path;

use super::super::StoreError;
use super::failure;

/// The reason why a transaction was not carried out.
#[derive(Debug)]
pub enum SessionError {
    /// Another process had the file locked until the time was over. Nothing is wrong with the
    /// session.
    Busy(StoreError),
    /// The path names another file now, or none, so it has to be opened again.
    Moved,
    /// The session must not be used any more.
    Broken(StoreError),
}

impl SessionError {
    /// Returns the error of the lock file at `path` for an error of SQLite.
    pub fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let told = failure::of_sqlite(path, error);
        if failure::is_busy(error) { Self::Busy(told) } else { Self::Broken(told) }
    }
}

/// Returns SQLite's error for a file that another process has locked.
pub fn busy() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)
}

/// Returns SQLite's error for a file that it can't open.
pub fn cannot_open() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN), None)
}
