//! Lists the locks that are held.

use rusqlite::named_params;

use super::Transaction;
use crate::lease::Key;
use crate::store::Reply;
use crate::store::listing::{ListFilter, Listing};

/// The locks that have leases in the file. Some of these leases may have ended.
const KEYS: &str = "SELECT DISTINCT key FROM leases WHERE key >= :from ORDER BY key LIMIT :count";

/// How many keys a listing reads at a time.
const LIST_STEP: usize = 200;

impl Transaction<'_> {
    pub(super) fn list(&mut self, filter: &ListFilter) -> rusqlite::Result<Listing> {
        let (mut listing, mut from, now) = (Listing::default(), filter.prefix.to_string(), self.now);
        loop {
            let mut statement = self.connection.prepare_cached(KEYS)?;
            let named = named_params! { ":from": from, ":count": LIST_STEP as i64 };
            let keys =
                statement.query_map(named, |row| row.get(0))?.collect::<rusqlite::Result<Vec<Key>>>()?;
            for key in keys.iter().filter(|key| filter.matches(key)) {
                if let Reply::Inspected(Some(info)) = self.load(key)?.lock.inspect(now)
                    && !listing.add(filter, key.clone(), info)
                {
                    return Ok(listing);
                }
            }
            match keys.last().filter(|last| keys.len() == LIST_STEP && last.starts_with(&*filter.prefix)) {
                // No key contains a NUL, so there is no key between `last` and this text.
                Some(last) => from = format!("{last}\0"),
                None => return Ok(listing),
            }
        }
    }
}
