//! Remembers which locks of a quorum were broken: for a while, this file does not grant repairs of
//! them. See [`AcquireRequest::repairs`](super::super::AcquireRequest::repairs).

use rusqlite::{Connection, OptionalExtension, named_params};
use uuid::Uuid;

use super::super::BROKEN_LIFE;
use crate::lease::{Instant, Key};

const NOTE: &str = "INSERT OR REPLACE INTO broken (key, until, boot) VALUES (:key, :until, :boot)";
const FIND: &str =
    "SELECT 1 FROM broken WHERE key = :key AND until > :now AND until <= :longest AND boot = :boot";
const SWEEP: &str = "DELETE FROM broken WHERE until <= :now OR until > :longest OR boot <> :boot";

/// Notes that the lock `key` is broken at `now`.
pub fn note(connection: &Connection, key: &Key, now: Instant, boot: Uuid) -> rusqlite::Result<()> {
    let until = (now + BROKEN_LIFE).as_micros().cast_signed();
    let named = named_params! { ":key": key, ":until": until, ":boot": boot.as_bytes() };
    connection.prepare_cached(NOTE)?.execute(named).map(drop)
}

/// Returns true if the lock `key` was broken less than [`BROKEN_LIFE`] ago, in the same boot.
pub fn is_recent(connection: &Connection, key: &Key, now: Instant, boot: Uuid) -> rusqlite::Result<bool> {
    let [now, longest] = [now, now + BROKEN_LIFE].map(|at| at.as_micros().cast_signed());
    let named = named_params! { ":key": key, ":now": now, ":longest": longest, ":boot": boot.as_bytes() };
    let found = connection.prepare_cached(FIND)?.query_row(named, |_| Ok(())).optional()?;
    Ok(found.is_some())
}

/// Forgets the locks that were broken long ago, or in another boot.
pub fn sweep(connection: &Connection, now: Instant, boot: Uuid) -> rusqlite::Result<()> {
    let [now, longest] = [now, now + BROKEN_LIFE].map(|at| at.as_micros().cast_signed());
    let named = named_params! { ":now": now, ":longest": longest, ":boot": boot.as_bytes() };
    connection.prepare_cached(SWEEP)?.execute(named).map(drop)
}
