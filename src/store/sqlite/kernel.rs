//! Whether all processes that use a lock file belong to one kernel, and so share its clock.
//!
//! The id of the boot alone does not tell. Containers of LXC and systemd-nspawn each get a boot id of
//! their own, although they share the kernel, its clock and its locks; other processes may not read
//! the id. But on a local file system, there is no other kernel.

use std::path::Path;

use uuid::Uuid;

use super::{boot, network};

/// What is known of the kernel; see the module.
#[derive(Debug)]
pub struct Kernel {
    /// The boot id that this process reads, nil if it can't.
    own: Uuid,
    is_only: bool,
}

impl Kernel {
    /// Returns what is known of the kernels that use the file system of `directory`.
    pub fn of(directory: &Path) -> Self {
        Self { own: boot::id(), is_only: network::is_local(directory) }
    }

    /// Returns whether all processes that use the lock file belong to this kernel. Then the clock of
    /// another boot id is that of this boot, or that of an earlier boot.
    pub fn is_only(&self) -> bool {
        self.is_only
    }

    /// Returns whether a live process with the boot id `boot` may belong to this kernel.
    pub fn may_have(&self, boot: Uuid) -> bool {
        self.is_only || boot::may_be_one(boot, self.own)
    }
}

#[cfg(test)]
impl Kernel {
    /// Returns a kernel whose processes read `own` as its boot id.
    pub fn named(own: Uuid, is_only: bool) -> Self {
        Self { own, is_only }
    }
}
