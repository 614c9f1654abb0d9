//! Finds out whether locks of the open file work on the file system of the lock file.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Mutex;

use uuid::Uuid;

use super::file_id::FileId;

unsafe extern "C" {
    fn leasehold_lock_open_file(fd: c_int) -> c_int;
}

/// Returns whether a lock that SQLite takes in `directory` belongs to the open file and not to the
/// process. Probes each file system once.
pub fn locks_belong_to_open_files(directory: &Path) -> bool {
    static KNOWN: Mutex<Option<HashMap<u64, bool>>> = Mutex::new(None);
    let Ok(found) = rustix::fs::stat(directory) else { return false };
    let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    known_or(known.get_or_insert_default(), FileId::of(&found).device, || try_out(directory))
}

/// Returns the answer for `device`, and asks only if it is not known. After an error, returns false
/// and remembers nothing, so the next call asks again: the process may have too few descriptors at
/// the moment.
fn known_or(known: &mut HashMap<u64, bool>, device: u64, ask: impl FnOnce() -> io::Result<bool>) -> bool {
    if let Some(answer) = known.get(&device) {
        return *answer;
    }
    match ask() {
        Ok(answer) => *known.entry(device).or_insert(answer),
        Err(_) => false,
    }
}

/// Locks a file by one descriptor, and returns whether a second descriptor is refused, also after a
/// third one was closed.
fn try_out(directory: &Path) -> io::Result<bool> {
    // The name is not an id alone, so that no process takes the file for an owner's.
    let path = directory.join(format!("probe-{}", Uuid::new_v4()));
    let first = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    let (second, third) = (reopen(&path), reopen(&path));
    let _ = fs::remove_file(&path);
    let (second, third) = (second?, third?);
    let got = lock(&first)? == ProbeResult::Taken && lock(&second)? == ProbeResult::Refused;
    drop(third);
    Ok(got && lock(&second)? == ProbeResult::Refused)
}

fn reopen(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The result of an attempt to lock an open file.
#[derive(Debug, PartialEq, Eq)]
enum ProbeResult {
    Taken,
    /// Another open file has the lock.
    Refused,
    /// The system has no such locks.
    Unknown,
}

fn lock(file: &File) -> io::Result<ProbeResult> {
    // SAFETY: the descriptor is open as long as `file`.
    match unsafe { leasehold_lock_open_file(file.as_raw_fd()) } {
        0 => Ok(ProbeResult::Taken),
        1 => Ok(ProbeResult::Refused),
        -1 => Ok(ProbeResult::Unknown),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_are_remembered() {
        let known = &mut HashMap::new();
        assert!(!known_or(known, 1, || Err(io::ErrorKind::StorageFull.into())));
        assert!(known_or(known, 1, || Ok(true)), "after an error it asks again");
        assert!(known_or(known, 1, || unreachable!("known by now")));
        assert!(!known_or(known, 2, || Ok(false)));
        assert!(!known_or(known, 2, || unreachable!("known by now")));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_has_locks_of_open_files_and_the_probe_leaves_no_file_behind() {
        let directory = std::env::temp_dir().join(format!("leasehold-probe-{}", Uuid::new_v4()));
        fs::create_dir(&directory).unwrap();
        assert!(try_out(&directory).unwrap());
        assert!(locks_belong_to_open_files(&directory));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir(directory).unwrap();
    }
}
