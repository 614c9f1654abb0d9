//! Redis Sentinel: which server is the master, and the way to it.
//!
//! Sentinels watch a master and its replicas, and promote a replica when the master fails ("Redis
//! Sentinel client spec"). To connect, the store asks all sentinels together, because each may be
//! gone or may not know the new master yet. The store takes the first answer that does not name the
//! master which was just replaced. The named server then has to say by itself that it is a master.
//!
//! - [`address`]: the URL;
//! - [`watch`]: listening to the sentinels, to hear of a failover at once;
//! - [`roster`]: which sentinels to listen to;
//! - [`failover`]: whether a failover is under way;
//! - [`survey`]: which sentinels have answered that question, and [`statement`], what they answer;
//! - [`lookout`]: where the master is.

pub mod address;
pub mod failover;
pub mod lookout;
mod roster;
mod statement;
pub mod survey;
pub mod watch;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{FromRedisValue, Pipeline, Value};
use tokio::time::{Instant, sleep, timeout};

use self::address::Sentinels;
use self::lookout::Lookout;
use super::address::{RedisAddress, told_host};
use super::budget::{Budget, Intake};
use super::dial::{Stream, dial, speaks_tls};
use super::greeting::{self, End};
use super::link::{Cut, Link};
use super::{connect, distrust, fault};
use crate::store::{StoreError, StoreErrorKind};

/// How long a sentinel may take to answer.
const ANSWER: Duration = Duration::from_millis(400);
/// How long the server that they name may take to let us in.
const WELCOME: Duration = Duration::from_millis(600);
/// For how long another try is begun while the sentinels name a server that is no master any more, or cannot be reached.
const PATIENCE: Duration = Duration::from_millis(600);
/// The pause before that.
const PAUSE: Duration = Duration::from_millis(100);

/// Connects to the master that `sentinels` name. `address` is that of all sentinels, with the
/// master's login. `lookout` says which server is not the master any more. All connections take their
/// memory from `budget`.
pub async fn connect(
    address: &RedisAddress,
    sentinels: &Sentinels,
    lookout: &Lookout,
    budget: &Arc<Budget>,
) -> Result<Link, StoreError> {
    let begun = Instant::now();
    loop {
        match attempt(address, sentinels, lookout, budget).await {
            Err(error) if error.kind.is_transient() && begun.elapsed() < PATIENCE => sleep(PAUSE).await,
            result => return result,
        }
    }
}

async fn attempt(
    address: &RedisAddress,
    sentinels: &Sentinels,
    lookout: &Lookout,
    budget: &Arc<Budget>,
) -> Result<Link, StoreError> {
    let (host, port) = find(address, sentinels, lookout, budget).await?;
    let server = address.at(&host, port);
    let name = &sentinels.master;
    let connecting = connect::connect(server.clone(), connect::Role::Alone, budget.clone());
    let link = timeout(WELCOME, connecting).await.unwrap_or_else(|_| {
        let message = format!("{server} did not let us in within {} ms", WELCOME.as_millis());
        Err(StoreError::not_done(StoreErrorKind::TimedOut, message))
    });
    let link = link.map_err(|error| StoreError {
        message: format!("the sentinels name {} as the master {name:?}: {}", server.place(), error.message)
            .into(),
        ..error
    })?;
    link.leads_to(server.clone());
    let mut question = Pipeline::new();
    question.cmd("ROLE");
    match link.send(&question, Instant::now() + WELCOME, WELCOME).await {
        Ok(replies) => match replies.into_iter().next() {
            // The server was replaced as the master meanwhile, and does not know that yet.
            Some(_) if lookout.is_deposed(&host, port) => Err(deposed(address)),
            Some(Value::Array(parts)) if parts.first().is_some_and(is_master) => Ok(link),
            // Who may not ask finds out by the first request: a replica refuses all of them.
            Some(Value::ServerError(error)) if error.code() == "NOPERM" => Ok(link),
            Some(Value::ServerError(error)) => {
                Err(StoreError { maybe_done: false, ..fault::refused(&server, &error) })
            }
            _ => {
                let message = format!(
                    "the sentinels name {} as the master {name:?}, but it is a replica: a failover is under way, or \
                     they have not heard of one",
                    server.place()
                );
                Err(StoreError::not_done(StoreErrorKind::ReadOnly, message))
            }
        },
        Err(Cut::Broken(error)) => Err(fault::broken(&server, &error, false)),
        Err(Cut::TooMuch(excess)) => {
            Err(StoreError { maybe_done: false, ..fault::too_much(&server, excess) })
        }
        Err(Cut::TimedOut | Cut::Torn | Cut::OutOfStep) => {
            let message = format!("{server} did not tell its role within {} ms", WELCOME.as_millis());
            Err(StoreError::not_done(StoreErrorKind::TimedOut, message))
        }
    }
}

