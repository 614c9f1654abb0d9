//! The store contract as rules on rows. Time, boot and owner come in as arguments; the rules read no clock.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::super::{Absence, Answer, Ask, LeaseInfo, LockInfo, Reply, Request};
use super::owner::{self, Liveness};
use crate::lease::{Fence, Instant, Token, Ttl};

const LOOK: &str = "SELECT token = :token, fence, ends, ttl, owner, boot FROM leases WHERE key = :key";
const TELL: &str = "SELECT holder, fence, ends, ttl, owner, boot FROM leases WHERE key = :key";
const GRANT: &str = "INSERT OR REPLACE INTO leases (key, token, fence, ends, ttl, owner, boot, holder)
    VALUES (:key, :token, :fence, :ends, :ttl, :owner, :boot, :holder)";
const EXTEND: &str =
    "UPDATE leases SET ends = CASE WHEN boot = :boot THEN max(ends, :ends) ELSE :ends END, ttl = max(ttl, :ttl),
     owner = :owner, boot = :boot WHERE key = :key";
const END: &str = "DELETE FROM leases WHERE key = :key";
const END_OF_OWNER: &str = "DELETE FROM leases WHERE owner = :owner";
const LAST_FENCE: &str = "SELECT last FROM fence WHERE only = 0";
const SET_LAST_FENCE: &str = "UPDATE fence SET last = :last WHERE only = 0";
const NEXT: &str = "SELECT key, fence, ends, ttl, owner, boot FROM leases WHERE key > :after
    ORDER BY key LIMIT :count";

/// How many leases one step of the sweep looks at.
const SWEEP_STEP: usize = 200;

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

/// One transaction's look at the leases, at one instant.
pub struct Turn<'a> {
    connection: &'a Connection,
    me: Me<'a>,
    now: Instant,
    wall_us: u64,
    /// Whether the transaction may write.
    writes: bool,
    /// The last fence, as soon as one was granted.
    last: Option<Fence>,
    /// What was found out about other owners, so that each is looked at once; `true`: it is gone.
    seen: FxHashMap<Uuid, bool>,
    /// Owners none of whose leases are left, to be buried after the commit.
    freed: Vec<(Uuid, File)>,
}

/// A row, less what the question does not need.
struct Lease {
    fence: i64,
    ends: Instant,
    ttl: Duration,
    owner: Uuid,
    boot: Uuid,
}

impl Lease {
    /// From a row of which the first column is the caller's.
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let id = |column| row.get(column).map(Uuid::from_bytes);
        Ok(Self {
            fence: row.get(1)?,
            ends: Instant::from_micros(row.get::<_, i64>(2)?.max(0).unsigned_abs()),
            ttl: Duration::from_millis(row.get::<_, i64>(3)?.max(0).unsigned_abs()),
            owner: id(4)?,
            boot: id(5)?,
        })
    }

    fn fence(&self) -> Fence {
        Fence(self.fence.max(0).unsigned_abs())
    }
}

impl<'a> Turn<'a> {
    /// A turn of `me` in the transaction that `connection` is in, at `now`; `wall_us` is the wall clock
    /// for fences.
    pub fn new(connection: &'a Connection, me: Me<'a>, now: Instant, wall_us: u64, writes: bool) -> Self {
        Self {
            connection,
            me,
            now,
            wall_us,
            writes,
            last: None,
            seen: FxHashMap::default(),
            freed: Vec::new(),
        }
    }

    /// Carries out one batch, in order.
    pub fn batch(&mut self, batch: &[Request]) -> rusqlite::Result<Vec<Answer>> {
        batch.iter().map(|request| self.apply(request).map(Ok)).collect()
    }

