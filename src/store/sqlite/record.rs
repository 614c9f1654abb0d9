//! The record in an owner's file: which process it belongs to, and which files its store uses.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use uuid::Uuid;

use super::boot;
use super::identity::{FileId, FileIds};

/// The length of every record, in bytes: a short record overwrites all of a longer one. The longest
/// text has about 330 bytes.
pub const LENGTH: usize = 512;
/// The beginning of the first line, before the number of the format. During an upgrade, two
/// versions of the library may use the same lock file. If a version can't parse the record of the
/// other one, it can't use the lock file. So every format has [`LENGTH`] bytes, the lines of this
/// format, and the checksum at the end. It may have more lines, which a reader skips.
const HEAD: &str = "leasehold owner ";
const FORMAT: u32 = 1;
/// How often to read a record that another process is just writing.
const READS: u32 = 5;

/// Identifies a process to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    pub pid: u32,
    /// The pid namespace; 0 on systems without them.
    pub(super) namespace: u64,
}

impl ProcessId {
    /// Returns the id of this process. All copies of the library in one process get the same id.
    pub fn own() -> Self {
        #[cfg(target_os = "linux")]
        let namespace = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |found| FileId::of(&found).inode);
        #[cfg(not(target_os = "linux"))]
        let namespace = 0;
        Self { pid: std::process::id(), namespace }
    }
}

/// The content of an owner's file; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The id of the file that the record was written into. A copy of that file has another id.
    /// Records of older versions have none.
    pub itself: Option<FileId>,
    pub process: ProcessId,
    /// The boot of the kernel that gave the file ids.
    pub boot: Uuid,
    /// The files that the store uses; `None` if it has nothing in them.
    pub files: Option<FileIds>,
}

/// What a read of an owner's file found.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Record(Record),
    /// The file is empty: nothing was recorded yet.
    Nothing,
    /// The content can't be parsed.
    Garbled,
}

impl Record {
    /// Returns the record of a store of this process, for [`Record::write`] into `file`.
    pub fn of(file: &File, files: Option<FileIds>) -> io::Result<Self> {
        let itself = Some(FileId::of_open(file)?);
        Ok(Self { itself, process: ProcessId::own(), boot: boot::id(), files })
    }

    /// Returns whether the record was written into `file`; false if `file` is a copy.
    pub fn is_of(&self, file: &File) -> bool {
        self.itself.is_some() && self.itself == FileId::of_open(file).ok()
    }

    /// Writes the record into `file` in one call.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let mut bytes = self.to_string().into_bytes();
        bytes.resize(LENGTH, b'\n');
        file.write_all_at(&bytes, 0)?;
        // Another program may have written beyond the end.
        file.set_len(LENGTH as u64)
    }

    /// Reads the record in `file`. Reads again if another process is just writing it.
    pub fn read(file: &File) -> Said {
        for _ in 1..READS {
            match Self::read_once(file) {
                Said::Garbled => std::thread::sleep(Duration::from_millis(1)),
                said => return said,
            }
        }
        Self::read_once(file)
    }

    /// Reads the record in `file` once. Use it if no process can write into the file meanwhile.
    pub fn read_once(file: &File) -> Said {
        let mut bytes = [0; LENGTH];
        let record = match file.read_at(&mut bytes, 0) {
            Ok(0) => return Said::Nothing,
            Ok(LENGTH) => std::str::from_utf8(&bytes).ok().and_then(Self::parse),
            _ => None,
        };
        record.map_or(Said::Garbled, Said::Record)
    }

    fn parse(text: &str) -> Option<Self> {
        let (body, sum) = text.trim_end().rsplit_once("\nsum ")?;
        if sum.parse() != Ok(checksum(body)) {
            return None;
        }
        body.strip_prefix(HEAD)?.lines().next()?.parse::<u32>().ok()?;
        let line = |name| body.lines().find_map(|line| line.strip_prefix(name));
        let (pid, namespace) = line("process ")?.split_once(' ')?;
        let process = ProcessId { pid: pid.parse().ok()?, namespace: namespace.parse().ok()? };
        let boot = Uuid::try_parse(line("boot ")?).ok()?;
        let itself = line("self ").and_then(parse_id).flatten();
        let files = match line("files ")? {
            "none" => None,
            ids => {
                let mut ids = ids.split(' ').map(parse_id);
                Some(FileIds { main: ids.next()??, wal: ids.next()??, shm: ids.next()?? })
            }
        };
        Some(Self { itself, process, boot, files })
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { itself, process: ProcessId { pid, namespace }, boot, files } = self;
        let id = |id: Option<FileId>| match id {
            Some(FileId { device, inode }) => format!("{device}:{inode}"),
            None => "-".into(),
        };
        let files = match files {
            Some(FileIds { main, wal, shm }) => format!("{} {} {}", id(*main), id(*wal), id(*shm)),
            None => "none".into(),
        };
        let itself = id(*itself);
        let body =
            format!("{HEAD}{FORMAT}\nprocess {pid} {namespace}\nboot {boot}\nself {itself}\nfiles {files}");
        write!(f, "{body}\nsum {}", checksum(&body))
    }
}

fn checksum(body: &str) -> u32 {
    crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(body.as_bytes())
}

fn parse_id(text: &str) -> Option<Option<FileId>> {
    if text == "-" {
        return Some(None);
    }
    let (device, inode) = text.split_once(':')?;
    Some(Some(FileId { device: device.parse().ok()?, inode: inode.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> (File, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("leasehold-record-{}", Uuid::new_v4()));
        let mut options = File::options();
        (options.read(true).write(true).create_new(true).open(&path).unwrap(), path)
    }

    #[test]
    fn a_record_of_a_later_format_is_read_if_it_says_which_files_are_used() {
        let (file, path) = scratch();
        let files = FileIds { main: Some(FileId { device: 1, inode: 2 }), wal: None, shm: None };
        let record = Record::of(&file, Some(files)).unwrap();
        let text = record.to_string();
        let (body, _) = text.rsplit_once("\nsum ").unwrap();
        let write = |body: &str| {
            let mut bytes = format!("{body}\nsum {}", checksum(body)).into_bytes();
            bytes.resize(LENGTH, b'\n');
            file.write_all_at(&bytes, 0).unwrap();
        };
        let later = body.replace("owner 1\n", "owner 23\nmood good\n") + "\nmore to come";
        write(&later);
        assert_eq!(Record::read(&file), Said::Record(record));
        for other in [later.replace("\nfiles ", "\nfolders "), later.replace("owner 23", "owner x")] {
            write(&other);
            assert_eq!(Record::read(&file), Said::Garbled, "{other}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_record_reads_back_as_written_also_after_a_longer_one() {
        let (file, path) = scratch();
        assert_eq!(Record::read(&file), Said::Nothing);
        let id = |inode| Some(FileId { device: u64::MAX, inode });
        for files in [
            Some(FileIds { main: id(u64::MAX), wal: id(1), shm: id(2) }),
            Some(FileIds { main: id(7), wal: None, shm: None }),
            None,
        ] {
            let record = Record::of(&file, files).unwrap();
            assert!(record.is_of(&file));
            record.write(&file).unwrap();
            assert_eq!(Record::read(&file), Said::Record(record));
            assert_eq!(record.process.pid, std::process::id());
        }
        file.write_all_at(b"leasehold owner 2", 0).unwrap();
        assert_eq!(Record::read(&file), Said::Garbled);
        std::fs::remove_file(path).unwrap();
    }
}
