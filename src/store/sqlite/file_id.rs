//! Identifies a file of this machine, whatever its names are.

use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::Stat;

/// Identifies a file of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    #[allow(clippy::unnecessary_cast, reason = "the fields have other types on other systems")]
    pub fn of(found: &Stat) -> Self {
        Self { device: found.st_dev as u64, inode: found.st_ino as u64 }
    }

    pub fn of_metadata(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }

    /// Returns the id of an open file.
    pub fn of_open(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }
}
