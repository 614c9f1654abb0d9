//! Runs one transaction after the other in the opened file.

mod log;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::named_params;
use uuid::Uuid;

use self::log::SessionLog;
use super::super::{Answer, StoreError, StoreErrorKind};
use super::boot;
use super::file_location::FileLocation;
use super::identity::Files;
use super::kernel::Kernel;
use super::leases::{AfterCommit, Cursor, HandedLease, Transaction};
use super::opened_file::OpenedFile;
use super::owner::Owner;
use super::owners;
use super::row_lifetimes::ThisStore;
use super::rows;
use super::schema;
use super::session_error::SessionError;
use super::work::{Done, Work, is_change, is_to_outlive};
use crate::engine::clock;
use crate::lease::Instant;

/// Reads a number that changes with every transaction of another process.
const CHANGES: &str = "PRAGMA data_version";
const HANDED: &str = "SELECT token, number FROM leases
    WHERE owner = :owner AND number IS NOT NULL";
const ENDS: &str = "SELECT min(at) FROM (SELECT ends AS at FROM leases WHERE key = :key
    UNION ALL SELECT until FROM waiters WHERE key = :key)";

/// How often a session that is used takes a step of the sweep.
const SWEEP_EVERY: Duration = Duration::from_millis(20);
/// How often the files are touched, so that programs that delete old files keep them.
const TOUCH_EVERY: Duration = Duration::from_secs(3600);

/// The number of free pages that the file may have, and that are given back to the system at once.
const FREE_PAGES: i64 = 256;

/// The use of an opened lock file by one store.
#[derive(Debug)]
pub struct Session {
    opened: OpenedFile,
    owners: PathBuf,
    /// Owners whose processes were gone when this store was admitted. The next transaction frees
    /// their leases.
    dead: Vec<(Uuid, File)>,
    boot: Uuid,
    kernel: Arc<Kernel>,
    /// The result of the last [`CHANGES`].
    changes: i64,
    /// Where the next step of the sweep begins.
    swept: Cursor,
    sweep_at: Instant,
    touch_at: Instant,
    log: SessionLog,
}

impl Session {
    /// Opens the lock file at `path`, which leads to `place`. Returns `None` if the file is
    /// missing. Waits for other processes until `deadline`.
    pub fn open(path: &Path, place: &FileLocation, deadline: Instant) -> Result<Option<Self>, SessionError> {
        let Some(opened) = OpenedFile::open(path, place, deadline)? else { return Ok(None) };
        let now = clock::now();
        let log = SessionLog::new(&opened, now);
        Ok(Some(Self {
            opened,
            owners: place.owners.clone(),
            dead: Vec::new(),
            boot: boot::id(),
            kernel: place.kernel.clone(),
            // No file has this number.
            changes: -1,
            swept: Cursor::default(),
            sweep_at: now,
            touch_at: now,
            log,
        }))
    }

    /// Carries out `work` in one transaction. Waits for other processes until `deadline`. If the
    /// disk is full, puts the log back into the database and tries once more.
    pub fn transact(
        &mut self,
        owner: &Owner,
        mut work: Work<'_>,
        deadline: Instant,
    ) -> Result<Done, SessionError> {
        work.dead.append(&mut self.dead);
        if !work.former.is_empty() {
            // Look at all rows again: a former owner may have been handed leases.
            self.changes = -1;
        }
        let reads = !work.batches.is_empty() && work.looks.is_empty() && work.dead.is_empty();
        let writes = !reads || work.batches.iter().copied().flatten().any(is_change);
        self.opened.patience.store(deadline.as_micros(), Ordering::Relaxed);
        if writes && self.log.is_due(clock::now()) {
            self.log.limit(&self.opened.connection);
        }
        let durable = work.batches.iter().copied().flatten().any(is_to_outlive);
        let again = Work { batches: work.batches.clone(), looks: work.looks.clone(), ..work.bare() };
        let result = self.durably(durable, |session| session.attempt(owner, work, writes));
        match result {
            Err(SessionError::Broken(error)) if error.kind == StoreErrorKind::Full && self.put_log_back() => {
                self.durably(durable, |session| session.attempt(owner, again, writes))
            }
            result => result,
        }
    }

