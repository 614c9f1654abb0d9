//! Turns the replies of the scripts into answers.
//!
//! If the stream of replies has got out of step, a reply may belong to another request. So this
//! module rejects impossible numbers: a fence follows the server's clock, and no count is negative.
//! The connection then ends; see `RedisStore::run`.

use std::sync::Arc;
use std::time::Duration;

use redis::{ServerError, Value};

use super::address::RedisAddress;
use super::info::{Info, text_in};
use super::outcomes::Outcomes;
use super::pipeline::{Class, Group};
use crate::lease::{Fence, Mode, Token, Ttl};
use crate::store::{
    Absence, AdoptedLease, Answer, LeaseInfo, LockInfo, Reply, StoreError, StoreErrorKind, WaiterInfo,
};

/// The most bytes of a holder's name that the client keeps. A name has at most 255 bytes, and the
/// trace behind it 56. If this is larger, a false server can take more memory; if it is smaller,
/// real names are cut off.
const MOST_NAME: usize = 320;

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
/// Redis server sends such a reply. `notified` is true if the waiters get notices.
pub fn read(
    address: &RedisAddress,
    group: &Group<'_>,
    reply: Value,
    notified: bool,
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
                    item => outcomes.answers[member] = one(group.class, item, notified).map(Ok),
                }
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
fn one(class: Class<'_>, value: Value, notified: bool) -> Option<Reply> {
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
        (Class::Inspect, Value::Array(parts)) => match &parts[..] {
            [Value::Int(shared), Value::Array(leases), Value::Array(waiters)] => {
                let mut leases = leases.iter().map(lease).collect::<Option<Vec<_>>>()?;
                // A lease that is not taken up yet will get a larger fence than the others.
                leases.sort_by_key(|lease| lease.fence.unwrap_or(Fence::MAX));
                let waiters = waiters.iter().map(waiter).collect::<Option<_>>()?;
                Reply::Inspected(Some(LockInfo { shared: *shared == 1, leases, waiters }))
            }
            _ => return None,
        },
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

fn lease(value: &Value) -> Option<LeaseInfo> {
    let Value::Array(parts) = value else { return None };
    let (left, fence, holder, mark) = match &parts[..] {
        [Value::Int(left)] => (*left, None, None, None),
        [Value::Int(left), Value::BulkString(holder), Value::Int(fence), Value::BulkString(mark)] => {
            let fence = u64::try_from(*fence).ok().filter(|&fence| fence > 0).map(Fence);
            (*left, fence, Some(name_in(holder)), mark_of(mark))
        }
        _ => return None,
    };
    Some(LeaseInfo { mark, holder, fence, remaining: remaining(left), servers: None })
}

/// Reads the name of a holder or a waiter. Cuts off a name that is longer than any client's.
fn name_in(bytes: &[u8]) -> Arc<str> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_NAME)]).into()
}

/// Reads a mark: the first 8 hexadecimal digits of a token.
fn mark_of(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn waiter(value: &Value) -> Option<WaiterInfo> {
    let Value::Array(parts) = value else { return None };
    let (age, most, holder) = match &parts[..] {
        // If the user lacks a right, a script may stop before it has noted the waiter's name.
        [Value::Int(age)] => (*age, "0".as_bytes(), "".into()),
        [Value::Int(age), Value::BulkString(most), Value::BulkString(holder)] => {
            (*age, &most[..], name_in(holder))
        }
        _ => return None,
    };
    let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
    Some(WaiterInfo { holder, shared: most != b"0", age })
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

/// Reads a reply to PTTL. −1 is a key that never expires, and −2 is a key that is gone.
fn remaining(left: i64) -> Option<Duration> {
    (left != -1).then(|| Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}
