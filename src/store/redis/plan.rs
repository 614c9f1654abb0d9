//! A batch of requests as a pipeline of script calls, and the pipeline's replies as answers.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use super::address::RedisAddress;
use super::fault;
use super::scripts::{SCRIPTS, fence_key};
use crate::lease::{Fence, Token, Ttl};
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

/// Neighbouring requests that one command can carry.
#[derive(Debug)]
pub struct Group {
    kind: Kind,
    first: usize,
    len: usize,
}

impl Group {
    /// Whether the group has more requests than one.
    pub fn is_many(&self) -> bool {
        self.len > 1
    }

    /// A group for each request.
    pub fn one_by_one(&self) -> impl Iterator<Item = Group> {
        let kind = self.kind;
        (self.first..self.first + self.len).map(move |first| Group { kind, first, len: 1 })
    }
}

/// Splits a batch into groups, in its order.
pub fn groups(batch: &[Request]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, request) in batch.iter().enumerate() {
        match groups.last_mut() {
            Some(group) if group.len < MOST && goes_with(&batch[group.first], request) => group.len += 1,
            _ => groups.push(Group { kind: Kind::of(request), first: index, len: 1 }),
        }
    }
    groups
}

/// Whether two requests can share a command: the same thing is to be done, with the same arguments but for key and token.
fn goes_with(first: &Request, next: &Request) -> bool {
    match (first, next) {
        (Request::Acquire { ttl: a, holder: x, .. }, Request::Acquire { ttl: b, holder: y, .. }) => {
            a == b && x == y
        }
        (Request::Renew { ttl: a, .. }, Request::Renew { ttl: b, .. }) => a == b,
        (Request::Release { .. }, Request::Release { .. })
        | (Request::Inspect { .. }, Request::Inspect { .. }) => true,
        _ => false,
    }
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
    let mut command = Cmd::with_capacity(6 + 3 * requests.len(), 96 + 128 * requests.len());
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
    match &requests[0] {
        Request::Acquire { ttl, holder, .. } => {
            command.arg(ttl.as_millis()).arg(fence_life(*ttl)).arg(&**holder);
        }
        Request::Renew { ttl, .. } => {
            command.arg(ttl.as_millis()).arg(fence_life(*ttl));
        }
        Request::Release { .. } | Request::Inspect { .. } | Request::Ping => {}
    }
    let mut buffer = [0; Token::LENGTH];
    for request in requests {
        if let Request::Acquire { token, .. }
        | Request::Renew { token, .. }
        | Request::Release { token, .. } = request
        {
            command.arg(token.encode(&mut buffer));
        }
    }
    command
}

/// How long the server remembers the fence of a lease that is not renewed, in ms: an hour longer than the lease.
fn fence_life(ttl: Ttl) -> u64 {
    u64::from(ttl.as_millis()) + 3_600_000
}

/// Whether the server did not know the group's script, and therefore did nothing.
pub fn is_unknown_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Whether the server denied the whole group, be it for one key of it only, and therefore did nothing.
pub fn is_denied(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOPERM")
}

/// Reads a group's reply into the answers of its requests.
pub fn read(address: &RedisAddress, group: &Group, value: Value, answers: &mut [Option<Answer>]) {
    let answers = &mut answers[group.first..group.first + group.len];
    match value {
        Value::ServerError(error) => {
            let error = fault::refused(address, &fault::text_of(&error));
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
    use crate::lease::Key;

    #[test]
    fn neighbours_are_one_call_if_they_can_be_in_the_batchs_order() {
        let key: Key = "k".into();
        let release = Request::Release { key: key.clone(), token: Token::random() };
        let renew = |ttl| Request::Renew { key: key.clone(), token: Token::random(), ttl };
        let inspect = Request::Inspect { key: key.clone() };
        let mut batch = vec![release; 200];
        batch.extend([
            renew(Ttl::MIN),
            renew(Ttl::MAX),
            renew(Ttl::MAX),
            inspect.clone(),
            inspect,
            Request::Ping,
            Request::Ping,
        ]);
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
                (Kind::Renew, 201, 2),
                (Kind::Inspect, 203, 2),
                (Kind::Ping, 205, 1),
                (Kind::Ping, 206, 1),
            ]
        );
    }
}
