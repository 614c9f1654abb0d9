use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use super::super::syscalls::tests::hook_open;
use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("leasehold-leftovers %#?-{}", uuid::Uuid::new_v4()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// Makes a lock file, and runs `sql` in it.
    fn database(&self, sql: &str) -> Vec<u8> {
        let path = self.0.join("database");
        let connection = Connection::open(&path).unwrap();
        schema::fill(&connection, "OFF").unwrap();
        connection.execute_batch(sql).unwrap();
        drop(connection);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        bytes
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_new_lock_file_is_written_without_a_journal() {
    let folder = Folder::new();
    super::super::identity::prepare();
    let connection = Connection::open(folder.0.join("database")).unwrap();
    // SQLite opens the file when it is first used.
    schema::is_unused(&connection).unwrap();
    let opened = Rc::new(RefCell::new(Vec::new()));
    let seen = opened.clone();
    hook_open(Some(Box::new(move |path| seen.borrow_mut().push(path.to_owned()))));
    let filled = schema::fill(&connection, "OFF");
    hook_open(None);
    assert!(opened.borrow().is_empty(), "{opened:?}");
    filled.unwrap();
}

#[test]
fn only_an_unused_lock_file_without_files_beside_it_is_an_unfinished_one() {
    let folder = Folder::new();
    let new = folder.0.join("locks.new");
    let is_unfinished = |bytes: &[u8]| {
        fs::write(&new, bytes).unwrap();
        let checked = check_unfinished(&new, bytes.len() as u64);
        assert_eq!(fs::read(&new).unwrap(), bytes);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
        checked.is_ok()
    };
    let complete = folder.database("");
    let mut with_log = complete.clone();
    with_log[18..20].copy_from_slice(&[2, 2]);
    for unfinished in [&[], &*complete, &*with_log] {
        assert!(is_unfinished(unfinished));
    }
    for pages in 1..complete.len() / 4096 {
        assert!(is_unfinished(&complete[..pages * 4096]), "{pages}");
    }
    let given = folder.database("UPDATE fence SET floor = 1");
    let broken = folder.database("INSERT INTO broken VALUES ('k', 1, x'')");
    let lease = folder.database("INSERT INTO leases VALUES ('k', 't', 0, 1, 1, 1, 1, 1, x'', x'', '', NULL)");
    let waiter = folder.database("INSERT INTO waiters VALUES ('k', 1, 't', 0, 1, 1, 1, 1, x'', x'', '')");
    let more = folder.database("CREATE TABLE more (a)");
    let other = folder.database("PRAGMA application_id = 1");
    for used in [&given, &broken, &lease, &waiter, &more, &other] {
        assert!(!is_unfinished(used));
    }
    for other in [&b"my own text"[..], b"SQLite format 3\0", &given[..8192], &other[..4096]] {
        assert!(!is_unfinished(other));
    }
    for end in ["-wal", "-shm", "-journal", ".owners", ".new"] {
        let beside = with_end(&new, end);
        fs::write(&beside, "").unwrap();
        for bytes in [&[], &*complete] {
            fs::write(&new, bytes).unwrap();
            assert!(check_unfinished(&new, bytes.len() as u64).is_err(), "{end}");
        }
        fs::remove_file(beside).unwrap();
    }
}

#[test]
fn an_index_beside_a_database_is_known_by_its_length() {
    let folder = Folder::new();
    let real = folder.0.join("locks");
    let index = with_end(&real, "-shm");
    fs::write(&real, b"a database").unwrap();
    for (length, known) in [(0, true), (3, true), (4, false), (4_096, true), (32_768, true), (40_000, false)]
    {
        fs::write(&index, vec![b'x'; length]).unwrap();
        assert_eq!(check_beside(&real, false).is_ok(), known, "{length}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_beside_an_empty_database_is_refused() {
    for end in ["-journal", "-wal", "-shm"] {
        let folder = Folder::new();
        let real = folder.0.join("locks");
        fs::write(&real, b"").unwrap();
        std::os::unix::fs::symlink("elsewhere", with_end(&real, end)).unwrap();
        assert!(check_beside(&real, false).is_err(), "{end}");
        // SQLite refuses to open it.
        fs::write(&real, b"a database").unwrap();
        assert!(check_beside(&real, false).is_ok(), "{end}");
    }
}

#[test]
fn the_files_of_sqlite_are_known_by_their_first_bytes() {
    let folder = Folder::new();
    let real = folder.0.join("locks");
    let check = |end: &str, bytes: &[u8]| {
        let beside = with_end(&real, end);
        fs::write(&beside, bytes).unwrap();
        let known = check_beside(&real, true).is_ok();
        assert_eq!(fs::read(&beside).unwrap(), bytes);
        fs::remove_file(beside).unwrap();
        known
    };
    for end in ["-journal", "-wal", "-shm"] {
        assert!(check(end, b"") && check(end, &[0; 100]), "{end}");
        assert!(!check(end, b"my own text") && !check(end, &folder.database("")), "{end}");
    }
    let connection = Connection::open(&real).unwrap();
    schema::fill(&connection, "WAL").unwrap();
    for end in ["-wal", "-shm"] {
        let bytes = fs::read(with_end(&real, end)).unwrap();
        assert!(check_beside(&real, true).is_ok() && check_beside(&real, false).is_ok(), "{end}");
        // SQLite may cut an index to 3 bytes.
        let copy = folder.0.join("copy");
        fs::write(with_end(&copy, end), &bytes[..3]).unwrap();
        assert!(check_beside(&copy, true).is_ok(), "{end}");
    }
}
