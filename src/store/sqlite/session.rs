//! The opened file, and one transaction in it.

mod log;

use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, named_params};
use uuid::Uuid;

use super::super::{Answer, StoreError, StoreErrorKind};
use super::identity::{self, FileNames, Files};
use super::kernel::Kernel;
use super::leases::{Aftermath, Cursor, Handed, Turn};
use super::owner::Owner;
use super::owners;
use super::peers::Me;
use super::room;
use super::rows;
use super::schema::{self, Refusal};
use super::work::{Done, Work, is_change, is_to_outlive};
use super::{boot, failure};
use crate::engine::clock;
use crate::lease::Instant;

/// Counts up with every transaction of another process.
const CHANGES: &str = "PRAGMA data_version";
const HANDED: &str = "SELECT token, number FROM leases
    WHERE owner = :owner AND number IS NOT NULL";
const ENDS: &str = "SELECT min(at) FROM (SELECT ends AS at FROM leases WHERE key = :key
    UNION ALL SELECT until FROM waiters WHERE key = :key)";

/// How often a session that is used takes a step of the sweep.
const SWEEP_EVERY: Duration = Duration::from_millis(20);
/// How often the files are touched, for tidiers that delete what is old.
const TOUCH_EVERY: Duration = Duration::from_secs(3600);

/// How many free pages the file may have, and how many are given back to the system at once.
const FREE_PAGES: i64 = 256;

/// Why a transaction was not carried out.
#[derive(Debug)]
pub enum Trouble {
    /// Somebody else had the file locked until the time was over. Nothing is wrong with the session.
    Busy(StoreError),
    /// The path names another file now, or none: open it anew.
    Moved,
    /// The session had better not be used any more.
    Broken(StoreError),
}

/// The place of a lock file, with all links followed.
#[derive(Clone, Debug)]
pub struct Place {
    pub real: PathBuf,
    /// The directory of the owners' files.
    pub owners: PathBuf,
    pub names: Arc<FileNames>,
    pub kernel: Arc<Kernel>,
}

impl Place {
    /// Finds the place that `path` leads to now.
    pub fn of(path: &Path) -> Result<Self, Trouble> {
        let real = identity::resolve(path);
        let mut owners = real.as_os_str().to_owned();
        owners.push(".owners");
        let kernel = Kernel::of(real.parent().unwrap_or(Path::new("/")));
        let names = FileNames::new(path, &real);
        let names = names.map_err(|error| Trouble::Broken(failure::of_system(path, &error)))?;
        Ok(Self { real, owners: owners.into(), names: Arc::new(names), kernel: Arc::new(kernel) })
    }
}

/// An opened lock file.
#[derive(Debug)]
pub struct Session {
    path: PathBuf,
    connection: Connection,
    /// The files that the connection has open.
    files: Files,
    owners: PathBuf,
    /// Owners whose processes were gone when this store was admitted. The next transaction frees
    /// their leases.
    dead: Vec<(Uuid, File)>,
    boot: Uuid,
    kernel: Arc<Kernel>,
    /// Until when SQLite may wait for other processes, in µs of the engine's clock.
    patience: Arc<AtomicU64>,
    /// How often others had changed the file when that was asked last.
    changes: i64,
    /// Where the sweep goes on.
    swept: Cursor,
    sweep_at: Instant,
    touch_at: Instant,
    room_at: Instant,
    /// The pause before `room_at`.
    room_pause: Duration,
    /// The limit of the log. `None` until one is set.
    log_limit: Option<room::Limit>,
    /// The length of the log, in bytes, when it last started again without getting shorter.
    log_length: u64,
}

