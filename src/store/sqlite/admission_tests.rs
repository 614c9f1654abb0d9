//! Tests what the checks of a store do when its owner's file is moved, deleted or changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use tokio::sync::oneshot;

use super::super::super::{AcquireRequest, Answer, Reply, Request};
use super::super::job::{Job, JobClaim};
use super::super::owner::file_of;
use super::super::owners::{Liveness, liveness};
use super::super::record::{Record, RecordContent};
use super::super::syscalls::tests::hook_open;
use super::*;
use crate::lease::{Token, Ttl};

/// A store in a directory of its own. The test itself runs the checks of the store.
struct Setup {
    file_thread: FileThread,
    folder: PathBuf,
    owners: PathBuf,
}

impl Setup {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("leasehold-admission-{}", Token::random()));
        fs::create_dir(&folder).unwrap();
        let (notices, _) = tokio::sync::mpsc::unbounded_channel();
        let (path, owners) = (folder.join("locks.db"), folder.join("locks.db.owners"));
        Self { file_thread: FileThread::new(path, notices), folder, owners }
    }

    fn ask(&mut self, request: Request) -> Answer {
        let (answers, mut receiver) = oneshot::channel();
        let deadline = clock::now() + Duration::from_secs(5);
        self.file_thread.work(vec![Job {
            batch: vec![request],
            deadline,
            claim: JobClaim::default(),
            answers,
        }]);
        receiver.try_recv().unwrap().pop().unwrap()
    }

    fn acquire(&mut self) {
        let ttl = Ttl::from_millis(60_000).unwrap();
        let reply =
            self.ask(Request::Acquire(AcquireRequest::new("k".into(), Token::random(), ttl, "h".into())));
        assert!(matches!(reply, Ok(Reply::Acquired { .. })), "{reply:?}");
    }

    fn owner(&self) -> Uuid {
        self.file_thread.owner.as_ref().unwrap().id()
    }

    fn is_alive(&self, owner: Uuid) -> bool {
        matches!(liveness(&self.owners, owner), Liveness::Alive(_))
    }

    /// Returns the owners that the leases in the file name.
    fn named(&self) -> Vec<Uuid> {
        named_in(&self.file_thread.path)
    }

    fn end(self) {
        self.file_thread.end();
        fs::remove_dir_all(self.folder).unwrap();
    }
}

fn named_in(database: &Path) -> Vec<Uuid> {
    let connection = rusqlite::Connection::open(database).unwrap();
    let mut statement = connection.prepare("SELECT owner FROM leases").unwrap();
    let owners = statement.query_map([], |row| row.get(0).map(Uuid::from_bytes)).unwrap();
    owners.collect::<Result<_, _>>().unwrap()
}

/// Moves the owner's file away, and lets the store notice that while it can't change its rows. So
/// the store has a former owner that its rows still name. Returns where the directory of owners is
/// now.
fn lose_owner_while_locked(setup: &mut Setup) -> PathBuf {
    let aside = setup.folder.join("aside");
    let writer = rusqlite::Connection::open(&setup.file_thread.path).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    fs::rename(&setup.owners, &aside).unwrap();
    setup.file_thread.check();
    writer.execute_batch("ROLLBACK").unwrap();
    aside
}

#[test]
fn an_owner_whose_file_cannot_be_looked_for_is_kept() {
    let mut setup = Setup::new();
    setup.acquire();
    let (owner, aside) = (setup.owner(), setup.folder.join("aside"));
    fs::rename(&setup.owners, &aside).unwrap();
    // A link to itself: the system can't tell whether the owner's file exists.
    std::os::unix::fs::symlink("locks.db.owners", &setup.owners).unwrap();
    setup.file_thread.check();
    fs::remove_file(&setup.owners).unwrap();
    fs::rename(&aside, &setup.owners).unwrap();
    assert!(setup.is_alive(owner), "others take the holder for dead: {:?}", liveness(&setup.owners, owner));
    setup.end();
}

