//! Turns the replies of the scripts into answers.
//!
//! If the stream of replies has got out of step, a reply may belong to another request. So this
//! module rejects impossible numbers: a fence follows the server's clock, and no count is negative.
//! The connection then ends; see `RedisStore::run`.

use std::time::Duration;

use redis::{ServerError, Value};

use super::address::RedisAddress;
use super::info::{Info, text_in};
use super::inspection::{self, mark_of, remaining};
use super::outcomes::Outcomes;
use super::pace::Pace;
use super::pipeline::{Class, Group};
use crate::lease::{Fence, Mode, Token, Ttl};
use crate::store::{Absence, AdoptedLease, Answer, Reply, StoreError, StoreErrorKind};

/// Returns the error in `value`, if `value` is one.
pub fn server_error(value: Value) -> Option<ServerError> {
    match value {
        Value::ServerError(error) => Some(error),
        _ => None,
    }
}

/// Returns the first word of the error in `value`, if `value` is one.
pub fn refusal(value: &Value) -> Option<&str> {
    match value {
        Value::ServerError(error) => Some(error.code()),
        _ => None,
    }
}

/// Reads the reply to a group, and adds the answers of its requests to `outcomes`. Adds none if no
/// Redis server sends such a reply. `notified` is true if the waiters get notices. Lets other
/// stores have their turns, as `pace` says.
pub async fn read(
    address: &RedisAddress,
    group: &Group<'_>,
    reply: Value,
    notified: bool,
    pace: &mut Pace<'_>,
    outcomes: &mut Outcomes,
) {
    match reply {
        Value::ServerError(error) if group.class == Class::Ping && error.code() == "NOPERM" => {
            // A user who may not send INFO can still use the server: on a replica, the scripts fail
            // by themselves.
            fill(group, &Ok(Reply::Ready), outcomes);
        }
        Value::ServerError(error) => outcomes.refuse(address, &group.members, &error),
        info if group.class == Class::Ping => {
            if let Some(answer) = ping(address, info) {
                fill(group, &answer, outcomes);
            }
        }
        Value::Array(items) if items.len() == group.members.len() => {
            for (&member, item) in group.members.iter().zip(items) {
                match item {
                    Value::ServerError(error) => outcomes.refuse(address, &[member], &error),
                    item => outcomes.answers[member] = one(group.class, item, notified, pace).await.map(Ok),
                }
                pace.keep().await;
            }
        }
        _ => {}
    }
}

fn fill(group: &Group<'_>, answer: &Answer, outcomes: &mut Outcomes) {
    for &member in &group.members {
        outcomes.answers[member] = Some(answer.clone());
    }
}

/// Reads a reply to `INFO`.
fn ping(address: &RedisAddress, info: Value) -> Option<Answer> {
    let text = match &info {
        Value::BulkString(bytes) => text_in(bytes),
        Value::VerbatimString { text, .. } => text_in(text.as_bytes()),
        _ => return None,
    };
    let info = Info::read(&text);
    let says = |name, value| info.get(name) == Some(value);
    if says("loading", "1") {
        let message = format!("{address} is reading its data from disk and will answer soon");
        return Some(Err(StoreError::not_done(StoreErrorKind::Loading, message)));
    }
    if says("role", "slave") && !says("slave_read_only", "0") {
        let message = format!("{address} is a read-only replica; give the master's address");
        return Some(Err(StoreError::not_done(StoreErrorKind::ReadOnly, message)));
    }
    Some(Ok(Reply::Ready))
}

