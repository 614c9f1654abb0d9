//! How processes tell which of them still live: by the files that their owners keep locked, all in
//! one directory.
//!
//! An unlocked file frees leases, so it has to be the very file that its process had locked. If
//! somebody copies the directory and moves the copy into its place, all files in it are unlocked
//! while their processes live. So a file counts as a dead owner's only if its record names that
//! file. Any other unlocked file is a *stray*. It says no more than a missing one: the leases that
//! name it end by their time.

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
use super::record::{ProcessId, Record, Said};

/// How many files of dead owners to keep open at once. If this is larger, many dead owners may take
/// all descriptors of the process; if it is smaller, it takes more transactions to free what they
/// had.
const MOST_DEAD: usize = 128;

/// How old a stray has to be before a store deletes it. No lease depends on a stray, so this only
/// leaves people the time to see what they have copied. If this is larger, strays pile up for
/// longer.
const STRAY_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// What another owner's file tells.
#[derive(Debug)]
pub enum Liveness {
    /// It is locked.
    Alive(File),
    /// It is not, so its process is gone. While the handle is kept, nobody can take the file for their own.
    Dead(File),
    /// It is not, but it is not the file that its record names, or it has no valid record. See the
    /// module.
    #[cfg_attr(not(unix), allow(dead_code, reason = "files have no record there"))]
    Stray(File),
    /// It is missing (a tidier may have deleted it), or it is no regular file and so no owner's.
    Missing,
    /// It is there, but can't be opened or locked.
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

/// What a look at all other owners found.
#[derive(Debug, Default)]
pub struct Survey {
    /// The first obstacle; the look ended there.
    pub obstacle: Option<Obstacle>,
    /// Owners whose processes are gone, at most [`MOST_DEAD`].
    pub dead: Vec<(Uuid, File)>,
}

/// Returns the ids that regular files in `directory` are named after; none if there is no directory.
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
        // The directory mostly tells the kind of a file without another system call.
        if let Some(id) = id
            && entry.file_type().map_or(true, |kind| kind.is_file())
        {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// Opens the file at `path`; `None` if there is none that can be an owner's. Never blocks, whatever has that name.
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
        // Each kind of file that can't be opened has an error of its own.
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
    // Shared, so that two who look at once do not take each other for the owner.
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
    // Nobody has locked the file, so nobody writes into it.
    matches!(Record::read_once(file), Said::Record(record) if record.is_of(file))
}

/// Returns `true`: on these systems other processes can't copy a locked file.
#[cfg(not(unix))]
fn is_original(_: &File) -> bool {
    true
}

/// Returns the boots that live owners in `directory` know; none if the directory can't be read.
#[cfg(unix)]
pub fn boots(directory: &Path) -> Vec<Uuid> {
    let boot_of = |id| match liveness(directory, id) {
        Liveness::Alive(file) => match Record::read(&file) {
            Said::Record(record) => Some(record.boot),
            Said::Nothing | Said::Garbled => None,
        },
        _ => None,
    };
    ids(directory).unwrap_or_default().into_iter().filter_map(boot_of).collect()
}

/// Returns nothing: on these systems no boot has an id.
#[cfg(not(unix))]
pub fn boots(_: &Path) -> Vec<Uuid> {
    Vec::new()
}

/// Takes the file of a dead owner away, once nothing names it any more.
pub fn bury(directory: &Path, id: Uuid, handle: File) {
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

/// Returns whether nobody has written into `file` for longer than `age`.
fn is_older(file: &File, age: Duration) -> bool {
    let modified = file.metadata().and_then(|found| found.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed > age))
}

/// Looks at all owners in `directory` other than `except`, up to the first that uses files other
/// than `named` or may do so. `kernel` is the one that uses the file system.
///
/// # Errors
/// If the directory can't be read.
pub fn survey(
    directory: &Path,
    except: Option<Uuid>,
    named: &FileIds,
    kernel: &Kernel,
) -> io::Result<Survey> {
    let mut survey = Survey::default();
    for id in ids(directory)?.into_iter().filter(|id| Some(*id) != except) {
        match liveness(directory, id) {
            Liveness::Dead(handle) => {
                if survey.dead.len() < MOST_DEAD {
                    survey.dead.push((id, handle));
                }
            }
            other => survey.obstacle = obstacle(&file_of(directory, id), other, named, kernel),
        }
        if survey.obstacle.is_some() {
            break;
        }
    }
    Ok(survey)
}

/// Returns how an owner is in the way of a store that uses `named`, if it is. Its file at `path` was
/// `found` so. The store learns from it how processes name this boot.
#[cfg(unix)]
fn obstacle(path: &Path, found: Liveness, named: &FileIds, kernel: &Kernel) -> Option<Obstacle> {
    let unreadable = |why| Some(Obstacle::Unreadable { file: path.into(), why });
    match found {
        Liveness::Missing | Liveness::Stray(_) | Liveness::Dead(_) => None,
        // Its process may be alive.
        Liveness::Unreadable(error) => unreadable(error.to_string()),
        Liveness::Alive(file) => match Record::read(&file) {
            // File ids of another kernel can't be compared.
            Said::Record(Record { process, boot: its, files: Some(files), .. }) => {
                kernel.learn(its);
                let differs = kernel.may_have(its) && !files.are_named(named);
                differs.then_some(Obstacle::OtherFiles { pid: process.pid })
            }
            Said::Record(_) | Said::Nothing => None,
            Said::Garbled => unreadable("it has no valid record".into()),
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
            Said::Record(record) if record.process == process && record.boot == boot
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
