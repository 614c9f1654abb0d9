//! Where the default file lies: in a directory of the user's own under the temporary directory, which
//! everybody may write, so nothing found there is believed before it was looked at.

use std::path::{Path, PathBuf};

use super::super::StoreError;
#[cfg(unix)]
use super::super::StoreErrorKind;
use super::failure;

/// The path of the embedded store's default file. Nothing is created or looked at before the store is used.
///
/// # Errors
///
/// A message for people, when the temporary directory's path is relative and the current directory is gone.
pub fn default_path() -> Result<PathBuf, String> {
    let temporary = std::env::temp_dir();
    // Links in it are followed once, so that the same file has the same path for everyone.
    let temporary = dunce::canonicalize(&temporary).or_else(|_| std::path::absolute(&temporary));
    let temporary =
        temporary.map_err(|error| format!("no temporary directory for the lock file: {error}"))?;
    Ok(temporary.join(own_name()).join("locks.db"))
}

/// The directory's name; with the user's id in it, so that users do not meet.
fn own_name() -> String {
    #[cfg(unix)]
    return format!("leasehold-{}", rustix::process::geteuid().as_raw());
    // Elsewhere (Windows) the temporary directory is the user's own already.
    #[cfg(not(unix))]
    "leasehold".into()
}

/// Makes sure that the directory of `path` can be trusted, if it is the user's own one; creates it if it is missing.
///
/// # Errors
///
/// `Denied` if the directory is a link or no directory, belongs to somebody else, or is open to others.
pub fn secure(path: &Path) -> Result<(), StoreError> {
    match path.parent() {
        Some(directory) if directory.file_name().is_some_and(|name| name == own_name().as_str()) => {
            secure_own(directory)
        }
        _ => Ok(()),
    }
}

/// Looks at the directory itself, through a handle that no link leads to, so that it cannot be exchanged
/// between the questions. It cannot be afterwards either, where the temporary directory is sticky.
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
