use std::path::PathBuf;

use super::super::owner::Owner;
use super::*;

fn create(directory: &Path) -> std::io::Result<Owner> {
    Owner::create(directory, &directory.metadata().unwrap())
}

fn fresh_directory() -> PathBuf {
    let directory = std::env::temp_dir().join(format!("leasehold-owners-{}", Uuid::new_v4()));
    fs::create_dir(&directory).unwrap();
    directory
}

#[test]
fn an_owner_is_alive_until_its_handle_goes_and_missing_without_its_file() {
    let directory = fresh_directory();
    let owner = create(&directory).unwrap();
    let id = owner.id();
    assert!(matches!(liveness(&directory, id), Liveness::Alive(_)));
    assert!(dead(&directory).is_empty());
    drop(owner);
    let (first, second) = (liveness(&directory, id), liveness(&directory, id));
    assert!(matches!((&first, &second), (Liveness::Dead(_), Liveness::Dead(_))), "two may look at once");
    drop((first, second));

    let tidied = create(&directory).unwrap();
    assert!(tidied.is_in_place().unwrap());
    fs::remove_file(file_of(&directory, tidied.id())).unwrap();
    assert!(matches!(liveness(&directory, tidied.id()), Liveness::Missing));
    assert!(!tidied.is_in_place().unwrap());

    let orderly = create(&directory).unwrap();
    orderly.retire();
    assert_eq!(dead(&directory).len(), 1);
    fs::remove_dir_all(directory).unwrap();
}

#[cfg(unix)]
#[test]
fn a_live_owner_is_an_obstacle_to_a_store_that_finds_other_files() {
    use crate::store::sqlite::file_id::FileId;

    let directory = fresh_directory();
    let id = |inode| Some(FileId { device: 1, inode });
    let used = FileIds { main: id(1), wal: id(2), shm: id(3) };
    let owner = create(&directory).unwrap();
    let seen = |named| scan(&directory, None, &named, &Kernel::of(&directory)).unwrap().obstacle;
    assert_eq!(seen(FileIds { main: None, ..used }), None, "the owner uses nothing yet");
    owner.say(Some(used)).unwrap();
    assert_eq!(seen(used), None);
    let pid = std::process::id();
    for other in [
        FileIds { main: id(9), ..used },
        FileIds { wal: None, ..used },
        FileIds { shm: id(9), ..used },
        FileIds { main: None, wal: None, shm: None },
    ] {
        assert_eq!(seen(other), Some(Obstacle::OtherFiles { pid }), "{other:?}");
        assert_eq!(
            scan(&directory, Some(owner.id()), &other, &Kernel::of(&directory)).unwrap().obstacle,
            None,
            "an owner is no obstacle to itself"
        );
    }
    owner.say(None).unwrap();
    assert_eq!(seen(FileIds { main: id(9), ..used }), None, "the owner uses nothing any more");
    owner.say(Some(used)).unwrap();
    drop(owner);
    assert_eq!(seen(FileIds { main: id(9), ..used }), None, "the owner's process is gone");
    fs::remove_dir_all(directory).unwrap();
}

#[cfg(unix)]
#[test]
fn an_owner_that_cannot_read_the_boot_is_an_obstacle_and_meets_obstacles() {
    use crate::store::sqlite::file_id::FileId;

    let directory = fresh_directory();
    let id = |inode| Some(FileId { device: 1, inode });
    let used = FileIds { main: id(1), wal: id(2), shm: id(3) };
    let owner = create(&directory).unwrap();
    let path = file_of(&directory, owner.id());
    let file = File::options().write(true).open(&path).unwrap();
    let own = Record::of(&file, Some(used)).unwrap();
    let (here, there) = (own.boot, Uuid::new_v4());
    let is_obstacle = |its, boot, is_only| {
        Record { boot: its, ..own }.write(&file).unwrap();
        let named = FileIds { main: id(9), ..used };
        obstacle(&path, liveness(&directory, owner.id()), &named, &Kernel::named(boot, is_only)).is_some()
    };
    assert!(is_obstacle(here, here, false));
    assert!(is_obstacle(Uuid::nil(), here, false), "the owner can't read the boot");
    assert!(is_obstacle(here, Uuid::nil(), false), "this process can't read the boot");
    assert!(!is_obstacle(there, here, false), "the owner may run on another kernel");
    assert!(is_obstacle(there, here, true), "the owner is in a container with a boot id of its own");
    drop(owner);
    fs::remove_dir_all(directory).unwrap();
}

#[cfg(unix)]
#[test]
fn an_unlocked_file_that_its_record_does_not_name_is_no_dead_owner() {
    let directory = fresh_directory();
    let owner = create(&directory).unwrap();
    let id = Uuid::new_v4();
    let stray = file_of(&directory, id);
    let is_stray = || matches!(liveness(&directory, id), Liveness::Stray(_));
    fs::copy(file_of(&directory, owner.id()), &stray).unwrap();
    assert!(is_stray(), "a copy: {:?}", liveness(&directory, id));
    fs::write(&stray, "").unwrap();
    assert!(is_stray(), "empty");
    fs::write(&stray, "something else").unwrap();
    assert!(is_stray(), "garbled");
    assert!(dead(&directory).is_empty() && sweep(&directory).is_empty());
    assert!(stray.exists(), "it is young");
    let old = std::time::SystemTime::now() - STRAY_LIFE - Duration::from_secs(1);
    File::options().write(true).open(&stray).unwrap().set_modified(old).unwrap();
    File::options().write(true).open(file_of(&directory, owner.id())).unwrap().set_modified(old).unwrap();
    assert!(sweep(&directory).is_empty() && !stray.exists());
    assert!(owner.is_in_place().unwrap(), "a locked file is never a stray");
    fs::remove_dir_all(directory).unwrap();
}

#[cfg(unix)]
#[test]
fn a_second_copy_in_the_process_differs_from_this_copy_and_from_other_processes() {
    let directory = fresh_directory();
    let owner = create(&directory).unwrap();
    assert!(!is_second_copy(&directory).unwrap(), "the owner is this copy's");
    // Now the owner looks as if another copy had created it.
    owner.disown();
    assert!(is_second_copy(&directory).unwrap());
    let file = File::options().write(true).open(file_of(&directory, owner.id())).unwrap();
    let own = Record::of(&file, None).unwrap();
    Record { process: ProcessId { pid: 1, ..own.process }, ..own }.write(&file).unwrap();
    assert!(!is_second_copy(&directory).unwrap(), "the owner is another process's");
    owner.say(None).unwrap();
    drop(owner);
    assert!(!is_second_copy(&directory).unwrap(), "the owner is gone");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn no_sweep_removes_an_owner_that_was_just_made() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let directory = fresh_directory();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for (id, handle) in dead(&directory) {
                        remove_dead_owner(&directory, id, handle);
                    }
                }
            });
        }
        let owners: Vec<Owner> = (0..300).map(|_| create(&directory).unwrap()).collect();
        let lost = owners.iter().filter(|owner| !owner.is_in_place().unwrap()).count();
        over.store(true, Ordering::Relaxed);
        assert_eq!(lost, 0);
    });
    fs::remove_dir_all(directory).unwrap();
}
