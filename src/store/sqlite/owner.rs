//! How processes tell which of them still live: by files that their owners keep locked.
//!
//! A lock of the operating system ends with the process that has it, however it ended and whichever pid
//! namespace it was in; a pid says neither for sure.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustc_hash::FxHashSet;
use uuid::Uuid;

use super::identity::FileIds;
#[cfg(unix)]
use super::record::{ProcessId, Record, Said};

/// The ids of the owners that this copy of the library has made.
static OWN: Mutex<Option<FxHashSet<Uuid>>> = Mutex::new(None);

fn own() -> MutexGuard<'static, Option<FxHashSet<Uuid>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An opened store's sign of life: a locked file named after a random id.
#[derive(Debug)]
pub struct Owner {
    id: Uuid,
    path: PathBuf,
    file: File,
}

/// A live owner that uses other files, so that a store may not use its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The owner's process, if the owner's file can be read.
    pub pid: Option<u32>,
}

/// What another owner's file tells.
#[derive(Debug)]
pub enum Liveness {
    /// It is locked.
    Alive,
    /// It is not, so its process is gone. While the handle is kept, nobody can take the file for their own.
    Dead(File),
    /// It is missing (a tidier may have deleted it) or cannot be read.
    Unknown,
}

impl Owner {
    /// A new owner in `directory`.
    pub fn create(directory: &Path) -> io::Result<Self> {
        loop {
            let id = Uuid::new_v4();
            let path = file_of(directory, id);
            // Handles of Rust's own are never inherited by child processes.
            let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                // A sweeper was faster, and takes the file for a dead process's: leave it to it.
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => {
                    let _ = fs::remove_file(&path);
                    return Err(error);
                }
            }
            own().get_or_insert_default().insert(id);
            let owner = Self { id, path, file };
            owner.say(None)?;
            // A sweeper may also have had it and be gone again.
            if owner.is_in_place() {
                return Ok(owner);
            }
        }
    }

    /// The name that leases carry.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Whether others still find the locked file. Nobody can lock its id again if not.
    pub fn is_in_place(&self) -> bool {
        match (self.file.metadata(), fs::metadata(&self.path)) {
            (Ok(held), Ok(found)) => same_file(&held, &found),
            _ => false,
        }
    }

    /// Returns whether the owner's file is in `directory`.
    pub fn is_of(&self, directory: &Path) -> bool {
        self.path.parent() == Some(directory)
    }

    /// Records for other processes which files the store uses from now on.
    #[cfg(unix)]
    pub fn say(&self, files: Option<FileIds>) -> io::Result<()> {
        Record::own(files).write(&self.file)
    }

    /// Does nothing: on these systems other processes can't read a locked file.
    #[cfg(not(unix))]
    pub fn say(&self, _: Option<FileIds>) -> io::Result<()> {
        Ok(())
    }

    /// Makes the file young again, for tidiers that go by age.
    pub fn touch(&self) {
        let _ = self.file.set_modified(SystemTime::now());
    }

    /// Takes the file away; the lock goes with the handle.
    pub fn retire(self) {
        // Remove the file while it is locked, so that no other process takes the owner for dead.
        if self.is_in_place() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        own().get_or_insert_default().remove(&self.id);
    }
}

fn file_of(directory: &Path, id: Uuid) -> PathBuf {
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

/// Whether the process of owner `id` lives.
pub fn liveness(directory: &Path, id: Uuid) -> Liveness {
    let Ok(file) = File::open(file_of(directory, id)) else { return Liveness::Unknown };
    // Shared, so that two who look at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) => Liveness::Dead(file),
        Err(TryLockError::WouldBlock) => Liveness::Alive,
        Err(TryLockError::Error(_)) => Liveness::Unknown,
    }
}

/// Takes the file of a dead owner away, once nothing names it any more.
pub fn bury(directory: &Path, id: Uuid, handle: File) {
    let _ = fs::remove_file(file_of(directory, id));
    drop(handle);
}

/// The owners in `directory` whose processes are gone.
pub fn dead(directory: &Path) -> Vec<(Uuid, File)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let ids = entries.flatten().filter_map(|entry| Uuid::try_parse(entry.file_name().to_str()?).ok());
    ids.filter_map(|id| match liveness(directory, id) {
        Liveness::Dead(handle) => Some((id, handle)),
        Liveness::Alive | Liveness::Unknown => None,
    })
    .collect()
}

/// Returns the records of the live owners in `directory` other than `except`.
#[cfg(unix)]
fn records(directory: &Path, except: Option<Uuid>) -> impl Iterator<Item = (Uuid, Said)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| Uuid::try_parse(entry.file_name().to_str()?).ok());
    ids.filter(move |id| Some(*id) != except).filter_map(move |id| {
        let file = File::open(file_of(directory, id)).ok()?;
        matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)).then(|| (id, Record::read(&file)))
    })
}

/// Returns a live owner, other than `except`, that uses files other than `named`.
#[cfg(unix)]
pub fn obstacle(directory: &Path, except: Option<Uuid>, named: &FileIds) -> Option<Obstacle> {
    let boot = super::boot::id();
    records(directory, except).find_map(|(_, said)| match said {
        // File ids of another kernel can't be compared.
        Said::Record(Record { process, boot: its, files: Some(files) }) => {
            (its == boot && !files.are_named(named)).then_some(Obstacle { pid: Some(process.pid) })
        }
        Said::Garbled => Some(Obstacle { pid: None }),
        Said::Record(_) | Said::Nothing => None,
    })
}