impl Session {
    /// Opens the lock file at `path`, which leads to `place`. Returns `None` if the file is
    /// missing. Waits for other processes until `deadline`.
    pub fn open(path: &Path, place: &Place, deadline: Instant) -> Result<Option<Self>, Trouble> {
        clock::comparable().map_err(|incomparable| Trouble::Broken(unsupported(path, incomparable)))?;
        loop {
            if place.names.is_database_missing() {
                return Ok(None);
            }
            match Self::try_open(place, deadline) {
                Err(Refusal::Sqlite(_)) if place.names.is_database_missing() => return Ok(None),
                Err(Refusal::Sqlite(error)) if failure::is_busy(&error) && clock::now() < deadline => {
                    // Two who make the file at once can't wait for each other inside SQLite.
                    std::thread::sleep(Duration::from_micros(fastrand::u64(500..3000)));
                }
                Err(Refusal::Sqlite(error)) => return Err(trouble(path, &error)),
                Err(refusal) => {
                    let why = match refusal {
                        Refusal::Linked => {
                            "has several names (hard links), and each name would have its own log; remove all names but one"
                        }
                        Refusal::Newer => "was made by a newer version of leasehold",
                        Refusal::Older => {
                            "was made by an older version of leasehold; end all that use it and delete it, or name another \
                             file: sqlite:PATH"
                        }
                        Refusal::Mounted => {
                            "is mounted as a single file, but its log and the other files beside it have to be shared, too; \
                             mount its directory instead"
                        }
                        _ => "is a database of another program",
                    };
                    let message = format!("{} {why}", path.display());
                    let error = StoreError::not_done(StoreErrorKind::Unsupported, message);
                    return Err(Trouble::Broken(error));
                }
                Ok(session) => return Ok(Some(session)),
            }
        }
    }

    fn try_open(place: &Place, deadline: Instant) -> Result<Self, Refusal> {
        identity::prepare();
        let path = &*place.real;
        // No URI flag: a path is taken as it is written. SQLite never creates the file: see
        // `creation`.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = Connection::open_with_flags(path, flags)?;
        // Check before the first read: SQLite then looks for the log by this name.
        if place.names.links() > 1 {
            return Err(Refusal::Linked);
        }
        if place.names.is_mounted_alone() {
            return Err(Refusal::Mounted);
        }
        // Keep SQLite from deleting the log, so that the names always lead to the same files. A
        // connection can't know for sure that it is the last one.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        let patience = Arc::new(AtomicU64::new(deadline.as_micros()));
        let until = patience.clone();
        connection.busy_handler(Some(move |tries| wait_for_others(tries, &until)))?;
        // Also refuses a file that may only be read, which SQLite opens without a word.
        if connection.is_readonly("main")? {
            return Err(Refusal::Sqlite(cannot_open()));
        }
        schema::prepare(&connection)?;
        // If this fails, the files were replaced at this moment.
        let files = Files::opened(place.names.clone(), path).map_err(|_| cannot_open())?.ok_or_else(busy)?;
        let now = clock::now();
        Ok(Self {
            path: path.into(),
            connection,
            files,
            owners: place.owners.clone(),
            dead: Vec::new(),
            boot: boot::id(),
            kernel: place.kernel.clone(),
            patience,
            // Never the number of a file.
            changes: -1,
            swept: Cursor::default(),
            sweep_at: now,
            touch_at: now,
            room_at: now,
            room_pause: log::ROOM_EVERY,
            log_limit: None,
            log_length: 0,
        })
    }

    /// Does `work` in one transaction; waits for others until `deadline`.
    pub fn transact(
        &mut self,
        owner: &Owner,
        mut work: Work<'_>,
        deadline: Instant,
    ) -> Result<Done, Trouble> {
        work.dead.append(&mut self.dead);
        if !work.former.is_empty() {
            // Look at all rows again: a former owner may have been handed leases.
            self.changes = -1;
        }
        let reads = !work.batches.is_empty() && work.looks.is_empty() && work.dead.is_empty();
        let writes = !reads || work.batches.iter().copied().flatten().any(is_change);
        self.patience.store(deadline.as_micros(), Ordering::Relaxed);
        if writes && clock::now() >= self.room_at {
            self.limit_log();
        }
        let durable = work.batches.iter().copied().flatten().any(is_to_outlive);
        let again = Work { batches: work.batches.clone(), looks: work.looks.clone(), ..work.bare() };
        let result = self.durably(durable, |session| session.attempt(owner, work, writes));
        match result {
            Err(Trouble::Broken(error)) if error.kind == StoreErrorKind::Full && self.put_log_back() => {
                self.durably(durable, |session| session.attempt(owner, again, writes))
            }
            result => result,
        }
    }

    /// Carries out `work` in one transaction.
    fn attempt(&mut self, owner: &Owner, work: Work<'_>, writes: bool) -> Result<Done, Trouble> {
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        self.execute(begin).map_err(|error| self.trouble(&error))?;
        let result = self.carry_out(owner, work, writes);
        if result.is_err() && !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        result
    }

