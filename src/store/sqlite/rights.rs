//! What other users may do with the files.
//!
//! New files belong to their creator alone. An operator who wants to share a lock file between
//! users gives the file another mode, and all files beside it get that mode, too.
//!
//! Other users can't be trusted with `PATH.owners/`: an unlocked file there frees leases, and a
//! locked one keeps stores from the files. In a directory that everybody may write, such as `/tmp`,
//! another user may create `PATH.owners` first. So a store refuses it if users may write there who
//! may not write the database.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::super::diagnosis::Exposure;
use super::identity;

/// The mode of a new file. The operating system still removes the bits of the umask.
pub const NEW_FILE: u32 = 0o600;
/// The mode of a new directory.
const NEW_DIRECTORY: u32 = 0o700;

const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const SET_GROUP: u32 = 0o2000;

/// Creates the directory of the owners of `database` if it is missing. Users who may use the
/// database may use the directory, too.
///
/// # Errors
/// If the directory can't be created, or can't be trusted.
pub fn prepare(directory: &Path, database: &Metadata) -> io::Result<()> {
    match DirBuilder::new().mode(NEW_DIRECTORY).create(directory) {
        Ok(()) => {
            let found = directory.symlink_metadata()?;
            check_new(&found, NEW_DIRECTORY).inspect_err(|_| {
                // It is of no use to anybody, and a later process could not use it.
                let _ = std::fs::remove_dir(directory);
            })?;
            share_directory(directory, database)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check(directory, Some(database)),
        Err(error) => Err(error),
    }
}

/// Checks that no other user controls `directory`, the directory of the owners of `database`. Takes
/// rights away from users who have more rights there than at the database. If the database is
/// missing, this user is going to create it.
///
/// # Errors
/// If another user controls the directory, or if it is not a directory. There is no error if it is
/// missing.
pub fn check(directory: &Path, database: Option<&Metadata>) -> io::Result<()> {
    let found = match directory.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    if found.file_type().is_symlink() {
        return refused("it is a symbolic link; remove it".into());
    }
    if !found.is_dir() {
        return refused("it is not a directory; remove it".into());
    }
    let (its, this) = (Rights::of(&found), rustix::process::geteuid().as_raw());
    if !is_trusted(&its, database.map(Rights::of).as_ref(), this) {
        return refused(format!(
            "it belongs to another user ({}); end what uses the lock file, and remove it",
            its.user
        ));
    }
    match database {
        Some(database) if has_more_writers(its.mode, database.mode()) => {
            share_directory(directory, database).or_else(|_| {
                refused(format!(
                    "users who may not write the lock file may write there (mode {:04o}); run chmod go-w on it",
                    its.mode & 0o7777
                ))
            })
        }
        _ => Ok(()),
    }
}

/// Returns the owner of a file, if that is another user.
pub fn other_owner(found: &Metadata) -> Option<u32> {
    Some(found.uid()).filter(|&user| user != rustix::process::geteuid().as_raw())
}

/// Checks that no other user has put an empty file in the place of a new `database`. Everybody might
/// change such a file. A user who wants to share a lock file with everybody uses it first.
///
/// # Errors
/// If the file is empty, belongs to another user than root, and everybody may write it.
pub fn check_empty(database: Option<&Metadata>) -> io::Result<()> {
    let Some(database) = database.filter(|found| found.len() == 0 && found.mode() & OTHERS_WRITE != 0) else {
        return Ok(());
    };
    match other_owner(database) {
        None | Some(0) => Ok(()),
        Some(owner) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "it is empty, belongs to another user ({owner}), and everybody may write it; remove it, name another \
                 lock file, or let that user be the first to use it"
            ),
        )),
    }
}

/// Checks that this user may use a file or directory that this process has just created. `needed` are
/// the rights that its owner needs.
///
/// # Errors
/// If the umask has taken these rights away.
pub fn check_new(found: &Metadata, needed: u32) -> io::Result<()> {
    if found.mode() & needed == needed || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let why = "the umask of this process takes the rights to new files away from their own user; set another umask, \
               such as 077";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Returns whether a directory of the mode `directory` has more writers than the file of the mode
/// `database`.
fn has_more_writers(directory: u32, database: u32) -> bool {
    directory & !database & (GROUP_WRITE | OTHERS_WRITE) != 0
}

/// Gives `directory` the rights of `database`. Follows no link, because another user may have put
/// one there.
fn share_directory(directory: &Path, database: &Metadata) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = File::from(rustix::fs::open(directory, flags, Mode::empty())?);
    share(&handle, database, 0o777)
}

