//! The names that SQLite and leasehold give the files beside a lock file.

use std::io;
use std::path::{Path, PathBuf};

/// The ends of these names.
const ENDS: [&str; 5] = [".new", ".owners", "-journal", "-wal", "-shm"];

/// Returns the path of a file beside the one at `path`.
pub fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(end);
    beside.into()
}

/// Returns a file beside the one at `path` that has one of these names. If there is one, the file
/// at `path` is itself a database.
pub fn file_beside(path: &Path) -> Option<PathBuf> {
    ENDS.iter().map(|end| with_end(path, end)).find(|beside| beside.symlink_metadata().is_ok())
}

/// Checks the name of a lock file.
///
/// # Errors
/// If the name ends like that of a file beside a lock file, in upper or lower case: some file
/// systems ignore case.
pub fn check(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let is_end = |end: &&str| {
        name.len().checked_sub(end.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(end.as_bytes()))
    };
    if !ENDS.iter().any(is_end) {
        return Ok(());
    }
    let [others @ .., last] = ENDS;
    let why = format!(
        "the name of a lock file must not end with {} or {last}, as {} does: SQLite and leasehold give such names to \
         the files beside a lock file; choose another name",
        others.join(", "),
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_name_counts() {
        for name in ["locks.db", "new", "locks.new.db", "locks-wal2", "x.new/locks", "-shm-"] {
            assert!(check(Path::new(name)).is_ok(), "{name}");
        }
        for name in ["locks.new", ".new", "a/locks.db-WAL", "x-shm", "x-journal", "x.owners"] {
            assert!(check(Path::new(name)).is_err(), "{name}");
        }
    }
}