    /// Runs `act`. If `durable`, its commits wait for the disk: a detached lease outlives the boot.
    /// SQLite accepts that setting only outside of a transaction.
    fn durably<T>(
        &mut self,
        durable: bool,
        act: impl FnOnce(&mut Self) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        if durable {
            self.execute(schema::DURABLE).map_err(|error| self.trouble(&error))?;
        }
        let result = act(self);
        if durable {
            // If this fails, later commits only take longer.
            let _ = self.execute(schema::USUAL);
        }
        result
    }

    /// What happens between the beginning of a transaction and its end.
    fn carry_out(&mut self, owner: &Owner, work: Work<'_>, writes: bool) -> Result<Done, Trouble> {
        // Leaves a replaced file at once. Safety does not depend on this check: see `admission`.
        // Checking the names of the log and its index costs twice as much, so only the periodic
        // check does that.
        if !self.files.is_database_named() {
            return Err(Trouble::Moved);
        }
        // Only now, after all waiting, does time stand for what is done.
        let now = clock::now();
        let touch = writes && now >= self.touch_at;
        if touch {
            self.touch_at = now + TOUCH_EVERY;
            owner.touch();
            self.touch();
        }
        let sweep = writes && (work.sweep || now >= self.sweep_at);
        if sweep {
            self.sweep_at = now + SWEEP_EVERY;
        }
        let me = Me { owner: owner.id(), boot: self.boot, kernel: &self.kernel, owners: &self.owners };
        let swept = sweep.then_some(&mut self.swept);
        let dead = if touch { owners::sweep(me.owners) } else { Vec::new() };
        let turn = Turn::new(&self.connection, me, now, clock::wall_us(), writes);
        let carried = turn.and_then(|turn| carry(turn, work, dead, swept));
        let (answers, Aftermath { handed, graves }) = carried.map_err(|error| self.trouble(&error))?;
        self.execute("COMMIT").map_err(|error| match self.trouble(&error) {
            // It may be in the log already.
            Trouble::Broken(error) => Trouble::Broken(StoreError { maybe_done: true, ..error }),
            other => other,
        })?;
        for (owner, handle) in graves {
            owners::bury(&self.owners, owner, handle);
        }
        Ok(Done { answers, handed, at: now })
    }

    /// If another process has changed the file since the last call: those waiters of `owner` to whom leases were
    /// handed that they have not taken up. Never waits.
    pub fn news(&mut self, owner: &Owner) -> Result<Option<Vec<Handed>>, Trouble> {
        self.patience.store(0, Ordering::Relaxed);
        self.read_news(owner).map_err(|error| self.trouble(&error))
    }

    fn read_news(&mut self, owner: &Owner) -> rusqlite::Result<Option<Vec<Handed>>> {
        let changes = self.connection.prepare_cached(CHANGES)?.query_row([], |row| row.get(0))?;
        if changes == self.changes {
            return Ok(None);
        }
        let mut statement = self.connection.prepare_cached(HANDED)?;
        let id = owner.id();
        let handed = statement.query_map(named_params! { ":owner": id.as_bytes() }, |row| {
            let (token, number) = (rows::token_of(row, 0)?, rows::number_of(row, 1)?);
            Ok(Handed { token, number })
        })?;
        let handed = handed.collect::<rusqlite::Result<_>>()?;
        self.changes = changes;
        Ok(Some(handed))
    }

    /// When the first of the leases and places of `key` runs out; `None` if there is nothing. Never waits.
    pub fn ends(&mut self, key: &str) -> Result<Option<Instant>, Trouble> {
        self.patience.store(0, Ordering::Relaxed);
        let ends = self.connection.prepare_cached(ENDS).and_then(|mut statement| {
            statement.query_row(named_params! { ":key": key }, |row| row.get::<_, Option<i64>>(0))
        });
        let ends = ends.map_err(|error| self.trouble(&error))?;
        Ok(ends.map(|ends| Instant::from_micros(ends.cast_unsigned())))
    }

    /// Lets the next transaction free the leases of the `dead` owners. If the files were moved away
    /// and back, they may still contain rows of a former owner of this store.
    pub fn free_first(&mut self, dead: Vec<(Uuid, File)>) {
        self.dead = dead;
    }

    /// The other stores whose processes are gone.
    pub fn dead(&self) -> Vec<(Uuid, File)> {
        owners::dead(&self.owners)
    }

