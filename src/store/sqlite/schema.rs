//! Writes the layout of a lock file, and refuses other files.

use std::cmp::Ordering;
use std::sync::OnceLock;

use rusqlite::Connection;

use super::log_limit;

/// Marks the file as a lock file ("LSHL"), so that no database of another program is taken for one.
const APPLICATION_ID: i32 = 0x4c53_484c;

/// The version of the layout. A file of another version is refused.
const VERSION: i32 = 5;

/// Makes commits durable against a crash of any process. After a crash of the machine, the file is
/// consistent, but may lack the last commits: what a process held does not outlive the boot anyway.
pub const USUAL: &str = "PRAGMA synchronous = NORMAL";
/// Makes each commit wait until it is on the disk.
pub const DURABLE: &str = "PRAGMA synchronous = FULL";

/// Copies the log into the database and empties the log. The first column of the result is 0 if no
/// other connection prevented that. The other columns are the number of pages in the log, and how
/// many of these pages the database has now.
pub const PUT_BACK: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// Like [`PUT_BACK`], but the log keeps its length. The next writer writes over it.
pub const START_AGAIN: &str = "PRAGMA wal_checkpoint(RESTART)";

/// The tables. Instants are in µs on the host's boot clock; `ttl` and `grant_ttl` are in ms. BLOBs
/// are UUIDs: the store that wrote the row, and the boot in which it did. `most` is 0 for an
/// exclusive lease. A lease that was handed to a waiter has that waiter's `number` until the waiter
/// takes it up. The index has those leases alone, so it costs the others nothing. A `fence` is
/// missing until a shared lease is taken up. `last` is the last fence that was reserved with the
/// lease, 0 if none was. `wall_ends` is the wall clock at the end of a detached lease, in µs since
/// 1970. `place` counts up in each queue. The repairs of a quorum are in front: their places count
/// down from -1, and their `grant_ttl` is 0. The one row in `fence` is the floor of all keys, so
/// that a key leaves nothing behind. `broken` has the locks that were broken lately, if the file is
/// a node of a quorum.
const LAYOUT: &str = "
    CREATE TABLE IF NOT EXISTS leases (
        key TEXT NOT NULL,
        token TEXT NOT NULL,
        most INTEGER NOT NULL,
        fence INTEGER,
        last INTEGER NOT NULL,
        ends INTEGER NOT NULL,
        wall_ends INTEGER,
        ttl INTEGER NOT NULL,
        owner BLOB NOT NULL,
        boot BLOB NOT NULL,
        holder TEXT NOT NULL,
        number INTEGER,
        PRIMARY KEY (key, token)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS handed ON leases (owner) WHERE number IS NOT NULL;
    CREATE TABLE IF NOT EXISTS waiters (
        key TEXT NOT NULL,
        place INTEGER NOT NULL,
        token TEXT NOT NULL,
        most INTEGER NOT NULL,
        number INTEGER NOT NULL,
        grant_ttl INTEGER NOT NULL,
        since INTEGER NOT NULL,
        until INTEGER NOT NULL,
        owner BLOB NOT NULL,
        boot BLOB NOT NULL,
        holder TEXT NOT NULL,
        PRIMARY KEY (key, place)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS fence (only INTEGER PRIMARY KEY CHECK (only = 0), floor INTEGER NOT NULL) STRICT;
    INSERT OR IGNORE INTO fence VALUES (0, 0);
    CREATE TABLE IF NOT EXISTS broken (
        key TEXT PRIMARY KEY NOT NULL,
        until INTEGER NOT NULL,
        boot BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// Finds out whether a lock file has no rows, and has given no fence.
const UNUSED: &str = "SELECT NOT EXISTS (SELECT 1 FROM leases) AND NOT EXISTS (SELECT 1 FROM waiters)
    AND NOT EXISTS (SELECT 1 FROM broken) AND NOT EXISTS (SELECT 1 FROM fence WHERE floor <> 0)";

/// Why a file is not used.
#[derive(Debug)]
pub enum SchemaError {
    /// SQLite could not read or write the file.
    Sqlite(rusqlite::Error),
    /// The file is a database of another program.
    Foreign,
    /// The file is a device, a FIFO or a socket.
    Special,
    /// The file has more than one name (hard links).
    Linked,
    /// The file was mounted without its directory.
    Mounted,
    /// The file was made by a newer version of this library.
    Newer,
    /// The file was made by an older version of this library, which may still be using it.
    Older,
    /// The tables, indexes, views and triggers are not those of [`LAYOUT`].
    Changed,
}

impl From<rusqlite::Error> for SchemaError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Prepares the database behind `connection` as a lock file, if it is empty or already a lock file.
pub fn prepare(connection: &Connection) -> Result<(), SchemaError> {
    if is_empty(connection)? {
        fill(connection, "WAL")?;
    }
    if number(connection, "application_id")? != APPLICATION_ID {
        return Err(SchemaError::Foreign);
    }
    match number(connection, "user_version")?.cmp(&VERSION) {
        Ordering::Greater => return Err(SchemaError::Newer),
        Ordering::Less => return Err(SchemaError::Older),
        Ordering::Equal => {}
    }
    if objects(connection)? != *known_objects()? {
        return Err(SchemaError::Changed);
    }
    journal(connection, "WAL")?;
    connection.execute_batch(USUAL)?;
    Ok(())
}

/// Returns whether the database behind `connection` contains nothing, or is a lock file in which no
/// key was ever locked.
pub fn is_unused(connection: &Connection) -> rusqlite::Result<bool> {
    if is_empty(connection)? {
        return Ok(true);
    }
    if number(connection, "application_id")? != APPLICATION_ID || objects(connection)? != *known_objects()? {
        return Ok(false);
    }
    connection.query_row(UNUSED, [], |row| row.get(0))
}

/// Returns whether `page`, the first page of a database, was written by [`fill`], and the database
/// has more pages than `pages`. [`fill`] writes the first page first, and takes two transactions.
pub fn is_cut_off(page: &[u8], pages: u64) -> bool {
    let number =
        |at| page.get(at..at + 4).map(|bytes| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    let [transactions, all, application] = [24, 28, 68].map(number);
    page.starts_with(b"SQLite format 3\0")
        && application == Some(u64::from(APPLICATION_ID.cast_unsigned()))
        && transactions == Some(2)
        && all.is_some_and(|all| all > pages)
}

/// Returns the objects of the database behind `connection`: the kind, the name, the table and the
/// SQL of each object, in one text.
fn objects(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name";
    let mut statement = connection.prepare(sql)?;
    let objects = statement.query_map([], |row| {
        let columns = (0..4).map(|column| row.get::<_, String>(column));
        let object = columns.collect::<rusqlite::Result<Vec<_>>>()?.join(" ");
        // The SQL keeps the indentation of the source, which does not matter.
        Ok(object.split_whitespace().collect::<Vec<_>>().join(" "))
    })?;
    objects.collect()
}

/// Returns the objects of a lock file.
fn known_objects() -> rusqlite::Result<&'static Vec<String>> {
    static KNOWN: OnceLock<Vec<String>> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known);
    }
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(LAYOUT)?;
    let known = objects(&connection)?;
    Ok(KNOWN.get_or_init(|| known))
}

/// Lets the log grow to its limit before it is put back into the database.
pub fn limit_log(connection: &Connection, limit: log_limit::LogLimit) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", limit.pages)?;
    let length = if limit.keeps_length { -1 } else { limit.bytes().cast_signed() };
    connection.pragma_update(None, "journal_size_limit", length)
}

/// Writes the layout into the empty database behind `connection`, with a journal of the kind
/// `mode`.
pub fn fill(connection: &Connection, mode: &str) -> rusqlite::Result<()> {
    // The next statement already writes, and would make a journal without this choice. Don't choose
    // a log here: that would write into the file.
    if mode == "OFF" {
        journal(connection, mode)?;
    }
    // Choose this before the first write: later it can't be changed any more.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    journal(connection, mode)?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    // Another store may have been faster. Then the database has to be a lock file all the same.
    if is_empty(connection)? {
        connection.execute_batch(LAYOUT)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)?;
    }
    connection.execute_batch("COMMIT")
}

/// Chooses the journal. With "WAL", readers and one writer work at the same time; if the file
/// system can't do that, SQLite keeps its classic journal.
fn journal(connection: &Connection, mode: &str) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", mode, |_| Ok(()))
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0 && number(connection, "user_version")? == 0 && number(connection, "application_id")? == 0)
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i32> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}
