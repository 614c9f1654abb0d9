//! Tests processes that exclude each other, and that are killed.

use std::time::{Duration, Instant};

use leasehold::lease::Token;
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{Reply, Request, Store};

use crate::child::Process;
use crate::support::*;

#[test]
fn the_next_request_gets_the_lease_of_a_killed_holder() {
    let folder = Folder::fresh();
    let mut holder = Process::start("hold", &folder.db());
    let fence: u64 = holder.read_line().parse().unwrap();
    run(async {
        let store = SqliteStore::open(folder.db());
        assert!(is_busy(&store, "k").await);
        holder.kill();
        assert_eq!(ask(&store, Request::Inspect { key: "k7".into() }).await, Reply::Inspected(None));
        assert!(granted(&store, "k", Token::random(), 60_000).await.0 > fence);
        granted(&store, "k99", Token::random(), 60_000).await;
        let owners = std::fs::read_dir(folder.join("locks.db.owners")).unwrap().count();
        assert_eq!(owners, 1, "only the file of the live owner is left");
        store.close().await;
        assert_eq!(std::fs::read_dir(folder.join("locks.db.owners")).unwrap().count(), 0);
    });
}

#[cfg(unix)]
#[test]
fn a_frozen_holder_keeps_its_leases() {
    use rustix::process::{Pid, Signal, kill_process};
    let folder = Folder::fresh();
    let mut holder = Process::start("hold", &folder.db());
    holder.read_line();
    kill_process(Pid::from_raw(holder.id().cast_signed()).unwrap(), Signal::STOP).unwrap();
    run(async {
        let store = SqliteStore::open(folder.db());
        assert!(is_busy(&store, "k").await);
        holder.kill();
        assert!(!is_busy(&store, "k").await);
    });
}

#[test]
fn a_holder_that_ends_normally_leaves_nothing() {
    let folder = Folder::fresh();
    let mut holder = Process::start("hold", &folder.db());
    holder.read_line();
    holder.send("end");
    holder.end();
    assert_eq!(std::fs::read_dir(folder.join("locks.db.owners")).unwrap().count(), 0);
    let file = rusqlite::Connection::open(folder.db()).unwrap();
    let rows: i64 = file.query_row("SELECT count(*) FROM leases", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

/// Checks that every turn in the log ended before the next one began, unless its process was killed
/// during the turn, and that fences grow. Returns the number of turns.
pub fn check_log(folder: &Folder, killed: usize) -> usize {
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    let (mut last, mut inside, mut cut, mut turns) = (0u64, None, 0, 0);
    for line in log.lines() {
        let (what, fence) = line.split_once(' ').unwrap();
        let fence: u64 = fence.parse().unwrap();
        if what == "begin" {
            cut += usize::from(inside.is_some());
            assert!(fence > last, "fence {fence} after {last}");
            (last, inside) = (fence, Some(fence));
            turns += 1;
        } else {
            assert_eq!(inside.take(), Some(fence), "the turn ended after another had begun");
        }
    }
    assert!(cut <= killed, "{cut} turns cut short by {killed} kills");
    turns
}

#[test]
fn two_processes_never_hold_one_lock_under_load() {
    let folder = Folder::fresh();
    let mut both = [0; 2].map(|_| Process::start("contend", &folder.db()));
    let turns: u64 = both.iter_mut().map(|process| process.read_line().parse::<u64>().unwrap()).sum();
    let counted: u64 = std::fs::read_to_string(folder.join("counter")).unwrap().parse().unwrap();
    assert_eq!(counted, turns, "an update was lost");
    assert_eq!(check_log(&folder, 0) as u64, turns);
    assert!(turns > 5, "{turns} turns in two seconds");
}

#[test]
fn two_processes_never_hold_one_lock_while_processes_are_killed_at_random() {
    let folder = Folder::fresh();
    let mut steady = Process::start("contend", &folder.db());
    let (mut kills, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_millis(1700) {
        let mut victim = Process::start("contend", &folder.db());
        std::thread::sleep(Duration::from_millis(fastrand::u64(20..250)));
        victim.kill();
        kills += 1;
    }
    let turns: u64 = steady.read_line().parse().unwrap();
    assert!(check_log(&folder, kills) as u64 >= turns);
    assert!(turns > 10 && kills > 4, "{turns} turns, {kills} kills");
}

#[test]
fn waiting_processes_take_turns_one_at_a_time() {
    let folder = Folder::fresh();
    let mut all = [0; 3].map(|_| Process::start("queue", &folder.db()));
    let each = all.each_mut().map(|process| process.read_line().parse::<u64>().unwrap());
    let turns: u64 = each.iter().sum();
    let counted: u64 = std::fs::read_to_string(folder.join("counter")).unwrap().parse().unwrap();
    assert_eq!(counted, turns, "an update was lost");
    assert_eq!(check_log(&folder, 0) as u64, turns);
    // A slow disk has been seen to take 28 ms per turn.
    assert!(turns > 5, "{turns} turns in two seconds");
    let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
    // The processes do not begin and end at the same time.
    assert!(2 * least > *most, "{each:?}");
}

#[test]
fn the_queue_works_while_waiters_are_killed_at_random() {
    let folder = Folder::fresh();
    let mut steady = Process::start("queue", &folder.db());
    let (mut kills, start) = (0, Instant::now());
    while start.elapsed() < Duration::from_millis(1700) {
        let mut victim = Process::start("queue", &folder.db());
        std::thread::sleep(Duration::from_millis(fastrand::u64(20..250)));
        victim.kill();
        kills += 1;
    }
    let turns: u64 = steady.read_line().parse().unwrap();
    steady.end();
    assert!(check_log(&folder, kills) as u64 >= turns);
    assert!(turns > 10 && kills > 4, "{turns} turns, {kills} kills");
    let file = rusqlite::Connection::open(folder.db()).unwrap();
    let rows = "SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM waiters)";
    assert_eq!(file.query_row(rows, [], |row| row.get::<_, u32>(0)).unwrap(), 0);
}

#[test]
fn ten_processes_create_the_file_at_the_same_time() {
    let folder = Folder::fresh();
    let all: Vec<Process> = (0..10).map(|_| Process::start("ping", &folder.db())).collect();
    for mut process in all {
        assert_eq!(process.read_line(), "Ready");
        process.end();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn no_handle_is_inherited_by_a_child_process() {
    let folder = Folder::fresh();
    run(async {
        let store = SqliteStore::open(folder.db());
        granted(&store, "k", Token::random(), 60_000).await;
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let handles = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
        let targets: Vec<_> = handles.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            !targets.is_empty() && targets.iter().all(|target| !target.starts_with(&*folder)),
            "{targets:?}"
        );
        store.close().await;
    });
}
