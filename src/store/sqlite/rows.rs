//! One lock as rows: read as the contract's rules want it, and written back as far as it changed.

use std::time::Duration;

use rusqlite::types::Type;
use rusqlite::{Connection, Row, named_params};
use rustc_hash::FxHashMap;
use uuid::Uuid;

use super::super::rules::{Held, Lock, Waiting};
use crate::lease::{Fence, Instant, Mode, Token};

const LEASES: &str =
    "SELECT token, most, owner, boot, holder, number, ends, ttl, fence FROM leases WHERE key = :key";
const WAITERS: &str = "SELECT token, most, owner, boot, holder, number, until, since, place FROM waiters
    WHERE key = :key ORDER BY place";
const SET_LEASE: &str = "INSERT OR REPLACE INTO leases
    (key, token, most, owner, boot, holder, number, ends, ttl, fence)
    VALUES (:key, :token, :most, :owner, :boot, :holder, :number, :ends, :ttl, :fence)";
const SET_WAITER: &str = "INSERT OR REPLACE INTO waiters
    (key, place, token, most, owner, boot, holder, number, until, since)
    VALUES (:key, :place, :token, :most, :owner, :boot, :holder, :number, :until, :since)";
const END_LEASE: &str = "DELETE FROM leases WHERE key = :key AND token = :token";
const END_WAITER: &str = "DELETE FROM waiters WHERE key = :key AND place = :place";

/// What a row says that the rules need not know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Origin {
    /// The store that the lease or the place belongs to; nil for a lease that belongs to none.
    pub owner: Uuid,
    /// The boot in which it was written.
    pub boot: Uuid,
    /// For how long a lease was wanted.
    pub ttl: Duration,
    /// What a waiter, or whoever was one, is called in a notice.
    pub number: u64,
    /// A waiter's rank in the queue, counted from 1; 0 for whoever does not wait.
    pub place: i64,
}

/// A row as it is in the file.
#[derive(Debug, PartialEq)]
pub enum Stored {
    Lease(Held, Origin),
    Waiter(Waiting, Origin),
}

impl Stored {
    pub fn origin(&self) -> &Origin {
        match self {
            Self::Lease(_, origin) | Self::Waiter(_, origin) => origin,
        }
    }
}

/// What is known of a token.
#[derive(Debug)]
pub struct Entry {
    pub origin: Origin,
    stored: Option<Stored>,
}

/// A lock within a transaction.
#[derive(Debug, Default)]
pub struct Known {
    /// As it is to be.
    pub lock: Lock,
    entries: FxHashMap<Token, Entry>,
}

impl Known {
    /// Takes a row in. If it has no effect any more it is only remembered, to be deleted.
    pub fn take(&mut self, row: Stored, lives: bool) {
        let origin = *row.origin();
        let token = match &row {
            Stored::Lease(held, _) => {
                if lives {
                    self.lock.held.push(held.clone());
                }
                held.token
            }
            Stored::Waiter(waiting, _) => {
                if lives {
                    self.lock.queue.push(waiting.clone());
                }
                waiting.token
            }
        };
        let origin = if lives { origin } else { Origin { place: 0, ..origin } };
        self.entries.insert(token, Entry { origin, stored: Some(row) });
    }

    /// What is known of `token`; as of one that belongs to `owner` in `boot`, if nothing was.
    pub fn entry(&mut self, token: Token, owner: Uuid, boot: Uuid) -> &mut Origin {
        let origin = Origin { owner, boot, ttl: Duration::ZERO, number: 0, place: 0 };
        &mut self.entries.entry(token).or_insert(Entry { origin, stored: None }).origin
    }

    /// The largest place taken in the queue.
    pub fn last_place(&self) -> i64 {
        let place =
            |waiting: &Waiting| self.entries.get(&waiting.token).map_or(0, |entry| entry.origin.place);
        self.lock.queue.iter().rev().map(place).find(|place| *place > 0).unwrap_or(0)
    }

    /// Writes down what changed.
    pub fn store(mut self, connection: &Connection, key: &str) -> rusqlite::Result<()> {
        let lock = std::mem::take(&mut self.lock);
        for held in lock.held {
            let Entry { origin, stored } =
                self.entries.remove(&held.token).expect("every lease has an origin");
            let lease = Stored::Lease(held, origin);
            if stored.as_ref() != Some(&lease) {
                stored
                    .filter(|stored| matches!(stored, Stored::Waiter(..)))
                    .map_or(Ok(()), |stored| end(connection, key, &stored))?;
                set(connection, key, &lease)?;
            }
        }
        for waiting in lock.queue {
            let Entry { origin, stored } =
                self.entries.remove(&waiting.token).expect("every waiter has an origin");
            let waiter = Stored::Waiter(waiting, origin);
            if stored.as_ref() != Some(&waiter) {
                // One that lost its place and got another has another row.
                let elsewhere = stored.filter(|stored| stored.origin().place != origin.place);
                elsewhere.map_or(Ok(()), |stored| end(connection, key, &stored))?;
                set(connection, key, &waiter)?;
            }
        }
        // What is left is neither a lease nor a waiter any more.
        self.entries
            .into_values()
            .filter_map(|entry| entry.stored)
            .try_for_each(|stored| end(connection, key, &stored))
    }
}

