//! Tests the checks of the default file's directory. It lies in a directory where every user may
//! write.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use leasehold::store::sqlite::{SqliteStore, default_path};
use leasehold::store::{Reply, Request, Store, StoreErrorKind};

use crate::support::*;

/// Returns the name of this user's directory.
fn own_name() -> String {
    let path = default_path().unwrap();
    assert_eq!(path.file_name().unwrap(), "locks.db");
    path.parent().unwrap().file_name().unwrap().to_str().unwrap().into()
}

#[test]
fn the_default_directory_is_created_for_its_user_only() {
    let folder = Folder::fresh();
    let own = folder.join(own_name());
    assert!(own_name().ends_with(&format!("-{}", rustix::process::geteuid().as_raw())));
    run(async {
        for _ in 0..2 {
            let store = SqliteStore::open(own.join("locks.db"));
            assert_eq!(ask(&store, Request::Ping).await, Reply::Ready);
            store.close().await;
        }
    });
    let found = own.symlink_metadata().unwrap();
    assert!(found.is_dir());
    assert_eq!(found.mode() & 0o777, 0o700);
    assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
}

#[test]
fn a_default_directory_that_another_user_could_have_made_is_refused() {
    let folder = Folder::fresh();
    let own = folder.join(own_name());
    let path = own.join("locks.db");
    let denied = |why: &str| {
        let error = refusal(&path);
        assert_eq!(error.kind, StoreErrorKind::Denied, "{error}");
        assert!(error.message.contains(own.to_str().unwrap()) && error.message.contains(why), "{error}");
    };
    let target = folder.join("target");
    fs::create_dir(&target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&target, &own).unwrap();
    denied("link");
    assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "the store must not write through the link");
    fs::remove_file(&own).unwrap();

    symlink(folder.join("nowhere"), &own).unwrap();
    denied("link");
    fs::remove_file(&own).unwrap();

    fs::write(&own, "").unwrap();
    denied("not a directory");
    fs::remove_file(&own).unwrap();

    fs::create_dir(&own).unwrap();
    for mode in [0o777, 0o755, 0o710, 0o701, 0o1770] {
        fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
        denied("0700");
    }
    fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&own, Some(12345), Some(12345)).unwrap();
        denied("another user");
    }
    assert_eq!(fs::read_dir(&own).unwrap().count(), 0);
}
