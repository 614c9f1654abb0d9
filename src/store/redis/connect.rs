//! Making a connection that is fit for locks.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, Value};
use tokio::sync::mpsc::unbounded_channel;

use super::address::RedisAddress;
use super::budget::{Budget, Intake};
use super::cluster::tag_in;
use super::dial::{Stream, dial, speaks_tls};
use super::greeting::{self, End};
use super::intake::Checked;
use super::link::{Inlet, Link};
use super::scripts::SCRIPTS;
use super::{distrust, fault};
use crate::store::printable::printable;
use crate::store::{StoreError, StoreErrorKind};

/// The oldest server with everything that the scripts use (`SET … PXAT … GET`, 2021).
const OLDEST: (u32, u32) = (6, 2);
/// The most characters of a version that messages show. If this is smaller, some builds look alike;
/// if it is larger, a server can make messages longer.
const MOST_VERSION: usize = 50;

/// What a server is to us.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The store, all of it.
    Alone,
    /// A node of a cluster.
    Node {
        /// Two hash slots that it has, the better one for a channel first, if it is known to have any.
        homes: Option<[u16; 2]>,
    },
}

/// Connects, logs in, makes sure that the server is fit, makes the scripts known to it, and subscribes to a channel of
/// the connection's own, if the server lets us.
///
/// It takes as long as it takes: time-outs are the business of whoever waits for it.
///
/// The connection takes its memory from `budget`.
pub async fn connect(address: RedisAddress, role: Role, budget: Arc<Budget>) -> Result<Link, StoreError> {
    let mut stream = dial(&address).await?;
    let intake = Intake::of(&budget);
    let replies = exchange(&address, &mut stream, greetings(&address), &intake).await?;
    if role == Role::Alone && replies.iter().any(|(purpose, reply)| purpose.tells_of_cluster(reply)) {
        return Err(fault::in_cluster(&address));
    }
    let mut protocol = ProtocolVersion::RESP2;
    let mut channel = None;
    // Only with RESP3 may anything else be said on a connection that has subscribed.
    if replies.iter().any(|(purpose, reply)| *purpose == Purpose::Hello && matches!(reply, Value::Map(_))) {
        protocol = ProtocolVersion::RESP3;
        for name in channels(&address, role) {
            let replies = exchange(&address, &mut stream, subscription(&name), &intake).await?;
            if !replies.iter().any(|(_, reply)| matches!(reply, Value::ServerError(_))) {
                channel = Some(name);
                break;
            }
        }
    }
    // Neither user nor database here: that is done.
    let nobody = RedisConnectionInfo::default().set_skip_set_lib_name().set_protocol(protocol);
    let mut config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut inlet = None;
    if let Some(channel) = channel {
        let (sender, pushes) = unbounded_channel();
        let torn = Arc::<AtomicBool>::default();
        let tears = torn.clone();
        config = config.set_push_sender(move |push: PushInfo| {
            // redis-rs takes it for the reply to the next command in line, and then each reply for that to the next.
            // It is told here before that, so nobody is given a reply that is somebody else's.
            if push.kind == PushKind::SUnsubscribe {
                tears.store(true, Ordering::Relaxed);
            }
            sender.send(push)
        });
        inlet = Some(Inlet { channel, pushes, torn });
    }
    drop(replies);
    intake.ended();
    let stream = Checked::new(stream, intake.clone());
    let (connection, driver) = MultiplexedConnection::new_with_config(&nobody, stream, config)
        .await
        .map_err(|error| fault::broken(&address, &error, false))?;
    Ok(Link::new(connection, tokio::spawn(driver), intake, inlet))
}

/// Says `words` and looks at the reply to each.
async fn exchange(
    address: &RedisAddress,
    stream: &mut Stream,
    words: impl Iterator<Item = (Purpose, Cmd)>,
    intake: &Intake,
) -> Result<Vec<(Purpose, Value)>, StoreError> {
    let (purposes, commands): (Vec<_>, Vec<_>) = words.unzip();
    let replies = greeting::exchange(stream, &commands, intake).await;
    for (purpose, reply) in purposes.iter().zip(&replies.values) {
        purpose.check(address, reply)?;
    }
    match replies.end {
        // A server that wants TLS takes what we say for noise, and hangs up.
        Some(_) if address.tls.is_none() && replies.values.is_empty() && speaks_tls(address).await => {
            Err(distrust::wants_tls(address))
        }
        Some(End::Nonsense) => Err(fault::not_a_redis(address, false)),
        Some(End::HungUp(error)) => {
            let words = replies.values.iter().find_map(|value| match value {
                Value::ServerError(error) => Some(error),
                _ => None,
            });
            let unreachable = || distrust::unreachable(address, &error);
            Err(words.map_or_else(unreachable, |said| fault::refused(address, said)))
        }
        None => Ok(purposes.into_iter().zip(replies.values).collect()),
    }
}

/// What a command of the greeting is for.
#[derive(Clone, Copy, PartialEq)]
enum Purpose {
    LogIn,
    Hello,
    Select,
    Name,
    Version,
    Load,
    Run,
    Subscribe,
}