/// The rows of `key`: its leases, and if `queue` its waiters in their order.
pub fn read(connection: &Connection, key: &str, queue: bool) -> rusqlite::Result<Vec<Stored>> {
    let key = named_params! { ":key": key };
    let mut rows = Vec::new();
    for lease in connection.prepare_cached(LEASES)?.query_map(key, lease_of)? {
        rows.push(lease?);
    }
    if queue {
        for waiter in connection.prepare_cached(WAITERS)?.query_map(key, waiter_of)? {
            rows.push(waiter?);
        }
    }
    Ok(rows)
}

fn lease_of(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let origin = Origin {
        owner: id_of(row, 2)?,
        boot: id_of(row, 3)?,
        ttl: Duration::from_millis(number_of(row, 7)?),
        number: number_of(row, 5)?,
        place: 0,
    };
    let held = Held {
        token: token_of(row, 0)?,
        holder: row.get(4)?,
        mode: mode_of(row, 1)?,
        fence: row.get::<_, Option<i64>>(8)?.map(|fence| Fence(fence.max(0).unsigned_abs())),
        ends: Instant::from_micros(number_of(row, 6)?),
    };
    Ok(Stored::Lease(held, origin))
}

fn waiter_of(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let origin = Origin {
        owner: id_of(row, 2)?,
        boot: id_of(row, 3)?,
        ttl: Duration::ZERO,
        number: number_of(row, 5)?,
        place: row.get(8)?,
    };
    let waiting = Waiting {
        token: token_of(row, 0)?,
        holder: row.get(4)?,
        mode: mode_of(row, 1)?,
        number: origin.number,
        since: Instant::from_micros(number_of(row, 7)?),
        until: Instant::from_micros(number_of(row, 6)?),
    };
    Ok(Stored::Waiter(waiting, origin))
}

fn set(connection: &Connection, key: &str, row: &Stored) -> rusqlite::Result<()> {
    let mut buffer = [0; Token::LENGTH];
    match row {
        Stored::Lease(Held { token, holder, mode, fence, ends }, origin) => {
            connection.prepare_cached(SET_LEASE)?.execute(named_params! {
                ":key": key, ":token": token.encode(&mut buffer), ":most": most(*mode),
                ":owner": origin.owner.as_bytes(), ":boot": origin.boot.as_bytes(), ":holder": &**holder,
                ":number": origin.number.cast_signed(), ":ends": ends.as_micros().cast_signed(),
                ":ttl": origin.ttl.as_millis() as i64, ":fence": fence.map(|fence| fence.0.cast_signed()),
            })?;
        }
        Stored::Waiter(Waiting { token, holder, mode, number, since, until }, origin) => {
            connection.prepare_cached(SET_WAITER)?.execute(named_params! {
                ":key": key, ":place": origin.place, ":token": token.encode(&mut buffer), ":most": most(*mode),
                ":owner": origin.owner.as_bytes(), ":boot": origin.boot.as_bytes(), ":holder": &**holder,
                ":number": number.cast_signed(), ":until": until.as_micros().cast_signed(),
                ":since": since.as_micros().cast_signed(),
            })?;
        }
    }
    Ok(())
}

fn end(connection: &Connection, key: &str, row: &Stored) -> rusqlite::Result<()> {
    match row {
        Stored::Lease(held, _) => {
            let mut buffer = [0; Token::LENGTH];
            let token = held.token.encode(&mut buffer);
            connection.prepare_cached(END_LEASE)?.execute(named_params! { ":key": key, ":token": token })?;
        }
        Stored::Waiter(_, origin) => {
            let place = origin.place;
            connection.prepare_cached(END_WAITER)?.execute(named_params! { ":key": key, ":place": place })?;
        }
    }
    Ok(())
}

pub fn token_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Token> {
    let token = row.get_ref(column)?.as_str().ok().and_then(Token::parse);
    token.ok_or_else(|| rusqlite::Error::InvalidColumnType(column, "token".into(), Type::Text))
}

pub fn id_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    row.get(column).map(Uuid::from_bytes)
}

/// A number that was written as its bit pattern.
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
        // No permits at all could not be told from the exclusive mode.
        Mode::Shared { most } => most.max(1),
    }
}