/// Returns the error for sentinels that still name the replaced master.
fn deposed(address: &RedisAddress) -> StoreError {
    let message = format!(
        "{address}: the sentinels that answer still name the master before the failover; try again in 2 s, when they know \
         the new one"
    );
    StoreError::not_done(StoreErrorKind::ReadOnly, message)
}

fn is_master(role: &Value) -> bool {
    matches!(role, Value::BulkString(role) if role == b"master")
}

/// The host and port of the master.
async fn find(
    address: &RedisAddress,
    sentinels: &Sentinels,
    lookout: &Lookout,
    budget: &Arc<Budget>,
) -> Result<(String, u16), StoreError> {
    let name = &sentinels.master;
    let ask_in_time = |node| async move {
        timeout(ANSWER, ask(node, name, budget)).await.unwrap_or_else(|_| {
            let message = format!("{node} did not answer within {} ms", ANSWER.as_millis());
            Err(StoreError::not_done(StoreErrorKind::TimedOut, message))
        })
    };
    let mut asked: FuturesUnordered<_> = sentinels.nodes.iter().map(ask_in_time).collect();
    let mut failures: Vec<StoreError> = Vec::new();
    let mut is_late = false;
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(Some((host, port))) if lookout.is_deposed(&host, port) => is_late = true,
            Ok(Some(master)) => return Ok(master),
            Ok(None) => {}
            Err(error) => failures.push(error),
        }
    }
    if is_late {
        return Err(deposed(address));
    }
    let said = failures.iter().map(|error| &*error.message).collect::<Vec<_>>().join("; ");
    if failures.is_empty() {
        let message =
            format!("{address}: the sentinels know no master of the name {name:?}; check the end of the URL");
        return Err(StoreError::not_done(StoreErrorKind::Unsupported, message));
    }
    let message = if failures.len() < sentinels.nodes.len() {
        format!("{address}: some sentinels know no master of the name {name:?}, and others tell none: {said}")
    } else {
        format!("{address}: no sentinel tells the master: {said}")
    };
    // What may pass at one of them may pass.
    let kind = failures.iter().map(|error| error.kind).find(|kind| kind.is_transient());
    Err(StoreError::not_done(kind.unwrap_or(failures[0].kind), message))
}

/// What one sentinel knows of the master.
async fn ask(
    node: &RedisAddress,
    name: &str,
    budget: &Arc<Budget>,
) -> Result<Option<(String, u16)>, StoreError> {
    let mut stream = dial(node).await?;
    let question = connect::words_of(&["SENTINEL", "get-master-addr-by-name", name]);
    match say(node, &mut stream, question, &Intake::of(budget)).await? {
        Value::Nil => Ok(None),
        Value::Array(parts) => match <[String; 2]>::try_from(
            parts.into_iter().filter_map(|part| String::from_redis_value(part).ok()).collect::<Vec<_>>(),
        ) {
            Ok([host, port]) => Ok(port.parse().ok().map(|port| (told_host(&host), port))),
            Err(_) => Err(fault::not_a_redis(node, false)),
        },
        _ => Err(fault::not_a_redis(node, false)),
    }
}

/// Logs in at a sentinel and says `command`. What it replies.
async fn say(
    node: &RedisAddress,
    stream: &mut Stream,
    command: redis::Cmd,
    intake: &Intake,
) -> Result<Value, StoreError> {
    let login = connect::login(node);
    let has_login = login.is_some();
    let commands: Vec<_> = login.into_iter().chain([command]).collect();
    let replies = greeting::exchange(stream, &commands, intake).await;
    let mut values = replies.values.into_iter();
    if has_login && matches!(values.next(), Some(Value::ServerError(_))) {
        // Its own words may repeat the password.
        let message = format!("{node} refused the login; check sentinelUsername and sentinelPassword");
        return Err(StoreError::not_done(StoreErrorKind::Denied, message));
    }
    match (values.next(), replies.end) {
        (Some(Value::ServerError(error)), _) => {
            let (kind, advice) = match error.code() {
                "NOAUTH" => (StoreErrorKind::Denied, "wants a password; give one as sentinelPassword"),
                "NOPERM" => {
                    (StoreErrorKind::Denied, "does not let that user ask; it needs +sentinel and +subscribe")
                }
                _ => (StoreErrorKind::Unsupported, "is no Sentinel; check host and port"),
            };
            Err(StoreError::not_done(kind, format!("{node} {advice}")))
        }
        (Some(value), _) => Ok(value),
        (None, Some(_)) if node.tls.is_none() && speaks_tls(node).await => Err(distrust::wants_tls(node)),
        (None, Some(End::HungUp(error))) => Err(distrust::unreachable(node, &error)),
        (None, _) => Err(fault::not_a_redis(node, false)),
    }
}
