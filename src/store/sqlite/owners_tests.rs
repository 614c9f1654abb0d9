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
    use crate::store::sqlite::identity::FileId;

    let directory = fresh_directory();
    let id = |inode| Some(FileId { device: 1, inode });
    let used = FileIds { main: id(1), wal: id(2), shm: id(3) };
    let owner = create(&directory).unwrap();
    let seen = |named| survey(&directory, None, &named).unwrap().obstacle;
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
            survey(&directory, Some(owner.id()), &other).unwrap().obstacle,
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
fn a_second_copy_in_the_process_differs_from_this_copy_and_from_other_processes() {
    let directory = fresh_directory();
    let owner = create(&directory).unwrap();
    assert!(!is_second_copy(&directory).unwrap(), "the owner is this copy's");
    // Now the owner looks as if another copy had made it.
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
fn no_sweeper_ever_buries_an_owner_that_was_just_made() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let directory = fresh_directory();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for (id, handle) in dead(&directory) {
                        bury(&directory, id, handle);
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
