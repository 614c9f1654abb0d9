//! Replaces two system calls that this copy of SQLite makes.
//!
//! - `fcntl`: POSIX record locks belong to the process. Another SQLite in the process would share
//!   them unknowingly. Closing any descriptor of a file, as `fs.cpSync()` does, drops all of them.
//!   Locks of the *open file* have neither problem. If the system has none, `fcntl` takes the usual
//!   locks; [`super::probe`] finds out.
//! - `open`: records which files SQLite has opened, because their names may lead elsewhere a moment
//!   later. Refuses a journal, a log or an index that another user may have planted (`trust`).

use std::cell::RefCell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rusqlite::ffi;
use rustix::fs::OFlags;

use super::file_id::FileId;
use super::trust;

unsafe extern "C" {
    fn leasehold_fcntl(fd: c_int, operation: c_int, ...) -> c_int;
    fn leasehold_refuse();
}

type Call = unsafe extern "C" fn();
type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;

/// SQLite's original `open`.
static OPEN: OnceLock<Open> = OnceLock::new();

thread_local! {
    static OPENED: RefCell<Vec<(PathBuf, FileId)>> = const { RefCell::new(Vec::new()) };
}

/// Replaces the calls, once for this copy of SQLite. Call it before SQLite opens its first file.
/// Returns whether the calls are replaced.
pub fn install() -> bool {
    static REPLACED: OnceLock<bool> = OnceLock::new();
    *REPLACED.get_or_init(|| replace().unwrap_or(false))
}

fn replace() -> Option<bool> {
    // SAFETY: the default VFS is a static of SQLite's, which this call also initialises.
    let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()).as_mut() }?;
    // SAFETY: SQLite's Unix VFS knows the name, and only compares it.
    let own = unsafe { vfs.xGetSystemCall?(vfs, c"open".as_ptr()) }?;
    // SAFETY: SQLite declares its `open` with this signature (`posixOpen` in os_unix.c). It is
    // never NULL.
    let own = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Open>(own) };
    // Set it first: the replacement calls it.
    OPEN.get_or_init(|| own);
    // SAFETY: SQLite calls the pointer with the signature that the function has.
    let fcntl = unsafe {
        std::mem::transmute::<unsafe extern "C" fn(c_int, c_int, ...) -> c_int, Call>(leasehold_fcntl)
    };
    // SAFETY: the same.
    let open = unsafe { std::mem::transmute::<Open, Call>(open) };
    // SQLite has no file open yet, so it holds no lock that the new `fcntl` would not find.
    Some(replace_all(vfs, &[(c"fcntl", fcntl), (c"open", open)]))
}

/// Replaces all calls, or none if SQLite does not know one of them. Each replacement must have the
/// signature of its call.
fn replace_all(vfs: &mut ffi::sqlite3_vfs, calls: &[(&CStr, Call)]) -> bool {
    let Some(set) = vfs.xSetSystemCall else { return false };
    // SAFETY: SQLite only compares the name. The replacements live as long as the program.
    let mut set = |name: &CStr, call| unsafe { set(vfs, name.as_ptr(), call) } == ffi::SQLITE_OK;
    for (index, (name, call)) in calls.iter().enumerate() {
        if !set(name, Some(*call)) {
            for (name, _) in &calls[..index] {
                // NULL stands for SQLite's own call.
                set(name, None);
            }
            return false;
        }
    }
    true
}

/// Calls SQLite's `open`, and records which file was opened. Fails with `EACCES` if the file beside
/// the database is not to be trusted.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // Set before SQLite gets this function.
    let Some(own) = OPEN.get() else { return -1 };
    #[cfg(test)]
    tests::before_open(path);
    // SAFETY: SQLite's paths end with a NUL.
    let name = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    let database = trust::database_of(name);
    // Another user's link may lead to a file of this user that another database or a stranger
    // wrote. To open another user's FIFO without O_NONBLOCK would block this thread.
    let careful = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();
    let more = if database.is_some() { careful } else { 0 };
    // SAFETY: the arguments are SQLite's.
    let fd = unsafe { own(path, flags | more, mode) };
    if fd >= 0 {
        // SAFETY: the descriptor was just opened. It belongs to SQLite, which does not close it
        // meanwhile.
        let found = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) });
        if let Some(database) = database {
            let is_open = trust::is_in_open_directory(database);
            let database = rustix::fs::stat(database).ok();
            if !found.as_ref().is_ok_and(|found| trust::is_usable_beside(found, database.as_ref(), is_open)) {
                // SAFETY: SQLite does not learn of this descriptor. Nobody has locks on the file.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
                // SAFETY: the function only sets the thread's error number.
                unsafe { leasehold_refuse() };
                return -1;
            }
        }
        if let Ok(found) = found {
            let path = name.to_path_buf();
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

#[cfg(test)]
pub mod tests {
    use rustix::io::Errno;

    use super::*;

    type Hook = Box<dyn FnMut(&Path)>;

    thread_local! {
        static BEFORE_OPEN: RefCell<Option<Hook>> = const { RefCell::new(None) };
    }

    /// Calls `hook` before each `open` that SQLite makes on this thread.
    pub fn hook_open(hook: Option<Hook>) {
        BEFORE_OPEN.set(hook);
    }

    pub fn before_open(path: *const c_char) {
        // While the hook runs, it is not called again.
        let Some(mut hook) = BEFORE_OPEN.take() else { return };
        // SAFETY: SQLite's paths end with a NUL.
        hook(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())));
        BEFORE_OPEN.set(Some(hook));
    }

    unsafe extern "C" {
        fn leasehold_has_no_such_lock(error: c_int) -> c_int;
    }

    unsafe extern "C" fn nobody() -> u32 {
        65534
    }

    #[test]
    fn a_file_system_that_refuses_locks_of_open_files_gets_the_usual_ones() {
        for (error, expected) in [
            (Errno::INVAL, 1),
            (Errno::NOTSUP, 1),
            (Errno::OPNOTSUPP, 1),
            (Errno::AGAIN, 0),
            (Errno::INTR, 0),
            (Errno::NOLCK, 0),
        ] {
            // SAFETY: the function only compares.
            assert_eq!(unsafe { leasehold_has_no_such_lock(error.raw_os_error()) }, expected, "{error:?}");
        }
    }

    #[test]
    fn no_call_stays_replaced_if_another_can_not_be() {
        // SAFETY: the default VFS is a static of SQLite's.
        let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()).as_mut() }.unwrap();
        let get = vfs.xGetSystemCall.unwrap();
        // SAFETY: SQLite only compares the name.
        let current = |vfs: &mut _| unsafe { get(vfs, c"geteuid".as_ptr()) }.map(|call| call as usize);
        let before = current(vfs);
        // SAFETY: the function has the signature of `geteuid`, the only call that it replaces.
        let call = unsafe { std::mem::transmute::<unsafe extern "C" fn() -> u32, Call>(nobody) };
        assert!(!replace_all(vfs, &[(c"geteuid", call), (c"no such call", call)]));
        assert_eq!(current(vfs), before);
        assert!(before.is_some());
    }
}
