//! Tests lock files that are damaged, replaced, deleted or not usable.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{Absence, Reply, Request, Store, StoreErrorKind};
use rusqlite::Connection;

use crate::support::*;

const GONE: Reply = Reply::NotHeld(Absence::Missing);

fn with_end(path: &Path, end: &str) -> std::path::PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

#[test]
fn a_missing_directory_is_unreachable_until_it_is_created() {
    let folder = Folder::fresh();
    let path = folder.join("later").join("locks.db");
    let error = refusal(&path);
    assert_eq!(error.kind, StoreErrorKind::Unreachable);
    assert!(error.message.contains("later does not exist; create it, or name another"), "{error}");
    run(async {
        let store = SqliteStore::open(path.clone());
        assert!(attempt(&store, Request::Ping).await.is_err());
        fs::create_dir(path.parent().unwrap()).unwrap();
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
    });
}

#[test]
fn a_file_that_is_no_lock_file_is_refused_and_not_changed() {
    let folder = Folder::fresh();
    let path = folder.db();
    fs::create_dir(&path).unwrap();
    assert_eq!(refusal(&path).kind, StoreErrorKind::Unsupported, "a directory");
    fs::remove_dir(&path).unwrap();

    let letter = "Dear reader, ".repeat(1000);
    fs::write(&path, &letter).unwrap();
    let error = refusal(&path);
    assert_eq!(error.kind, StoreErrorKind::Unsupported, "a text");
    assert!(error.message.contains(path.to_str().unwrap()), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), letter);
    fs::remove_file(&path).unwrap();

    for (what, sql) in [
        ("another program's database", "CREATE TABLE customers (name)"),
        (
            "a newer lock file",
            "PRAGMA application_id = 0x4c53484c; PRAGMA user_version = 99; CREATE TABLE x (y)",
        ),
        (
            "an older lock file",
            "PRAGMA application_id = 0x4c53484c; PRAGMA user_version = 1; CREATE TABLE leases (key)",
        ),
    ] {
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let before = fs::read(&path).unwrap();
        let error = refusal(&path);
        assert_eq!(error.kind, StoreErrorKind::Unsupported, "{what}");
        for age in ["newer", "older"] {
            assert_eq!(error.message.contains(age), what.contains(age), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), before, "{what}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_damaged_file_is_reported_and_the_store_works_after_its_deletion() {
    let folder = Folder::fresh();
    let path = folder.db();
    run(async {
        let store = SqliteStore::open(path.clone());
        granted(&store, "k", Token::random(), 60_000).await;
        store.close().await;
        // The last connection to close a database writes the log into the file and deletes it.
        Connection::open(&path).unwrap().execute_batch("SELECT * FROM leases").unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[100..].fill(0xa5);
        fs::write(&path, bytes).unwrap();
        assert_eq!(refusal_kind(&path).await, StoreErrorKind::Unsupported);
        let store = SqliteStore::open(path.clone());
        assert!(attempt(&store, Request::Ping).await.is_err());
        fs::remove_file(&path).unwrap();
        granted(&store, "k", Token::random(), 60_000).await;
    });
}

async fn refusal_kind(path: &Path) -> StoreErrorKind {
    let store = SqliteStore::open(path.into());
    attempt(&store, acquire("k", Token::random(), 1000)).await.expect_err("refused").kind
}

#[cfg(unix)]
#[test]
fn a_file_or_directory_without_write_permission_is_denied() {
    use crate::child::Process;
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::fresh();
    let closed = folder.join("closed");
    fs::create_dir(&closed).unwrap();
    let path = closed.join("locks.db");
    run(async {
        let store = SqliteStore::open(path.clone());
        ask(&store, Request::Ping).await;
        store.close().await;
    });
    let outcome = |path: &Path| Process::start_without_rights("ping", &folder, path).read_line();
    for (what, file, directory, kind) in [
        ("a file that may only be read", 0o444, 0o777, "Denied"),
        ("a file that may not be read", 0o000, 0o777, "Denied"),
        ("a directory that may not be entered", 0o666, 0o000, "Denied"),
        ("a directory that may not be written", 0o666, 0o555, "Denied"),
    ] {
        fs::set_permissions(&path, fs::Permissions::from_mode(file)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(directory)).unwrap();
        let line = outcome(&path);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(line.starts_with(kind) && line.contains("locks.db"), "{what}: {line}");
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let line = outcome(&closed.join("new.db"));
    assert!(line.starts_with("Denied"), "a new file: {line}");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o777)).unwrap();
}

