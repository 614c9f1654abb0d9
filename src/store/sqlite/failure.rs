//! Turns errors of SQLite and of the operating system into errors of the store contract.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Error, ErrorCode, ffi};

use super::super::{StoreError, StoreErrorKind};
#[cfg(unix)]
use super::rights;

/// Returns true if another process has the file locked, so that a later try may succeed.
pub fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Returns the store's error for `error` of SQLite with the file at `path`. Nothing of the
/// transaction was carried out.
pub fn of_sqlite(path: &Path, error: &Error) -> StoreError {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            let message = format!(
                "another process keeps the lock file {} locked; if a process that uses it is stopped, continue or end that \
                 process",
                path.display()
            );
            return StoreError::not_done(StoreErrorKind::Loading, message);
        }
        Some(ErrorCode::NotADatabase) => {
            let message = format!("{} is not a lock file: it is no SQLite database", path.display());
            return StoreError::not_done(StoreErrorKind::Unsupported, message);
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            let message = format!(
                "the lock file {} is damaged ({error}); end all that use it and delete it",
                path.display()
            );
            return StoreError::not_done(StoreErrorKind::Unsupported, message);
        }
        Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
        Some(ErrorCode::SystemIoFailure) if extended(error) == Some(ffi::SQLITE_IOERR_SHMSIZE) => {
            StoreErrorKind::Full
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
            return unusable(path, error);
        }
        Some(ErrorCode::SystemIoFailure) if path.metadata().is_ok_and(|found| !found.is_file()) => {
            let message = format!("the lock file {} is not a regular file", path.display());
            return StoreError::not_done(StoreErrorKind::Unsupported, message);
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => StoreErrorKind::Unreachable,
        _ => StoreErrorKind::Internal,
    };
    failed(kind, path, error)
}

/// Returns the store's error if `error` means that the file at `path` may not grow. `system` is the
/// operating system's error. SQLite has an error for a full disk, but reports a quota, or a
/// process's limit for file sizes, as an I/O error.
pub fn of_growth(path: &Path, error: &Error, system: &io::Error) -> Option<StoreError> {
    let is_write = matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
    (is_write && is_full(system)).then(|| failed(StoreErrorKind::Full, path, system))
}

/// Returns true if a file could not grow: the disk is full, or a quota or limit is used up.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Returns the store's error for `error` of the operating system with the file or directory at
/// `path`.
pub fn of_system(path: &Path, error: &io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied => StoreErrorKind::Denied,
        io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::ReadOnly,
        _ if is_full(error) => StoreErrorKind::Full,
        io::ErrorKind::Unsupported => StoreErrorKind::Unsupported,
        _ => StoreErrorKind::Unreachable,
    };
    failed(kind, path, error)
}

/// Returns the store's error for `error` of the operating system with `owners`, the directory of
/// the owners.
pub fn of_owners(owners: &Path, error: &io::Error) -> StoreError {
    let kind = of_system(owners, error).kind;
    // The errors of our own checks already say what to do.
    let is_denied = kind == StoreErrorKind::Denied && error.raw_os_error().is_some();
    let advice = if is_denied { owners_advice(owners) } else { String::new() };
    let message = format!(
        "the directory {}, in which the processes that use a lock file show that they live, failed: {error}{advice}",
        owners.display()
    );
    StoreError::not_done(kind, message)
}

/// Says what to do if this process may not use the directory of the owners.
#[cfg(unix)]
fn owners_advice(owners: &Path) -> String {
    match owners.symlink_metadata().map(|found| rights::other_owner(&found)) {
        Ok(Some(owner)) => format!(
            "; it belongs to the user {owner}: share the lock file and the directory with a group, or name another lock \
             file"
        ),
        Ok(None) => "; run chmod u+rwx on it".into(),
        Err(_) => String::new(),
    }
}

#[cfg(not(unix))]
fn owners_advice(_: &Path) -> String {
    String::new()
}

fn failed(kind: StoreErrorKind, path: &Path, error: &dyn Display) -> StoreError {
    StoreError::not_done(kind, format!("the lock file {} failed: {error}", path.display()))
}

