//! Reads a lock from its rows for the contract's rules, and writes back what has changed.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, Row, params};
use uuid::Uuid;

use super::super::rules::{Held, Lock, Waiting};
use crate::lease::{Fence, Instant, Mode, Token};

const LEASES: &str = "SELECT token, most, owner, boot, holder, number, ends, ttl, fence, last, wall_ends
    FROM leases
    WHERE key = ?1";
const WAITERS: &str = "SELECT token, most, owner, boot, holder, number, until, since, place, grant_ttl
    FROM waiters
    WHERE key = ?1 ORDER BY place";
const SET_LEASE: &str = "INSERT OR REPLACE INTO leases
    (key, token, most, owner, boot, holder, number, ends, ttl, fence, last, wall_ends)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const SET_WAITER: &str = "INSERT OR REPLACE INTO waiters
    (key, place, token, most, owner, boot, holder, number, until, since, grant_ttl)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const END_LEASE: &str = "DELETE FROM leases WHERE key = ?1 AND token = ?2";
const END_WAITER: &str = "DELETE FROM waiters WHERE key = ?1 AND place = ?2";

/// The part of a row that the rules do not need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Origin {
    /// The store that the lease or the place belongs to; nil for a lease that belongs to none.
    pub owner: Uuid,
    /// The boot in which the row was written.
    pub boot: Uuid,
    /// The ttl of a lease; zero for a place.
    pub ttl: Duration,
    /// When the lease ends by the wall clock, in µs since 1970; only for a lease that belongs to no
    /// store.
    pub wall_ends: Option<u64>,
    /// The number of a waiter in notices. A waiter that was handed the lease keeps it until it
    /// takes the lease up.
    pub number: Option<u64>,
    /// The rank in the queue. Waiters count up from 1, and repairs count down from -1. 0 for a
    /// token that does not wait.
    pub place: i64,
}

impl Origin {
    /// Returns the origin of a lease of `owner` that was written in `boot` with `ttl`.
    pub fn new(owner: Uuid, boot: Uuid, ttl: Duration) -> Self {
        Self { owner, boot, ttl, wall_ends: None, number: None, place: 0 }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub content: Content,
    pub origin: Origin,
}

/// The part of a row that the rules use.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Lease(Held),
    Waiter(Waiting),
}

impl Stored {
    /// Returns true if writing one of two rows of a token replaces the other in the file.
    fn is_at(&self, other: &Stored) -> bool {
        match (&self.content, &other.content) {
            (Content::Lease(_), Content::Lease(_)) => true,
            (Content::Waiter(_), Content::Waiter(_)) => self.origin.place == other.origin.place,
            _ => false,
        }
    }
}

/// The origin of a token, and its row if it was read.
#[derive(Debug)]
struct CachedRow {
    origin: Origin,
    /// The index of the token's row among those that were read.
    read: Option<usize>,
}

/// A lock within a transaction.
#[derive(Debug, Default)]
pub struct RowCache {
    /// The lock as it will be written.
    pub lock: Lock,
    /// The rows as they were read.
    read: Vec<Stored>,
    entries: HashMap<Token, CachedRow>,
    /// The last place that a waiter has, or had when the lock was read. A new place is behind it,
    /// so no row is written twice.
    last_place: i64,
    /// The same for the first place, if a repair has it; otherwise 0.
    first_place: i64,
}

impl RowCache {
    /// Calls `live` for each row that was read. The rows that it returns count, as it returns them.
    /// The others are only remembered, to be deleted. Changes that `live` makes to a row are not
    /// written back.
    pub fn new(rows: Vec<Stored>, mut live: impl FnMut(&mut Stored) -> Option<Stored>) -> Self {
        let mut known = Self { read: rows, ..Self::default() };
        for (index, row) in known.read.iter_mut().enumerate() {
            let token = match &row.content {
                Content::Lease(held) => held.token,
                Content::Waiter(waiting) => waiting.token,
            };
            known.last_place = known.last_place.max(row.origin.place);
            known.first_place = known.first_place.min(row.origin.place);
            let origin = match live(row) {
                None => Origin { place: 0, ..row.origin },
                Some(Stored { content, origin }) => {
                    match content {
                        Content::Lease(held) => known.lock.held.push(held),
                        Content::Waiter(waiting) => known.lock.queue.push(waiting),
                    }
                    origin
                }
            };
            known.entries.insert(token, CachedRow { origin, read: Some(index) });
        }
        known
    }

