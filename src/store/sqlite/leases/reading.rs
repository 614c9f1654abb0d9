//! Reads locks from the file into a transaction.

use super::super::row_lifetimes::{RowSpan, RowStatus};
use super::super::rows::{self, Content, Origin, RowCache};
use super::{ANY_WAITERS, FLOOR, Transaction};
use crate::lease::Key;
use crate::store::WAITER_LIFE;

impl Transaction<'_> {
    /// Returns the lock `key`, without the rows that have ended.
    pub(super) fn load(&mut self, key: &Key) -> rusqlite::Result<&mut RowCache> {
        if !self.known.contains_key(key) {
            let known = self.read(key)?;
            self.known.insert(key.clone(), known);
        }
        Ok(self.known.get_mut(key).expect("just put there"))
    }

    /// Reads the lock `key` from the file, without the rows that have ended.
    fn read(&mut self, key: &str) -> rusqlite::Result<RowCache> {
        let queue = match self.any_waiters {
            Some(any) => any,
            None => {
                let any = self.connection.prepare_cached(ANY_WAITERS)?.query_row([], |row| row.get(0))?;
                *self.any_waiters.insert(any)
            }
        };
        let (now, boot) = (self.now, self.me.boot);
        let rows = self.rows.read(key, queue)?;
        Ok(RowCache::new(rows, |row| {
            let Origin { owner, boot: written_in, ttl, wall_ends, .. } = row.origin;
            let (is_place, ends, ttl) = match &row.content {
                Content::Lease(held) => (false, held.ends, ttl),
                Content::Waiter(waiting) => (true, waiting.until, WAITER_LIFE),
            };
            let status = self.row_lifetimes.status(RowSpan {
                owner,
                boot: written_in,
                is_place,
                ttl,
                ends,
                wall_ends,
            });
            match (status, &mut row.content) {
                (RowStatus::Over, content) => {
                    if let Content::Lease(held) = content {
                        self.raised = self.raised.max(held.last);
                    }
                    return None;
                }
                (RowStatus::Lives, _) => {}
                // This is not written back: the row counts by the clock of its own boot.
                (RowStatus::Believed, Content::Lease(held)) => held.ends = now + ttl,
                (RowStatus::Believed, Content::Waiter(waiting)) => {
                    (waiting.since, waiting.until) = (now, now + ttl)
                }
                (RowStatus::Outlives(ends), _) => {
                    let mut row = row.clone();
                    row.origin.boot = boot;
                    if let Content::Lease(held) = &mut row.content {
                        held.ends = ends;
                    }
                    return Some(row);
                }
            }
            Some(row.clone())
        }))
    }

    /// Reads the floor of the fences. Call it before a rule that may reserve fences.
    pub(super) fn read_floor(&mut self) -> rusqlite::Result<()> {
        if self.floor.is_none() {
            let mut statement = self.connection.prepare_cached(FLOOR)?;
            self.floor = Some(rows::fence_of(statement.query_row([], |row| row.get(0))?));
        }
        Ok(())
    }
}