    /// Carries out one request.
    pub fn apply(&mut self, request: &Request) -> rusqlite::Result<Reply> {
        let mut buffer = [0; Token::LENGTH];
        match request {
            Request::Ping => Ok(Reply::Ready),
            Request::Acquire(Ask { key, token, ttl, holder, .. }) => {
                let token = token.encode(&mut buffer);
                match self.look(key, token)? {
                    Some((true, lease)) => {
                        self.extend(key, *ttl, self.me.owner)?;
                        Ok(Reply::Acquired { fence: lease.fence(), waiting: 0 })
                    }
                    Some((false, lease)) => Ok(Reply::Busy { remaining: Some(self.remaining(&lease)) }),
                    None => Ok(Reply::Acquired { fence: self.grant(key, token, *ttl, holder)?, waiting: 0 }),
                }
            }
            Request::Renew { key, token, ttl, .. } | Request::Detach { key, token, ttl } => {
                let owner =
                    if matches!(request, Request::Detach { .. }) { Uuid::nil() } else { self.me.owner };
                match self.look(key, token.encode(&mut buffer))? {
                    Some((true, _)) => {
                        self.extend(key, *ttl, owner)?;
                        Ok(Reply::Renewed { block: None })
                    }
                    Some((false, _)) => Ok(Reply::NotHeld(Absence::Taken)),
                    None => Ok(Reply::NotHeld(Absence::Missing)),
                }
            }
            Request::Release { key, token } => match self.look(key, token.encode(&mut buffer))? {
                Some((true, _)) => {
                    self.connection.prepare_cached(END)?.execute(named_params! { ":key": &**key })?;
                    Ok(Reply::Released)
                }
                Some((false, _)) => Ok(Reply::NotHeld(Absence::Taken)),
                None => Ok(Reply::NotHeld(Absence::Missing)),
            },
            Request::Inspect { key } => {
                let told = self.tell(key)?;
                let info = |lease| LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() };
                Ok(Reply::Inspected(told.map(info)))
            }
            Request::Adopt { .. } => Ok(Reply::NotHeld(Absence::Missing)),
        }
    }

    /// Writes down what the turn leaves to the next one. Returns the owners to bury once it is committed.
    pub fn finish(self) -> rusqlite::Result<Vec<(Uuid, File)>> {
        if let Some(last) = self.last {
            let last = last.0.cast_signed();
            self.connection.prepare_cached(SET_LAST_FENCE)?.execute(named_params! { ":last": last })?;
        }
        Ok(self.freed)
    }

    /// Frees all leases of an owner whose process is gone. Nothing is freed by a turn that may not write.
    pub fn free(&mut self, owner: Uuid, handle: File) -> rusqlite::Result<()> {
        if self.writes {
            let owner_id = owner.as_bytes();
            self.connection.prepare_cached(END_OF_OWNER)?.execute(named_params! { ":owner": owner_id })?;
            self.freed.push((owner, handle));
        }
        Ok(())
    }

    /// One step of the sweep: forgets leases after the key `after` that have run out and about which nobody
    /// asked. Returns the key to go on after; none at the end.
    pub fn sweep(&mut self, after: &str) -> rusqlite::Result<Option<String>> {
        let mut statement = self.connection.prepare_cached(NEXT)?;
        let rows = statement
            .query_map(named_params! { ":after": after, ":count": SWEEP_STEP as i64 }, |row| {
                Ok((row.get(0)?, Lease::of(row)?))
            })?
            .collect::<rusqlite::Result<Vec<(String, Lease)>>>()?;
        for (key, lease) in &rows {
            if self.is_over(lease)? {
                self.connection.prepare_cached(END)?.execute(named_params! { ":key": key })?;
            }
        }
        let last = rows.into_iter().nth(SWEEP_STEP - 1);
        Ok(last.map(|(key, _)| key))
    }

    /// The lease of `key`, if it lives, and whether it is `token`'s.
    fn look(&mut self, key: &str, token: &str) -> rusqlite::Result<Option<(bool, Lease)>> {
        let mut statement = self.connection.prepare_cached(LOOK)?;
        let found = statement
            .query_row(named_params! { ":key": key, ":token": token }, |row| {
                Ok((row.get(0)?, Lease::of(row)?))
            })
            .optional()?;
        match found {
            Some((ours, lease)) if self.lives(&lease)? => Ok(Some((ours, lease))),
            _ => Ok(None),
        }
    }

    fn tell(&mut self, key: &str) -> rusqlite::Result<Option<LeaseInfo>> {
        let mut statement = self.connection.prepare_cached(TELL)?;
        let found = statement
            .query_row(named_params! { ":key": key }, |row| Ok((row.get::<_, String>(0)?, Lease::of(row)?)))
            .optional()?;
        match found {
            Some((holder, lease)) if self.lives(&lease)? => Ok(Some(LeaseInfo {
                holder: Some(holder.into()),
                fence: Some(lease.fence()),
                remaining: Some(self.remaining(&lease)),
            })),
            _ => Ok(None),
        }
    }

    fn grant(&mut self, key: &str, token: &str, ttl: Ttl, holder: &str) -> rusqlite::Result<Fence> {
        let last = match self.last {
            Some(last) => last,
            None => {
                let mut statement = self.connection.prepare_cached(LAST_FENCE)?;
                Fence(statement.query_row([], |row| row.get::<_, i64>(0))?.max(0).unsigned_abs())
            }
        };
        let fence = last.next(self.wall_us);
        self.connection.prepare_cached(GRANT)?.execute(named_params! {
            ":key": key, ":token": token, ":fence": fence.0.cast_signed(), ":holder": holder,
            ":ends": (self.now + ttl.as_duration()).as_micros().cast_signed(), ":ttl": ttl.as_millis(),
            ":owner": self.me.owner.as_bytes(), ":boot": self.me.boot.as_bytes(),
        })?;
        self.last = Some(fence);
        Ok(fence)
    }

    /// Never shortens it. The owner is written too: should its file have been deleted, the lease names the new one from
    /// now on. Nobody has the file of the nil owner, so its leases end by their ttl alone.
    fn extend(&mut self, key: &str, ttl: Ttl, owner: Uuid) -> rusqlite::Result<()> {
        self.connection.prepare_cached(EXTEND)?.execute(named_params! {
            ":key": key, ":ttl": ttl.as_millis(),
            ":ends": (self.now + ttl.as_duration()).as_micros().cast_signed(),
            ":owner": owner.as_bytes(), ":boot": self.me.boot.as_bytes(),
        })?;
        Ok(())
    }

    /// Whether the lease still excludes others. If it does not because its process is gone, all leases
    /// of that process are freed.
    fn lives(&mut self, lease: &Lease) -> rusqlite::Result<bool> {
        if self.is_over(lease)? {
            return Ok(false);
        }
        // Whoever is not known to be gone is to be believed until the ttl ends.
        Ok(lease.owner == self.me.owner || self.liveness(lease.owner)? != Some(false))
    }

    /// Whether the lease's time is over.
    fn is_over(&mut self, lease: &Lease) -> rusqlite::Result<bool> {
        if lease.boot != self.me.boot {
            // Of an earlier boot, then its owner's file is missing or unlocked. If it is locked, what looks
            // like another boot is a second kernel on the same file, whose clock we can't read: it is believed.
            return Ok(self.liveness(lease.owner)? != Some(true));
        }
        // Where boots have no names, a lease that has more left than it ever had is of an earlier one.
        let impossible = lease.boot.is_nil() && lease.ends.since(self.now) > lease.ttl;
        Ok(lease.ends <= self.now || impossible)
    }

    /// Whether the process of `owner` lives; `None` if that cannot be told.
    fn liveness(&mut self, owner: Uuid) -> rusqlite::Result<Option<bool>> {
        if let Some(gone) = self.seen.get(&owner) {
            return Ok(Some(!gone));
        }
        let alive = match owner::liveness(self.me.owners, owner) {
            Liveness::Unknown => return Ok(None),
            Liveness::Alive => true,
            Liveness::Dead(handle) => {
                self.free(owner, handle)?;
                false
            }
        };
        self.seen.insert(owner, !alive);
        Ok(Some(alive))
    }

    fn remaining(&self, lease: &Lease) -> Duration {
        if lease.boot == self.me.boot { lease.ends.since(self.now) } else { lease.ttl }
    }
}

#[cfg(test)]
#[path = "leases_tests.rs"]
mod tests;