    /// Returns the origin of `token`. If it is not known, creates an origin of `owner` in `boot`.
    pub fn entry(&mut self, token: Token, owner: Uuid, boot: Uuid) -> &mut Origin {
        let origin = Origin::new(owner, boot, Duration::ZERO);
        &mut self.entries.entry(token).or_insert(CachedRow { origin, read: None }).origin
    }

    /// Returns true if `token` has a place in the queue as a repair.
    pub fn repairs(&self, token: Token) -> bool {
        self.lock.queue.iter().any(|waiting| waiting.token == token && waiting.repairs())
    }

    /// Puts `token` at the end of the queue, unless it has a place as a waiter.
    pub fn place(&mut self, token: Token, owner: Uuid, boot: Uuid) -> &mut Origin {
        let next = self.last_place + 1;
        // A negative place belongs to a repair that has ended in this transaction.
        if self.entry(token, owner, boot).place <= 0 {
            self.last_place = next;
            self.entry(token, owner, boot).place = next;
        }
        self.entry(token, owner, boot)
    }

    /// Puts `token`, which repairs a lease, at the front of the queue.
    pub fn place_first(&mut self, token: Token, owner: Uuid, boot: Uuid) -> &mut Origin {
        let next = self.first_place - 1;
        self.first_place = next;
        let origin = self.entry(token, owner, boot);
        origin.place = next;
        origin
    }
}

/// Reads and writes the rows. Keeps the statements that every request needs for a whole
/// transaction.
pub struct Rows<'a> {
    connection: &'a Connection,
    leases: CachedStatement<'a>,
    set_lease: CachedStatement<'a>,
    end_lease: CachedStatement<'a>,
}

impl<'a> Rows<'a> {
    pub fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            leases: connection.prepare_cached(LEASES)?,
            set_lease: connection.prepare_cached(SET_LEASE)?,
            end_lease: connection.prepare_cached(END_LEASE)?,
        })
    }

    /// Returns the rows of `key`: its leases, and if `queue`, its waiters in their order.
    pub fn read(&mut self, key: &str, queue: bool) -> rusqlite::Result<Vec<Stored>> {
        let mut rows: Vec<Stored> =
            self.leases.query_map([key], lease_of)?.collect::<rusqlite::Result<_>>()?;
        if queue {
            for waiter in self.connection.prepare_cached(WAITERS)?.query_map([key], waiter_of)? {
                rows.push(waiter?);
            }
        }
        Ok(rows)
    }

    /// Writes the rows of the lock `key` that have changed.
    pub fn store(&mut self, key: &str, known: RowCache) -> rusqlite::Result<()> {
        let RowCache { lock, read, mut entries, .. } = known;
        let leases = lock.held.into_iter().map(|held| (held.token, Content::Lease(held)));
        let waiters = lock.queue.into_iter().map(|waiting| (waiting.token, Content::Waiter(waiting)));
        for (token, content) in leases.chain(waiters) {
            let CachedRow { origin, read: index } = entries.remove(&token).expect("everybody has an origin");
            let row = Stored { content, origin };
            if let Some(before) = index.map(|index| &read[index]) {
                if *before == row {
                    continue;
                }
                if !before.is_at(&row) {
                    self.end(key, before)?;
                }
            }
            self.set(key, &row)?;
        }
        // The tokens that are left have neither a lease nor a place any more.
        let ended = entries.into_values().filter_map(|entry| entry.read);
        ended.into_iter().try_for_each(|index| self.end(key, &read[index]))
    }

    fn set(&mut self, key: &str, Stored { content, origin }: &Stored) -> rusqlite::Result<()> {
        let mut buffer = [0; Token::LENGTH];
        let Origin { owner, boot, ttl, wall_ends, number, place } = origin;
        let (owner, boot, number) = (owner.as_bytes(), boot.as_bytes(), number.map(u64::cast_signed));
        match content {
            Content::Lease(Held { token, holder, mode, fence, last, ends }) => {
                let (token, ends) = (token.encode(&mut buffer), ends.as_micros().cast_signed());
                let (ttl, fence) = (ttl.as_millis() as i64, fence.map(|fence| fence.0.cast_signed()));
                let (most, last, wall_ends) =
                    (most(*mode), last.0.cast_signed(), wall_ends.map(u64::cast_signed));
                self.set_lease.execute(params![
                    key, token, most, owner, boot, &**holder, number, ends, ttl, fence, last, wall_ends
                ])?;
            }
            Content::Waiter(Waiting { token, holder, mode, number: _, grant, since, until }) => {
                let grant = grant.as_millis() as i64;
                let (token, most) = (token.encode(&mut buffer), most(*mode));
                let (until, since) = (until.as_micros().cast_signed(), since.as_micros().cast_signed());
                self.connection.prepare_cached(SET_WAITER)?.execute(params![
                    key, place, token, most, owner, boot, &**holder, number, until, since, grant
                ])?;
            }
        }
        Ok(())
    }

    fn end(&mut self, key: &str, row: &Stored) -> rusqlite::Result<()> {
        match &row.content {
            Content::Lease(held) => {
                let mut buffer = [0; Token::LENGTH];
                self.end_lease.execute([key, held.token.encode(&mut buffer)])?;
            }
            Content::Waiter(_) => {
                self.connection.prepare_cached(END_WAITER)?.execute(params![key, row.origin.place])?;
            }
        }
        Ok(())
    }
}