/// Reads the value that a script returned for one request. The header of the script describes it.
/// Returns `None` if no script returns such a value. `notified` is true if the waiters get notices.
async fn one(class: Class<'_>, value: Value, notified: bool, pace: &mut Pace<'_>) -> Option<Reply> {
    Some(match (class, value) {
        (Class::Acquire(_), Value::Int(code @ ..0)) => Reply::Busy { remaining: in_the_way(code) },
        (Class::Acquire(_), Value::Int(first)) => Reply::Acquired { fence: fence(first)?, waiting: 0 },
        (Class::Acquire(_), Value::Array(parts)) => match &parts[..] {
            [Value::Int(first), Value::Int(waiting)] => {
                Reply::Acquired { fence: fence(*first)?, waiting: count(*waiting)? }
            }
            [Value::Int(code @ ..0), Value::Int(ahead), Value::BulkString(by)] => {
                let by = mark_of(by);
                Reply::Queued { remaining: in_the_way(*code), ahead: count(*ahead)?, notified, by }
            }
            _ => return None,
        },
        (Class::Renew(_, 0) | Class::Detach(_), Value::Int(1)) => Reply::Renewed { block: None },
        (Class::Renew(..), Value::Array(parts)) => match parts[..] {
            [Value::Int(first), Value::Int(waiting)] => {
                Reply::Renewed { block: Some((fence(first)?, count(waiting)?)) }
            }
            _ => return None,
        },
        (Class::Release | Class::Break(_), Value::Int(1)) => Reply::Released,
        (Class::Break(_), Value::Int(0)) => Reply::NotHeld(Absence::Missing),
        (Class::Adopt(..), Value::Array(parts)) => Reply::Adopted(adopted_lease(&parts)?),
        (Class::Move, Value::Array(parts)) => {
            let [parts @ .., Value::Int(granted), Value::Int(left)] = &parts[..] else { return None };
            let (granted, remaining) = (fence(*granted)?, remaining(*left));
            Reply::Adopted(AdoptedLease { granted, remaining, ..adopted_lease(parts)? })
        }
        (Class::Move, Value::BulkString(by)) => {
            Reply::Claimed { by: Token::parse(str::from_utf8(&by).ok()?)? }
        }
        (Class::Accept, Value::Int(1)) => Reply::Accepted,
        (
            Class::Renew(..)
            | Class::Detach(_)
            | Class::Release
            | Class::Adopt(..)
            | Class::Move
            | Class::Accept,
            Value::Int(absence @ (0 | -1)),
        ) => Reply::NotHeld(if absence == 0 { Absence::Missing } else { Absence::Taken }),
        (Class::Inspect, Value::Nil) => Reply::Inspected(None),
        (Class::Inspect, lock) => Reply::Inspected(Some(inspection::read(lock, pace).await?)),
        _ => return None,
    })
}

/// Reads the reply about a lease that moved to another token: the first and the last fence, 1 if
/// the lease is shared, and the ttl in the note in ms or 0.
fn adopted_lease(parts: &[Value]) -> Option<AdoptedLease> {
    let [Value::Int(first), Value::Int(last), Value::Int(shared), Value::Int(ttl)] = parts else {
        return None;
    };
    let mode = if *shared == 1 { Mode::Shared { most: u32::MAX } } else { Mode::Exclusive };
    let ttl = u32::try_from(*ttl).ok().and_then(Ttl::from_millis);
    let (first, last) = (fence(*first)?, fence(*last)?);
    Some(AdoptedLease { first, last, granted: first, mode, ttl, remaining: None })
}

/// Returns the fence, unless the number can't be one.
fn fence(number: i64) -> Option<Fence> {
    let number = u64::try_from(number).ok()?;
    (Fence::EARLIEST_WALL_US..=Fence::MAX.0).contains(&number).then_some(Fence(number))
}

/// Returns the number of waiters, unless it is negative.
fn count(number: i64) -> Option<u32> {
    (number >= 0).then(|| u32::try_from(number).unwrap_or(u32::MAX))
}

/// Returns how long the lease in the way lasts. −1 means that it never ends. Any other code is −2
/// minus the ms until it ends.
fn in_the_way(code: i64) -> Option<Duration> {
    if code == -1 { None } else { remaining(-2 - code) }
}
