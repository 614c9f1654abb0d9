//! Tests owners' files that reappear in `PATH.owners/` while their processes live.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::Reply;
use leasehold::store::sqlite::SqliteStore;

use crate::child::Process;
use crate::crashes::check_log;
use crate::support::*;

/// Several times as long as a store needs to notice that its owner's file was moved.
const A_WHILE: Duration = Duration::from_millis(300);

fn count(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

async fn stays_busy(store: &Rc<SqliteStore>, key: &str) {
    let start = Instant::now();
    while start.elapsed() < A_WHILE {
        assert!(is_busy(store, key).await, "granted to two after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_copy_that_replaces_the_file_of_a_live_owner_frees_no_lease() {
    let folder = Folder::fresh();
    let (owners, aside, copy) = (folder.join("locks.db.owners"), folder.join("aside"), folder.join("copy"));
    run(async {
        let (one, other) = (SqliteStore::open(folder.db()), SqliteStore::open(folder.db()));
        let token = Token::random();
        granted(&one, "k", token, 60_000).await;
        assert!(is_busy(&other, "k").await);
        assert!(Command::new("cp").arg("-a").arg(&owners).arg(&copy).status().unwrap().success());
        fs::rename(&owners, &aside).unwrap();
        fs::rename(&copy, &owners).unwrap();
        stays_busy(&other, "k").await;
        assert_eq!(ask(&one, renew("k", token, 60_000)).await, Reply::Renewed { block: None });
        assert_eq!(ask(&one, release("k", token)).await, Reply::Released);
        granted(&other, "k", Token::random(), 60_000).await;
    });
}

#[test]
fn a_directory_of_owners_that_was_moved_away_and_back_frees_no_lease() {
    let folder = Folder::fresh();
    let (owners, aside) = (folder.join("locks.db.owners"), folder.join("aside"));
    run(async {
        let (one, other) = (SqliteStore::open(folder.db()), SqliteStore::open(folder.db()));
        let token = Token::random();
        granted(&one, "k", token, 60_000).await;
        assert!(is_busy(&other, "k").await);
        fs::rename(&owners, &aside).unwrap();
        let start = Instant::now();
        while count(&owners) < 2 {
            assert!(start.elapsed() < Duration::from_secs(5), "{} owners", count(&owners));
            assert!(is_busy(&other, "k").await);
        }
        fs::remove_dir_all(&owners).unwrap();
        fs::rename(&aside, &owners).unwrap();
        stays_busy(&other, "k").await;
        assert_eq!(ask(&one, renew("k", token, 60_000)).await, Reply::Renewed { block: None });
    });
}

#[test]
fn a_directory_of_owners_without_access_for_a_moment_frees_no_lease() {
    let folder = Folder::fresh();
    let (path, owners) = (folder.db(), folder.join("locks.db.owners"));
    let set_mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    if rustix::process::geteuid().is_root() {
        // The holder is another user, and this user may only use a lock file of another user if it
        // lies in a directory that not everybody may write.
        std::os::unix::fs::chown(&*folder, Some(65534), Some(65534)).unwrap();
    }
    run(async {
        let mut holder = Process::start_without_rights("hold", &folder, &path);
        holder.read_line();
        let mode = owners.metadata().unwrap().permissions().mode();
        set_mode(&owners, 0o000);
        // Meanwhile, the holder can't find its file. No event tells when it has looked.
        tokio::time::sleep(A_WHILE).await;
        set_mode(&owners, mode);
        let other = SqliteStore::open(path.clone());
        stays_busy(&other, "k").await;
        // The holder's file still shows whether the holder lives.
        holder.kill();
        granted(&other, "k", Token::random(), 60_000).await;
    });
}

#[test]
fn no_lock_is_held_twice_while_the_directory_of_owners_is_copied_moved_and_removed() {
    let folder = Folder::fresh();
    let (owners, aside, copy) = (folder.join("locks.db.owners"), folder.join("aside"), folder.join("copy"));
    let mut all = [0; 3].map(|_| Process::start("linger", &folder.db()));
    let (start, mut times) = (Instant::now(), 0);
    let pause = || std::thread::sleep(Duration::from_millis(fastrand::u64(5..120)));
    while start.elapsed() < Duration::from_millis(1700) {
        pause();
        // A store may create the directory at any moment, so each step may find it or not.
        if times % 3 == 0 {
            let _ = Command::new("cp").arg("-a").arg(&owners).arg(&copy).status().unwrap();
        }
        let _ = fs::rename(&owners, &aside);
        pause();
        if times % 3 < 2 {
            let _ = fs::remove_dir_all(&owners);
            let _ = fs::rename(if times % 3 == 0 { &copy } else { &aside }, &owners);
        }
        for left in [&aside, &copy] {
            let _ = fs::remove_dir_all(left);
        }
        times += 1;
    }
    let turns: u64 = all.iter_mut().map(|process| process.read_line().parse::<u64>().unwrap()).sum();
    let counted: u64 = fs::read_to_string(folder.join("counter")).unwrap().parse().unwrap();
    assert_eq!(counted, turns, "an update was lost");
    assert_eq!(check_log(&folder, 0) as u64, turns);
    assert!(turns > 5 && times > 5, "{turns} turns, {times} times");
}
