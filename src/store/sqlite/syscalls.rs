//! Replaces two system calls that this copy of SQLite makes.
//!
//! - `fcntl`: POSIX record locks belong to the process. Another SQLite in the process would share
//!   them unknowingly. Closing any descriptor of a file, as `fs.cpSync()` does, drops all of them.
//!   Locks of the *open file* have neither problem. If the system has none, `fcntl` takes the usual
//!   locks; [`super::probe`] finds out.
//! - `open`: records which files SQLite has opened, because their names may lead elsewhere a moment
//!   later.

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rusqlite::ffi;

use super::identity::FileId;

unsafe extern "C" {
    fn leasehold_fcntl(fd: c_int, operation: c_int, ...) -> c_int;
}

type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;

/// SQLite's original `open`; `None` if the calls could not be replaced.
static OPEN: OnceLock<Option<Open>> = OnceLock::new();

thread_local! {
    static OPENED: RefCell<Vec<(PathBuf, FileId)>> = const { RefCell::new(Vec::new()) };
}

/// Replaces the calls, once for this copy of SQLite. Call it before SQLite opens its first file.
/// Returns whether the calls are replaced.
pub fn install() -> bool {
    OPEN.get_or_init(replace).is_some()
}

fn replace() -> Option<Open> {
    // SAFETY: the default VFS is a static of SQLite's, which this call also initialises.
    let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()).as_mut() }?;
    let (get, set) = (vfs.xGetSystemCall?, vfs.xSetSystemCall?);
    // SAFETY: SQLite's Unix VFS knows both names, and only compares them.
    let own = unsafe { get(vfs, c"open".as_ptr()) }?;
    // SAFETY: SQLite declares its `open` with this signature (`posixOpen` in os_unix.c). It is
    // never NULL.
    let own = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Open>(own) };
    let replaced = [
        // SAFETY: SQLite calls the pointer with the signature that the function has.
        (c"fcntl", unsafe {
            std::mem::transmute::<unsafe extern "C" fn(c_int, c_int, ...) -> c_int, unsafe extern "C" fn()>(
                leasehold_fcntl,
            )
        }),
        // SAFETY: the same.
        (c"open", unsafe { std::mem::transmute::<Open, unsafe extern "C" fn()>(open) }),
    ]
    // SAFETY: the replacements live as long as the program.
    .map(|(name, call)| unsafe { set(vfs, name.as_ptr(), Some(call)) } == ffi::SQLITE_OK);
    // SQLite has no file open yet, so it holds no lock that the new `fcntl` would not find.
    (replaced == [true, true]).then_some(own)
}

/// Calls SQLite's `open`, and records which file was opened.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let Some(Some(own)) = OPEN.get() else { return -1 };
    // SAFETY: the arguments are SQLite's.
    let fd = unsafe { own(path, flags, mode) };
    if fd >= 0 {
        // SAFETY: the descriptor was just opened. It belongs to SQLite, which does not close it
        // meanwhile.
        let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) });
        // SAFETY: SQLite's paths end with a NUL.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())).to_path_buf();
        if let Ok(found) = found {
            // When a thread ends, its list of opened files may be gone already.
            let _ = OPENED.try_with(|opened| {
                let mut opened = opened.borrow_mut();
                // SQLite opens a rollback journal again and again.
                opened.retain(|(known, _)| *known != path);
                opened.push((path, FileId::of(&found)));
            });
        }
    }
    fd
}

/// Forgets the files that were opened on this thread so far.
pub fn forget() {
    OPENED.with_borrow_mut(Vec::clear);
}

/// Returns the file that SQLite opened last by that path on this thread since [`forget`]; `None` if
/// it opened none.
pub fn opened(path: &Path) -> Option<FileId> {
    OPENED.with_borrow(|opened| opened.iter().find(|(known, _)| known == path).map(|(_, identity)| *identity))
}