/// Returns `None`: on these systems an open file can't be replaced.
#[cfg(not(unix))]
pub fn obstacle(_: &Path, _: Option<Uuid>, _: &FileIds) -> Option<Obstacle> {
    None
}

/// Returns whether another copy of the library in this process has an open store whose owner is in
/// `directory`.
#[cfg(unix)]
pub fn is_second_copy(directory: &Path) -> bool {
    let (process, boot) = (ProcessId::own(), super::boot::id());
    records(directory, None).any(|(id, said)| {
        let ours = own().get_or_insert_default().contains(&id);
        matches!(said, Said::Record(record) if !ours && record.process == process && record.boot == boot)
    })
}

/// Returns `false`: on these systems file locks keep the copies apart.
#[cfg(not(unix))]
pub fn is_second_copy(_: &Path) -> bool {
    false
}

/// Returns whether there are live owners in `directory` other than `own`.
pub fn has_others(directory: &Path, own: Uuid) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut ids = entries.filter_map(|entry| Uuid::try_parse(entry.file_name().to_str()?).ok());
    ids.any(|id| id != own && !matches!(liveness(directory, id), Liveness::Dead(_)))
}

/// Creates the directory of the owners of the database at `path` if it is missing. Whoever may use the database
/// may use it too.
pub fn prepare(directory: &Path, path: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Ok(()) => {
            #[cfg(unix)]
            {
                use std::os::unix::fs::{MetadataExt, PermissionsExt};
                let mode = path.metadata()?.mode() & 0o666;
                fs::set_permissions(directory, fs::Permissions::from_mode(mode | (mode & 0o444) >> 2))?;
            }
            #[cfg(not(unix))]
            let _ = path;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh_directory() -> PathBuf {
        let directory = std::env::temp_dir().join(format!("leasehold-owners-{}", Uuid::new_v4()));
        fs::create_dir(&directory).unwrap();
        directory
    }

    #[test]
    fn an_owner_is_alive_until_its_handle_goes_and_unknown_without_its_file() {
        let directory = fresh_directory();
        let owner = Owner::create(&directory).unwrap();
        let id = owner.id();
        assert!(matches!(liveness(&directory, id), Liveness::Alive));
        assert!(dead(&directory).is_empty());
        drop(owner);
        let (first, second) = (liveness(&directory, id), liveness(&directory, id));
        assert!(matches!((&first, &second), (Liveness::Dead(_), Liveness::Dead(_))), "two may look at once");
        drop((first, second));

        let tidied = Owner::create(&directory).unwrap();
        assert!(tidied.is_in_place());
        fs::remove_file(file_of(&directory, tidied.id())).unwrap();
        assert!(matches!(liveness(&directory, tidied.id()), Liveness::Unknown));
        assert!(!tidied.is_in_place());

        let orderly = Owner::create(&directory).unwrap();
        orderly.retire();
        assert_eq!(dead(&directory).len(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_live_owner_is_an_obstacle_to_a_store_that_finds_other_files() {
        use crate::store::sqlite::identity::FileId;

        let directory = fresh_directory();
        let id = |inode| Some(FileId { device: 1, inode });
        let used = FileIds { main: id(1), wal: id(2), shm: id(3) };
        let owner = Owner::create(&directory).unwrap();
        let seen = |named| obstacle(&directory, None, &named);
        assert_eq!(seen(FileIds { main: None, ..used }), None, "the owner uses nothing yet");
        owner.say(Some(used)).unwrap();
        assert_eq!(seen(used), None);
        let pid = Some(std::process::id());
        for other in [
            FileIds { main: id(9), ..used },
            FileIds { wal: None, ..used },
            FileIds { shm: id(9), ..used },
            FileIds { main: None, wal: None, shm: None },
        ] {
            assert_eq!(seen(other), Some(Obstacle { pid }), "{other:?}");
            assert_eq!(
                obstacle(&directory, Some(owner.id()), &other),
                None,
                "an owner is no obstacle to itself"
            );
        }
        owner.say(None).unwrap();
        assert_eq!(seen(FileIds { main: id(9), ..used }), None, "the owner uses nothing any more");
        owner.say(Some(used)).unwrap();
        drop(owner);
        assert_eq!(seen(FileIds { main: id(9), ..used }), None, "the owner's process is gone");
        fs::remove_dir_all(directory).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_second_copy_in_the_process_differs_from_this_copy_and_from_other_processes() {
        let directory = fresh_directory();
        let owner = Owner::create(&directory).unwrap();
        assert!(!is_second_copy(&directory), "the owner is this copy's");
        // Now the owner looks as if another copy had made it.
        own().get_or_insert_default().remove(&owner.id());
        assert!(is_second_copy(&directory));
        let elsewhere = Record { process: ProcessId { pid: 1, ..ProcessId::own() }, ..Record::own(None) };
        elsewhere.write(&owner.file).unwrap();
        assert!(!is_second_copy(&directory), "the owner is another process's");
        owner.say(None).unwrap();
        drop(owner);
        assert!(!is_second_copy(&directory), "the owner is gone");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn no_sweeper_ever_buries_an_owner_that_was_just_made() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let directory = fresh_directory();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        for (id, handle) in dead(&directory) {
                            bury(&directory, id, handle);
                        }
                    }
                });
            }
            let owners: Vec<Owner> = (0..300).map(|_| Owner::create(&directory).unwrap()).collect();
            let lost = owners.iter().filter(|owner| !owner.is_in_place()).count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(lost, 0);
        });
        fs::remove_dir_all(directory).unwrap();
    }
}
