//! Makes connections that are fit for locks.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, Value};
use tokio::sync::mpsc::unbounded_channel;

use super::address::RedisAddress;
use super::budget::{Budget, ConnectionBudget};
use super::cluster::tag_in;
use super::dial::{Stream, dial, speaks_tls};
use super::handshake::{self, End};
use super::link::{Link, PushInlet};
use super::metered_stream::MeteredStream;
use super::scripts::SCRIPTS;
use super::{connect_error, fault};
use crate::store::printable::printable;
use crate::store::{StoreError, StoreErrorKind};

/// The oldest version of Redis that the client accepts. The scripts use `SET … PXAT … GET` and
/// `GETEX`, which 6.2 (2021) added.
const OLDEST: (u32, u32) = (6, 2);
/// The most characters of a version that messages show. If this is smaller, some builds look alike;
/// if it is larger, a server can make messages longer.
const MOST_VERSION: usize = 50;

/// Says what a server is for the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The server is the whole store.
    Alone,
    /// The server is a node of a cluster.
    Node {
        /// Two hash slots of the node, the better one for a channel first. `None` if the client
        /// knows no slot of the node.
        homes: Option<[u16; 2]>,
    },
}

/// Connects and logs in, checks that the server is fit for locks, and loads the scripts. Then
/// subscribes to a channel of the connection's own, if the server speaks RESP3 and the user may
/// subscribe.
///
/// Has no time-out of its own: the caller sets one.
///
/// The connection takes its memory from `budget`.
pub async fn connect(address: RedisAddress, role: Role, budget: Arc<Budget>) -> Result<Link, StoreError> {
    let mut stream = dial(&address, &budget).await?;
    let connection_budget = ConnectionBudget::of(&budget);
    let replies = exchange(&address, &mut stream, handshake(&address), &connection_budget).await?;
    if role == Role::Alone && replies.iter().any(|(step, reply)| step.tells_of_cluster(reply)) {
        return Err(fault::in_cluster(&address));
    }
    let mut protocol = ProtocolVersion::RESP2;
    let mut channel = None;
    // Only RESP3 permits other commands on a connection that has subscribed.
    if replies.iter().any(|(step, reply)| *step == HandshakeStep::Hello && matches!(reply, Value::Map(_))) {
        protocol = ProtocolVersion::RESP3;
        for name in channels(role) {
            let words = subscription(&name, address.min_replicas > 0);
            let replies = exchange(&address, &mut stream, words, &connection_budget).await?;
            if !replies.iter().any(|(_, reply)| matches!(reply, Value::ServerError(_))) {
                channel = Some(name);
                break;
            }
        }
    }
    // The handshake has logged in and selected the database already.
    let nobody = RedisConnectionInfo::default().set_skip_set_lib_name().set_protocol(protocol);
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut inlet = None;
    if let Some(channel) = channel {
        let (sender, pushes) = unbounded_channel();
        let torn = Arc::<AtomicBool>::default();
        let tears = torn.clone();
        config = config.set_push_sender(move |push: PushInfo| {
            // redis-rs takes this message for the reply to the next command, and then each reply
            // for the reply to the command after it. The flag is set before that, so no caller gets
            // the reply of another one.
            if push.kind == PushKind::SUnsubscribe {
                tears.store(true, Ordering::Relaxed);
            }
            sender.send(push)
        });
        inlet = Some(PushInlet { channel, pushes, torn });
    }
    drop(replies);
    connection_budget.ended();
    let stream = MeteredStream::new(stream, connection_budget.clone());
    let (connection, driver) = MultiplexedConnection::new_with_config(&nobody, stream, config)
        .await
        .map_err(|error| fault::broken(&address, &error, false))?;
    Ok(Link::new(connection, tokio::spawn(driver), connection_budget, inlet))
}