fn lease_of(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let origin = Origin {
        owner: id_of(row, 2)?,
        boot: id_of(row, 3)?,
        ttl: Duration::from_millis(number_of(row, 7)?),
        wall_ends: row.get::<_, Option<i64>>(10)?.map(i64::cast_unsigned),
        number: row.get::<_, Option<i64>>(5)?.map(i64::cast_unsigned),
        place: 0,
    };
    let held = Held {
        token: token_of(row, 0)?,
        holder: row.get(4)?,
        mode: mode_of(row, 1)?,
        fence: row.get::<_, Option<i64>>(8)?.map(fence_of),
        last: fence_of(row.get(9)?),
        ends: Instant::from_micros(number_of(row, 6)?),
    };
    Ok(Stored { content: Content::Lease(held), origin })
}

fn waiter_of(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let origin = Origin {
        owner: id_of(row, 2)?,
        boot: id_of(row, 3)?,
        ttl: Duration::ZERO,
        wall_ends: None,
        number: Some(number_of(row, 5)?),
        place: row.get(8)?,
    };
    let waiting = Waiting {
        token: token_of(row, 0)?,
        holder: row.get(4)?,
        mode: mode_of(row, 1)?,
        number: number_of(row, 5)?,
        grant: Duration::from_millis(number_of(row, 9)?),
        since: Instant::from_micros(number_of(row, 7)?),
        until: Instant::from_micros(number_of(row, 6)?),
    };
    Ok(Stored { content: Content::Waiter(waiting), origin })
}

pub fn token_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Token> {
    let token = row.get_ref(column)?.as_str().ok().and_then(Token::parse);
    token.ok_or_else(|| rusqlite::Error::InvalidColumnType(column, "token".into(), Type::Text))
}

pub fn id_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}

pub fn fence_of(number: i64) -> Fence {
    Fence(number.max(0).unsigned_abs())
}

/// Returns a number that was written as its bit pattern.
pub fn number_of(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

fn mode_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Mode> {
    Ok(match row.get(column)? {
        0 => Mode::Exclusive,
        most => Mode::Shared { most },
    })
}

fn most(mode: Mode) -> u32 {
    match mode {
        Mode::Exclusive => 0,
        // 0 stands for the exclusive mode.
        Mode::Shared { most } => most.max(1),
    }
}
