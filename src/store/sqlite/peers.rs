//! Tells which of the stores that use the file still live, as far as one transaction knows.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::boot;
use super::kernel::Kernel;
use super::owners::{self, Liveness};
use crate::lease::Instant;

/// Whose transaction it is, and in which boot.
#[derive(Clone, Copy, Debug)]
pub struct Me<'a> {
    /// The owner that new leases name.
    pub owner: Uuid,
    /// The boot of this process, nil if unknown.
    pub boot: Uuid,
    /// Whether other kernels use the file.
    pub kernel: &'a Kernel,
    /// Where the owners' files lie.
    pub owners: &'a Path,
}

impl Me<'_> {
    /// Returns the owner that a new lease names: nil if the lease outlives its process, so that
    /// only time ends it.
    pub fn owner_of(&self, outlives_process: bool) -> Uuid {
        if outlives_process { Uuid::nil() } else { self.owner }
    }
}

/// How wrong the wall clock may be when it tells how long the machine was off. A hardware clock in
/// local time is wrong by up to 14 hours until it is corrected. If this is larger, detached leases
/// may outlive their time by more; if it is smaller, they may end too early after a reboot.
pub const WALL_DOUBT: Duration = Duration::from_secs(24 * 60 * 60);

/// The columns of a row that say when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The store that the row belongs to; nil for none.
    pub owner: Uuid,
    /// The boot in which the row was written.
    pub boot: Uuid,
    /// Whether the row is a waiter's place in the queue. If a place ends too early, the waiter
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
pub enum Fate {
    /// The row has ended: its time is over, or its process is gone.
    Over,
    /// The row counts until its time is over.
    Lives,
    /// The row's process lives, and its boot looks like another one: a second kernel may use the
    /// same file. Its clock can't be read here, so the row counts for its whole ttl from each look.
    Believed,
    /// The row has outlived its boot. It ends at that instant of this boot's clock, and has to be
    /// rewritten with it.
    Outlives(Instant),
}

/// The owners of rows, each looked at no more than once.
#[derive(Debug)]
pub struct Peers<'a> {
    me: Me<'a>,
    now: Instant,
    wall_us: u64,
    /// Whether the transaction may write, and so free what the dead had.
    writes: bool,
    /// What was found out about owners; `true`: it is gone.
    seen: FxHashMap<Uuid, bool>,
    /// Owners that are gone, and whose rows are to be.
    gone: Vec<Uuid>,
    /// Their files, to be taken away after the commit.
    graves: Vec<(Uuid, File)>,
}

impl<'a> Peers<'a> {
    pub fn new(me: Me<'a>, now: Instant, wall_us: u64, writes: bool) -> Self {
        let seen = FxHashMap::from_iter([(me.owner, false)]);
        Self { me, now, wall_us, writes, seen, gone: Vec::new(), graves: Vec::new() }
    }

    /// Returns whether a row counts. If a row does not count because its process is gone, the
    /// transaction deletes all rows of that process.
    pub fn fate(&mut self, span: Span) -> Fate {
        match self.fate_by_time(span) {
            // A process that is not known to be gone counts as alive until the row ends.
            Fate::Lives if self.is_alive(span.owner) == Some(false) => Fate::Over,
            fate => fate,
        }
    }

    /// Returns the same without a look at the process of a row of this boot: such a row counts as
    /// if its process lived.
    pub fn fate_by_time(&mut self, span: Span) -> Fate {
        let Span { owner, boot, is_place, ttl, ends, .. } = span;
        let by_time = if ends <= self.now { Fate::Over } else { Fate::Lives };
        let Me { boot: own, kernel, .. } = self.me;
        // Containers have ids of their own for this boot, and some processes can't read the id. If
        // the ids do not tell, compare the times: a row with more time left than its ttl is of an
        // earlier boot. Any other row may be of this boot. If it is of an earlier boot after all,
        // it ends no sooner than its ttl after the start of this boot.
        let is_named = boot == own && !boot.is_nil();
        let is_possible = is_named || ends.since(self.now) <= ttl;
        let is_this = is_possible && (boot == own || kernel.is_only());
        let may_be_this = is_this || is_possible && boot::may_be_one(boot, own);
        match () {
            () if is_this => by_time,
            () if owner.is_nil() => {
                if may_be_this {
                    by_time
                } else {
                    self.outlives(span)
                }
            }
            () if is_place && may_be_this => by_time,
            // If the row is of an earlier boot, its owner's file is missing or unlocked. A live
            // owner means that there may be two kernels.
            () if self.is_alive(owner) == Some(true) => Fate::Believed,
            () if may_be_this => by_time,
            () => Fate::Over,
        }
    }

    /// Returns whether a row of no process goes on in this boot. The time that the machine was off
    /// is unknown. So the row lives for its ttl again, from the first look on: it never ends too
    /// early, and at most its ttl too late. A machine that starts every day must not keep the row
    /// for ever, so the row ends at the latest [`WALL_DOUBT`] after its original end by the wall
    /// clock. The wall clock may be ahead by that much without ending the row too early. A wall
    /// clock that is behind ends nothing.
    fn outlives(&self, Span { ttl, wall_ends, .. }: Span) -> Fate {
        let left = |wall_ends: u64| {
            (Instant::from_micros(wall_ends) + WALL_DOUBT).since(Instant::from_micros(self.wall_us))
        };
        match wall_ends.map(left) {
            Some(left) if !left.is_zero() => Fate::Outlives(self.now + left.min(ttl)),
            _ => Fate::Over,
        }
    }

    /// Remembers an owner whose process is gone. A transaction that may not write leaves that to others.
    pub fn bury(&mut self, owner: Uuid, handle: File) {
        // Whose rows were believed a moment ago is left to the next transaction.
        if self.writes && !self.seen.contains_key(&owner) {
            self.seen.insert(owner, true);
            self.gone.push(owner);
            self.graves.push((owner, handle));
        }
    }

    /// From now on this store is gone, too: it is about to end.
    pub fn retire(&mut self) {
        self.seen.insert(self.me.owner, true);
        self.gone.push(self.me.owner);
    }

    /// Those that are gone, in the order in which that was found out.
    pub fn gone(&self) -> &[Uuid] {
        &self.gone
    }

    /// The files of those of whom nothing is left once the transaction is committed.
    pub fn into_graves(self) -> Vec<(Uuid, File)> {
        self.graves
    }

    /// Returns whether the process of `owner` lives; `None` if that is unknown, as for the nil
    /// owner.
    pub fn is_alive(&mut self, owner: Uuid) -> Option<bool> {
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
                self.bury(owner, handle);
                self.seen.insert(owner, true);
                Some(false)
            }
        }
    }
}