/// Sends the commands in `words`, and checks the reply to each.
async fn exchange(
    address: &RedisAddress,
    stream: &mut Stream,
    words: impl Iterator<Item = (HandshakeStep, Cmd)>,
    connection_budget: &ConnectionBudget,
) -> Result<Vec<(HandshakeStep, Value)>, StoreError> {
    let (purposes, commands): (Vec<_>, Vec<_>) = words.unzip();
    let replies = handshake::exchange(stream, &commands, connection_budget).await;
    for (step, reply) in purposes.iter().zip(&replies.values) {
        step.check(address, reply)?;
    }
    drop(replies.reader);
    match replies.end {
        // A server that wants TLS can't read plain commands, and hangs up.
        Some(_)
            if address.tls.is_none()
                && replies.values.is_empty()
                && speaks_tls(address, connection_budget.budget()).await =>
        {
            Err(connect_error::wants_tls(address))
        }
        Some(End::Nonsense) => Err(fault::not_a_redis(address, false)),
        Some(End::HungUp(error)) => {
            let words = replies.values.iter().find_map(|value| match value {
                Value::ServerError(error) => Some(error),
                _ => None,
            });
            let unreachable = || connect_error::unreachable(address, &error);
            Err(words.map_or_else(unreachable, |said| fault::refused(address, said)))
        }
        None => Ok(purposes.into_iter().zip(replies.values).collect()),
    }
}

/// Says what a command of the handshake is for.
#[derive(Clone, Copy, PartialEq)]
enum HandshakeStep {
    LogIn,
    Hello,
    Select,
    Name,
    Version,
    Load,
    Run,
    Subscribe,
}

