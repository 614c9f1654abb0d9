//! Identifies files by their names, for systems where an open file can be neither moved nor
//! replaced (Windows).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Stands for the files: their names identify them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIds;

/// The names of the files.
#[derive(Clone, Debug)]
pub struct FileNames {
    given: PathBuf,
}

impl FileNames {
    pub fn new(given: &Path, _: &Path) -> io::Result<Self> {
        Ok(Self { given: given.into() })
    }

    /// Returns whether the name of the database leads to no file.
    pub fn is_database_missing(&self) -> bool {
        self.given.try_exists().is_ok_and(|exists| !exists)
    }

    pub fn look(&self) -> FileIds {
        FileIds
    }

    pub fn links(&self) -> u64 {
        1
    }

    pub fn is_mounted_alone(&self) -> bool {
        false
    }
}

/// The files of an opened database.
#[derive(Clone, Debug)]
pub struct Files {
    pub ids: FileIds,
}

impl Files {
    pub fn opened(_: Arc<FileNames>, _: &Path) -> io::Result<Option<Self>> {
        Ok(Some(Self { ids: FileIds }))
    }

    pub fn is_database_named(&self) -> bool {
        true
    }

    pub fn are_named(&self) -> bool {
        true
    }
}

/// Does nothing: locks belong to the open file here.
pub fn prepare() {}

/// Returns whether copies of the library in one process exclude each other.
pub fn copies_exclude_each_other(_: &Path) -> bool {
    true
}

/// Returns the path of the file at `path` with all links followed.
///
/// # Errors
/// Never: only on other systems may another user have planted a link.
#[allow(clippy::unnecessary_wraps, reason = "it can fail on other systems")]
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(real) = dunce::canonicalize(path) {
        return Ok(real);
    }
    let directory = path.parent().and_then(|directory| dunce::canonicalize(directory).ok());
    Ok(match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path.to_path_buf(),
    })
}

/// Returns `None`: paths tell the devices apart.
pub fn device_of(_: &Path) -> Option<u64> {
    None
}

/// Returns whether both paths, without links, name the same file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
}
