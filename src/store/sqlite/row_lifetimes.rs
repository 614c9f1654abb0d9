//! Tells which of the stores that use the file still live, as far as one transaction knows.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use super::boot;
use super::kernel::Kernel;
use super::owners::{self, Liveness};
use crate::lease::Instant;

/// The store that a transaction belongs to, and its boot.
#[derive(Clone, Copy, Debug)]
pub struct ThisStore<'a> {
    /// The owner that new leases name.
    pub owner: Uuid,
    /// The boot of this process, nil if unknown.
    pub boot: Uuid,
    /// Whether other kernels use the file.
    pub kernel: &'a Kernel,
    /// The directory of the owners' files.
    pub owners: &'a Path,
}

impl ThisStore<'_> {
    /// Returns the owner that a new lease names: nil if the lease outlives its process, so that
    /// only time ends it.
    pub fn owner_of(&self, outlives_process: bool) -> Uuid {
        if outlives_process { Uuid::nil() } else { self.owner }
    }
}

/// How wrong the wall clock may be when it tells how long the machine was off. A hardware clock in
/// local time is wrong by up to 14 hours until it is corrected. If this is larger, detached leases
/// may outlive their time by more; if it is smaller, they may end too early after a reboot.
pub const WALL_CLOCK_ERROR: Duration = Duration::from_secs(24 * 60 * 60);

/// The columns of a row that say when it ends.
#[derive(Clone, Copy, Debug)]
pub struct RowSpan {
    /// The store that the row belongs to; nil for none.
    pub owner: Uuid,
    /// The boot in which the row was written.
    pub boot: Uuid,
    /// True if the row is a waiter's place in the queue. If a place ends too early, the waiter
    /// loses its turn, but no two clients hold one lock.
    pub is_place: bool,
    /// The ttl of the row.
    pub ttl: Duration,
    /// When the row ends, by the clock of that boot.
    pub ends: Instant,
    /// When the row ends by the wall clock, in µs since 1970; only for rows that outlive the boot.
    pub wall_ends: Option<u64>,
}

/// Whether and until when a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStatus {
    /// The row has ended: its time is over, or its process is gone.
    Over,
    /// The row counts until its time is over.
    Lives,
    /// The row's process lives, and its boot looks like another one: a second kernel may use the
    /// same file. Its clock can't be read here, so the row counts for its whole ttl after each time
    /// that it is read.
    Believed,
    /// The row has outlived its boot. It ends at that instant of this boot's clock, and has to be
    /// rewritten with it.
    Outlives(Instant),
}

/// Decides which rows count. Remembers which owners live, and which are gone.
#[derive(Debug)]
pub struct RowLifetimes<'a> {
    me: ThisStore<'a>,
    now: Instant,
    wall_us: u64,
    /// True if the transaction may write, and so can free the rows of dead owners.
    writes: bool,
    /// The owners that were checked; `true` for an owner that is gone.
    seen: HashMap<Uuid, bool>,
    /// Owners that are gone. The transaction deletes their rows.
    gone: Vec<Uuid>,
    /// The files of these owners, which have to be removed after the commit.
    dead_owner_files: Vec<(Uuid, File)>,
}

impl<'a> RowLifetimes<'a> {
    pub fn new(me: ThisStore<'a>, now: Instant, wall_us: u64, writes: bool) -> Self {
        let seen = HashMap::from_iter([(me.owner, false)]);
        Self { me, now, wall_us, writes, seen, gone: Vec::new(), dead_owner_files: Vec::new() }
    }

    /// Returns whether a row counts. If a row does not count because its process is gone, the
    /// transaction deletes all rows of that process.
    pub fn status(&mut self, span: RowSpan) -> RowStatus {
        match self.status_by_time(span) {
            // A process that is not known to be gone counts as alive until the row ends.
            RowStatus::Lives if self.look_up_owner(span.owner) == Some(false) => RowStatus::Over,
            status => status,
        }
    }

