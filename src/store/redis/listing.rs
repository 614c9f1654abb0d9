//! Which locks there are at a server.
//!
//! By SCAN, a bounded number of keys at a time, so that nobody waits for long, and never by KEYS, for which everybody waits
//! ("SCAN", Redis documentation: what is there from the first to the last call is told, perhaps more than once).

use redis::{Pipeline, Value};
use rustc_hash::FxHashSet;
use tokio::time::Instant;

use super::{Limit, RedisStore, cut_off, fault};
use crate::lease::Key;
use crate::store::listing::{self, Listing, Wanted};
use crate::store::{Answer, Reply, Request, StoreError};

/// How many keys the server looks at in one go.
const STEP: u32 = 1000;
/// How the names of the keys end that lie beside a lock.
const SIDES: [&str; 6] = [":fence", ":queue", ":alive", ":waiters", ":holders", ":broken"];

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
        let answers = self.run(&listing::inspections(&keys), limit, false).await.answers;
        let answers = answers.into_iter().flatten().collect();
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
                if wanted.matches(key) && !is_beside_a_lock(key) {
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

/// Whether it is named like the keys that lie beside a lock: with a prefix like theirs, or none, they match, too. A lock
/// that has such a name is not told.
fn is_beside_a_lock(key: &str) -> bool {
    key.starts_with('{') && key.contains('}') && SIDES.iter().any(|side| key.ends_with(side))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_that_the_rules_put_next_to_a_lock_are_known() {
        let rules = include_str!("scripts/rules.lua");
        let named = rules.split("names .. '").skip(1).filter_map(|rest| rest.split('\'').next());
        let mut named: Vec<String> = named.map(|name| format!(":{name}")).collect();
        let described = rules.lines().filter_map(|line| line.strip_prefix("--   :")?.split(' ').next());
        let mut described: Vec<String> = described.map(|name| format!(":{name}")).collect();
        let mut known = SIDES.map(str::to_owned);
        named.sort_unstable();
        described.sort_unstable();
        known.sort_unstable();
        assert_eq!((&named[..], &described[..]), (&known[..], &known[..]));
        assert!(is_beside_a_lock("{lock:a}:broken"));
        assert!(!is_beside_a_lock("lock:a:broken"), "this is a lock");
    }
}
