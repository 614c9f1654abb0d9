//! Finds out which processes still live, by the files that their owners keep locked in one
//! directory.
//!
//! An unlocked file frees leases, so it has to be the same file that its process had locked. If an
//! operator copies the directory and puts the copy in its place, all files in it are unlocked while
//! their processes live. So a file counts as a dead owner's only if its record names that file. Any
//! other unlocked file is a *stray*. A stray counts like a missing file: the leases that name it
//! end by their ttl.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::boot;
use super::identity::FileIds;
use super::kernel::Kernel;
use super::owner::file_of;
#[cfg(unix)]
use super::owner::is_own;
#[cfg(unix)]
use super::record::{ProcessId, Record, RecordContent};

/// The most files of dead owners to keep open at once. If this is larger, many dead owners may use
/// up the descriptors of the process. If it is smaller, it takes more transactions to free their
/// leases.
const MOST_DEAD: usize = 128;

/// The age, since its last change, at which a store deletes a stray. No lease depends on a stray.
/// If this is smaller, operators have less time to see what they have copied. If it is larger, more
/// strays pile up.
const STRAY_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// What another owner's file tells about its process.
#[derive(Debug)]
pub enum Liveness {
    /// The file is locked.
    Alive(File),
    /// The file is unlocked, so its process is gone. While the handle is open, no process can lock
    /// the file for itself.
    Dead(File),
    /// The file is unlocked, but its record names another file or is invalid. See the module.
    #[cfg_attr(not(unix), allow(dead_code, reason = "files have no record there"))]
    Stray(File),
    /// The file is missing (a cleanup program may have deleted it), or it is not a regular file.
    Missing,
    /// The file exists, but can't be opened or locked.
    Unreadable(io::Error),
}

/// An owner that keeps a store from using its files.
#[derive(Debug, PartialEq, Eq)]
#[cfg_attr(not(unix), allow(dead_code, reason = "an open file can't be replaced there"))]
pub enum Obstacle {
    /// The process is alive and uses other files.
    OtherFiles { pid: u32 },
    /// The owner's file can't be read, so its process may use other files.
    Unreadable { file: PathBuf, why: String },
}

/// The result of [`scan`].
#[derive(Debug, Default)]
pub struct OwnerScan {
    /// The first obstacle, at which the scan ended.
    pub obstacle: Option<Obstacle>,
    /// Owners whose processes are gone, at most [`MOST_DEAD`].
    pub dead: Vec<(Uuid, File)>,
}

/// Returns the ids that are names of regular files in `directory`; none if it does not exist.
fn ids(directory: &Path) -> io::Result<Vec<Uuid>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut ids = Vec::new();
    for entry in entries {
        let entry = entry?;
        let id = entry.file_name().to_str().and_then(|name| Uuid::try_parse(name).ok());
        // Most file systems tell the type of a file here without another system call.
        if let Some(id) = id
            && entry.file_type().map_or(true, |kind| kind.is_file())
        {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// Opens the file at `path`. Returns `None` if there is no regular file. Never blocks, not even at
/// a FIFO.
fn open(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;

        use rustix::fs::OFlags;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits().cast_signed());
    }
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        // The error depends on the type of the file, so ask for the type.
        Err(error) => match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => Ok(None),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(None),
            _ => Err(error),
        },
    }
}

/// Returns whether the process of owner `id` lives.
pub fn liveness(directory: &Path, id: Uuid) -> Liveness {
    let file = match open(&file_of(directory, id)) {
        Ok(Some(file)) => file,
        Ok(None) => return Liveness::Missing,
        Err(error) => return Liveness::Unreadable(error),
    };
    // Shared, so that two processes that look at once do not take each other for the owner.
    match file.try_lock_shared() {
        Ok(()) if is_original(&file) => Liveness::Dead(file),
        Ok(()) => Liveness::Stray(file),
        Err(TryLockError::WouldBlock) => Liveness::Alive(file),
        Err(TryLockError::Error(error)) => Liveness::Unreadable(error),
    }
}

/// Returns whether the record in `file` names that file.
#[cfg(unix)]
fn is_original(file: &File) -> bool {
    // The file is unlocked, so no store writes into it.
    matches!(Record::read_once(file), RecordContent::Record(record) if record.is_of(file))
}

/// Returns `true`: on these systems other processes can't copy a locked file.
#[cfg(not(unix))]
fn is_original(_: &File) -> bool {
    true
}

/// Deletes the file of a dead owner. Call it when no row names the owner any more.
pub fn remove_dead_owner(directory: &Path, id: Uuid, handle: File) {
    let _ = fs::remove_file(file_of(directory, id));
    drop(handle);
}

