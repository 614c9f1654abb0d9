//! Tells which users' files SQLite may use beside a lock file.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FileType, Stat};

/// The ends of the names of the files that SQLite keeps beside the database.
pub const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];

pub const GROUP_WRITE: u32 = 0o020;
pub const OTHERS_WRITE: u32 = 0o002;

/// The user, the group and the mode of a file.
pub struct Rights {
    pub user: u32,
    pub group: u32,
    pub mode: u32,
}

impl Rights {
    #[allow(clippy::unnecessary_cast, reason = "the field has other types on other systems")]
    pub fn of_stat(found: &Stat) -> Self {
        Self { user: found.st_uid, group: found.st_gid, mode: found.st_mode as u32 }
    }

    pub fn of(found: &Metadata) -> Self {
        Self { user: found.uid(), group: found.gid(), mode: found.mode() }
    }
}

/// Returns the path of the database if `path` is one of the files that SQLite keeps beside it: the
/// log, the log's index, and the journal.
pub fn database_of(path: &Path) -> Option<&Path> {
    let bytes = path.as_os_str().as_bytes();
    let database = BESIDE.iter().find_map(|end| bytes.strip_suffix(end.as_bytes()))?;
    Some(Path::new(OsStr::from_bytes(database)))
}

/// Returns true if everybody may write the directory of the file at `path`, or if that is unknown.
pub fn is_in_open_directory(path: &Path) -> bool {
    let directory = path.parent().and_then(|directory| rustix::fs::stat(directory).ok());
    directory.is_none_or(|found| Rights::of_stat(&found).mode & OTHERS_WRITE != 0)
}

/// Returns true if SQLite may use the file `beside` the `database`. SQLite copies what is in the
/// log and the journal into the database, so these files must come from a user who may write it.
/// Another name of `beside` (a hard link) may be that of another database's file. `database` is
/// `None` if it is missing. `is_open` is true if everybody may write their directory.
pub fn is_usable_beside(beside: &Stat, database: Option<&Stat>, is_open: bool) -> bool {
    let this = rustix::process::geteuid().as_raw();
    let database = database.map(Rights::of_stat);
    let is_plain = FileType::from_raw_mode(beside.st_mode) == FileType::RegularFile && beside.st_nlink <= 1;
    is_plain && is_trusted(&Rights::of_stat(beside), database.as_ref(), is_open, this)
}

/// Returns whether the owner of `file`, which lies beside `database` or is the directory of the
/// owners, may write `database` anyway, or is root or the user `this`.
///
/// If everybody may write their directory (`is_open`), the group of `file` does not show that its
/// owner is in that group. The file may have got the group from this directory or from another one,
/// if that one has the set-group-ID bit, and from any directory on BSD and macOS.
pub fn is_trusted(file: &Rights, database: Option<&Rights>, is_open: bool, this: u32) -> bool {
    let is_shared = |database: &Rights| {
        let with_group = database.mode & GROUP_WRITE != 0 && database.group == file.group;
        database.mode & OTHERS_WRITE != 0 || with_group && !is_open
    };
    let is_same = |user: u32| user == file.user && (!is_open || is_mapped(user));
    [0, this].into_iter().any(is_same)
        || database.is_some_and(|database| is_same(database.user) || is_shared(database))
}

/// Returns false if `user` may stand for several users. In a user namespace, all users whom the
/// namespace does not map have the same number: see user_namespaces(7).
pub fn is_mapped(user: u32) -> bool {
    is_mapped_by("/proc/self/uid_map", "/proc/sys/kernel/overflowuid", user)
}

/// Returns false if `group` may stand for several groups: see [`is_mapped`].
pub fn is_mapped_group(group: u32) -> bool {
    is_mapped_by("/proc/self/gid_map", "/proc/sys/kernel/overflowgid", group)
}

/// Returns false if `id` is the number in the file `overflow`, unless `map` maps all numbers.
fn is_mapped_by(map: &str, overflow: &str, id: u32) -> bool {
    /// Linux uses this number unless the file has another one.
    const OVERFLOW: u32 = 65_534;
    let read = |path| std::fs::read_to_string(path).ok();
    let overflow = read(overflow).and_then(|number| number.trim().parse().ok());
    let maps_all = || Some(read(map)?.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    id != overflow.unwrap_or(OVERFLOW) || maps_all().unwrap_or(true)
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
        let trusts_in = |is_open, directory: u32, database: Option<Rights>| {
            is_trusted(&rights(directory, 50, 0o700), database.as_ref(), is_open, ours)
        };
        let trusts = |directory, database| trusts_in(false, directory, database);
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

        assert!(!trusts_in(true, theirs, Some(rights(ours, 50, 0o660))), "its group may be inherited");
        assert!(trusts_in(true, theirs, Some(rights(ours, 50, 0o666))), "everybody may write it");
        assert!(trusts_in(true, theirs, Some(rights(theirs, 50, 0o660))), "the database is theirs");
        assert!(trusts_in(true, ours, None) && trusts_in(true, root, None));
    }
}
