//! What the scripts reply, as answers.

use std::time::Duration;

use redis::{ServerError, Value};

use super::address::RedisAddress;
use super::fault;
use super::plan::{Class, Group};
use crate::lease::Fence;
use crate::store::{Absence, Answer, LeaseInfo, LockInfo, Reply, StoreError, StoreErrorKind};

/// The error that `value` is.
pub fn server_error(value: Value) -> Option<ServerError> {
    match value {
        Value::ServerError(error) => Some(error),
        _ => None,
    }
}

/// The first word of the error that `value` is.
pub fn refusal(value: &Value) -> Option<&str> {
    match value {
        Value::ServerError(error) => Some(error.code()),
        _ => None,
    }
}

/// Answers all requests of the group with `error`.
pub fn refuse(
    address: &RedisAddress,
    group: &Group<'_>,
    error: &ServerError,
    answers: &mut [Option<Answer>],
) {
    let error = fault::refused(address, error);
    for &member in &group.members {
        answers[member] = Some(Err(error.clone()));
    }
}

/// Reads the reply to a group into the answers of its requests. What no Redis replies leaves them without.
pub fn read(address: &RedisAddress, group: &Group<'_>, reply: Value, answers: &mut [Option<Answer>]) {
    match reply {
        Value::ServerError(error) if group.class == Class::Ping && error.code() == "NOPERM" => {
            // Who may not ask for the server's role can still use it: the scripts refuse on a replica by themselves.
            fill(group, &Ok(Reply::Ready), answers);
        }
        Value::ServerError(error) => refuse(address, group, &error, answers),
        info if group.class == Class::Ping => {
            if let Some(answer) = ping(address, info) {
                fill(group, &answer, answers);
            }
        }
        Value::Array(items) if items.len() == group.members.len() => {
            for (&member, item) in group.members.iter().zip(items) {
                answers[member] = match item {
                    Value::ServerError(error) => Some(Err(fault::refused(address, &error))),
                    item => one(group.class, item).map(Ok),
                };
            }
        }
        _ => {}
    }
}

fn fill(group: &Group<'_>, answer: &Answer, answers: &mut [Option<Answer>]) {
    for &member in &group.members {
        answers[member] = Some(answer.clone());
    }
}

/// Reads `INFO`.
fn ping(address: &RedisAddress, info: Value) -> Option<Answer> {
    let text = match info {
        Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    let says = |line: &str| text.lines().any(|known| known.trim_end() == line);
    if says("loading:1") {
        let message = format!("{address} is reading its data from disk and will answer soon");
        return Some(Err(StoreError::not_done(StoreErrorKind::Loading, message)));
    }
    if says("role:slave") && !says("slave_read_only:0") {
        let message = format!("{address} is a read-only replica; give the master's address");
        return Some(Err(StoreError::not_done(StoreErrorKind::ReadOnly, message)));
    }
    Some(Ok(Reply::Ready))
}

/// Reads one value that a script answered; the scripts say what it means.
fn one(class: Class<'_>, value: Value) -> Option<Reply> {
    Some(match (class, value) {
        (Class::Acquire(..), Value::Int(-1)) => Reply::Busy { remaining: None },
        (Class::Acquire(..), Value::Int(code)) => match u64::try_from(code) {
            Ok(fence) => Reply::Acquired { fence: Fence(fence), waiting: 0 },
            Err(_) => Reply::Busy { remaining: remaining(-2 - code) },
        },
        (Class::Renew(_), Value::Int(1)) => Reply::Renewed { block: None },
        (Class::Release, Value::Int(1)) => Reply::Released,
        (Class::Renew(_) | Class::Release, Value::Int(0)) => Reply::NotHeld(Absence::Missing),
        (Class::Renew(_) | Class::Release, Value::Int(-1)) => Reply::NotHeld(Absence::Taken),
        (Class::Inspect, Value::Nil) => Reply::Inspected(None),
        (Class::Inspect, Value::Array(parts)) => {
            let (left, fence, holder) = match &parts[..] {
                [Value::Int(left)] => (*left, None, None),
                [Value::Int(left), Value::Int(fence), Value::BulkString(holder)] => {
                    let holder = String::from_utf8_lossy(holder).into();
                    (*left, u64::try_from(*fence).ok().map(Fence), Some(holder))
                }
                _ => return None,
            };
            let lease = LeaseInfo { holder, fence, remaining: remaining(left) };
            Reply::Inspected(Some(LockInfo { shared: false, leases: vec![lease], waiters: Vec::new() }))
        }
        _ => return None,
    })
}

/// PTTL's −1 is a key that never expires; −2, one that is gone by now.
fn remaining(left: i64) -> Option<Duration> {
    (left != -1).then(|| Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}
