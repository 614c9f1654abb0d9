//! Which files a store really uses, whatever their names lead to.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use rustix::fs::Stat;

use super::{probe, syscalls};

/// A file of this machine.
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
}

/// The database, its log and the log's index. Without the latter two where the file system can't share memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIds {
    pub main: Option<FileId>,
    pub wal: Option<FileId>,
    pub shm: Option<FileId>,
}

impl FileIds {
    /// Returns whether these files still have their names, which lead to the files `named` now.
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
    /// As the user wrote it: should it be a link, the link may be changed.
    given: CString,
    /// Beside the database itself.
    logs: [CString; 2],
}

impl FileNames {
    /// The names of the database at `given`, which really lies at `real`.
    pub fn new(given: &Path, real: &Path) -> io::Result<Self> {
        let name = |path: &Path, end: &str| {
            let mut bytes = path.as_os_str().as_bytes().to_vec();
            bytes.extend_from_slice(end.as_bytes());
            CString::new(bytes).map_err(io::Error::other)
        };
        Ok(Self { given: name(given, "")?, logs: [name(real, "-wal")?, name(real, "-shm")?] })
    }

    /// Returns the files that have the names now.
    pub fn look(&self) -> FileIds {
        let [wal, shm] = &self.logs;
        FileIds { main: self.database(), wal: file_at(wal), shm: file_at(shm) }
    }

    fn database(&self) -> Option<FileId> {
        file_at(&self.given)
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
}

impl Files {
    /// Tells which files SQLite has opened for the database at `real` on this thread since [`prepare`]. It has read from it.
    /// `None` if that can't be told, because it was exchanged meanwhile.
    pub fn opened(names: Arc<FileNames>, real: &Path) -> Option<Self> {
        let opened = |end: &str| {
            let mut path = real.as_os_str().to_owned();
            path.push(end);
            syscalls::opened(&PathBuf::from(path))
        };
        // SQLite uses a descriptor again that it could not close; then the name led to that file a moment ago.
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
        Some(Self { names, ids: FileIds { main: Some(main), wal, shm } })
    }

    /// Returns whether the name of the database still leads to it: a third of the whole question.
    pub fn is_database_named(&self) -> bool {
        self.names.database() == self.ids.main
    }

    /// Returns whether the names still lead to the files.
    pub fn are_named(&self) -> bool {
        self.ids.are_named(&self.names.look())
    }
}

/// The index of the log that this copy of SQLite has open for a database, or had last. It opens that once for all connections,
/// so that only the first of them sees which file it is. A few bytes for each database that was ever opened.
static INDEXES: Mutex<Option<FxHashMap<FileId, FileId>>> = Mutex::new(None);

/// Has to be called before SQLite opens the files of a database.
pub fn prepare() {
    syscalls::install();
    syscalls::forget();
}

/// Returns whether copies of the library in one process exclude each other by the locks of files in `directory`.
pub fn copies_exclude_each_other(directory: &Path) -> bool {
    syscalls::install() && probe::locks_belong_to_open_files(directory)
}

/// Returns whether both paths lead to one file that is there. One of several names (hard links) is not: such a file is refused.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| rustix::fs::stat(path).ok().filter(|found| found.st_nlink == 1);
    match (found(one), found(other)) {
        (Some(one), Some(other)) => FileId::of(&one) == FileId::of(&other),
        _ => false,
    }
}

/// Returns where the database at `path` really lies: all links are followed, also one that leads nowhere yet.
pub fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    // As many as the system follows.
    for _ in 0..40 {
        if let Ok(real) = dunce::canonicalize(&path) {
            return real;
        }
        let directory = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        match std::fs::read_link(&path) {
            Ok(target) => path = directory.join(target),
            Err(_) => {
                let Some(name) = path.file_name() else { break };
                return dunce::canonicalize(&directory).unwrap_or(directory).join(name);
            }
        }
    }
    path
}