    /// Does, while there is nothing else to do, what must not be put off for ever. Says whether there will
    /// be more of it, and which waiters of this store were handed leases.
    pub fn tidy(&mut self, owner: &Owner, deadline: Instant) -> Result<(bool, Vec<Handed>), Trouble> {
        let mut handed = Vec::new();
        let any = "SELECT EXISTS (SELECT 1 FROM leases) OR EXISTS (SELECT 1 FROM waiters)";
        let any =
            self.connection.query_row(any, [], |row| row.get(0)).map_err(|error| self.trouble(&error))?;
        if any {
            handed = self.transact(owner, Work { sweep: true, ..Work::default() }, deadline)?.handed;
        }
        let free: i64 = self
            .connection
            .pragma_query_value(None, "freelist_count", |row| row.get(0))
            .map_err(|error| self.trouble(&error))?;
        if free > FREE_PAGES {
            let sql = format!("PRAGMA incremental_vacuum({FREE_PAGES})");
            self.connection.execute_batch(&sql).map_err(|error| self.trouble(&error))?;
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

    /// Returns whether one of the names leads to a file other than the opened one, or to none.
    pub fn is_moved(&self) -> bool {
        !self.files.are_named()
    }

    /// Returns the files that the connection has open.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Makes the files young again, by their names: opening them and closing again would drop SQLite's locks.
    fn touch(&self) {
        #[cfg(unix)]
        for end in ["", "-wal", "-shm"] {
            use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let mut path = self.path.as_os_str().to_owned();
            path.push(end);
            let _ = rustix::fs::utimensat(
                CWD,
                path,
                &Timestamps { last_access: now, last_modification: now },
                AtFlags::empty(),
            );
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    fn trouble(&self, error: &rusqlite::Error) -> Trouble {
        match failure::of_growth(&self.path, error, &self.last_system_error()) {
            Some(error) => Trouble::Broken(error),
            None => trouble(&self.path, error),
        }
    }

    /// Returns the operating system's last error in an operation of the connection.
    fn last_system_error(&self) -> std::io::Error {
        // SAFETY: the connection is open for as long as the session lives, and only this thread
        // uses it.
        let number = unsafe { rusqlite::ffi::sqlite3_system_errno(self.connection.handle()) };
        std::io::Error::from_raw_os_error(number)
    }
}

/// All that a transaction reads and writes.
fn carry(
    mut turn: Turn<'_>,
    work: Work<'_>,
    dead: Vec<(Uuid, File)>,
    swept: Option<&mut Cursor>,
) -> rusqlite::Result<(Vec<Vec<Answer>>, Aftermath)> {
    for former in work.former {
        turn.inherit(former)?;
    }
    for (owner, handle) in dead.into_iter().chain(work.dead) {
        turn.free(owner, handle);
    }
    if work.retire {
        turn.retire();
    }
    let answers = work.batches.iter().map(|batch| turn.batch(batch)).collect::<rusqlite::Result<_>>()?;
    for key in &work.looks {
        turn.look(key)?;
    }
    if let Some(swept) = swept {
        *swept = turn.sweep(swept)?;
    }
    Ok((answers, turn.finish()?))
}

fn unsupported(path: &Path, why: impl Display) -> StoreError {
    StoreError::not_done(
        StoreErrorKind::Unsupported,
        format!("the lock file {} can't be used: {why}", path.display()),
    )
}

fn trouble(path: &Path, error: &rusqlite::Error) -> Trouble {
    let told = failure::of_sqlite(path, error);
    if failure::is_busy(error) { Trouble::Busy(told) } else { Trouble::Broken(told) }
}

/// Returns SQLite's error for a file that another process has locked.
pub fn busy() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)
}

/// Returns SQLite's error for a file that it can't open.
pub fn cannot_open() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN), None)
}

/// SQLite's busy handler. Its own waits up to 100 ms at a time, which is for ever between processes that hand
/// a lock to each other; a transaction here takes some tens of µs.
fn wait_for_others(tries: i32, until: &AtomicU64) -> bool {
    if clock::now().as_micros() >= until.load(Ordering::Relaxed) {
        return false;
    }
    let longest = 50 * tries.clamp(1, 20).unsigned_abs();
    std::thread::sleep(Duration::from_micros(fastrand::u32(25..=longest).into()));
    true
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