/// The user, the group and the mode of a file.
struct Rights {
    user: u32,
    group: u32,
    mode: u32,
}

impl Rights {
    fn of(found: &Metadata) -> Self {
        Self { user: found.uid(), group: found.gid(), mode: found.mode() }
    }
}

/// Returns whether the owner of `directory` may write `database` anyway, or is root or the user
/// `this`.
fn is_trusted(directory: &Rights, database: Option<&Rights>, this: u32) -> bool {
    let is_shared = |database: &Rights| {
        database.mode & OTHERS_WRITE != 0
            || database.mode & GROUP_WRITE != 0 && database.group == directory.group
    };
    [0, this].contains(&directory.user)
        || database.is_some_and(|database| database.user == directory.user || is_shared(database))
}

/// Gives `file` the user, the group and the mode of `database`, limited to the bits in `most`.
/// Users who may read a directory may also enter it.
pub fn share(file: &File, database: &Metadata, most: u32) -> io::Result<()> {
    let found = file.metadata()?;
    let (user, group) = (database.uid(), database.gid());
    if (found.uid(), found.gid()) != (user, group) {
        // Only root may change the user. Other users may only set a group of their own. If the
        // database has another group, only the mode is copied.
        let user = rustix::process::geteuid().is_root().then_some(user);
        // A root without capabilities may not change the user, but may change the group.
        let _ = fchown(file, user, Some(group)).or_else(|_| fchown(file, None, Some(group)));
    }
    let mode = database.mode() & 0o666;
    // New files in a directory with this bit get the group of the directory.
    let inherits = if found.is_dir() { found.mode() & SET_GROUP } else { 0 };
    file.set_permissions(Permissions::from_mode((mode | (mode & 0o444) >> 2) & most | inherits))
}

/// Gives the log of the lock file at `path` and the log's index the group of `database`. SQLite
/// gives them its mode, but only root's SQLite gives them its group.
pub fn share_log(path: &Path, database: &Metadata) {
    for end in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let differs = Path::new(&name).symlink_metadata().is_ok_and(|found| found.gid() != database.gid());
        if differs {
            // Change it by name: on some systems, closing a second descriptor drops SQLite's locks.
            let group = Some(rustix::fs::Gid::from_raw(database.gid()));
            let _ = rustix::fs::chownat(CWD, &name, None, group, AtFlags::SYMLINK_NOFOLLOW);
        }
    }
}

/// Returns how other users can get at the lock file at `path`; `None` if they can't, or if that is
/// unknown.
pub fn exposure(path: &Path) -> Option<Exposure> {
    let file = path.metadata().ok()?.mode() & 0o7777;
    let directory = identity::resolve(path).parent()?.metadata().ok()?.mode() & 0o7777;
    let exposure = Exposure {
        file_mode: (file & 0o066 != 0).then_some(file),
        directory_mode: (directory & OTHERS_WRITE != 0).then_some(directory),
    };
    (exposure != Exposure::default()).then_some(exposure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(user: u32, group: u32, mode: u32) -> Rights {
        Rights { user, group, mode }
    }

    #[test]
    fn a_directory_is_trusted_if_its_owner_may_write_the_database_anyway() {
        let (ours, root, theirs) = (1000, 0, 2000);
        let trusts = |directory: u32, database: Option<Rights>| {
            is_trusted(&rights(directory, 50, 0o700), database.as_ref(), ours)
        };
        let private = |user| rights(user, 50, 0o600);
        for user in [ours, root] {
            assert!(trusts(user, None) && trusts(user, Some(private(theirs))));
        }
        assert!(!trusts(theirs, None) && !trusts(theirs, Some(private(ours))));
        assert!(trusts(theirs, Some(private(theirs))), "the database is theirs");
        assert!(!trusts(theirs, Some(rights(ours, 50, 0o644))), "they may only read it");
        assert!(trusts(theirs, Some(rights(ours, 50, 0o660))), "their group may write it");
        assert!(!trusts(theirs, Some(rights(ours, 51, 0o660))), "another group may write it");
        assert!(trusts(theirs, Some(rights(ours, 51, 0o666))), "everybody may write it");
    }

    #[test]
    fn a_directory_has_more_writers_by_its_mode() {
        assert!(!has_more_writers(0o700, 0o600) && !has_more_writers(0o755, 0o600));
        assert!(!has_more_writers(0o770, 0o660) && !has_more_writers(0o777, 0o666));
        assert!(has_more_writers(0o770, 0o600) && has_more_writers(0o702, 0o644));
        assert!(has_more_writers(0o777, 0o664));
    }
}
