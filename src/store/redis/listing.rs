//! Lists the locks at a server.
//!
//! Uses SCAN, which looks at a limited number of keys at a time. KEYS would make all clients wait
//! until the server has looked at every key. SCAN returns each key that exists from its first to
//! its last call, perhaps more than once ("SCAN", Redis documentation).

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use redis::{Pipeline, Value};
use tokio::time::Instant;

use super::fault;
use super::pace::Pace;
use super::reader::Reader;
use super::short_text::short_text;
use super::side_keys::lock_beside;
use super::store::RedisStore;
use super::time_limit::TimeLimit;
use crate::lease::Key;
use crate::store::listing::{ListFilter, Listing};
use crate::store::listing_batch;
use crate::store::{Answer, Reply, Request, StoreError};

/// How many keys the server looks at per SCAN. If this is larger, other clients wait for longer; if
/// it is smaller, a listing takes more round trips.
const STEP: u32 = 1000;

/// How many locks one pipeline inspects. If this is larger, the replies may exceed the room of a
/// store, see [`budget`](super::budget); if it is smaller, a long list takes more round trips.
pub const MOST_INSPECTED: usize = 1024;

/// The most bytes of a lock's key: 255 of the prefix and 1024 of the user's key. If this is larger,
/// a false server can take more memory; if it is smaller, listings lack locks with long keys.
const MOST_KEY: usize = 255 + 1_024;
/// The most bytes of all keys of a listing together. If this is larger, a false server can take
/// more memory; if it is smaller, lists of many long keys are not complete.
const MOST_KEYS: usize = 4 << 20;
/// The most bytes of a cursor. Redis's cursors have at most 20 digits. If this is larger, a false
/// server can make the client send longer requests; if it is smaller, the client may refuse a real
/// server.
const MOST_CURSOR: usize = 64;

impl RedisStore {
    /// Answers the listings that `batch` asks for, unless the answer is an error already.
    pub(super) async fn list_all(&self, batch: &[Request], limit: TimeLimit, answers: &mut [Answer]) {
        for (index, filter) in listing_batch::asked(batch) {
            if answers[index].is_ok() {
                answers[index] = self.list(filter, limit).await;
            }
        }
    }

    async fn list(&self, filter: &ListFilter, limit: TimeLimit) -> Answer {
        let found = Found::new(filter);
        self.scan(&found, limit).await?;
        let (keys, complete) = found.into_keys();
        let mut listing = Listing::begin(complete);
        for keys in keys.chunks(MOST_INSPECTED) {
            let answers = self.run(&listing_batch::inspections(keys), limit, false).await.answers;
            if !listing.take(filter, keys, answers.into_iter().flatten())? {
                break;
            }
        }
        Ok(Reply::Listed(listing))
    }

    /// Adds the keys that match to `found`, until there are no more, `found` is full, or half of
    /// the time that is left has passed.
    pub(super) async fn scan(&self, found: &Found<'_>, limit: TimeLimit) -> Result<(), StoreError> {
        let link = self.link(limit).await?;
        let address = self.server(&link);
        let glob = escaped(&found.filter.head()) + "*";
        let now = Instant::now();
        let until = now + limit.deadline.saturating_duration_since(now) / 2;
        let mut cursor = b"0".to_vec();
        let mut reader = Reader::of(link.budget());
        loop {
            let mut step = Pipeline::new();
            step.cmd("SCAN").arg(&cursor).arg("MATCH").arg(&glob).arg("COUNT").arg(STEP);
            let replies = link.send(&step, limit.deadline, limit.timeout).await;
            let (mut replies, _charge) = replies.map_err(|cut| cut.error(address))?;
            let reply = replies.pop();
            let keys = match reply {
                Some(Value::ServerError(error)) => return Err(fault::refused(address, &error)),
                Some(Value::Array(parts)) => match <[Value; 2]>::try_from(parts) {
                    Ok([Value::BulkString(next), Value::Array(keys)]) if next.len() <= MOST_CURSOR => {
                        cursor = next;
                        keys
                    }
                    _ => return Err(fault::not_a_redis(address, false)),
                },
                _ => return Err(fault::not_a_redis(address, false)),
            };
            // Many masters may send long pages at once, and one comparison with a long pattern
            // takes up to 10 ms. All scans of a store share its turn.
            let mut pace = Pace::begin(&mut reader).await;
            let mut is_over = cursor == b"0";
            for key in &keys {
                // A page may have so many keys that their comparison takes too long.
                if found.is_full() || Instant::now() >= until {
                    is_over = false;
                    break;
                }
                if let Some(key) = short_text(key, MOST_KEY) {
                    found.add(key);
                }
                pace.keep().await;
            }
            drop(pace);
            if found.is_full() || Instant::now() >= until {
                found.is_complete.set(found.is_complete.get() && is_over && !found.is_full());
                return Ok(());
            }
            if is_over {
                return Ok(());
            }
        }
    }
}

/// Collects the keys for a listing, from one server or from all masters of a cluster. It is full
/// when it has one key more than are wanted, or more than [`MOST_KEYS`] bytes.
pub(super) struct Found<'a> {
    filter: &'a ListFilter,
    keys: RefCell<HashSet<Key>>,
    bytes: Cell<usize>,
    is_complete: Cell<bool>,
}

impl<'a> Found<'a> {
    /// Returns a collection without keys.
    pub(super) fn new(filter: &'a ListFilter) -> Self {
        Self { filter, keys: RefCell::default(), bytes: Cell::new(0), is_complete: Cell::new(true) }
    }

    /// Returns true if there is no room for more keys.
    pub(super) fn is_full(&self) -> bool {
        self.keys.borrow().len() > self.filter.limit as usize || self.bytes.get() > MOST_KEYS
    }

    /// Adds `key` if it matches and may be the key of a lock.
    fn add(&self, key: &str) {
        if !self.filter.matches(key) || lock_beside(key).is_some() {
            return;
        }
        if self.keys.borrow_mut().insert(key.into()) {
            self.bytes.set(self.bytes.get() + key.len());
        }
    }

    /// Returns the keys in order, and whether these are all that match.
    pub(super) fn into_keys(self) -> (Vec<Key>, bool) {
        let mut keys: Vec<Key> = self.keys.into_inner().into_iter().collect();
        keys.sort_unstable();
        (keys, self.is_complete.get())
    }
}

/// Returns a Redis pattern that only `text` matches.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