/// Returns owners in `directory` whose processes are gone, at most [`MOST_DEAD`].
pub fn dead(directory: &Path) -> Vec<(Uuid, File)> {
    let ids = ids(directory).unwrap_or_default().into_iter();
    let dead = ids.filter_map(|id| match liveness(directory, id) {
        Liveness::Dead(handle) => Some((id, handle)),
        _ => None,
    });
    dead.take(MOST_DEAD).collect()
}

/// Deletes old strays in `directory`, and returns the same as [`dead`].
pub fn sweep(directory: &Path) -> Vec<(Uuid, File)> {
    let mut dead = Vec::new();
    for id in ids(directory).unwrap_or_default() {
        match liveness(directory, id) {
            Liveness::Dead(handle) if dead.len() < MOST_DEAD => dead.push((id, handle)),
            Liveness::Stray(file) if is_older(&file, STRAY_LIFE) => {
                let _ = fs::remove_file(file_of(directory, id));
            }
            _ => {}
        }
    }
    dead
}

/// Returns whether the last write into `file` was longer than `age` ago.
fn is_older(file: &File, age: Duration) -> bool {
    let modified = file.metadata().and_then(|found| found.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// Looks at all owners in `directory` except `except`. Stops at the first one that uses, or may
/// use, files other than `named`. `kernel` tells which owners may run on this kernel.
///
/// # Errors
/// If the directory can't be read.
pub fn scan(
    directory: &Path,
    except: Option<Uuid>,
    named: &FileIds,
    kernel: &Kernel,
) -> io::Result<OwnerScan> {
    let mut scan = OwnerScan::default();
    for id in ids(directory)?.into_iter().filter(|id| Some(*id) != except) {
        match liveness(directory, id) {
            Liveness::Dead(handle) => {
                if scan.dead.len() < MOST_DEAD {
                    scan.dead.push((id, handle));
                }
            }
            other => scan.obstacle = obstacle(&file_of(directory, id), other, named, kernel),
        }
        if scan.obstacle.is_some() {
            break;
        }
    }
    Ok(scan)
}

/// Returns how an owner keeps a store that uses `named` from its files; `None` if it does not.
/// `found` is the liveness of the owner, whose file is at `path`.
#[cfg(unix)]
fn obstacle(path: &Path, found: Liveness, named: &FileIds, kernel: &Kernel) -> Option<Obstacle> {
    let unreadable = |why| Some(Obstacle::Unreadable { file: path.into(), why });
    match found {
        Liveness::Missing | Liveness::Stray(_) | Liveness::Dead(_) => None,
        // Its process may be alive.
        Liveness::Unreadable(error) => unreadable(error.to_string()),
        Liveness::Alive(file) => match Record::read(&file) {
            // File ids of another kernel can't be compared.
            RecordContent::Record(Record { process, boot: its, files: Some(files), .. }) => {
                let differs = kernel.may_have(its) && !files.are_named(named);
                differs.then_some(Obstacle::OtherFiles { pid: process.pid })
            }
            RecordContent::Record(_) | RecordContent::Nothing => None,
            RecordContent::Garbled => unreadable("it has no valid record".into()),
        },
    }
}

/// Returns `None`: on these systems an open file can't be replaced.
#[cfg(not(unix))]
fn obstacle(_: &Path, _: Liveness, _: &FileIds, _: &Kernel) -> Option<Obstacle> {
    None
}

/// Returns whether another copy of the library in this process has an open store whose owner is in
/// `directory`.
///
/// # Errors
/// If the directory can't be read.
#[cfg(unix)]
pub fn is_second_copy(directory: &Path) -> io::Result<bool> {
    let (process, boot) = (ProcessId::own(), boot::id());
    let is_foreign = |id| match liveness(directory, id) {
        Liveness::Alive(file) => matches!(
            Record::read(&file),
            RecordContent::Record(record) if record.process == process && record.boot == boot
        ),
        _ => false,
    };
    Ok(ids(directory)?.into_iter().any(|id| !is_own(id) && is_foreign(id)))
}

/// Returns `false`: on these systems file locks keep the copies apart.
#[cfg(not(unix))]
pub fn is_second_copy(_: &Path) -> io::Result<bool> {
    Ok(false)
}

/// Returns whether there may be live owners in `directory` other than `own`.
pub fn has_others(directory: &Path, own: Uuid) -> bool {
    let is_other = |id: Uuid| {
        id != own && matches!(liveness(directory, id), Liveness::Alive(_) | Liveness::Unreadable(_))
    };
    ids(directory).map_or(true, |ids| ids.into_iter().any(is_other))
}

#[cfg(test)]
#[path = "owners_tests.rs"]
mod tests;
