//! Controls what other users may do with the files.
//!
//! New files belong to their creator alone. An operator who wants to share a lock file between
//! users gives the file another mode, and all files beside it get that mode, too.
//!
//! Other users can't be trusted with `PATH.owners/`: an unlocked file there frees leases, and a
//! locked one keeps stores from the files. In a directory that everybody may write, such as `/tmp`,
//! another user may create `PATH.owners` first. So a store refuses it if users may write there who
//! may not write the database.
//!
//! SQLite plays a journal or a log beside the database into the database, and does not ask who
//! wrote it. So the store refuses such a file if its owner may have no right to write the database.
//! `syscalls` checks each of them when SQLite opens it.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use super::super::diagnosis::Exposure;
use super::identity;
use super::trust::{
    BESIDE, GROUP_WRITE, OTHERS_WRITE, Rights, is_in_open_directory, is_mapped, is_mapped_group, is_trusted,
    is_usable_beside,
};

/// The mode of a new file. The operating system still removes the bits of the umask.
pub const NEW_FILE: u32 = 0o600;
/// The mode of a new directory.
const NEW_DIRECTORY: u32 = 0o700;

const SET_GROUP: u32 = 0o2000;

/// How users can share a lock file.
const SHARE: &str = "share a lock file only in a directory that no other users may write";

/// What a user can do about another user's lock file.
const INSTEAD: &str = "remove it, name another lock file";

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
                // Remove the directory: a later process could not use it either.
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
    if !is_trusted(&its, database.map(Rights::of).as_ref(), is_in_open_directory(directory), this) {
        return refused(format!(
            "it belongs to another user ({}); end what uses the lock file, and remove it; {SHARE}",
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

/// Returns the owner of a file, if the owner is not the user of this process.
pub fn other_owner(found: &Metadata) -> Option<u32> {
    Some(found.uid()).filter(|&user| user != rustix::process::geteuid().as_raw())
}

/// Checks that no other user has planted `database`, which `path` leads to and whose real path is
/// `real`. Any user can put a file in a directory that everybody may write, can give this user the
/// right to write it (by its mode, or by an access list, which the mode does not show), and can
/// replace it later.
///
/// # Errors
/// If the file belongs to another user than root, and
///
/// - everybody may write it, and it is empty or everybody may write the directory of `path` or of
///   `real`; or
/// - everybody may write its directory, and the file is not shared with a group of this process. A
///   group that is also the directory's does not count: a new file may get that group by itself.
pub fn check_planted(path: &Path, real: &Path, database: Option<&Metadata>) -> io::Result<()> {
    let Some(database) = database else { return Ok(()) };
    let owner = database.uid();
    if [0, rustix::process::geteuid().as_raw()].contains(&owner) && is_mapped(owner) {
        return Ok(());
    }
    let open_directory =
        |path: &Path| path.parent()?.metadata().ok().filter(|directory| directory.mode() & OTHERS_WRITE != 0);
    let refused = |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    let everybody = database.mode() & OTHERS_WRITE != 0;
    if everybody && database.len() == 0 {
        return refused(format!(
            "it is empty, belongs to another user ({owner}), and everybody may write it; {INSTEAD}, or share the file \
             with a group"
        ));
    }
    let Some(directory) = open_directory(real).or_else(|| open_directory(path).filter(|_| everybody)) else {
        return Ok(());
    };
    let why = if everybody {
        "everybody may write it"
    } else if database.mode() & GROUP_WRITE == 0 || !is_member(database.gid()) {
        "it is not shared with a group of this process"
    } else if database.gid() == directory.gid() {
        // A new file gets this group if the directory has the set-group-ID bit, and always on BSD
        // and macOS. So the owner may be no member.
        "its group may be that of the directory by chance"
    } else {
        return Ok(());
    };
    refused(format!(
        "it lies in a directory that everybody may write, belongs to another user ({owner}), and {why}; {INSTEAD}; \
         {SHARE}"
    ))
}

/// Returns whether this process is in `group`. In a user namespace, a group without a number of its
/// own may be any group.
fn is_member(group: u32) -> bool {
    if !is_mapped_group(group) {
        return false;
    }
    let own = std::iter::once(rustix::process::getegid());
    own.chain(rustix::process::getgroups().unwrap_or_default()).any(|own| own.as_raw() == group)
}

/// Returns the first file beside the database at `path` that SQLite may not use, and why.
pub fn unusable_beside(path: &Path) -> Option<(PathBuf, String)> {
    let real = identity::resolve(path).ok()?;
    let database = rustix::fs::stat(&real).ok();
    let is_open = is_in_open_directory(&real);
    BESIDE.iter().find_map(|end| {
        let mut beside = real.as_os_str().to_owned();
        beside.push(end);
        let found = rustix::fs::lstat(&beside).ok()?;
        let why = match FileType::from_raw_mode(found.st_mode) {
            FileType::Symlink => "it is a symbolic link; remove it".into(),
            FileType::Directory => "it is a directory; remove it".into(),
            FileType::RegularFile if is_usable_beside(&found, database.as_ref(), is_open) => return None,
            FileType::RegularFile if found.st_nlink > 1 => {
                "it has several names (hard links); remove it if no process uses the lock file".into()
            }
            FileType::RegularFile => format!(
                "it belongs to another user ({}), who may have no right to write the lock file; remove it if no \
                 process uses the lock file; {SHARE}",
                found.st_uid
            ),
            _ => "it is not a regular file; remove it".into(),
        };
        Some((beside.into(), why))
    })
}

/// Checks that this user may use a file or directory that this process has just created. `needed`
/// are the rights that its owner needs.
///
/// # Errors
/// If the umask has taken these rights away.
pub fn check_new(found: &Metadata, needed: u32) -> io::Result<()> {
    if found.mode() & needed == needed || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let why = "the umask of this process takes rights to new files away from their owner; set another umask, \
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

/// Returns how other users can access the lock file at `path`; `None` if they can't, or if that is
/// unknown.
pub fn exposure(path: &Path) -> Option<Exposure> {
    let file = path.metadata().ok()?.mode() & 0o7777;
    let directory = identity::resolve(path).ok()?.parent()?.metadata().ok()?.mode() & 0o7777;
    let exposure = Exposure {
        file_mode: (file & 0o066 != 0).then_some(file),
        directory_mode: (directory & OTHERS_WRITE != 0).then_some(directory),
    };
    (exposure != Exposure::default()).then_some(exposure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_more_writers_by_its_mode() {
        assert!(!has_more_writers(0o700, 0o600) && !has_more_writers(0o755, 0o600));
        assert!(!has_more_writers(0o770, 0o660) && !has_more_writers(0o777, 0o666));
        assert!(has_more_writers(0o770, 0o600) && has_more_writers(0o702, 0o644));
        assert!(has_more_writers(0o777, 0o664));
    }
}
