//! An opened lock file: the connection of SQLite, and the files that it has open.

use std::fmt::Display;
use std::fs::FileType;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::super::{StoreError, StoreErrorKind};
use super::failure;
use super::file_location::FileLocation;
use super::identity::{self, Files};
use super::schema::{self, SchemaError};
use super::session_error::{SessionError, busy, cannot_open};
use crate::engine::clock;
use crate::lease::Instant;

/// An opened lock file.
#[derive(Debug)]
pub struct OpenedFile {
    /// The path of the file, with all links followed.
    pub path: PathBuf,
    pub connection: Connection,
    /// The files that the connection has open.
    pub files: Files,
    /// Until when SQLite may wait for other processes, in µs of the engine's clock.
    pub patience: Arc<AtomicU64>,
}

impl OpenedFile {
    /// Opens the lock file at `path`, which leads to `place`. Returns `None` if the file is
    /// missing. Waits for other processes until `deadline`.
    pub fn open(path: &Path, place: &FileLocation, deadline: Instant) -> Result<Option<Self>, SessionError> {
        clock::comparable().map_err(|incomparable| SessionError::Broken(unsupported(path, incomparable)))?;
        loop {
            if place.names.is_database_missing() {
                return Ok(None);
            }
            match Self::try_open(place, deadline) {
                Err(SchemaError::Sqlite(_)) if place.names.is_database_missing() => return Ok(None),
                Err(SchemaError::Sqlite(error)) if failure::is_busy(&error) && clock::now() < deadline => {
                    // Two processes that create the file at the same time can't wait for each other
                    // inside SQLite.
                    std::thread::sleep(Duration::from_micros(fastrand::u64(500..3000)));
                }
                Err(SchemaError::Sqlite(error)) => return Err(SessionError::of_sqlite(path, &error)),
                Err(refusal) => return Err(SessionError::Broken(refused(path, &refusal))),
                Ok(opened) => return Ok(Some(opened)),
            }
        }
    }

    fn try_open(place: &FileLocation, deadline: Instant) -> Result<Self, SchemaError> {
        identity::prepare();
        let path = &*place.real;
        // SQLite would open a device, and leave a journal beside it.
        if path.symlink_metadata().is_ok_and(|found| is_special(found.file_type())) {
            return Err(SchemaError::Special);
        }
        // Without the URI flag, SQLite takes the path as it is written. SQLite never creates the
        // file: see `creation`. All links have been followed and checked, so a link that is there
        // now was put there meanwhile.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = Connection::open_with_flags(path, flags)?;
        // Check before the first read: SQLite then looks for the log by this name.
        if place.names.links() > 1 {
            return Err(SchemaError::Linked);
        }
        if place.names.is_mounted_alone() {
            return Err(SchemaError::Mounted);
        }
        // Keep SQLite from deleting the log, so that the names always lead to the same files. A
        // connection can't know for sure that it is the last one.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // A lock file has no triggers and no views. SQL of another program in the file must not
        // run.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        let patience = Arc::new(AtomicU64::new(deadline.as_micros()));
        let until = patience.clone();
        connection.busy_handler(Some(move |tries| wait_for_others(tries, &until)))?;
        // Refuse a file that may only be read: SQLite opens it without an error.
        if connection.is_readonly("main")? {
            return Err(SchemaError::Sqlite(cannot_open()));
        }
        schema::prepare(&connection)?;
        // If this fails, the files were replaced at this moment.
        let files = Files::opened(place.names.clone(), path).map_err(|_| cannot_open())?.ok_or_else(busy)?;
        Ok(Self { path: path.into(), connection, files, patience })
    }

    /// Executes a statement without a result.
    pub fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    /// Returns the error for an error of SQLite, which the operating system's last error may
    /// explain.
    pub fn session_error(&self, error: &rusqlite::Error) -> SessionError {
        match failure::of_growth(&self.path, error, &self.last_system_error()) {
            Some(error) => SessionError::Broken(error),
            None => SessionError::of_sqlite(&self.path, error),
        }
    }

    /// Returns the operating system's last error in an operation of the connection.
    fn last_system_error(&self) -> std::io::Error {
        // SAFETY: the connection is open for as long as `self` lives, and only this thread uses it.
        let number = unsafe { rusqlite::ffi::sqlite3_system_errno(self.connection.handle()) };
        std::io::Error::from_raw_os_error(number)
    }

    /// Sets the times of the files to now. Names the files instead of opening them: closing them
    /// again would drop SQLite's locks.
    pub fn touch(&self) {
        #[cfg(unix)]
        for end in ["", "-wal", "-shm"] {
            use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let mut path = self.path.as_os_str().to_owned();
            path.push(end);
            let _ = rustix::fs::utimensat(
                CWD,
                path,
                &Timestamps { last_access: now, last_modification: now },
                AtFlags::empty(),
            );
        }
    }
}

fn is_special(kind: FileType) -> bool {
    !kind.is_file() && !kind.is_dir() && !kind.is_symlink()
}

/// Returns the error of a file that is not a lock file of this version.
fn refused(path: &Path, refusal: &SchemaError) -> StoreError {
    let why = match refusal {
        SchemaError::Linked => {
            "has several names (hard links), and each name would have its own log; remove all names but one"
        }
        SchemaError::Special => "is not a regular file; name another file: sqlite:PATH",
        SchemaError::Newer => {
            "was made by a newer version of leasehold; install that version here, or name another file: sqlite:PATH"
        }
        SchemaError::Older => {
            "was made by an older version of leasehold; end all that use it and delete it, or name another \
             file: sqlite:PATH"
        }
        SchemaError::Changed => {
            "has tables or triggers that leasehold did not make; end all that use it and delete it"
        }
        SchemaError::Mounted => {
            "is mounted as a single file, but its log and the other files beside it have to be shared, too; \
             mount its directory instead"
        }
        _ => "is a database of another program",
    };
    StoreError::not_done(StoreErrorKind::Unsupported, format!("{} {why}", path.display()))
}

fn unsupported(path: &Path, why: impl Display) -> StoreError {
    StoreError::not_done(
        StoreErrorKind::Unsupported,
        format!("the lock file {} can't be used: {why}", path.display()),
    )
}

/// Waits for other processes, as SQLite's busy handler. Returns false when `until` has passed.
/// SQLite's default handler waits for up to 100 ms at a time. That is too long for processes that
/// hand a lock to each other: a transaction here takes some tens of µs.
fn wait_for_others(tries: i32, until: &AtomicU64) -> bool {
    if clock::now().as_micros() >= until.load(Ordering::Relaxed) {
        return false;
    }
    let longest = 50 * tries.clamp(1, 20).unsigned_abs();
    std::thread::sleep(Duration::from_micros(fastrand::u32(25..=longest).into()));
    true
}
