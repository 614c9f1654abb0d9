//! Which rows were written in this boot of this kernel.
//!
//! The id of the boot alone does not tell. Containers of LXC and systemd-nspawn each get a boot id of
//! their own, although they share the kernel, its clock and its locks; other processes may not read
//! the id. But a file that is locked on a local file system is locked by a process of this kernel. So
//! its boot id is another name of this boot.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::{boot, network};

/// The other names of this boot, as far as they are known.
#[derive(Debug, Default)]
pub struct Kernel {
    /// The boot id that this process reads, nil if it can't.
    own: Uuid,
    /// Whether all processes that use the lock file belong to this kernel.
    is_only: bool,
    names: Mutex<Vec<Uuid>>,
}

impl Kernel {
    /// Returns the kernel that uses the file system of `directory`.
    pub fn of(directory: &Path) -> Self {
        Self { own: boot::id(), is_only: network::is_local(directory), names: Mutex::default() }
    }

    /// Whether all processes that use the lock file belong to this kernel.
    pub fn is_only(&self) -> bool {
        self.is_only
    }

    /// Returns whether a live process with the boot id `boot` may belong to this kernel.
    pub fn may_have(&self, boot: Uuid) -> bool {
        self.is_only || boot::may_be_one(boot, self.own)
    }

    /// Returns whether another process of this kernel is known to have the id `boot`.
    pub fn has(&self, boot: Uuid) -> bool {
        self.names().contains(&boot)
    }

    fn names(&self) -> MutexGuard<'_, Vec<Uuid>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that a live process has the boot id `boot`. Many boots have the nil id, so that is no
    /// name.
    pub fn learn(&self, boot: Uuid) {
        if self.is_only && !boot.is_nil() && !self.has(boot) {
            self.names().push(boot);
        }
    }
}

#[cfg(test)]
impl Kernel {
    /// Returns a kernel whose processes read `own` as its boot id.
    pub fn named(own: Uuid, is_only: bool) -> Self {
        Self { own, is_only, names: Mutex::default() }
    }
}