    /// Carries out `work` in one transaction.
    fn attempt(&mut self, owner: &Owner, work: Work<'_>, writes: bool) -> Result<Done, SessionError> {
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.opened.execute(begin).map_err(|error| self.opened.session_error(&error))?;
        let result = self.carry_out(owner, work, writes);
        if result.is_err() && !self.opened.connection.is_autocommit() {
            let _ = self.opened.execute("ROLLBACK");
        }
        result
    }

    /// Runs `act`. If `durable`, its commits wait for the disk: a detached lease outlives the boot.
    /// SQLite accepts that setting only outside of a transaction.
    fn durably<T>(
        &mut self,
        durable: bool,
        act: impl FnOnce(&mut Self) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        if durable {
            self.opened.execute(schema::DURABLE).map_err(|error| self.opened.session_error(&error))?;
        }
        let result = act(self);
        if durable {
            // If this fails, later commits only take longer.
            let _ = self.opened.execute(schema::USUAL);
        }
        result
    }

    /// Carries out `work` in the transaction that has begun, and commits it.
    fn carry_out(&mut self, owner: &Owner, work: Work<'_>, writes: bool) -> Result<Done, SessionError> {
        // Leave a replaced file at once. Safety does not depend on this check: see `admission`.
        // Checking the names of the log and its index costs twice as much, so only the periodic
        // check does that.
        if !self.opened.files.is_database_named() {
            return Err(SessionError::Moved);
        }
        // Read the clock after all waiting: this is the instant of the transaction.
        let now = clock::now();
        let touch = writes && now >= self.touch_at;
        if touch {
            self.touch_at = now + TOUCH_EVERY;
            owner.touch();
            self.opened.touch();
        }
        let sweep = writes && (work.sweep || now >= self.sweep_at);
        if sweep {
            self.sweep_at = now + SWEEP_EVERY;
        }
        let me = ThisStore { owner: owner.id(), boot: self.boot, kernel: &self.kernel, owners: &self.owners };
        let swept = sweep.then_some(&mut self.swept);
        let dead = if touch { owners::sweep(me.owners) } else { Vec::new() };
        let transaction = Transaction::new(&self.opened.connection, me, now, clock::wall_us(), writes);
        let carried = transaction.and_then(|transaction| carry(transaction, work, dead, swept));
        let (answers, AfterCommit { handed, dead_owner_files }) =
            carried.map_err(|error| self.opened.session_error(&error))?;
        self.opened.execute("COMMIT").map_err(|error| match self.opened.session_error(&error) {
            // The transaction may be in the log already.
            SessionError::Broken(error) => SessionError::Broken(StoreError { maybe_done: true, ..error }),
            other => other,
        })?;
        for (owner, handle) in dead_owner_files {
            owners::remove_dead_owner(&self.owners, owner, handle);
        }
        Ok(Done { answers, handed, at: now })
    }

    /// Returns the waiters of `owner` that were handed leases and have not taken them up; `None` if
    /// no other process has changed the file since the last call. Never waits.
    pub fn news(&mut self, owner: &Owner) -> Result<Option<Vec<HandedLease>>, SessionError> {
        self.opened.patience.store(0, Ordering::Relaxed);
        self.read_news(owner).map_err(|error| self.opened.session_error(&error))
    }

    fn read_news(&mut self, owner: &Owner) -> rusqlite::Result<Option<Vec<HandedLease>>> {
        let changes = self.opened.connection.prepare_cached(CHANGES)?.query_row([], |row| row.get(0))?;
        if changes == self.changes {
            return Ok(None);
        }
        let mut statement = self.opened.connection.prepare_cached(HANDED)?;
        let id = owner.id();
        let handed = statement.query_map(named_params! { ":owner": id.as_bytes() }, |row| {
            let (token, number) = (rows::token_of(row, 0)?, rows::number_of(row, 1)?);
            Ok(HandedLease { token, number })
        })?;
        let handed = handed.collect::<rusqlite::Result<_>>()?;
        self.changes = changes;
        Ok(Some(handed))
    }

