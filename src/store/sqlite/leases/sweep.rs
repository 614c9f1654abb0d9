//! Ends the leases and places that have run out, in case no request comes for their locks.

use std::time::Duration;

use rusqlite::named_params;

use super::super::breaks;
use super::super::row_lifetimes::{RowSpan, RowStatus};
use super::super::rows;
use super::{Cursor, Transaction};
use crate::lease::{Instant, Key};
use crate::store::WAITER_LIFE;

const NEXT: &str =
    "SELECT key, token, ends, ttl, owner, boot, wall_ends FROM leases WHERE (key, token) > (:key, :token)
    ORDER BY key, token LIMIT :count";
/// The locks with places that have ended, or may have ended.
const STALE: &str =
    "SELECT DISTINCT key FROM waiters WHERE until <= :now OR until > :longest OR boot <> :boot";

/// How many leases one step of the sweep looks at.
const SWEEP_STEP: usize = 200;

impl Transaction<'_> {
    /// Takes one step of the sweep: settles the locks after `after` that have a lease that has run
    /// out. At the beginning of a pass, also settles the locks with places that have run out.
    /// Returns where the next step begins; that is the beginning if the pass is over.
    pub fn sweep(&mut self, after: &Cursor) -> rusqlite::Result<Cursor> {
        let (key, token) = after;
        if key.is_empty() && token.is_empty() {
            let (now, longest) = (self.now, self.now + WAITER_LIFE);
            let mut statement = self.connection.prepare_cached(STALE)?;
            let keys = statement.query_map(
                named_params! {
                    ":now": now.as_micros().cast_signed(), ":longest": longest.as_micros().cast_signed(),
                    ":boot": self.me.boot.as_bytes(),
                },
                |row| row.get(0),
            )?;
            for key in keys.collect::<rusqlite::Result<Vec<Key>>>()? {
                self.look(&key)?;
            }
            breaks::sweep(self.connection, self.now, self.me.boot)?;
        }
        let mut statement = self.connection.prepare_cached(NEXT)?;
        let rows = statement.query_map(
            named_params! { ":key": key, ":token": token, ":count": SWEEP_STEP as i64 },
            |row| {
                let cursor: Cursor = (row.get(0)?, row.get(1)?);
                let span = RowSpan {
                    ends: Instant::from_micros(rows::number_of(row, 2)?),
                    ttl: Duration::from_millis(rows::number_of(row, 3)?),
                    is_place: false,
                    owner: rows::id_of(row, 4)?,
                    boot: rows::id_of(row, 5)?,
                    wall_ends: row.get::<_, Option<i64>>(6)?.map(i64::cast_unsigned),
                };
                Ok((cursor, span))
            },
        )?;
        let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        for ((key, _), span) in &rows {
            if matches!(self.row_lifetimes.status_by_time(*span), RowStatus::Over | RowStatus::Outlives(_)) {
                self.look(&key.as_str().into())?;
            }
        }
        let last = rows.pop().filter(|_| rows.len() == SWEEP_STEP - 1);
        Ok(last.map(|(cursor, _)| cursor).unwrap_or_default())
    }
}