/// Returns the command that consists of `words`.
pub fn words_of(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

/// Returns the command that logs in, if there is a user or a password.
pub fn login(address: &RedisAddress) -> Option<Cmd> {
    match (address.username.as_deref(), address.password.as_deref()) {
        (None, None) => None,
        (None, Some(secret)) => Some(words_of(&["AUTH", secret])),
        (Some(user), secret) => Some(words_of(&["AUTH", user, secret.unwrap_or_default()])),
    }
}

fn handshake(address: &RedisAddress) -> impl Iterator<Item = (HandshakeStep, Cmd)> {
    let command = words_of;
    let select = (address.database != 0).then(|| command(&["SELECT", &address.database.to_string()]));
    let login = login(address).map(|login| (HandshakeStep::LogIn, login));
    // HELLO could also log in. It is a command of its own, so that a server that does not know
    // HELLO refuses nothing else.
    let hello = (HandshakeStep::Hello, command(&["HELLO", "3"]));
    let name = (HandshakeStep::Name, command(&["CLIENT", "SETNAME", "leasehold"]));
    let version = (HandshakeStep::Version, command(&["INFO", "server"]));
    let scripts = SCRIPTS.load().into_iter().map(|load| (HandshakeStep::Load, load));
    // Run a script without keys, to see whether the user may run scripts at all.
    let run = (HandshakeStep::Run, command(&["EVALSHA", &SCRIPTS.inspect.hash, "0"]));
    login
        .into_iter()
        .chain([hello])
        .chain(select.map(|select| (HandshakeStep::Select, select)))
        .chain([name, version])
        .chain(scripts)
        .chain([run])
}

/// Returns names for the connection's own channel, the best first. The names are random, because a
/// user who knows a name can send notices and keep the client busy. A user who may list channels,
/// but not subscribe to them, sees the name, but not the numbers of waiters.
///
/// A node of a cluster forwards published messages to all other nodes. It forwards none from a
/// sharded channel, which Redis 7 introduced, and whose name lies in a slot of the node. So the
/// names in slots of the node come first.
fn channels(role: Role) -> impl Iterator<Item = String> + use<> {
    let name = uuid::Uuid::new_v4();
    let homes = match role {
        Role::Node { homes } => homes,
        Role::Alone => None,
    };
    let by_itself = format!("leasehold:{name}");
    let sharded = move |slot| format!("leasehold:{{{}}}:{name}", tag_in(slot));
    homes.into_iter().flatten().map(sharded).chain([by_itself])
}

/// Marks the end of the channel's name if its waiters need replicas: `NEEDS_REPLICAS` in
/// `scripts/parts/waiter_text.lua`.
const NEEDS_REPLICAS: &str = "?";

/// Returns the commands that subscribe to a channel. The first one publishes an empty message,
/// before any client listens to the channel. The server refuses it if the user may not publish.
/// Then the client does not use the channel, and its waiters only poll: releases by clients of the
/// same user could not send them notices.
fn subscription(channel: &str, needs_replicas: bool) -> impl Iterator<Item = (HandshakeStep, Cmd)> {
    let [publish, subscribe] =
        if channel.contains('{') { ["SPUBLISH", "SSUBSCRIBE"] } else { ["PUBLISH", "SUBSCRIBE"] };
    let channel = format!("{channel}{}", if needs_replicas { NEEDS_REPLICAS } else { "" });
    let commands = [words_of(&[publish, &channel, ""]), words_of(&[subscribe, &channel])];
    commands.into_iter().map(|command| (HandshakeStep::Subscribe, command))
}

impl HandshakeStep {
    /// Returns true if `reply`, the server's reply to this step, says that the server is a node of
    /// a cluster.
    fn tells_of_cluster(self, reply: &Value) -> bool {
        self == HandshakeStep::Version && text_of(reply).is_some_and(|text| has_mode(&text, "cluster"))
    }

    fn check(self, address: &RedisAddress, reply: &Value) -> Result<(), StoreError> {
        let error = match reply {
            Value::ServerError(error) => error,
            info if self == HandshakeStep::Version => return check_server(address, info),
            _ => return Ok(()),
        };
        let mut fault = fault::refused(address, error);
        // The client has sent only the handshake so far.
        fault.maybe_done = false;
        match (self, fault.kind) {
            // The server refuses this step only while it loads. If the client kept the connection,
            // it would get no notices for as long as the connection lasts. So the attempt fails,
            // and the next one repeats the step.
            (HandshakeStep::Hello | HandshakeStep::Subscribe, StoreErrorKind::Loading) => Err(fault),
            // This state passes. Keep the connection: until then, the server answers each batch
            // with the error.
            (_, StoreErrorKind::Loading | StoreErrorKind::ReadOnly | StoreErrorKind::Full) => Ok(()),
            // The client can do without notices, without a name, and without knowing the version.
            // NOAUTH and DENIED refuse every command, so they are errors.
            (
                HandshakeStep::Hello
                | HandshakeStep::Subscribe
                | HandshakeStep::Name
                | HandshakeStep::Version,
                _,
            ) if !matches!(error.code(), "NOAUTH" | "DENIED") => Ok(()),
            // A server that was still loading its data has refused the scripts. The first batch
            // sends them again.
            (HandshakeStep::Run, _) if error.code() == "NOSCRIPT" => Ok(()),
            // Do not show the server's text: it may repeat the login.
            (HandshakeStep::LogIn, kind)
                if matches!(kind, StoreErrorKind::Internal | StoreErrorKind::Unsupported)
                    || fault::replacement(address, &fault::text_of(error)).is_some() =>
            {
                let message = if error.details().unwrap_or_default().contains("without any password") {
                    format!(
                        "{address} has no password set, but we were given one; leave it out or set it there"
                    )
                } else {
                    format!("{address} refused the login; {}", fault::CREDENTIALS)
                };
                let about_us = matches!(kind, StoreErrorKind::Internal | StoreErrorKind::Unsupported);
                Err(StoreError::not_done(if about_us { StoreErrorKind::Denied } else { kind }, message))
            }
            (HandshakeStep::Select, StoreErrorKind::Internal | StoreErrorKind::Unsupported) => {
                let message = format!(
                    "{address}: the server has no database {}; its `databases` setting says how many there are",
                    address.database
                );
                Err(StoreError::not_done(StoreErrorKind::Unsupported, message))
            }
            _ => Err(fault),
        }
    }
}

/// Returns true if a reply to `INFO server` has that mode.
fn has_mode(info: &str, mode: &str) -> bool {
    info.lines().any(|line| line.trim().strip_prefix("redis_mode:") == Some(mode))
}

fn text_of(info: &Value) -> Option<Cow<'_, str>> {
    match info {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes)),
        Value::VerbatimString { text, .. } => Some(text.into()),
        _ => None,
    }
}

/// Checks the version and the kind of server in a reply to `INFO server`. A reply without a version
/// is not from a Redis server.
fn check_server(address: &RedisAddress, info: &Value) -> Result<(), StoreError> {
    let Some(text) = text_of(info) else { return Err(fault::not_a_redis(address, false)) };
    let Some(version) = text.lines().find_map(|line| line.strip_prefix("redis_version:")) else {
        return Err(fault::not_a_redis(address, false));
    };
    if has_mode(&text, "sentinel") {
        return Err(fault::is_sentinel(address));
    }
    let mut parts = version.trim().split('.').map_while(|part| part.parse::<u32>().ok());
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= OLDEST {
        return Ok(());
    }
    let message = format!(
        "{address} runs a version of Redis that is too old ({}): 6.2 or later, or Valkey, is needed",
        fault::without_secrets(address, version, &printable(version.trim(), MOST_VERSION))
    );
    Err(StoreError::not_done(StoreErrorKind::Unsupported, message))
}