    /// Returns the same without a look at the process of a row of this boot: such a row counts as
    /// if its process lived.
    pub fn status_by_time(&mut self, span: RowSpan) -> RowStatus {
        let RowSpan { owner, boot, is_place, ttl, ends, .. } = span;
        let by_time = if ends <= self.now { RowStatus::Over } else { RowStatus::Lives };
        let ThisStore { boot: own, kernel, .. } = self.me;
        // Containers have ids of their own for this boot, and some processes can't read the id. If
        // the ids do not tell, compare the times: a row with more time left than its ttl is of an
        // earlier boot. Any other row may be of this boot. If it is of an earlier boot after all,
        // it ends no sooner than its ttl after the start of this boot.
        let is_named = boot == own && !boot.is_nil();
        let is_possible = is_named || ends.since(self.now) <= ttl;
        let is_this = is_possible && (boot == own || kernel.is_only());
        let may_be_this = is_this || is_possible && boot::may_be_one(boot, own);
        if is_this || may_be_this && (owner.is_nil() || is_place) {
            return by_time;
        }
        if owner.is_nil() {
            return self.outlives(span);
        }
        // If the row is of an earlier boot, its owner's file is missing or unlocked. A live owner
        // means that there may be two kernels.
        if self.look_up_owner(owner) == Some(true) {
            return RowStatus::Believed;
        }
        if may_be_this { by_time } else { RowStatus::Over }
    }

    /// Returns whether a row of no process goes on in this boot. The time that the machine was off
    /// is unknown. So the row lives for its ttl again, from the first look on: it never ends too
    /// early, and at most its ttl too late. A machine that starts every day must not keep the row
    /// for ever, so the row ends at the latest [`WALL_CLOCK_ERROR`] after its original end by the
    /// wall clock. The wall clock may be ahead by that much without ending the row too early. A
    /// wall clock that is behind ends nothing.
    fn outlives(&self, RowSpan { ttl, wall_ends, .. }: RowSpan) -> RowStatus {
        let left = |wall_ends: u64| {
            (Instant::from_micros(wall_ends) + WALL_CLOCK_ERROR).since(Instant::from_micros(self.wall_us))
        };
        match wall_ends.map(left) {
            Some(left) if !left.is_zero() => RowStatus::Outlives(self.now + left.min(ttl)),
            _ => RowStatus::Over,
        }
    }

    /// Notes that the process of `owner` is gone. This transaction then deletes the owner's rows. A
    /// transaction that may not write leaves the owner to others.
    pub fn note_gone(&mut self, owner: Uuid, handle: File) {
        // If this transaction has counted the owner as alive, it leaves the owner to the next
        // transaction.
        if self.writes && !self.seen.contains_key(&owner) {
            self.seen.insert(owner, true);
            self.gone.push(owner);
            self.dead_owner_files.push((owner, handle));
        }
    }

    /// Adds this store to the owners that are gone, because it is about to end.
    pub fn retire(&mut self) {
        self.seen.insert(self.me.owner, true);
        self.gone.push(self.me.owner);
    }

    /// Returns the owners that are gone, in the order in which they were found.
    pub fn gone(&self) -> &[Uuid] {
        &self.gone
    }

    /// Returns the files of owners that have no rows left once the transaction is committed.
    pub fn into_dead_owner_files(self) -> Vec<(Uuid, File)> {
        self.dead_owner_files
    }

    /// Looks whether the process of `owner` lives, and notes the owner as gone if it does not.
    /// Returns `None` if that is unknown, as for the nil owner.
    pub fn look_up_owner(&mut self, owner: Uuid) -> Option<bool> {
        if owner.is_nil() {
            return None;
        }
        if let Some(gone) = self.seen.get(&owner) {
            return Some(!gone);
        }
        match owners::liveness(self.me.owners, owner) {
            Liveness::Missing | Liveness::Stray(_) => None,
            // If the file can't be read, the process may be alive.
            Liveness::Alive(_) | Liveness::Unreadable(_) => {
                self.seen.insert(owner, false);
                Some(true)
            }
            Liveness::Dead(handle) => {
                self.note_gone(owner, handle);
                self.seen.insert(owner, true);
                Some(false)
            }
        }
    }
}
