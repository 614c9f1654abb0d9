//! Finds the default lock file, and checks its directory. The directory belongs to one user, and is
//! in the temporary directory, where every user may write. So the store trusts nothing there before
//! it has checked it.

use std::path::{Path, PathBuf};

use super::super::StoreError;
#[cfg(unix)]
use super::super::StoreErrorKind;
use super::{failure, identity};

/// Returns the path of the default lock file. Its directory is checked and created when the store
/// is used.
///
/// # Errors
///
/// Fails with a message for people if the temporary directory's path is relative and the current
/// directory is gone.
pub fn default_path() -> Result<PathBuf, String> {
    let temporary = std::env::temp_dir();
    // Follow links once, so that the file has the same path in all processes. If a link is refused,
    // the store says so at its first request.
    let temporary = identity::resolve(&temporary).or_else(|_| std::path::absolute(&temporary));
    let temporary =
        temporary.map_err(|error| format!("no temporary directory for the lock file: {error}"))?;
    Ok(temporary.join(own_name()).join("locks.db"))
}

/// Returns the name of the directory. It contains the user's id, so that each user has a directory.
fn own_name() -> String {
    #[cfg(unix)]
    return format!("leasehold-{}", rustix::process::geteuid().as_raw());
    // On other systems (Windows), each user has a temporary directory.
    #[cfg(not(unix))]
    "leasehold".into()
}

/// Checks that the directory of `path` can be trusted if it has the name of the default directory.
/// Creates it if it is missing.
///
/// # Errors
///
/// `Denied` if the directory is a link or no directory, belongs to another user, or is open
/// to other users. Also if another user may have planted a link on the way.
pub fn secure(path: &Path) -> Result<(), StoreError> {
    match path.parent() {
        Some(directory) if directory.file_name().is_some_and(|name| name == own_name().as_str()) => {
            // Check the links before anything is created where they lead.
            identity::resolve(path).map_err(|error| failure::of_system(path, &error))?;
            secure_own(directory)
        }
        _ => Ok(()),
    }
}

/// Checks the directory through one handle, opened without following links, so that no other user
/// can replace it between the checks. If the temporary directory is sticky, no other user can
/// replace it afterwards, either.
#[cfg(unix)]
fn secure_own(directory: &Path) -> Result<(), StoreError> {
    use rustix::fs::{FileType, Mode, OFlags};
    use rustix::io::Errno;

    let refused = |why: &str| {
        let message = format!("the default lock file's directory {} is refused: {why}", directory.display());
        Err(StoreError::not_done(StoreErrorKind::Denied, message))
    };
    let failed = |error: Errno| failure::of_system(directory, &error.into());
    match rustix::fs::mkdir(directory, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(error)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = match rustix::fs::open(directory, flags, Mode::empty()) {
        Ok(handle) => handle,
        Err(Errno::LOOP | Errno::NOTDIR) => return refused("it is a link or not a directory"),
        Err(Errno::ACCESS) => return refused("this user may not read it"),
        Err(error) => return Err(failed(error)),
    };
    let found = rustix::fs::fstat(&handle).map_err(failed)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return refused("it is not a directory");
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return refused("it belongs to another user");
    }
    if Mode::from_raw_mode(found.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        return refused("it is open to other users (its mode has to be 0700)");
    }
    Ok(())
}

#[cfg(not(unix))]
fn secure_own(directory: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(directory).map_err(|error| failure::of_system(directory, &error))
}
