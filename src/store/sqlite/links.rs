//! Follows the symbolic links in the path of a lock file.
//!
//! In a directory that everybody may write, such as `/tmp`, another user may have put a link in the
//! place of the lock file or of a directory on the way to it. That user could change the link at
//! any time, so that two processes of this user lock different files, or create files anywhere. So
//! the store follows such a link only if a user made it who could change the files anyway. (Linux
//! has the same rule, `fs.protected_symlinks`, but not every system has it switched on.)

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::trust::{OTHERS_WRITE, Rights, is_mapped};

/// How many links are followed. If this is larger than in the operating system, which follows 40,
/// the store may use a file that other programs can't open by that path.
const MOST_LINKS: usize = 40;

/// Returns the path of the file at `path` with all links followed, also a link whose target does
/// not exist yet. What comes after a missing directory stays as it is.
///
/// # Errors
/// If another user may have planted one of the links, if there are too many links, or if a link
/// can't be read.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut real = PathBuf::new();
    let mut rest = parts_from_last(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(part);
        let found = rustix::fs::lstat(&real).ok();
        match found.as_ref().map(|found| FileType::from_raw_mode(found.st_mode)) {
            Some(FileType::Directory) => {}
            Some(FileType::Symlink) if links == MOST_LINKS => return Err(Errno::LOOP.into()),
            Some(FileType::Symlink) => {
                links += 1;
                if let Some(found) = found {
                    check(&real, &found)?;
                }
                let target = std::fs::read_link(&real)?;
                real.pop();
                rest.append(&mut parts_from_last(&target));
            }
            // Nothing can be below a file or a missing directory, so this ends the path.
            _ => {
                real.extend(rest.drain(..).rev());
            }
        }
    }
    Ok(real)
}

/// Returns the parts of `path`, the last one first.
fn parts_from_last(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.rev().map(|part| part.as_os_str().to_owned()).collect()
}

/// Checks that no other user may have planted the link at `link`, which has the status `found`.
///
/// # Errors
/// If its directory may be written by everybody, and the link belongs to a user other than this
/// one, root and the owner of the directory, or to one of several users with the same number. Also
/// if the link has several names in such a directory: any user may have given it the second one.
fn check(link: &Path, found: &Stat) -> io::Result<()> {
    let directory = Rights::of_stat(&rustix::fs::stat(link.parent().unwrap_or(link))?);
    if directory.mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let this = rustix::process::geteuid().as_raw();
    let what = if ![0, this, directory.user].contains(&found.st_uid) || !is_mapped(found.st_uid) {
        format!("of another user ({})", found.st_uid)
    } else if found.st_nlink > 1 {
        "with several names (hard links)".to_owned()
    } else {
        return Ok(());
    };
    let why = format!(
        "{} is a symbolic link {what} in a directory that everybody may write; remove the link, or name a lock file \
         in another directory",
        link.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_as_the_system_follows_them() {
        let folder = std::env::temp_dir().join(format!("leasehold-links-{}", uuid::Uuid::new_v4()));
        fs::create_dir_all(folder.join("one/two")).unwrap();
        let folder = folder.canonicalize().unwrap();
        fs::write(folder.join("one/two/x.db"), "").unwrap();
        let absolute = folder.join("one").to_string_lossy().into_owned();
        for (target, link) in [
            ("one/two", "two"),
            ("../one/./two//x.db", "one/x.db"),
            ("two/../x.db", "up.db"),
            (&absolute, "absolute"),
            ("up.db", "again.db"),
            ("one/missing.db", "dangling.db"),
            ("circle", "circle"),
        ] {
            symlink(target, folder.join(link)).unwrap();
        }
        for path in
            ["one/two/x.db", "two/x.db", "two/../x.db", "up.db", "absolute/x.db", "again.db", "./two/./x.db"]
        {
            let path = folder.join(path);
            assert_eq!(resolve(&path).unwrap(), path.canonicalize().unwrap(), "{}", path.display());
        }
        for (path, real) in [
            ("dangling.db", "one/missing.db"),
            ("two/new.db", "one/two/new.db"),
            ("two/none/../new.db", "one/two/none/../new.db"),
            ("up.db/../new.db", "one/two/x.db/../new.db"),
        ] {
            assert_eq!(resolve(&folder.join(path)).unwrap(), folder.join(real), "{path}");
        }
        assert!(resolve(&folder.join("circle")).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
