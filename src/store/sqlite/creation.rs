//! Creates a lock file.
//!
//! The file is complete before it has its name: it contains the layout, and its header says that it
//! uses a log. SQLite would create the file empty, and would then write through a journal and a log
//! that it finds by name. If an operator moves the old database away and back meanwhile, the
//! journal and the log may belong to the wrong database: SQLite would write the layout over the
//! rows of the old one, or restore its pages from a foreign journal. So the new file is written
//! under the name `PATH.new`, without a journal. It never replaces a file that already has the name
//! `PATH`. On a network file system, and on systems without such a rename, the store creates an
//! empty file, and SQLite completes it. `leftovers` says which files with these names must stay.

use std::fs::File;
use std::io;
use std::path::Path;

use super::failure;
use super::file_location::FileLocation;
use super::leftovers;
#[cfg(unix)]
use super::rights;
use super::session_error::{self, SessionError};
use crate::lease::Instant;

/// Creates the lock file at `path`, which leads to `place`, if it is missing. Call it after no live
/// owner was found to use a file there. Waits for other creators until `deadline`.
pub fn create(path: &Path, place: &FileLocation, deadline: Instant) -> Result<(), SessionError> {
    // SQLite deletes the log and the journal beside an empty database.
    leftovers::check_beside(&place.real, true)
        .map_err(|error| SessionError::Broken(failure::of_system(path, &error)))?;
    #[cfg(unix)]
    if complete::create(path, place, deadline)? {
        return Ok(());
    }
    #[cfg(not(unix))]
    let _ = deadline;
    create_empty(&place.real).map_err(|error| {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        SessionError::Broken(if is_full {
            failure::of_system(path, &error)
        } else {
            // `of_sqlite` finds out which directory is in the way.
            failure::of_sqlite(path, &session_error::cannot_open())
        })
    })
}

/// Creates an empty file, which SQLite completes in place. Does nothing if there is a file.
fn create_empty(real: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, rights::NEW_FILE);
    match options.open(real) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        opened => opened.map(drop),
    }
}

#[cfg(all(unix, any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod complete {
    use std::fs::{self, TryLockError};
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::time::Duration;

    use rusqlite::{Connection, OpenFlags};
    use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
    use rustix::io::Errno;

    use super::super::reserved_names::with_end;
    use super::super::{network, schema};
    use super::*;
    use crate::engine::clock;

    /// How often a creator checks whether another one is done, which takes some ms.
    const LOOK_AGAIN: Duration = Duration::from_millis(1);

    /// The offset of the two bytes in SQLite's header that say how to write and to read the file,
    /// and their values for a file with a log.
    const JOURNALS: (u64, [u8; 2]) = (18, [2, 2]);

    /// Creates the file. Returns `false` if that is not possible here, so SQLite has to do it.
    pub fn create(path: &Path, place: &FileLocation, deadline: Instant) -> Result<bool, SessionError> {
        // SQLite finds out whether a network file system can have a log.
        if place.real.parent().is_some_and(|directory| network::name_of(directory).is_some()) {
            return Ok(false);
        }
        let new = with_end(&place.real, ".new");
        let failed = |error| SessionError::Broken(failure::of_system(path, &error));
        loop {
            leftovers::check_alone(&new).map_err(failed)?;
            // The lock ends when the file is closed, even if this process is killed. So the next
            // creator can use the file that a killed one has left.
            let Ok(file) = open(&new) else { return Ok(false) };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if clock::now() < deadline => {
                    std::thread::sleep(LOOK_AGAIN);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(SessionError::Busy(failure::of_sqlite(path, &session_error::busy())));
                }
                Err(TryLockError::Error(_)) => return Ok(false),
            }
            if !is_at(&file, &new) {
                // Another creator has given the file its name.
                continue;
            }
            let found = file.metadata().map_err(failed)?;
            leftovers::check_unfinished(&new, found.len()).map_err(failed)?;
            let done = if place.names.is_database_missing() {
                write(path, &new, &file).and_then(|()| publish(place, &new).map_err(failed))
            } else {
                Ok(true)
            };
            // Remove the file while it is still locked: a creator that waits for the lock then
            // finds that the file is gone, and opens a new one.
            if is_at(&file, &new) {
                let _ = fs::remove_file(&new);
            }
            return done;
        }
    }

    /// Opens the file at `new` for writing, and creates it if it is missing.
    fn open(new: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(rights::NEW_FILE);
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        let file = options.open(new)?;
        let found = file.metadata()?;
        // Another user may have put a link to a file of this user there.
        let is_own =
            found.is_file() && found.nlink() <= 1 && found.uid() == rustix::process::geteuid().as_raw();
        if is_own { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    fn is_at(file: &File, path: &Path) -> bool {
        let ids = |found: fs::Metadata| (found.dev(), found.ino());
        match (file.metadata(), fs::symlink_metadata(path)) {
            (Ok(open), Ok(named)) => ids(open) == ids(named),
            _ => false,
        }
    }

    /// Writes a complete lock file into `file`, whose name is `new`.
    fn write(path: &Path, new: &Path, file: &File) -> Result<(), SessionError> {
        let failed = |error| SessionError::Broken(failure::of_system(path, &error));
        let refused = |error| SessionError::Broken(failure::of_sqlite(path, &error));
        file.metadata().and_then(|found| rights::check_new(&found, rights::NEW_FILE)).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        super::super::identity::prepare();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(new, flags | OpenFlags::SQLITE_OPEN_EXRESCODE);
        let connection = connection.map_err(refused)?;
        schema::fill(&connection, "OFF").map_err(refused)?;
        connection.close().map_err(|(_, error)| refused(error))?;
        let (at, bytes) = JOURNALS;
        file.write_all_at(&bytes, at).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Gives the file at `new` the name of the database, unless another file has that name. Returns
    /// `false` if the system has no such operation.
    fn publish(place: &FileLocation, new: &Path) -> io::Result<bool> {
        // Without their database, an old log and an old journal are of no use. SQLite would apply
        // them to the new one. The index goes with its log: it does not fit a new log.
        if place.names.is_database_missing() {
            leftovers::check_beside(&place.real, true)?;
            for end in ["-wal", "-shm", "-journal"] {
                leftovers::remove(&with_end(&place.real, end))?;
            }
        }
        match renameat_with(CWD, new, CWD, &place.real, RenameFlags::NOREPLACE) {
            Ok(()) | Err(Errno::EXIST) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))))]
mod complete {
    use super::*;

    /// Returns `false`: these systems can't rename a file without the risk of replacing another
    /// one.
    pub fn create(_: &Path, _: &FileLocation, _: Instant) -> Result<bool, SessionError> {
        Ok(false)
    }
}