    /// Returns when the first of the leases and places of `key` ends; `None` if there is none.
    /// Never waits.
    pub fn ends(&mut self, key: &str) -> Result<Option<Instant>, SessionError> {
        self.opened.patience.store(0, Ordering::Relaxed);
        let ends = self.opened.connection.prepare_cached(ENDS).and_then(|mut statement| {
            statement.query_row(named_params! { ":key": key }, |row| row.get::<_, Option<i64>>(0))
        });
        let ends = ends.map_err(|error| self.opened.session_error(&error))?;
        Ok(ends.map(|ends| Instant::from_micros(ends.cast_unsigned())))
    }

    /// Lets the next transaction free the leases of the `dead` owners. If the files were moved away
    /// and back, they may still contain rows of a former owner of this store.
    pub fn free_first(&mut self, dead: Vec<(Uuid, File)>) {
        self.dead = dead;
    }

    /// Returns owners whose processes are gone.
    pub fn dead(&self) -> Vec<(Uuid, File)> {
        owners::dead(&self.owners)
    }

    /// Takes a step of the sweep and gives free pages back to the system, while the store is idle.
    /// Returns whether more will be left to do, and the waiters of this store that were handed
    /// leases.
    pub fn tidy(
        &mut self,
        owner: &Owner,
        deadline: Instant,
    ) -> Result<(bool, Vec<HandedLease>), SessionError> {
        let mut handed = Vec::new();
        let any = "SELECT EXISTS (SELECT 1 FROM leases) OR EXISTS (SELECT 1 FROM waiters)";
        let any = self
            .opened
            .connection
            .query_row(any, [], |row| row.get(0))
            .map_err(|error| self.opened.session_error(&error))?;
        if any {
            handed = self.transact(owner, Work { sweep: true, ..Work::default() }, deadline)?.handed;
        }
        let free: i64 = self
            .opened
            .connection
            .pragma_query_value(None, "freelist_count", |row| row.get(0))
            .map_err(|error| self.opened.session_error(&error))?;
        if free > FREE_PAGES {
            let sql = format!("PRAGMA incremental_vacuum({FREE_PAGES})");
            self.opened.connection.execute_batch(&sql).map_err(|error| self.opened.session_error(&error))?;
        }
        Ok((any || free > FREE_PAGES, handed))
    }

    /// Frees the leases of `owner` and of the `former` owners, and deletes their files. Call it at
    /// the end.
    pub fn retire(&mut self, owner: Owner, former: Vec<Owner>, deadline: Instant) {
        let ids = former.iter().map(Owner::id).collect();
        let work = Work { former: ids, retire: true, ..Work::default() };
        // If this fails, the next store that looks finds the files unlocked, and does the same.
        if self.transact(&owner, work, deadline).is_ok() {
            self.shorten_log(&owner);
            former.into_iter().chain([owner]).for_each(Owner::retire);
        }
    }

    /// Empties the log, which may fill a small disk. Returns whether the log is empty now.
    pub fn put_log_back(&self) -> bool {
        self.log.put_back(&self.opened.connection)
    }

    /// Puts a long log back into the database if no other store uses the files.
    pub fn shorten_log(&self, owner: &Owner) {
        if self.log.is_long() && !owners::has_others(&self.owners, owner.id()) {
            self.log.shorten(&self.opened.connection);
        }
    }

    /// Returns whether one of the names leads to a file other than the opened one, or to none.
    pub fn is_moved(&self) -> bool {
        !self.opened.files.are_named()
    }

    /// Returns the files that the connection has open.
    pub fn files(&self) -> &Files {
        &self.opened.files
    }
}

/// Carries out `work` in `transaction`, and finishes it.
fn carry(
    mut transaction: Transaction<'_>,
    work: Work<'_>,
    dead: Vec<(Uuid, File)>,
    swept: Option<&mut Cursor>,
) -> rusqlite::Result<(Vec<Vec<Answer>>, AfterCommit)> {
    for former in work.former {
        transaction.take_over(former)?;
    }
    for (owner, handle) in dead.into_iter().chain(work.dead) {
        transaction.free(owner, handle);
    }
    if work.retire {
        transaction.retire();
    }
    let answers =
        work.batches.iter().map(|batch| transaction.batch(batch)).collect::<rusqlite::Result<_>>()?;
    for key in &work.looks {
        transaction.look(key)?;
    }
    if let Some(swept) = swept {
        *swept = transaction.sweep(swept)?;
    }
    Ok((answers, transaction.finish()?))
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
