//! Shows other processes that a store lives, by a file that the store keeps locked.
//!
//! The operating system drops the lock when the process ends, however it ends and in whatever pid
//! namespace it runs. A pid can't show that for certain. The record in the file names the file
//! itself, so that other processes can tell it from an unlocked copy.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use uuid::Uuid;

use super::identity::FileIds;
#[cfg(unix)]
use super::record::{self, Record};
#[cfg(unix)]
use super::rights;

/// The ids of the owners that this copy of the library has made.
static OWN: Mutex<Option<HashSet<Uuid>>> = Mutex::new(None);

fn own() -> MutexGuard<'static, Option<HashSet<Uuid>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether this copy of the library has created the owner `id` and still has it.
pub fn is_own(id: Uuid) -> bool {
    own().get_or_insert_default().contains(&id)
}

/// A locked file that shows that an opened store lives. The name of the file is a random id.
#[derive(Debug)]
pub struct Owner {
    id: Uuid,
    path: PathBuf,
    file: File,
}

impl Owner {
    /// Creates an owner in `directory`. Users who may use `database` may read the owner's file.
    pub fn create(directory: &Path, database: &Metadata) -> io::Result<Self> {
        loop {
            let id = Uuid::new_v4();
            let path = file_of(directory, id);
            // Child processes do not inherit the handles that Rust opens.
            let mut options = OpenOptions::new();
            options.write(true).create_new(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, rights::NEW_FILE);
            let file = options.open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                // Another store is testing the lock at this moment. No lease names the file yet.
                Err(TryLockError::WouldBlock) => {
                    let _ = fs::remove_file(&path);
                    continue;
                }
                Err(TryLockError::Error(error)) => {
                    let _ = fs::remove_file(&path);
                    return Err(error);
                }
            }
            own().get_or_insert_default().insert(id);
            let owner = Self { id, path, file };
            // If this fails, other users can't read the file, and their stores wait for its owner.
            #[cfg(unix)]
            let _ = rights::share(&owner.file, database, 0o666);
            #[cfg(not(unix))]
            let _ = database;
            match owner.say(None).and_then(|()| owner.is_in_place()) {
                Ok(true) => return Ok(owner),
                // Another program has deleted or moved the file.
                Ok(false) => {}
                Err(error) => {
                    owner.retire();
                    return Err(error);
                }
            }
        }
    }

    /// Returns the id, by which leases name their owner.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Returns whether other processes still find the locked file by its path.
    ///
    /// # Errors
    /// If that is unknown, for instance because this process may not enter the directory.
    pub fn is_in_place(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(found) => Ok(same_file(&self.file.metadata()?, &found)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(false),
                _ => Err(error),
            },
        }
    }

    /// Returns whether the file is shorter or longer than its record, because another program has
    /// written into it.
    #[cfg(unix)]
    pub fn is_damaged(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() != record::LENGTH as u64)
    }

    /// Returns `false`: there is no record on these systems.
    #[cfg(not(unix))]
    pub fn is_damaged(&self) -> bool {
        false
    }

    /// Returns whether the owner's file is in `directory`.
    pub fn is_of(&self, directory: &Path) -> bool {
        self.path.parent() == Some(directory)
    }

    /// Records for other processes which files the store uses from now on.
    #[cfg(unix)]
    pub fn say(&self, files: Option<FileIds>) -> io::Result<()> {
        Record::of(&self.file, files)?.write(&self.file)
    }

    /// Does nothing: on these systems other processes can't read a locked file.
    #[cfg(not(unix))]
    pub fn say(&self, _: Option<FileIds>) -> io::Result<()> {
        Ok(())
    }

    /// Sets the time of the file to now, so that programs that delete old files keep it.
    pub fn touch(&self) {
        let _ = self.file.set_modified(SystemTime::now());
    }

    /// Makes the owner look as if another copy of the library had created it.
    #[cfg(test)]
    pub fn disown(&self) {
        own().get_or_insert_default().remove(&self.id);
    }

    /// Removes the file. The lock ends when the handle is dropped.
    pub fn retire(self) {
        // Remove the file while it is locked, so that no other process takes the owner for dead.
        if self.is_in_place().unwrap_or(false) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        own().get_or_insert_default().remove(&self.id);
    }
}

/// Returns the path of the file of owner `id`.
pub fn file_of(directory: &Path, id: Uuid) -> PathBuf {
    directory.join(id.hyphenated().to_string())
}

#[cfg(unix)]
fn same_file(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Names are random and never used twice, so whatever has the name is the file.
#[cfg(not(unix))]
fn same_file(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}

/// Creates the directory of the owners if it is missing. It gets the rights of its directory here.
#[cfg(not(unix))]
pub fn prepare(directory: &Path, _: &Metadata) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
