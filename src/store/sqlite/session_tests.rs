use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::super::creation;
use super::*;
use crate::lease::{Fence, Key, Token, Ttl};
use crate::store::Request;

/// SQLite's values for NORMAL and FULL.
const USUAL: i32 = 1;
const DURABLE: i32 = 2;

fn synchronous(session: &Session) -> i32 {
    session.opened.connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap()
}

/// Returns a session of a new database, and the directory of the database.
fn new_session() -> (Session, PathBuf) {
    let folder = std::env::temp_dir().join(format!("leasehold-session-{}", Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let (path, deadline) = (folder.join("locks.db"), clock::now() + Duration::from_secs(5));
    let place = FileLocation::of(&path).unwrap();
    creation::create(&path, &place, deadline).unwrap();
    (Session::open(&path, &place, deadline).unwrap().unwrap(), folder)
}

#[test]
fn only_the_commit_of_a_detach_waits_for_the_disk() {
    let (mut session, folder) = new_session();
    assert_eq!(synchronous(&session), USUAL);
    for (durable, expected) in [(true, DURABLE), (false, USUAL)] {
        assert_eq!(session.durably(durable, |session| Ok(synchronous(session))).unwrap(), expected);
        let failed: Result<(), _> = session.durably(durable, |_| Err(SessionError::Moved));
        assert!(matches!(failed, Err(SessionError::Moved)));
        assert_eq!(synchronous(&session), USUAL, "also after an error");
    }
    let (key, token, ttl) = (Key::from("k"), Token::random(), Ttl::MIN);
    let detach = Request::Detach { key: key.clone(), token, ttl, fence: Fence(1), own_ttl: ttl };
    assert!(is_to_outlive(&detach));
    assert!(!is_to_outlive(&Request::Renew { key, token, ttl, fences: 0 }));
    drop(session);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_program_that_reads_the_file_for_a_long_time_delays_no_store_for_a_long_time() {
    let (mut session, folder) = new_session();
    let path = folder.join("locks.db");
    let reader = Connection::open(&path).unwrap();
    let _: i64 = reader
        .execute_batch("BEGIN")
        .and_then(|()| reader.query_row("SELECT count(*) FROM leases", [], |row| row.get(0)))
        .unwrap();
    let mut writer = Connection::open(&path).unwrap();
    let try_again = |_| {
        std::thread::sleep(Duration::from_micros(500));
        true
    };
    writer.busy_handler(Some(try_again)).unwrap();
    // More than twice the longest log that a store allows.
    writer.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(36000000))").unwrap();

    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let others = std::thread::spawn(move || {
        let mut long = Vec::new();
        while stopped.try_recv().is_err() {
            let start = std::time::Instant::now();
            writer.execute_batch("INSERT INTO t VALUES (1)").unwrap();
            long.extend(Some(start.elapsed()).filter(|took| *took > Duration::from_millis(100)));
            std::thread::sleep(Duration::from_millis(1));
        }
        long
    });
    let mut pauses = Vec::new();
    for _ in 0..8 {
        session.opened.patience.store((clock::now() + Duration::from_secs(5)).as_micros(), Ordering::Relaxed);
        session.log.limit(&session.opened.connection);
        pauses.push(session.log.due().since(clock::now()));
    }
    stop.send(()).unwrap();
    let long = others.join().unwrap();
    // Each of the 8 attempts to empty the log takes longer than 100 ms.
    assert!(long.len() < 4, "commits took {long:?}");
    assert!(pauses[0] < Duration::from_millis(100), "{pauses:?}");
    assert!(pauses[7] > Duration::from_secs(1), "{pauses:?}");
    drop(reader);
    session.log.limit(&session.opened.connection);
    let length = || std::fs::metadata(session.opened.path.with_file_name("locks.db-wal")).unwrap().len();
    let long = length();
    let used =
        || session.opened.connection.query_row(schema::START_AGAIN, [], |row| row.get::<_, i64>(1)).unwrap();
    session.opened.connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!((used(), length()), (1, long), "pages in the log, and its length");
    assert!(session.log.due().since(clock::now()) < Duration::from_millis(100));
    drop(session);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_file_with_objects_that_leasehold_did_not_make_is_refused_and_no_trigger_fires() {
    for sql in [
        "CREATE TRIGGER t AFTER INSERT ON leases BEGIN DELETE FROM leases; END",
        "CREATE VIEW v AS SELECT * FROM leases",
        "CREATE TABLE other (x)",
        "CREATE UNIQUE INDEX i ON leases (key)",
        "DROP INDEX handed",
        "DROP TABLE broken; CREATE TABLE broken (key, until, boot)",
    ] {
        let (session, folder) = new_session();
        let path = folder.join("locks.db");
        let is_on = |config| session.opened.connection.db_config(config).unwrap();
        assert!(
            !is_on(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER) && !is_on(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW)
        );
        drop(session);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let place = FileLocation::of(&path).unwrap();
        let opened = Session::open(&path, &place, clock::now() + Duration::from_secs(5));
        let Err(SessionError::Broken(error)) = opened else { panic!("{sql}: {opened:?}") };
        assert_eq!(error.kind, StoreErrorKind::Unsupported, "{sql}");
        assert!(error.message.contains("did not make"), "{error}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
