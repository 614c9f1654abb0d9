//! Which of the stores that use the file still live, as far as one transaction knows.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::owner::{self, Liveness};
use crate::lease::Instant;

/// Whose transaction it is, and in which boot.
#[derive(Clone, Copy, Debug)]
pub struct Me<'a> {
    /// The owner that new leases name.
    pub owner: Uuid,
    /// This run of the machine, nil if unknown.
    pub boot: Uuid,
    /// Where the owners' files lie.
    pub owners: &'a Path,
}

impl Me<'_> {
    /// Whose a new lease is: nobody's if it outlives its process, so that only time ends it.
    pub fn owner_of(&self, outlives_process: bool) -> Uuid {
        if outlives_process { Uuid::nil() } else { self.owner }
    }
}

/// The owners of rows, each looked at no more than once.
#[derive(Debug)]
pub struct Peers<'a> {
    me: Me<'a>,
    now: Instant,
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
    pub fn new(me: Me<'a>, now: Instant, writes: bool) -> Self {
        let seen = FxHashMap::from_iter([(me.owner, false)]);
        Self { me, now, writes, seen, gone: Vec::new(), graves: Vec::new() }
    }

    /// Whether a row counts that was written by `owner` in `boot` and was to last for `ttl`, until `ends`. If it does
    /// not because its process is gone, all rows of that process will go.
    pub fn lives(&mut self, owner: Uuid, boot: Uuid, ttl: Duration, ends: Instant) -> bool {
        // Whoever is not known to be gone is to be believed until the time ends.
        !self.is_over(owner, boot, ttl, ends) && self.is_alive(owner) != Some(false)
    }

    /// Whether the time of such a row is over.
    pub fn is_over(&mut self, owner: Uuid, boot: Uuid, ttl: Duration, ends: Instant) -> bool {
        if boot != self.me.boot {
            // Of an earlier boot, then its owner's file is missing or unlocked. If it is locked, what looks
            // like another boot is a second kernel on the same file, whose clock we can't read: it is believed.
            return self.is_alive(owner) != Some(true);
        }
        // Where boots have no names, what has more left than it ever had is of an earlier one.
        let impossible = boot.is_nil() && ends.since(self.now) > ttl;
        ends <= self.now || impossible
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

    /// Whether the process of `owner` lives; `None` if that cannot be told, as of the nil owner.
    fn is_alive(&mut self, owner: Uuid) -> Option<bool> {
        if owner.is_nil() {
            return None;
        }
        if let Some(gone) = self.seen.get(&owner) {
            return Some(!gone);
        }
        match owner::liveness(self.me.owners, owner) {
            Liveness::Unknown => None,
            Liveness::Alive => {
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
