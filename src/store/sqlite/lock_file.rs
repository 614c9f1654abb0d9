//! Finds out which clients use the same lock file. They share one store, whatever paths they use.
//!
//! The engine's thread must not use the file system here: a network file system that hangs would
//! stop the renewals of all stores. So the client's own thread compares the paths before it hands a
//! [`LockFile`] to the engine. The engine only compares names.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::identity;

/// The lock files that clients of this process have open.
static OPEN: Mutex<Vec<Weak<LockFile>>> = Mutex::new(Vec::new());

/// A lock file; see the module.
#[derive(Debug)]
pub struct LockFile {
    /// The path by which the first client named the file.
    path: PathBuf,
    /// The device of the file, or of its directory, at that time; `None` if neither existed.
    device: Option<u64>,
}

impl LockFile {
    /// Returns the lock file that `path` leads to. If another client has the file open by any path,
    /// returns the same value. Blocks as long as the file system does.
    pub fn at(path: PathBuf) -> Arc<Self> {
        if let Some(same) = known().iter().find(|file| file.path == path) {
            return same.clone();
        }
        let device = identity::device_of(&path);
        // Leave out files on other devices: such a device may hang.
        let same = known().into_iter().find(|file| file.device == device && lead_to_one(&file.path, &path));
        same.unwrap_or_else(|| Self::insert(path, device))
    }

    fn insert(path: PathBuf, device: Option<u64>) -> Arc<Self> {
        let mut open = open();
        open.retain(|file| file.strong_count() > 0);
        // Another thread may have inserted the file meanwhile.
        if let Some(same) = open.iter().filter_map(Weak::upgrade).find(|file| file.path == path) {
            return same;
        }
        let file = Arc::new(Self { path, device });
        open.push(Arc::downgrade(&file));
        file
    }

    /// Returns the path of the store. No two open lock files have the same path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open() -> MutexGuard<'static, Vec<Weak<LockFile>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn known() -> Vec<Arc<LockFile>> {
    open().iter().filter_map(Weak::upgrade).collect()
}

/// Returns whether both paths lead to the same file, or will when it is created. Paths of one
/// existing file may look different: with a bind mount, or on a file system that ignores case. A
/// path with a link that another user may have planted leads to no file.
fn lead_to_one(one: &Path, other: &Path) -> bool {
    match (identity::resolve(one), identity::resolve(other)) {
        (Ok(one), Ok(other)) => one == other || identity::is_same_file(&one, &other),
        _ => false,
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn is_one(one: &Path, other: &Path) -> bool {
        let (one, other) = (LockFile::at(one.into()), LockFile::at(other.into()));
        Arc::ptr_eq(&one, &other)
    }

    #[test]
    fn paths_of_one_file_lead_to_one_lock_file_before_and_after_the_file_exists() {
        let folder = std::env::temp_dir().join(format!("leasehold-lock-file-{}", uuid::Uuid::new_v4()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        let path = |name: &str| folder.join(name);
        symlink("x.db", path("link.db")).unwrap();
        symlink("inner", path("alias")).unwrap();
        for exists in [false, true] {
            if exists {
                fs::write(path("x.db"), "").unwrap();
                fs::write(path("y.db"), "").unwrap();
            }
            assert!(is_one(&path("x.db"), &path("x.db")), "{exists}");
            assert!(is_one(&path("x.db"), &path("link.db")), "{exists}");
            assert!(is_one(&path("inner/z.db"), &path("alias/z.db")), "{exists}");
            assert!(!is_one(&path("x.db"), &path("y.db")), "{exists}");
            assert!(!is_one(&path("x.db"), &path("inner/x.db")), "{exists}");
        }

        let first = LockFile::at(path("link.db"));
        assert!(Arc::ptr_eq(&first, &LockFile::at(path("x.db"))));
        fs::remove_file(path("link.db")).unwrap();
        symlink("y.db", path("link.db")).unwrap();
        assert!(Arc::ptr_eq(&first, &LockFile::at(path("y.db"))), "the store follows the link");
        assert!(!Arc::ptr_eq(&first, &LockFile::at(path("x.db"))));

        let first = LockFile::at(path("early.db"));
        fs::write(path("early.db"), "").unwrap();
        symlink("early.db", path("late.db")).unwrap();
        assert!(Arc::ptr_eq(&first, &LockFile::at(path("late.db"))), "the file did not exist at first");
        fs::remove_dir_all(folder).unwrap();
    }
}
