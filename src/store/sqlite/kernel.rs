//! Tells whether all processes that use a lock file run on one kernel, and so share its clock.
//!
//! The boot id does not tell this by itself. Containers of LXC and systemd-nspawn each get a boot
//! id of their own, although they share the kernel, its clock and its locks. Some processes may not
//! read the id. But a local file system is used by one kernel only.

use std::path::Path;

use uuid::Uuid;

use super::{boot, network};

/// What this process knows of the kernels that use a lock file. See the module.
#[derive(Debug)]
pub struct Kernel {
    /// The boot id that this process reads; nil if it can't read one.
    own: Uuid,
    /// Whether no other kernel uses the lock file.
    is_only: bool,
}

impl Kernel {
    /// Finds out whether other kernels may use the file system of `directory`.
    pub fn of(directory: &Path) -> Self {
        Self { own: boot::id(), is_only: network::is_local(directory) }
    }

    /// Returns whether all processes that use the lock file run on this kernel. If so, a row with
    /// another boot id is of this boot or of an earlier boot of this machine.
    pub fn is_only(&self) -> bool {
        self.is_only
    }

    /// Returns whether a live process with the boot id `boot` may run on this kernel.
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