#[test]
fn a_former_owner_stays_locked_until_its_rows_name_the_new_one() {
    let mut setup = Setup::new();
    setup.acquire();
    let former = setup.owner();
    let aside = lose_owner_while_locked(&mut setup);
    assert_ne!(setup.owner(), former);
    assert_eq!(setup.named(), [former], "the file is locked by another process");
    let found = liveness(&aside, former);
    assert!(matches!(found, Liveness::Alive(_)), "its lease lives: {found:?}");
    setup.file_thread.check();
    assert_eq!(setup.named(), [setup.owner()]);
    assert!(!matches!(liveness(&aside, former), Liveness::Alive(_)), "a handle is left open");
    setup.end();
}

#[test]
fn a_store_that_could_not_be_admitted_again_tries_with_each_check() {
    let mut setup = Setup::new();
    setup.acquire();
    let former = setup.owner();
    fs::rename(&setup.owners, setup.folder.join("aside")).unwrap();
    // No store can tell which files the process of this owner uses.
    fs::create_dir(&setup.owners).unwrap();
    let obstacle = file_of(&setup.owners, Uuid::new_v4());
    fs::write(&obstacle, "no record").unwrap();
    let locked = fs::File::open(&obstacle).unwrap();
    locked.lock().unwrap();
    setup.file_thread.check();
    assert!(!setup.file_thread.admitted);
    assert_ne!(setup.owner(), former);
    assert_eq!(setup.named(), [former]);
    fs::remove_file(&obstacle).unwrap();
    setup.file_thread.check();
    assert_eq!(setup.named(), [setup.owner()], "no store finds the holder's file");
    setup.end();
}

#[test]
fn an_owner_whose_file_went_while_the_store_rested_is_replaced_before_the_next_lease() {
    let mut setup = Setup::new();
    assert!(setup.ask(Request::Ping).is_ok());
    setup.file_thread.usage.touch(Instant::default());
    setup.file_thread.check();
    assert!(setup.file_thread.session.is_none(), "the store rests");
    fs::remove_file(file_of(&setup.owners, setup.owner())).unwrap();
    setup.acquire();
    assert!(setup.is_alive(setup.owner()), "others can't find the holder's file");
    assert_eq!(setup.named(), [setup.owner()]);
    setup.end();
}

#[test]
fn a_record_that_was_emptied_is_written_again() {
    let mut setup = Setup::new();
    setup.acquire();
    let path = file_of(&setup.owners, setup.owner());
    let read = || Record::read(&fs::File::open(&path).unwrap());
    let before = read();
    fs::File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(read(), RecordContent::Nothing);
    setup.file_thread.check();
    assert_eq!(read(), before);
    setup.end();
}

#[test]
fn a_store_that_ends_frees_the_rows_of_its_former_owners() {
    let mut setup = Setup::new();
    setup.acquire();
    lose_owner_while_locked(&mut setup);
    let Setup { file_thread, folder, owners } = setup;
    assert_eq!(file_thread.former.len(), 1);
    let database = file_thread.path.clone();
    file_thread.end();
    assert!(named_in(&database).is_empty());
    assert_eq!(fs::read_dir(owners).unwrap().count(), 0);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn no_new_file_gets_the_id_of_a_file_that_a_store_has_registered() {
    let mut setup = Setup::new();
    setup.acquire();
    // After an error of SQLite, a store has no session.
    setup.file_thread.session = None;
    for _ in 0..1000 {
        fs::remove_file(&setup.file_thread.path).unwrap();
        fs::write(&setup.file_thread.path, "").unwrap();
        let used = setup.file_thread.used.as_ref().unwrap();
        assert!(!used.is_database_named(), "a new file is taken for the old one");
    }
    setup.end();
}

#[test]
fn a_file_that_another_user_plants_after_the_first_check_is_refused() {
    // Only root can give files away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut setup = Setup::new();
    fs::set_permissions(&setup.folder, fs::Permissions::from_mode(0o1777)).unwrap();
    let path = setup.folder.join("locks.db");
    hook_open(Some(Box::new({
        let path = path.clone();
        move |opened| {
            if opened == path {
                chown(&path, Some(12_345), None).unwrap();
            }
        }
    })));
    let ttl = Ttl::from_millis(60_000).unwrap();
    let acquire = AcquireRequest::new("k".into(), Token::random(), ttl, "h".into());
    let error = setup.ask(Request::Acquire(acquire)).unwrap_err();
    hook_open(None);
    assert!(error.message.contains("belongs to another user (12345)"), "{error}");
}
