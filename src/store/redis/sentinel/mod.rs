//! Redis Sentinel: finds the master and connects to it.
//!
//! Sentinels watch a master and its replicas, and promote a replica when the master fails ("Redis
//! Sentinel client spec"). To connect, the store asks all sentinels at the same time, because each
//! may be gone or may not know the new master yet. The store takes the first answer that does not
//! name the master which was just replaced. The named server then has to confirm, by its answer to
//! `ROLE`, that it is a master.
//!
//! - [`address`]: reads the URL;
//! - [`watcher`]: listens to the sentinels, to hear of a failover at once, [`listener`]: listens to
//!   one of them, and [`shared`]: what the listeners have in common;
//! - [`sentinel_list`]: the sentinels to listen to;
//! - [`sentinel_reply`]: reads what a sentinel sends;
//! - [`failover`]: decides whether a failover is under way;
//! - [`survey`]: tracks which sentinels have answered that question, and [`master_status`]: reads
//!   their answers;
//! - [`master_tracker`]: keeps where the master is.

pub mod address;
pub mod failover;
mod listener;
mod master_status;
pub mod master_tracker;
mod sentinel_list;
pub mod sentinel_reply;
mod shared;
pub mod survey;
pub mod watcher;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Pipeline, Value};
use tokio::time::{Instant, sleep, timeout};

use self::master_tracker::MasterTracker;
use super::address::{RedisAddress, named_host};
use super::budget::{Budget, ConnectionBudget};
use super::dial::{Stream, dial, speaks_tls};
use super::endpoint::Sentinels;
use super::handshake::{self, End, Replies};
use super::link::{Disconnect, Link};
use super::{connect, connect_error, fault};
use crate::store::{StoreError, StoreErrorKind};

/// How long a sentinel may take to answer. If this is smaller, the client can't use sentinels that
/// are far away; if it is larger, it takes longer to fail if all sentinels are silent.
const ANSWER: Duration = Duration::from_millis(400);
/// How long the server that the sentinels name may take for the handshake, and then to tell its
/// role. If this is smaller, the client can't use a master that is far away; if it is larger, there
/// are fewer attempts in the time that a batch has.
const WELCOME: Duration = Duration::from_millis(600);
/// How long the client begins new attempts while the sentinels name a server that is not a master
/// any more, or that can't be reached. If this is smaller, more requests fail during a failover; if
/// it is larger, their errors come later.
const PATIENCE: Duration = Duration::from_millis(600);
/// The pause before a new attempt. If this is smaller, sentinels get more questions; if it is
/// larger, connecting to a new master takes longer.
const PAUSE: Duration = Duration::from_millis(100);

/// Connects to the master that `sentinels` name. `address` is that of all sentinels, with the
/// master's login. `master_tracker` says which server is not the master any more. All connections
/// take their memory from `budget`.
pub async fn connect(
    address: &RedisAddress,
    sentinels: &Sentinels<RedisAddress>,
    master_tracker: &MasterTracker,
    budget: &Arc<Budget>,
) -> Result<Link, StoreError> {
    let begun = Instant::now();
    loop {
        match attempt(address, sentinels, master_tracker, budget).await {
            Err(error) if error.kind.is_transient() && begun.elapsed() < PATIENCE => sleep(PAUSE).await,
            result => return result,
        }
    }
}

async fn attempt(
    address: &RedisAddress,
    sentinels: &Sentinels<RedisAddress>,
    master_tracker: &MasterTracker,
    budget: &Arc<Budget>,
) -> Result<Link, StoreError> {
    let (host, port) = find(address, sentinels, master_tracker, budget).await?;
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
        Ok((replies, _)) => match replies.into_iter().next() {
            // The server was replaced as the master meanwhile, and does not know that yet.
            Some(_) if master_tracker.is_deposed(&host, port) => Err(deposed(address)),
            Some(Value::Array(parts)) if parts.first().is_some_and(is_master) => Ok(link),
            // A user who may not send ROLE finds out by the first request: a replica refuses all
            // requests.
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
        Err(Disconnect::Broken(error)) => Err(fault::broken(&server, &error, false)),
        Err(Disconnect::TooMuch(excess)) => {
            Err(StoreError { maybe_done: false, ..fault::too_much(&server, excess) })
        }
        Err(Disconnect::TimedOut | Disconnect::Torn | Disconnect::OutOfStep) => {
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

/// Asks the sentinels for the host and port of the master.
async fn find(
    address: &RedisAddress,
    sentinels: &Sentinels<RedisAddress>,
    master_tracker: &MasterTracker,
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
            Ok(Some((host, port))) if master_tracker.is_deposed(&host, port) => is_late = true,
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
    // If the error of one sentinel may pass, so may this error.
    let kind = failures.iter().map(|error| error.kind).find(|kind| kind.is_transient());
    Err(StoreError::not_done(kind.unwrap_or(failures[0].kind), message))
}

/// Asks one sentinel for the host and port of the master. Returns `None` if it does not know the
/// master.
async fn ask(
    node: &RedisAddress,
    name: &str,
    budget: &Arc<Budget>,
) -> Result<Option<(String, u16)>, StoreError> {
    let mut stream = dial(node, budget).await?;
    let question = connect::words_of(&["SENTINEL", "get-master-addr-by-name", name]);
    match say(node, &mut stream, question, &ConnectionBudget::of(budget)).await? {
        Value::Nil => Ok(None),
        reply => match sentinel_reply::place(&reply) {
            Some((host, port)) => Ok(port.parse().ok().map(|port| (named_host(host), port))),
            None => Err(fault::not_a_redis(node, false)),
        },
    }
}

/// Logs in at a sentinel and sends `command`. Returns the reply.
async fn say(
    node: &RedisAddress,
    stream: &mut Stream,
    command: redis::Cmd,
    connection_budget: &ConnectionBudget,
) -> Result<Value, StoreError> {
    let login = connect::login(node);
    let has_login = login.is_some();
    let commands: Vec<_> = login.into_iter().chain([command]).collect();
    let Replies { values, end, .. } = handshake::exchange(stream, &commands, connection_budget).await;
    let mut values = values.into_iter();
    if has_login && matches!(values.next(), Some(Value::ServerError(_))) {
        // Do not show the sentinel's text: it may repeat the password.
        let message = format!("{node} refused the login; check sentinelUsername and sentinelPassword");
        return Err(StoreError::not_done(StoreErrorKind::Denied, message));
    }
    match (values.next(), end) {
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
        (None, Some(_)) if node.tls.is_none() && speaks_tls(node, connection_budget.budget()).await => {
            Err(connect_error::wants_tls(node))
        }
        (None, Some(End::HungUp(error))) => Err(connect_error::unreachable(node, &error)),
        (None, _) => Err(fault::not_a_redis(node, false)),
    }
}
