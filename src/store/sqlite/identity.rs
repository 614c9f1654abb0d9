//! Identifies the files that a store has open, whatever their names lead to.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::file_id::FileId;
pub use super::links::resolve;
use super::{probe, syscalls};

/// The ids of the database, its log and the log's index. If the file system can't share memory, the
/// latter two are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIds {
    pub main: Option<FileId>,
    pub wal: Option<FileId>,
    pub shm: Option<FileId>,
}

impl FileIds {
    /// Returns whether these files still have their names. `named` are the files that the names
    /// lead to now.
    pub fn are_named(&self, named: &Self) -> bool {
        let same = |used: Option<FileId>, named| used.is_none() || used == named;
        self.main == named.main && same(self.wal, named.wal) && same(self.shm, named.shm)
    }
}

fn file_at(name: &CString) -> Option<FileId> {
    rustix::fs::stat(name).ok().map(|found| FileId::of(&found))
}

/// The names of the three files.
#[derive(Clone, Debug)]
pub struct FileNames {
    /// The path as the user wrote it: if it is a link, the link itself may change.
    given: CString,
    /// The path that `given` resolved to. A link may replace the file there later.
    real: CString,
    /// The log and its index, beside the database itself.
    logs: [CString; 2],
}

impl FileNames {
    /// Makes the names of the database at `given`, which resolves to `real`.
    pub fn new(given: &Path, real: &Path) -> io::Result<Self> {
        let name = |path: &Path, end: &str| {
            let mut bytes = path.as_os_str().as_bytes().to_vec();
            bytes.extend_from_slice(end.as_bytes());
            CString::new(bytes).map_err(io::Error::other)
        };
        let logs = [name(real, "-wal")?, name(real, "-shm")?];
        Ok(Self { given: name(given, "")?, real: name(real, "")?, logs })
    }

    /// Returns the files that have the names now.
    pub fn look(&self) -> FileIds {
        let [wal, shm] = &self.logs;
        FileIds { main: self.database(), wal: file_at(wal), shm: file_at(shm) }
    }

    /// Returns the database file; `None` unless both paths lead to it. If the file was moved and a
    /// link was left at its path, other processes use the log and the owners at the new place.
    fn database(&self) -> Option<FileId> {
        let real = rustix::fs::lstat(&self.real).ok().map(|found| FileId::of(&found));
        if self.given == self.real || file_at(&self.given) == real { real } else { None }
    }

    /// Returns whether the name of the database leads to no file.
    pub fn is_database_missing(&self) -> bool {
        matches!(rustix::fs::stat(&self.given), Err(rustix::io::Errno::NOENT))
    }

    /// Returns true if the database was mounted as a single file. Then a process that reaches the
    /// database by another path uses another log and another index. Returns false if the system
    /// does not report such a mount (before Linux 5.8).
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn is_mounted_alone(&self) -> bool {
        use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
        let found = statx(CWD, &self.given, AtFlags::empty(), StatxFlags::empty());
        found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    }

    /// Returns `false`: other systems mount directories only.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub fn is_mounted_alone(&self) -> bool {
        false
    }

    /// Returns how many names the database has, 0 if there is none.
    #[allow(clippy::unnecessary_cast, reason = "the field has other types on other systems")]
    pub fn links(&self) -> u64 {
        rustix::fs::stat(&self.given).map_or(0, |found| found.st_nlink as u64)
    }
}

/// The files of an opened database, and the names that led to them.
#[derive(Clone, Debug)]
pub struct Files {
    names: Arc<FileNames>,
    pub ids: FileIds,
    /// Handles that keep the system from giving the ids to new files after SQLite has closed these
    /// files.
    _pins: Arc<[Pin]>,
}

impl Files {
    /// Returns the files that SQLite has opened for the database at `real` on this thread since
    /// [`prepare`]. SQLite has to have read from the database. Returns `None` if the files were
    /// replaced meanwhile.
    ///
    /// # Errors
    /// If the process can open no more files.
    pub fn opened(names: Arc<FileNames>, real: &Path) -> io::Result<Option<Self>> {
        let Some(ids) = Self::ids_of(&names, real) else { return Ok(None) };
        let mut pins = Vec::new();
        for (end, id) in [("", ids.main), ("-wal", ids.wal), ("-shm", ids.shm)] {
            let Some(id) = id else { continue };
            match Pin::of(&with_end(real, end), id)? {
                Some(pin) => pins.push(pin),
                None => return Ok(None),
            }
        }
        Ok(Some(Self { names, ids, _pins: pins.into() }))
    }

