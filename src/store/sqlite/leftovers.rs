//! Distinguishes what SQLite or a killed process left beside a lock file from the files of other
//! programs.
//!
//! SQLite deletes and overwrites the files with these names, and does not ask what is in them. A
//! user may have given such a name to a file, or to another lock file.

// Elsewhere, no lock file is written under another name: see `creation`.
#![cfg_attr(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")), allow(dead_code))]

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::reserved_names::{file_beside, with_end};
#[cfg(unix)]
use super::rights;
use super::schema;

/// The size of a page, in bytes: SQLite's default.
const PAGE: u64 = 4096;

/// The version number with which a log's index begins.
const INDEX_VERSION: u32 = 3_007_000;

/// Checks the files beside the database at `real`, before SQLite or [`super::creation`] may delete
/// or overwrite them. `is_missing` is true if there is no database.
///
/// # Errors
/// If one of them is not a journal, a log or an index of SQLite.
pub fn check_beside(real: &Path, is_missing: bool) -> io::Result<()> {
    for (end, check) in [("-journal", is_journal as fn(&[u8]) -> bool), ("-wal", is_log), ("-shm", is_index)]
    {
        let beside = with_end(real, end);
        let Ok(found) = beside.symlink_metadata() else { continue };
        if !found.is_file() {
            // SQLite would remove it beside an empty database, and refuse to open it beside others.
            if is_missing || real.metadata().is_ok_and(|database| database.len() == 0) {
                return Err(refused(real, &beside));
            }
            continue;
        }
        if file_beside(&beside).is_some() {
            return Err(foreign(&beside));
        }
        if !is_missing && end == "-shm" {
            // On some systems, closing the index drops SQLite's locks on it, so look only at its
            // length. SQLite adds one page at a time. It may also have cut the index to 3 bytes.
            if found.len() > 3 && found.len() % PAGE != 0 {
                return Err(foreign(&beside));
            }
            continue;
        }
        match first_bytes(&beside, 8) {
            Ok(bytes) if check(&bytes) => {}
            Ok(_) => return Err(foreign(&beside)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_missing => {
                let why =
                    format!("{} is in the way and can't be read ({error}); remove it", beside.display());
                return Err(io::Error::new(error.kind(), why));
            }
            // SQLite can't read it either.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Checks that no other database has the path `new`. Does not open the file there: on some systems,
/// closing it again would drop SQLite's locks.
///
/// # Errors
/// If there are files beside `new`, as a database has.
pub fn check_alone(new: &Path) -> io::Result<()> {
    match file_beside(new) {
        Some(beside) => Err(foreign(if new.symlink_metadata().is_ok() { new } else { &beside })),
        None => Ok(()),
    }
}

/// Checks that the file at `new`, with `length` bytes, is what a killed process left of a lock
/// file that it was creating.
///
/// # Errors
/// If it is anything else.
pub fn check_unfinished(new: &Path, length: u64) -> io::Result<()> {
    check_alone(new)?;
    let is_ours = length == 0
        || schema::is_cut_off(&first_bytes(new, PAGE)?, length / PAGE)
        || is_unused(new).unwrap_or(false);
    if is_ours { Ok(()) } else { Err(foreign(new)) }
}

/// Returns whether the file at `new` is an empty database or an unused lock file. Neither locks the
/// file nor creates files beside it.
fn is_unused(new: &Path) -> rusqlite::Result<bool> {
    let plain = |byte: u8| byte == b'/' || byte.is_ascii_alphanumeric();
    let path: String = new.as_os_str().as_encoded_bytes().iter().fold(String::new(), |path, &byte| {
        if plain(byte) {
            path + char::from(byte).encode_utf8(&mut [0; 4])
        } else {
            path + &format!("%{byte:02X}")
        }
    });
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(format!("file:{path}?immutable=1"), flags)?;
    schema::is_unused(&connection)
}

fn first_bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits().cast_signed());
    }
    let mut bytes = Vec::new();
    options.open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns true if `bytes`, the first ones of a file, agree with `known`, or are all zero. SQLite
/// may have cut the file off, or may not have written its beginning yet.
fn begins(bytes: &[u8], known: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(known.len())];
    known.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0)
}

fn is_journal(bytes: &[u8]) -> bool {
    begins(bytes, &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7])
}

fn is_log(bytes: &[u8]) -> bool {
    // The last bit says which byte order the checksums use.
    begins(bytes, &[0x37, 0x7f, 0x06, 0x82]) || begins(bytes, &[0x37, 0x7f, 0x06, 0x83])
}

fn is_index(bytes: &[u8]) -> bool {
    begins(bytes, &INDEX_VERSION.to_ne_bytes())
}

fn foreign(path: &Path) -> io::Error {
    let why = format!(
        "{} is in the way: SQLite or leasehold would overwrite it, but did not make it for this lock file; move it \
         away, or name another lock file",
        path.display()
    );
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Returns the error for `beside`, which is not a regular file.
fn refused(real: &Path, beside: &Path) -> io::Error {
    #[cfg(unix)]
    if let Some((beside, why)) = rights::unusable_beside(real) {
        return io::Error::new(io::ErrorKind::Unsupported, format!("{} is refused: {why}", beside.display()));
    }
    let _ = real;
    foreign(beside)
}

/// Removes the file at `path`, which was checked. A missing file is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let why = format!("{} is in the way and can't be removed ({error}); remove it", path.display());
            Err(io::Error::new(error.kind(), why))
        }
        _ => Ok(()),
    }
}

#[cfg(all(test, unix))]
#[path = "leftovers_tests.rs"]
mod tests;
