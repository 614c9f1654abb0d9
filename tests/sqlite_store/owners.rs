//! Tests the files in `PATH.owners/`, by which processes tell which of them use the lock file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold::lease::Token;
use leasehold::store::sqlite::SqliteStore;
use leasehold::store::{Reply, Request, Store};

use crate::child::Process;
use crate::support::*;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn only_file_in(directory: &Path) -> PathBuf {
    let mut files = fs::read_dir(directory).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    file
}

#[test]
fn an_owner_file_that_cannot_be_read_is_an_error_that_names_the_file() {
    let folder = Folder::fresh();
    let (path, owners) = (folder.db(), folder.join("locks.db.owners"));
    run(async {
        let store = SqliteStore::open(path.clone());
        granted(&store, "k", Token::random(), 60_000).await;
        let file = only_file_in(&owners);
        set_mode(&file, 0o000);
        for open in [&*folder, &owners] {
            set_mode(open, 0o777);
        }
        for end in ["", "-wal", "-shm"] {
            fs::remove_file(folder.join(format!("locks.db{end}"))).unwrap();
        }
        let line = Process::start_without_rights("ping", &folder, &path).read_line();
        let name = file.to_str().unwrap();
        assert!(line.starts_with("Loading") && line.contains(name) && line.contains("delete"), "{line}");
    });
}

#[test]
fn a_directory_of_owners_that_cannot_be_read_is_an_error() {
    let folder = Folder::fresh();
    let (path, owners) = (folder.db(), folder.join("locks.db.owners"));
    run(async {
        let store = SqliteStore::open(path.clone());
        ask(&store, Request::Ping).await;
        for suffix in ["", "-wal", "-shm"] {
            set_mode(&folder.join(format!("locks.db{suffix}")), 0o666);
        }
        set_mode(&folder, 0o777);
        // New files can be created, but not listed.
        set_mode(&owners, 0o333);
        let line = Process::start_without_rights("ping", &folder, &path).read_line();
        assert!(line.starts_with("Denied") && line.contains("locks.db.owners"), "{line}");
        store.close().await;
    });
}

#[test]
fn owner_files_have_the_permissions_of_the_database() {
    for mode in [0o666, 0o660, 0o600] {
        let folder = Folder::fresh();
        fs::write(folder.db(), "").unwrap();
        set_mode(&folder.db(), mode);
        run(async {
            let store = SqliteStore::open(folder.db());
            ask(&store, Request::Ping).await;
            let file = only_file_in(&folder.join("locks.db.owners"));
            assert_eq!(
                format!("{:o}", file.metadata().unwrap().permissions().mode() & 0o777),
                format!("{mode:o}")
            );
            store.close().await;
        });
    }
}

#[test]
fn entries_other_than_regular_files_in_the_directory_of_owners_are_ignored() {
    let folder = Folder::fresh();
    let owners = folder.join("locks.db.owners");
    fs::create_dir(&owners).unwrap();
    let place = || owners.join(uuid::Uuid::new_v4().to_string());
    assert!(Command::new("mkfifo").arg(place()).status().unwrap().success());
    // Bind it to a short path: the path of a socket has at most about 100 bytes.
    let socket = folder.join("s");
    drop(UnixListener::bind(&socket).unwrap());
    fs::rename(socket, place()).unwrap();
    fs::create_dir(place()).unwrap();
    std::os::unix::fs::symlink("nowhere", place()).unwrap();
    let looping = place();
    std::os::unix::fs::symlink(looping.file_name().unwrap(), &looping).unwrap();
    run(async {
        let store = SqliteStore::open(folder.db());
        assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
        granted(&store, "k", Token::random(), 60_000).await;
        store.close().await;
        assert_eq!(fs::read_dir(&owners).unwrap().count(), 5, "the store leaves them as they are");
    });
}

#[test]
fn an_owner_file_that_cannot_be_written_is_removed_again() {
    let folder = Folder::fresh();
    run(async {
        let store = SqliteStore::open(folder.db());
        granted(&store, "k", Token::random(), 60_000).await;
        let line = Process::start_without_room("ping", &folder.db()).read_line();
        assert!(line.contains("locks.db.owners") && line.contains("too large"), "{line}");
        only_file_in(&folder.join("locks.db.owners"));
        store.close().await;
    });
}
