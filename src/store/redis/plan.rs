//! A batch of requests as a pipeline of script calls, and the pipeline's replies as answers.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::address::RedisAddress;
use super::fault;
use super::scripts::{SCRIPTS, fence_key};
use crate::lease::{Fence, Token};
use crate::store::{Absence, Answer, LeaseInfo, Reply, Request, StoreError, StoreErrorKind};

/// The most requests in one script call: the server does nothing else meanwhile, and answers only when it is done.
const MOST: usize = 64;

/// What a script call, or a PING, asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ping,
    Acquire,
    Renew,
    Release,
    Inspect,
}

impl Kind {
    fn of(request: &Request) -> Self {
        match request {
            Request::Ping => Kind::Ping,
            Request::Acquire { .. } => Kind::Acquire,
            Request::Renew { .. } => Kind::Renew,
            Request::Release { .. } => Kind::Release,
            Request::Inspect { .. } => Kind::Inspect,
        }
    }
}

/// Neighbouring requests of one kind, which are one command.
#[derive(Debug)]
pub struct Group {
    kind: Kind,
    first: usize,
    len: usize,
}

/// Splits a batch into groups, in its order.
pub fn groups(batch: &[Request]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, request) in batch.iter().enumerate() {
        let kind = Kind::of(request);
        match groups.last_mut() {
            Some(group) if group.kind == kind && group.len < MOST && kind != Kind::Ping => group.len += 1,
            _ => groups.push(Group { kind, first: index, len: 1 }),
        }
    }
    groups
}

/// The commands for `groups`.
pub fn pipeline<'a>(batch: &[Request], groups: impl ExactSizeIterator<Item = &'a Group>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(groups.len());
    for group in groups {
        pipeline.add_command(command(group.kind, &batch[group.first..group.first + group.len]));
    }
    pipeline
}

fn command(kind: Kind, requests: &[Request]) -> Cmd {
    let (script, keys) = match kind {
        Kind::Ping => return redis::cmd("PING"),
        Kind::Acquire => (&SCRIPTS.acquire, 2),
        Kind::Renew => (&SCRIPTS.renew, 2),
        Kind::Release => (&SCRIPTS.release, 1),
        Kind::Inspect => (&SCRIPTS.inspect, 2),
    };
    let mut command = Cmd::with_capacity(3 + 5 * requests.len(), 64 + 160 * requests.len());
    command.arg("EVALSHA").arg(&script.hash).arg(keys * requests.len());
    for request in requests {
        if let Request::Acquire { key, .. }
        | Request::Renew { key, .. }
        | Request::Release { key, .. }
        | Request::Inspect { key } = request
        {
            command.arg(&**key);
            if keys == 2 {
                command.arg(fence_key(key));
            }
        }
    }
    let mut buffer = [0; Token::LENGTH];
    for request in requests {
        match request {
            Request::Acquire { token, ttl, holder, .. } => {
                command.arg(token.encode(&mut buffer)).arg(ttl.as_millis()).arg(&**holder);
            }
            Request::Renew { token, ttl, .. } => {
                command.arg(token.encode(&mut buffer)).arg(ttl.as_millis());
            }
            Request::Release { token, .. } => {
                command.arg(token.encode(&mut buffer));
            }
            Request::Inspect { .. } | Request::Ping => {}
        }
    }
    command
}

/// Whether the server did not know the group's script, and therefore did nothing.
pub fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Reads a group's reply into the answers of its requests.
pub fn read(address: &RedisAddress, group: &Group, value: Value, answers: &mut [Option<Answer>]) {
    let answers = &mut answers[group.first..group.first + group.len];
    match value {
        Value::ServerError(error) => {
            let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
            let error = fault::refused(address, text.trim());
            answers.fill(Some(Err(error)));
        }
        Value::SimpleString(_) | Value::BulkString(_) if group.kind == Kind::Ping => {
            answers[0] = Some(Ok(Reply::Ready));
        }
        Value::Array(items) if group.kind == Kind::Release && items.len() == group.len => {
            for (answer, item) in answers.iter_mut().zip(items) {
                if let Value::Int(code) = item {
                    *answer = one(address, group.kind, code, Value::Nil);
                }
            }
        }
        Value::Array(items) if items.len() == 2 * group.len => {
            let mut items = items.into_iter();
            for answer in answers {
                if let (Some(Value::Int(code)), Some(value)) = (items.next(), items.next()) {
                    *answer = one(address, group.kind, code, value);
                }
            }
        }
        _ => {}
    }
}

/// The answer to an answer that nobody understands.
pub fn not_understood(address: &RedisAddress) -> StoreError {
    StoreError::maybe_done(StoreErrorKind::Unsupported, format!("{address} answered what no Redis answers"))
}

fn one(address: &RedisAddress, kind: Kind, code: i64, value: Value) -> Option<Answer> {
    Some(Ok(match (kind, code, value) {
        (_, -1, value) => return Some(Err(fault::refused(address, &text(value)?))),
        (Kind::Acquire, 1, fence) => Reply::Acquired { fence: Fence(text(fence)?.parse().ok()?) },
        (Kind::Acquire, 0, Value::Int(left)) => Reply::Busy { remaining: remaining(left) },
        (Kind::Renew, 1, _) => Reply::Renewed,
        (Kind::Release, 1, _) => Reply::Released,
        (Kind::Renew | Kind::Release, 2, _) => Reply::NotHeld(Absence::Missing),
        (Kind::Renew | Kind::Release, 3, _) => Reply::NotHeld(Absence::Taken),
        (Kind::Inspect, 2, _) => Reply::Inspected(None),
        (Kind::Inspect, 1, Value::Array(parts)) => {
            let [Value::Int(left), fence, holder] = <[Value; 3]>::try_from(parts).ok()? else { return None };
            let fence = text(fence)?.parse().ok().map(Fence);
            let holder = fence.and(Some(text(holder)?.into()));
            Reply::Inspected(Some(LeaseInfo { holder, fence, remaining: remaining(left) }))
        }
        _ => return None,
    }))
}

/// PTTL's −1 is a key that never expires; −2, one that is gone by now.
fn remaining(left: i64) -> Option<Duration> {
    (left != -1).then(|| Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

fn text(value: Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Key, Ttl};

    #[test]
    fn neighbours_of_a_kind_are_one_call_in_the_batchs_order() {
        let key: Key = "k".into();
        let release = Request::Release { key: key.clone(), token: Token::random() };
        let renew = Request::Renew { key: key.clone(), token: Token::random(), ttl: Ttl::MIN };
        let inspect = Request::Inspect { key };
        let mut batch = vec![release; 200];
        batch.extend([renew, inspect.clone(), inspect, Request::Ping, Request::Ping]);
        let groups = groups(&batch);
        let shape: Vec<_> = groups.iter().map(|g| (g.kind, g.first, g.len)).collect();
        assert_eq!(
            shape,
            [
                (Kind::Release, 0, 64),
                (Kind::Release, 64, 64),
                (Kind::Release, 128, 64),
                (Kind::Release, 192, 8),
                (Kind::Renew, 200, 1),
                (Kind::Inspect, 201, 2),
                (Kind::Ping, 203, 1),
                (Kind::Ping, 204, 1),
            ]
        );
    }
}