/// A command of these words.
pub fn words_of(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

/// The words that say who we are, if we are somebody.
pub fn login(address: &RedisAddress) -> Option<Cmd> {
    match (address.username.as_deref(), address.password.as_deref()) {
        (None, None) => None,
        (None, Some(secret)) => Some(words_of(&["AUTH", secret])),
        (Some(user), secret) => Some(words_of(&["AUTH", user, secret.unwrap_or_default()])),
    }
}

fn greetings(address: &RedisAddress) -> impl Iterator<Item = (Purpose, Cmd)> {
    let command = words_of;
    let select = (address.database != 0).then(|| command(&["SELECT", &address.database.to_string()]));
    let login = login(address).map(|login| (Purpose::LogIn, login));
    // Behind the login and not with it, so that who does not know it can refuse it by itself.
    let hello = (Purpose::Hello, command(&["HELLO", "3"]));
    let name = (Purpose::Name, command(&["CLIENT", "SETNAME", "leasehold"]));
    let version = (Purpose::Version, command(&["INFO", "server"]));
    let scripts = SCRIPTS.load().into_iter().map(|load| (Purpose::Load, load));
    // Without a key: only to see whether the user may run scripts at all.
    let run = (Purpose::Run, command(&["EVALSHA", &SCRIPTS.inspect.hash, "0"]));
    login
        .into_iter()
        .chain([hello])
        .chain(select.map(|select| (Purpose::Select, select)))
        .chain([name, version])
        .chain(scripts)
        .chain([run])
}

/// Returns names for the connection's own channel, the best first. The names are random, because a user who knows one can
/// send notices and keep the client busy. A user who may list channels, but not subscribe to them, sees the name, but
/// not the numbers of waiters.
///
/// What is published at a node of a cluster goes to all other nodes, unless the channel lies in a slot that the node has,
/// and the server is of version 7 or later.
fn channels(address: &RedisAddress, role: Role) -> impl Iterator<Item = String> + use<> {
    // Told no fence, whoever is handed a lease has to ask for it, and so to see to it that replicas have it.
    let mark = if address.min_replicas > 0 { "?" } else { "" };
    let name = format!("{}{mark}", uuid::Uuid::new_v4());
    let homes = match role {
        Role::Node { homes } => homes,
        Role::Alone => None,
    };
    let by_itself = format!("leasehold:{name}");
    let sharded = move |slot| format!("leasehold:{{{}}}:{name}", tag_in(slot));
    homes.into_iter().flatten().map(sharded).chain([by_itself])
}

/// The words that let us be told. Nobody knows the channel yet, so nobody gets what is published: a user who may not
/// publish would wait for what others like it can't say.
fn subscription(channel: &str) -> impl Iterator<Item = (Purpose, Cmd)> {
    let [publish, subscribe] =
        if channel.contains('{') { ["SPUBLISH", "SSUBSCRIBE"] } else { ["PUBLISH", "SUBSCRIBE"] };
    let commands = [words_of(&[publish, channel, ""]), words_of(&[subscribe, channel])];
    commands.into_iter().map(|command| (Purpose::Subscribe, command))
}

impl Purpose {
    /// Whether `reply`, which the server gave to this, says that it is a node of a cluster.
    fn tells_of_cluster(self, reply: &Value) -> bool {
        self == Purpose::Version
            && text_of(reply).is_some_and(|text| text.lines().any(|line| line.trim() == "redis_mode:cluster"))
    }

    fn check(self, address: &RedisAddress, reply: &Value) -> Result<(), StoreError> {
        let error = match reply {
            Value::ServerError(error) => error,
            info if self == Purpose::Version => return check_version(address, info),
            _ => return Ok(()),
        };
        let mut fault = fault::refused(address, error);
        // Nothing but the greeting was sent.
        fault.maybe_done = false;
        match (self, fault.kind) {
            // Not for the life of the connection: the next one asks again.
            (Purpose::Hello | Purpose::Subscribe, StoreErrorKind::Loading) => Err(fault),
            // A server that will be fit in a moment: the connection is kept, and says so to each batch by itself.
            (_, StoreErrorKind::Loading | StoreErrorKind::ReadOnly | StoreErrorKind::Full) => Ok(()),
            // Whether we are told of free locks, may name ourselves, or ask for the version, is not worth an error. Who
            // may not talk to us at all says so to the other commands.
            (Purpose::Hello | Purpose::Subscribe | Purpose::Name | Purpose::Version, _)
                if !matches!(error.code(), "NOAUTH" | "DENIED") =>
            {
                Ok(())
            }
            // A server that was still loading a moment ago has loaded no script; it is told them with the first batch.
            (Purpose::Run, _) if error.code() == "NOSCRIPT" => Ok(()),
            // The server's own words about the login may repeat it.
            (Purpose::LogIn, kind)
                if matches!(kind, StoreErrorKind::Internal | StoreErrorKind::Unsupported)
                    || address.is_secret_in(&fault::text_of(error)) =>
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
            (Purpose::Select, StoreErrorKind::Internal | StoreErrorKind::Unsupported) => {
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

fn text_of(info: &Value) -> Option<Cow<'_, str>> {
    match info {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes)),
        Value::VerbatimString { text, .. } => Some(text.into()),
        _ => None,
    }
}

/// A server that tells no version is taken for new enough: the scripts would say.
fn check_version(address: &RedisAddress, info: &Value) -> Result<(), StoreError> {
    let Some(text) = text_of(info) else { return Err(fault::not_a_redis(address, false)) };
    let Some(version) = text.lines().find_map(|line| line.strip_prefix("redis_version:")) else {
        return Err(fault::not_a_redis(address, false));
    };
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
