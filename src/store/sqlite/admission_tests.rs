//! Tests what the checks of a store do when its owner's file is moved, deleted or changed.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::sync::oneshot;

use super::super::super::{Answer, Ask, Reply, Request};
use super::super::owner::file_of;
use super::super::owners::{Liveness, liveness};
use super::super::record::{Record, Said};
use super::super::thread::{Claim, Job};
use super::*;
use crate::lease::{Token, Ttl};

/// A store in a directory of its own. The test itself runs the checks of the store.
struct Scene {
    keeper: Keeper,
    folder: PathBuf,
    owners: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("leasehold-admission-{}", Token::random()));
        fs::create_dir(&folder).unwrap();
        let (notices, _) = tokio::sync::mpsc::unbounded_channel();
        let (path, owners) = (folder.join("locks.db"), folder.join("locks.db.owners"));
        Self { keeper: Keeper::new(path, notices), folder, owners }
    }

    fn ask(&mut self, request: Request) -> Answer {
        let (answers, mut receiver) = oneshot::channel();
        let deadline = clock::now() + Duration::from_secs(5);
        self.keeper.work(vec![Job { batch: vec![request], deadline, claim: Claim::default(), answers }]);
        receiver.try_recv().unwrap().pop().unwrap()
    }

    fn acquire(&mut self) {
        let ttl = Ttl::from_millis(60_000).unwrap();
        let reply = self.ask(Request::Acquire(Ask::new("k".into(), Token::random(), ttl, "h".into())));
        assert!(matches!(reply, Ok(Reply::Acquired { .. })), "{reply:?}");
    }

    fn owner(&self) -> Uuid {
        self.keeper.owner.as_ref().unwrap().id()
    }

    fn is_alive(&self, owner: Uuid) -> bool {
        matches!(liveness(&self.owners, owner), Liveness::Alive(_))
    }

    /// Returns the owners that the leases in the file name.
    fn named(&self) -> Vec<Uuid> {
        named_in(&self.keeper.path)
    }

    fn end(self) {
        self.keeper.end();
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
fn lose_owner_while_locked(scene: &mut Scene) -> PathBuf {
    let aside = scene.folder.join("aside");
    let writer = rusqlite::Connection::open(&scene.keeper.path).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    fs::rename(&scene.owners, &aside).unwrap();
    scene.keeper.check();
    writer.execute_batch("ROLLBACK").unwrap();
    aside
}

#[test]
fn an_owner_whose_file_cannot_be_looked_for_is_kept() {
    let mut scene = Scene::new();
    scene.acquire();
    let (owner, aside) = (scene.owner(), scene.folder.join("aside"));
    fs::rename(&scene.owners, &aside).unwrap();
    // A link to itself: the system can't tell whether the owner's file exists.
    std::os::unix::fs::symlink("locks.db.owners", &scene.owners).unwrap();
    scene.keeper.check();
    fs::remove_file(&scene.owners).unwrap();
    fs::rename(&aside, &scene.owners).unwrap();
    assert!(scene.is_alive(owner), "others take the holder for dead: {:?}", liveness(&scene.owners, owner));
    scene.end();
}

#[test]
fn a_former_owner_stays_locked_until_its_rows_name_the_new_one() {
    let mut scene = Scene::new();
    scene.acquire();
    let former = scene.owner();
    let aside = lose_owner_while_locked(&mut scene);
    assert_ne!(scene.owner(), former);
    assert_eq!(scene.named(), [former], "the file is locked by another process");
    let found = liveness(&aside, former);
    assert!(matches!(found, Liveness::Alive(_)), "its lease lives: {found:?}");
    scene.keeper.check();
    assert_eq!(scene.named(), [scene.owner()]);
    assert!(!matches!(liveness(&aside, former), Liveness::Alive(_)), "a handle is left open");
    scene.end();
}

#[test]
fn a_store_that_could_not_be_admitted_again_tries_with_each_check() {
    let mut scene = Scene::new();
    scene.acquire();
    let former = scene.owner();
    fs::rename(&scene.owners, scene.folder.join("aside")).unwrap();
    // Nobody can tell which files the process of this owner uses.
    fs::create_dir(&scene.owners).unwrap();
    let obstacle = file_of(&scene.owners, Uuid::new_v4());
    fs::write(&obstacle, "no record").unwrap();
    let locked = fs::File::open(&obstacle).unwrap();
    locked.lock().unwrap();
    scene.keeper.check();
    assert!(!scene.keeper.admitted);
    assert_ne!(scene.owner(), former);
    assert_eq!(scene.named(), [former]);
    fs::remove_file(&obstacle).unwrap();
    scene.keeper.check();
    assert_eq!(scene.named(), [scene.owner()], "no store finds the holder's file");
    scene.end();
}

#[test]
fn an_owner_whose_file_went_while_the_store_rested_is_replaced_before_the_next_lease() {
    let mut scene = Scene::new();
    assert!(scene.ask(Request::Ping).is_ok());
    scene.keeper.usage.touch(Instant::default());
    scene.keeper.check();
    assert!(scene.keeper.session.is_none(), "the store rests");
    fs::remove_file(file_of(&scene.owners, scene.owner())).unwrap();
    scene.acquire();
    assert!(scene.is_alive(scene.owner()), "others can't find the holder's file");
    assert_eq!(scene.named(), [scene.owner()]);
    scene.end();
}

#[test]
fn a_record_that_was_emptied_is_written_again() {
    let mut scene = Scene::new();
    scene.acquire();
    let path = file_of(&scene.owners, scene.owner());
    let read = || Record::read(&fs::File::open(&path).unwrap());
    let before = read();
    fs::File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(read(), Said::Nothing);
    scene.keeper.check();
    assert_eq!(read(), before);
    scene.end();
}

#[test]
fn a_store_that_ends_frees_the_rows_of_its_former_owners() {
    let mut scene = Scene::new();
    scene.acquire();
    lose_owner_while_locked(&mut scene);
    let Scene { keeper, folder, owners } = scene;
    assert_eq!(keeper.former.len(), 1);
    let database = keeper.path.clone();
    keeper.end();
    assert!(named_in(&database).is_empty());
    assert_eq!(fs::read_dir(owners).unwrap().count(), 0);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn no_new_file_gets_the_id_of_a_file_that_a_store_has_registered() {
    let mut scene = Scene::new();
    scene.acquire();
    // After an error of SQLite, a store has no session.
    scene.keeper.session = None;
    for _ in 0..1000 {
        fs::remove_file(&scene.keeper.path).unwrap();
        fs::write(&scene.keeper.path, "").unwrap();
        let used = scene.keeper.used.as_ref().unwrap();
        assert!(!used.is_database_named(), "a new file is taken for the old one");
    }
    scene.end();
}
