//! Which locks there are at a server.
//!
//! By SCAN, a bounded number of keys at a time, so that nobody waits for long, and never by KEYS, for which everybody waits
//! ("SCAN", Redis documentation: what is there from the first to the last call is told, perhaps more than once).

use redis::{Pipeline, Value};
use rustc_hash::FxHashSet;
use tokio::time::Instant;

use super::side_keys::lock_beside;
use super::{Limit, RedisStore, cut_off, fault};
use crate::lease::Key;
use crate::store::listing::{self, Listing, Wanted};
use crate::store::{Answer, Reply, Request, StoreError};

/// How many keys the server looks at in one go.
const STEP: u32 = 1000;

/// How many locks one pipeline inspects. If this is larger, the replies may exceed the room of a
/// connection, see [`intake`](super::intake); if it is smaller, a long list takes more round trips.
pub const MOST_INSPECTED: usize = 1024;

impl RedisStore {
    /// Answers the listings that `batch` asks for, unless there is an error in the place of the answer.
    pub(super) async fn list_all(&self, batch: &[Request], limit: Limit, answers: &mut [Answer]) {
        for (index, wanted) in listing::asked(batch) {
            if answers[index].is_ok() {
                answers[index] = self.list(wanted, limit).await;
            }
        }
    }

    async fn list(&self, wanted: &Wanted, limit: Limit) -> Answer {
        let (keys, complete) = self.scan(wanted, limit).await?;
        let mut answers = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MOST_INSPECTED) {
            answers.extend(
                self.run(&listing::inspections(keys), limit, false).await.answers.into_iter().flatten(),
            );
        }
        Ok(Reply::Listed(Listing::of(wanted, keys, answers, complete)?))
    }

    /// The keys that match, and whether these are all of them: at most one more than are wanted, and as many as are found in
    /// half of the time that is left.
    pub(super) async fn scan(&self, wanted: &Wanted, limit: Limit) -> Result<(Vec<Key>, bool), StoreError> {
        let link = self.link(limit).await?;
        let address = self.server(&link);
        let (glob, most) = (escaped(&wanted.head()) + "*", wanted.limit as usize);
        let now = Instant::now();
        let until = now + limit.deadline.saturating_duration_since(now) / 2;
        let mut found: FxHashSet<Key> = FxHashSet::default();
        let mut cursor = b"0".to_vec();
        loop {
            let mut step = Pipeline::new();
            step.cmd("SCAN").arg(&cursor).arg("MATCH").arg(&glob).arg("COUNT").arg(STEP);
            let replies = link.send(&step, limit.deadline, limit.timeout).await;
            let reply = replies.map_err(|cut| cut_off(&cut, address))?.pop();
            let keys = match reply {
                Some(Value::ServerError(error)) => return Err(fault::refused(address, &error)),
                Some(Value::Array(parts)) => match <[Value; 2]>::try_from(parts) {
                    Ok([Value::BulkString(next), Value::Array(keys)]) => {
                        cursor = next;
                        keys
                    }
                    _ => return Err(fault::not_a_redis(address, false)),
                },
                _ => return Err(fault::not_a_redis(address, false)),
            };
            for key in keys.iter().filter_map(text) {
                if wanted.matches(key) && lock_beside(key).is_none() {
                    found.insert(key.into());
                }
            }
            let is_over = cursor == b"0";
            if is_over || found.len() > most || Instant::now() >= until {
                return Ok((found.into_iter().take(most + 1).collect(), is_over));
            }
        }
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        // A lock of ours is UTF-8.
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// As a pattern of Redis that only `text` matches.
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