#[test]
fn a_path_is_used_literally() {
    let folder = Folder::fresh();
    run(async {
        for name in
            ["with space.db", "鍵.db", "100%25.db", "what?mode=memory.db", "#hash.db", "it's.db", ":memory:"]
        {
            let store = SqliteStore::open(folder.join(name));
            granted(&store, "k", Token::random(), 60_000).await;
            assert!(folder.join(name).metadata().unwrap().is_file(), "{name}");
            store.close().await;
        }
    });
}

#[test]
fn leases_of_a_deleted_or_replaced_file_are_missing_and_fences_still_grow() {
    for (how, ends) in [
        ("deleted", &["", "-wal", "-shm"][..]),
        ("deleted but for its log", &[""]),
        ("replaced", &["", "-wal"]),
    ] {
        let folder = Folder::fresh();
        let path = folder.db();
        run(async {
            let (one, other) = (SqliteStore::open(path.clone()), SqliteStore::open(path.clone()));
            let token = Token::random();
            let fence = granted(&one, "k", token, 60_000).await;
            assert!(is_busy(&other, "k").await);
            for end in ends {
                if how == "replaced" {
                    fs::rename(with_end(&path, end), with_end(&path, &format!("{end}.old"))).unwrap();
                } else {
                    fs::remove_file(with_end(&path, end)).unwrap();
                }
            }
            // The rest of the old file's log may cause errors as long as a store still uses it.
            let patience = Instant::now() + Duration::from_secs(5);
            loop {
                match attempt(&one, renew("k", token, 60_000)).await {
                    Ok(reply) => break assert_eq!(reply, GONE, "{how}"),
                    Err(error) => assert!(Instant::now() < patience, "{how}: {error}"),
                }
                let _ = attempt(&other, Request::Ping).await;
            }
            let next = granted(&other, "k", Token::random(), 60_000).await;
            assert!(next > fence, "{how}");
            assert!(is_busy(&one, "k").await, "{how}");
            one.close().await;
            assert!(
                is_busy(&SqliteStore::open(path.clone()), "k").await,
                "{how}: closing one store must not free the lock"
            );
        });
    }
}

#[test]
fn a_deleted_owner_file_frees_no_lease_and_is_created_again() {
    let folder = Folder::fresh();
    let owners = folder.join("locks.db.owners");
    let count = || fs::read_dir(&owners).map_or(0, Iterator::count);
    run(async {
        let (one, other) = (SqliteStore::open(folder.db()), SqliteStore::open(folder.db()));
        let token = Token::random();
        granted(&one, "k", token, 60_000).await;
        fs::remove_dir_all(&owners).unwrap();
        assert!(is_busy(&other, "k").await);
        let start = Instant::now();
        while count() < 2 {
            assert!(start.elapsed() < Duration::from_secs(5), "{} owners", count());
            assert_eq!(ask(&one, renew("k", token, 60_000)).await, Reply::Renewed { block: None });
            assert!(is_busy(&other, "k").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(ask(&one, release("k", token)).await, Reply::Released);
        granted(&other, "k", Token::random(), 60_000).await;
    });
}

#[test]
fn close_ends_while_another_program_locks_the_file() {
    let folder = Folder::fresh();
    run(async {
        let store = SqliteStore::open(folder.db());
        granted(&store, "k", Token::random(), 60_000).await;
        let file = Connection::open(folder.db()).unwrap();
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let start = Instant::now();
        store.close().await;
        assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
        file.execute_batch("ROLLBACK").unwrap();
        // The rows that could not be deleted have an owner whose file no process locks.
        assert!(!is_busy(&SqliteStore::open(folder.db()), "k").await);
    });
}

#[test]
fn the_last_store_to_close_empties_a_long_log_and_deletes_no_file() {
    let folder = Folder::fresh();
    let log = || fs::metadata(with_end(&folder.db(), "-wal")).unwrap().len();
    run(async {
        let (one, other) = (SqliteStore::open(folder.db()), SqliteStore::open(folder.db()));
        ask(&other, Request::Ping).await;
        for _ in 0..100 {
            let token = Token::random();
            granted(&one, "k", token, 60_000).await;
            assert_eq!(ask(&one, release("k", token)).await, Reply::Released);
        }
        one.close().await;
        assert!(log() > 300_000, "another store uses the log: {} bytes", log());
        other.close().await;
        assert_eq!(log(), 0);
        assert!(with_end(&folder.db(), "-shm").is_file());
    });
}

#[test]
fn a_store_that_is_dropped_without_a_close_frees_its_leases() {
    let folder = Folder::fresh();
    run(async {
        let store: Rc<SqliteStore> = SqliteStore::open(folder.db());
        granted(&store, "k", Token::random(), 600_000).await;
        drop(store);
        let other = SqliteStore::open(folder.db());
        let start = Instant::now();
        while is_busy(&other, "k").await {
            assert!(start.elapsed() < Duration::from_secs(5));
            tokio::task::yield_now().await;
        }
    });
}
