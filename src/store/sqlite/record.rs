//! What an owner's file says to other processes: who it is, and which files its store uses.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use uuid::Uuid;

use super::boot;
use super::identity::{FileId, FileIds};

/// The length of a record, so that a shorter one leaves nothing of a longer one behind. The longest has about 280 bytes.
const LENGTH: usize = 512;
const HEAD: &str = "leasehold owner 1";
/// How often a record is read that somebody is just writing.
const READS: u32 = 5;

/// A process, as far as others have to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    pub pid: u32,
    /// The pid namespace, 0 where there are none.
    pub(super) namespace: u64,
}

impl ProcessId {
    /// Returns that of this process. Both copies of the library in one process get the same.
    pub fn own() -> Self {
        #[cfg(target_os = "linux")]
        let namespace = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |found| FileId::of(&found).inode);
        #[cfg(not(target_os = "linux"))]
        let namespace = 0;
        Self { pid: std::process::id(), namespace }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub process: ProcessId,
    /// Which kernel counts the files.
    pub boot: Uuid,
    /// The files that the store uses; none if it has nothing in them.
    pub files: Option<FileIds>,
}

/// What an owner's file turned out to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Record(Record),
    /// Nothing yet.
    Nothing,
    /// Something that can't be read.
    Garbled,
}

impl Record {
    /// Returns that of a store of this process.
    pub fn own(files: Option<FileIds>) -> Self {
        Self { process: ProcessId::own(), boot: boot::id(), files }
    }

    /// Writes it into `file`, in one call.
    pub fn write(&self, file: &File) -> io::Result<()> {
        let mut bytes = self.to_string().into_bytes();
        bytes.resize(LENGTH, b'\n');
        file.write_all_at(&bytes, 0)
    }

    /// Reads what `file` says. One that is written at the same moment is read again.
    pub fn read(file: &File) -> Said {
        let mut bytes = [0; LENGTH];
        for again in 0..READS {
            if again > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            match file.read_at(&mut bytes, 0) {
                Ok(0) => return Said::Nothing,
                Ok(LENGTH) => {
                    if let Some(record) = std::str::from_utf8(&bytes).ok().and_then(Self::parse) {
                        return Said::Record(record);
                    }
                }
                _ => {}
            }
        }
        Said::Garbled
    }

    fn parse(text: &str) -> Option<Self> {
        let (body, sum) = text.trim_end().rsplit_once("\nsum ")?;
        if sum.parse() != Ok(checksum(body)) {
            return None;
        }
        let mut lines = body.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let (pid, namespace) = lines.next()?.strip_prefix("process ")?.split_once(' ')?;
        let process = ProcessId { pid: pid.parse().ok()?, namespace: namespace.parse().ok()? };
        let boot = Uuid::try_parse(lines.next()?.strip_prefix("boot ")?).ok()?;
        let files = match lines.next()?.strip_prefix("files ")? {
            "none" => None,
            ids => {
                let mut ids = ids.split(' ').map(parse_id);
                Some(FileIds { main: ids.next()??, wal: ids.next()??, shm: ids.next()?? })
            }
        };
        Some(Self { process, boot, files })
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { process: ProcessId { pid, namespace }, boot, files } = self;
        let id = |id: Option<FileId>| match id {
            Some(FileId { device, inode }) => format!("{device}:{inode}"),
            None => "-".into(),
        };
        let files = match files {
            Some(FileIds { main, wal, shm }) => format!("{} {} {}", id(*main), id(*wal), id(*shm)),
            None => "none".into(),
        };
        let body = format!("{HEAD}\nprocess {pid} {namespace}\nboot {boot}\nfiles {files}");
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
    fn what_is_written_is_read_also_after_a_longer_record() {
        let (file, path) = scratch();
        assert_eq!(Record::read(&file), Said::Nothing);
        let id = |inode| Some(FileId { device: u64::MAX, inode });
        for files in [
            Some(FileIds { main: id(u64::MAX), wal: id(1), shm: id(2) }),
            Some(FileIds { main: id(7), wal: None, shm: None }),
            None,
        ] {
            let record = Record::own(files);
            record.write(&file).unwrap();
            assert_eq!(Record::read(&file), Said::Record(record));
            assert_eq!(record.process.pid, std::process::id());
        }
        file.write_all_at(b"leasehold owner 2", 0).unwrap();
        assert_eq!(Record::read(&file), Said::Garbled);
        std::fs::remove_file(path).unwrap();
    }
}
