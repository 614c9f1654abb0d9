//! Reads locks from the file into a turn.

use super::super::peers::{Fate, Span};
use super::super::rows::{self, Content, Known, Origin};
use super::{ANY_WAITERS, FLOOR, Turn};
use crate::lease::Key;
use crate::store::WAITER_LIFE;

impl Turn<'_> {
    /// The lock `key`, less what has ended.
    pub(super) fn load(&mut self, key: &Key) -> rusqlite::Result<&mut Known> {
        if !self.known.contains_key(key) {
            let known = self.read(key)?;
            self.known.insert(key.clone(), known);
        }
        Ok(self.known.get_mut(key).expect("just put there"))
    }

    /// Reads the lock `key` from the file, without the rows that have ended.
    fn read(&mut self, key: &str) -> rusqlite::Result<Known> {
        let queue = match self.any_waiters {
            Some(any) => any,
            None => {
                let any = self.connection.prepare_cached(ANY_WAITERS)?.query_row([], |row| row.get(0))?;
                *self.any_waiters.insert(any)
            }
        };
        let (now, boot) = (self.now, self.me.boot);
        let rows = self.rows.read(key, queue)?;
        Ok(Known::new(rows, |row| {
            let Origin { owner, boot: written_in, ttl, wall_ends, .. } = row.origin;
            let (is_place, ends, ttl) = match &row.content {
                Content::Lease(held) => (false, held.ends, ttl),
                Content::Waiter(waiting) => (true, waiting.until, WAITER_LIFE),
            };
            let fate = self.peers.fate(Span { owner, boot: written_in, is_place, ttl, ends, wall_ends });
            match (fate, &mut row.content) {
                (Fate::Over, content) => {
                    if let Content::Lease(held) = content {
                        self.raised = self.raised.max(held.last);
                    }
                    return None;
                }
                (Fate::Lives, _) => {}
                // This is not written back: the row counts by the clock of its own boot.
                (Fate::Believed, Content::Lease(held)) => held.ends = now + ttl,
                (Fate::Believed, Content::Waiter(waiting)) => {
                    (waiting.since, waiting.until) = (now, now + ttl)
                }
                (Fate::Outlives(ends), _) => {
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

    /// Before a rule that may reserve fences.
    pub(super) fn read_floor(&mut self) -> rusqlite::Result<()> {
        if self.floor.is_none() {
            let mut statement = self.connection.prepare_cached(FLOOR)?;
            self.floor = Some(rows::fence_of(statement.query_row([], |row| row.get(0))?));
        }
        Ok(())
    }
}
