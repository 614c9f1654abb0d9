//! Finds out which kind of file system a file is on.

use std::path::Path;

/// The numbers of network file systems, as <linux/magic.h> and the kernel's sources of CIFS name
/// them.
#[cfg(target_os = "linux")]
const NETWORK: [(u32, &str); 7] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0102_1997, "9P"),
];

/// The numbers of local file systems, as <linux/magic.h> and the sources of the kernel, ZFS and
/// bcachefs name them: ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs, ramfs, JFS,
/// ReiserFS, NILFS2, UBIFS, eCryptfs, NTFS3, FAT and exFAT. Several kernels may use other file
/// systems: virtual machines share FUSE and virtiofs, and clusters share GFS2, OCFS2, Lustre and
/// GPFS.
#[cfg(target_os = "linux")]
const LOCAL: [u32; 17] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x794c_7630,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
    0x8584_58f6,
    0x3153_464a,
    0x5265_4973,
    0x3434,
    0x2405_1905,
    0xf15f,
    0x7366_746e,
    0x4d44,
    0x2011_bab0,
];

/// Returns the number of the file system that `path` is on.
#[cfg(target_os = "linux")]
fn number_of(path: &Path) -> Option<u32> {
    Some(rustix::fs::statfs(path).ok()?.f_type as u32)
}

/// Returns the name of the network file system that `path` is on; `None` if it is on no known one.
/// Blocks if the file system hangs, so ask for a file that was just read.
#[cfg(target_os = "linux")]
pub fn name_of(path: &Path) -> Option<&'static str> {
    let number = number_of(path)?;
    NETWORK.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Returns whether certainly no other kernel uses the file system of `path`. If so, each lock on a
/// file there belongs to a process of this kernel.
#[cfg(target_os = "linux")]
pub fn is_local(path: &Path) -> bool {
    number_of(path).is_some_and(|number| LOCAL.contains(&number))
}

/// Returns `None`: the name is unknown on this system.
#[cfg(not(target_os = "linux"))]
pub fn name_of(_: &Path) -> Option<&'static str> {
    None
}

/// Returns `false`: this system does not tell.
#[cfg(not(target_os = "linux"))]
pub fn is_local(_: &Path) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_temporary_directory_is_local_and_what_is_missing_may_be_anywhere() {
        let directory = std::env::temp_dir();
        assert_eq!((is_local(&directory), name_of(&directory)), (true, None));
        assert!(!is_local(&directory.join("missing").join("file")));
    }
}
