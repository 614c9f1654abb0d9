//! The record in an owner's file: which process it belongs to, and which files its store uses.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, UNIX_EPOCH};

use uuid::Uuid;

use super::boot;
use super::file_id::FileId;
use super::identity::FileIds;

/// The length of every record, in bytes: a short record overwrites all of a longer one. The longest
/// text has about 360 bytes.
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

    /// Returns whether a process with this id runs, as far as this process can tell: false if it
    /// has another pid namespace.
    fn is_seen(self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let found = pid.map(rustix::process::test_kill_process);
        self.namespace == Self::own().namespace
            && matches!(found, Some(Ok(()) | Err(rustix::io::Errno::PERM)))
    }
}

/// The content of an owner's file; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The id of the file that the record was written into. A copy of that file has another id.
    /// Records of older versions have none.
    pub itself: Option<FileId>,
    /// When that file was created, in ns since 1970, if the file system tells.
    pub born: Option<u64>,
    pub process: ProcessId,
    /// The boot of the kernel that gave the file ids.
    pub boot: Uuid,
    /// The files that the store uses; `None` if it has nothing in them.
    pub files: Option<FileIds>,
}

/// What a read of an owner's file found.
#[derive(Debug, PartialEq, Eq)]
pub enum RecordContent {
    Record(Record),
    /// The file is empty: nothing was recorded yet.
    Nothing,
    /// The content can't be parsed.
    Garbled,
}

impl Record {
    /// Returns the record of a store of this process, for [`Record::write`] into `file`.
    pub fn of(file: &File, files: Option<FileIds>) -> io::Result<Self> {
        let (itself, born) = (Some(FileId::of_open(file)?), born(file));
        Ok(Self { itself, born, process: ProcessId::own(), boot: boot::id(), files })
    }

    /// Returns whether the record was written into `file`; false if `file` is a copy.
    ///
    /// A file system may have another device number after a restart of its container, a reboot or a
    /// mount. Then the inode and the time of creation identify the file. A snapshot of the file
    /// system has the same ones, so they do not count while the process that wrote the record still
    /// runs.
    pub fn is_of(&self, file: &File) -> bool {
        let (Some(own), Ok(id)) = (self.itself, FileId::of_open(file)) else { return false };
        let is_born = || self.born.is_some() && self.born == born(file);
        own == id || own.inode == id.inode && is_born() && !self.process.is_seen()
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
    pub fn read(file: &File) -> RecordContent {
        for _ in 1..READS {
            match Self::read_once(file) {
                RecordContent::Garbled => std::thread::sleep(Duration::from_millis(1)),
                said => return said,
            }
        }
        Self::read_once(file)
    }

    /// Reads the record in `file` once. Use it if no process can write into the file meanwhile.
    pub fn read_once(file: &File) -> RecordContent {
        let mut bytes = [0; LENGTH];
        let record = match file.read_at(&mut bytes, 0) {
            Ok(0) => return RecordContent::Nothing,
            Ok(LENGTH) => std::str::from_utf8(&bytes).ok().and_then(Self::parse),
            _ => None,
        };
        record.map_or(RecordContent::Garbled, RecordContent::Record)
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
        let born = line("born ").and_then(|born| born.parse().ok());
        let files = match line("files ")? {
            "none" => None,
            ids => {
                let mut ids = ids.split(' ').map(parse_id);
                Some(FileIds { main: ids.next()??, wal: ids.next()??, shm: ids.next()?? })
            }
        };
        Some(Self { itself, born, process, boot, files })
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { itself, born, process: ProcessId { pid, namespace }, boot, files } = self;
        let id = |id: Option<FileId>| match id {
            Some(FileId { device, inode }) => format!("{device}:{inode}"),
            None => "-".into(),
        };
        let files = match files {
            Some(FileIds { main, wal, shm }) => format!("{} {} {}", id(*main), id(*wal), id(*shm)),
            None => "none".into(),
        };
        let itself = id(*itself);
        let mut body = format!("{HEAD}{FORMAT}\nprocess {pid} {namespace}\nboot {boot}\nself {itself}");
        if let Some(born) = born {
            body += &format!("\nborn {born}");
        }
        body += &format!("\nfiles {files}");
        write!(f, "{body}\nsum {}", checksum(&body))
    }
}

/// Returns when `file` was created, in ns since 1970, if the file system tells.
fn born(file: &File) -> Option<u64> {
    let created = file.metadata().and_then(|found| found.created()).ok()?;
    created.duration_since(UNIX_EPOCH).ok()?.as_nanos().try_into().ok()
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
        assert_eq!(Record::read(&file), RecordContent::Record(record));
        for other in [later.replace("\nfiles ", "\nfolders "), later.replace("owner 23", "owner x")] {
            write(&other);
            assert_eq!(Record::read(&file), RecordContent::Garbled, "{other}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_on_a_new_device_is_the_original_unless_its_process_runs() {
        let (file, path) = scratch();
        let own = Record::of(&file, None).unwrap();
        let FileId { device, inode } = own.itself.unwrap();
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        let of = |device, inode, born, pid| {
            let process = ProcessId { pid, ..own.process };
            Record { itself: Some(FileId { device, inode }), born, process, ..own }.is_of(&file)
        };
        assert!(of(device + 1, inode, own.born, gone.id()), "mounted again, after the process");
        assert!(!of(device + 1, inode, own.born, std::process::id()), "a snapshot");
        assert!(!of(device + 1, inode, own.born.map(|at| at + 1), gone.id()), "a copy");
        assert!(!of(device + 1, inode, None, gone.id()), "perhaps a copy");
        assert!(!of(device, inode + 1, own.born, gone.id()), "another file");
        assert!(of(device, inode, None, std::process::id()), "an older version");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_record_reads_back_as_written_also_after_a_longer_one() {
        let (file, path) = scratch();
        assert_eq!(Record::read(&file), RecordContent::Nothing);
        let id = |inode| Some(FileId { device: u64::MAX, inode });
        for files in [
            Some(FileIds { main: id(u64::MAX), wal: id(1), shm: id(2) }),
            Some(FileIds { main: id(7), wal: None, shm: None }),
            None,
        ] {
            let record = Record::of(&file, files).unwrap();
            assert!(record.is_of(&file));
            record.write(&file).unwrap();
            assert_eq!(Record::read(&file), RecordContent::Record(record));
            assert_eq!(record.process.pid, std::process::id());
        }
        file.write_all_at(b"leasehold owner 2", 0).unwrap();
        assert_eq!(Record::read(&file), RecordContent::Garbled);
        std::fs::remove_file(path).unwrap();
    }
}