fn extended(error: &Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// Finds out why SQLite could not open or write the file: SQLite itself does not say.
///
/// Reads only metadata and never opens the file: closing a second handle of a database would drop
/// the locks that this process has on it ("How To Corrupt An SQLite Database File", §2.2).
fn unusable(path: &Path, error: &dyn Display) -> StoreError {
    let not_done = |kind, message: String| StoreError::not_done(kind, message);
    let shown = path.display();
    let directory = path.parent().unwrap_or(path);
    match (path.metadata(), directory.metadata()) {
        (Ok(file), _) if file.is_dir() => {
            not_done(StoreErrorKind::Unsupported, format!("the lock file {shown} is a directory; name a file in it"))
        }
        (Ok(_), _) => {
            let beside = ["-wal", "-shm"].map(|end| {
                let mut name = path.as_os_str().to_owned();
                name.push(end);
                PathBuf::from(name)
            });
            // SQLite creates these two files with the group of their creator. A store then gives
            // them the group of a shared database, so this error may pass.
            let passing = || {
                let blocked = beside.iter().find_map(|place| blocked(place, path));
                blocked.map(|error| StoreError { kind: StoreErrorKind::Unreachable, ..error })
            };
            let blocked = blocked(path, path).or_else(|| blocked(directory, path));
            let blocked = blocked.or_else(passing).or_else(|| planted(path));
            blocked.unwrap_or_else(|| failed(StoreErrorKind::Unreachable, path, error))
        }
        (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => of_system(path, &error),
        (_, Err(_)) => {
            let shown = directory.display();
            let message = format!(
                "the lock file's directory {shown} does not exist; create it, or name another lock file"
            );
            not_done(StoreErrorKind::Unreachable, message)
        }
        (_, Ok(found)) if !found.is_dir() => {
            not_done(StoreErrorKind::Unreachable, format!("{} is not a directory", directory.display()))
        }
        _ => blocked(directory, path).unwrap_or_else(|| {
            let message = format!(
                "the lock file {shown} can't be created ({error}): its file system may take no new files; name a lock file \
                 in another directory"
            );
            not_done(StoreErrorKind::Unreachable, message)
        }),
    }
}

/// Returns the error if a file beside the lock file at `path` can't be trusted.
#[cfg(unix)]
fn planted(path: &Path) -> Option<StoreError> {
    let (beside, why) = rights::unusable_beside(path)?;
    let message = format!("the lock file {} failed: {} is refused: {why}", path.display(), beside.display());
    Some(StoreError::not_done(StoreErrorKind::Denied, message))
}

#[cfg(not(unix))]
fn planted(_: &Path) -> Option<StoreError> {
    None
}

/// Returns the error if this process may not write `place`.
#[cfg(unix)]
fn blocked(place: &Path, path: &Path) -> Option<StoreError> {
    let found = place.metadata().ok()?;
    let error: io::Error = rustix::fs::access(place, rustix::fs::Access::WRITE_OK).err()?.into();
    let advice = rights::other_owner(&found).map_or_else(String::new, |owner| {
        format!("; it belongs to the user {owner}: let this process write it, or name another lock file")
    });
    let (shown, place) = (path.display(), place.display());
    let kind = of_system(path, &error).kind;
    let message = format!("no right to write {place} for the lock file {shown}: {error}{advice}");
    Some(StoreError::not_done(kind, message))
}

#[cfg(not(unix))]
fn blocked(place: &Path, path: &Path) -> Option<StoreError> {
    let message = format!("no right to write {} for the lock file {}", place.display(), path.display());
    let readonly = place.metadata().is_ok_and(|found| found.permissions().readonly());
    readonly.then(|| StoreError::not_done(StoreErrorKind::Denied, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_sqlite_has_its_kind_and_names_the_file() {
        use StoreErrorKind::*;
        for (code, kind) in [
            (ffi::SQLITE_BUSY, Loading),
            (ffi::SQLITE_LOCKED, Loading),
            (ffi::SQLITE_PROTOCOL, Loading),
            (ffi::SQLITE_FULL, Full),
            (ffi::SQLITE_IOERR_SHMSIZE, Full),
            (ffi::SQLITE_IOERR_WRITE, Unreachable),
            (ffi::SQLITE_CANTOPEN, Unreachable),
            (ffi::SQLITE_NOTADB, Unsupported),
            (ffi::SQLITE_CORRUPT, Unsupported),
            (ffi::SQLITE_MISUSE, Internal),
        ] {
            let error = Error::SqliteFailure(ffi::Error::new(code), None);
            let failure = of_sqlite(Path::new("/none/such/locks.db"), &error);
            assert_eq!(failure.kind, kind, "{code}");
            assert!(!failure.maybe_done && failure.message.contains("/none/such"), "{failure}");
        }
    }

    #[test]
    fn the_error_for_a_locked_file_says_what_to_do() {
        let error = Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None);
        let StoreError { message, .. } = of_sqlite(Path::new("locks.db"), &error);
        assert_eq!(
            &*message,
            "another process keeps the lock file locks.db locked; if a process that uses it is stopped, continue or end that \
             process"
        );
    }
}