    fn ids_of(names: &FileNames, real: &Path) -> Option<FileIds> {
        let opened = |end: &str| syscalls::opened(&with_end(real, end));
        // SQLite reuses a descriptor that it could not close. Then it opened nothing, and the name
        // led to that file a moment ago.
        let main = opened("").or(names.look().main)?;
        let wal = opened("-wal");
        let mut indexes = INDEXES.lock().unwrap_or_else(PoisonError::into_inner);
        let indexes = indexes.get_or_insert_default();
        if let Some(shm) = opened("-shm") {
            indexes.insert(main, shm);
        }
        let shm = match wal {
            Some(_) => Some(*indexes.get(&main)?),
            None => None,
        };
        Some(FileIds { main: Some(main), wal, shm })
    }

    /// Returns whether the name of the database still leads to it. Costs a third of
    /// [`are_named`](Self::are_named).
    pub fn is_database_named(&self) -> bool {
        self.names.database() == self.ids.main
    }

    /// Returns whether the names still lead to the files.
    pub fn are_named(&self) -> bool {
        self.ids.are_named(&self.names.look())
    }
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// A handle that pins the id of a file: while the handle is open, the system gives the id to no new
/// file. The handle is opened with `O_PATH`, so closing it drops no POSIX lock of this process.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[derive(Debug)]
struct Pin(#[allow(dead_code, reason = "being open is its use")] OwnedFd);

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Pin {
    /// Returns a pin of the file at `path`; `None` if that file does not have the id `id`.
    fn of(path: &Path, id: FileId) -> io::Result<Option<Self>> {
        use rustix::fs::{Mode, OFlags};
        use rustix::io::Errno;

        let handle = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(handle) => handle,
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(error.into()),
            Err(_) => return Ok(None),
        };
        Ok((FileId::of_open(&handle)? == id).then_some(Self(handle)))
    }
}

/// Pins nothing: other systems have no such handles. APFS never reuses an id.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[derive(Debug)]
struct Pin;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Pin {
    fn of(_: &Path, _: FileId) -> io::Result<Option<Self>> {
        Ok(Some(Self))
    }
}

/// Maps each database to the log index that this copy of SQLite has open for it, or had last.
/// SQLite opens the index once for all connections, so only the first connection sees which file it
/// is. Keeps a few bytes for each database that was ever opened.
static INDEXES: Mutex<Option<HashMap<FileId, FileId>>> = Mutex::new(None);

/// Prepares this thread for [`Files::opened`]. Call it before SQLite opens the files of a database.
pub fn prepare() {
    syscalls::install();
    syscalls::forget();
}

/// Returns whether copies of the library in one process exclude each other by locks on files in
/// `directory`.
pub fn copies_exclude_each_other(directory: &Path) -> bool {
    syscalls::install() && probe::locks_belong_to_open_files(directory)
}

/// Returns whether both paths, without links, name the same file, or will when it is created.
/// Returns `false` for a file with several names (hard links), because such a file is refused.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let at = |path: &Path| rustix::fs::lstat(path).ok();
    match (at(one), at(other)) {
        (Some(one), Some(other)) => {
            one.st_nlink == 1 && other.st_nlink == 1 && FileId::of(&one) == FileId::of(&other)
        }
        (None, None) if one.file_name() == other.file_name() => {
            let directory = |path: &Path| at(path.parent()?).map(|found| FileId::of(&found));
            directory(one).is_some_and(|one| directory(other) == Some(one))
        }
        _ => false,
    }
}

/// Returns the device of the file at `path`, or of its directory if the file does not exist yet.
pub fn device_of(path: &Path) -> Option<u64> {
    let path = resolve(path).ok()?;
    let found = rustix::fs::lstat(&path).or_else(|_| rustix::fs::stat(path.parent().unwrap_or(&path)));
    found.ok().map(|found| FileId::of(&found).device)
}
