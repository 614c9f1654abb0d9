//! What goes wrong with a Redis server, in the contract's words.

use redis::{ErrorKind, RedisError, ServerError};

use super::address::RedisAddress;
use crate::store::{StoreError, StoreErrorKind};

/// What the user of an ACL must be allowed, for messages.
const RIGHTS: &str = "the user needs the keys ~PREFIX* and ~{* and the commands \
                      +set +get +getex +mget +del +pttl +pexpire +time +evalsha +script|load";

/// An error that the server answered to a request or to a whole group of them.
pub fn refused(address: &RedisAddress, error: &ServerError) -> StoreError {
    let said = shown(error);
    let (kind, advice) = match error.code() {
        "LOADING" => {
            (StoreErrorKind::Loading, "it is reading its data from disk and will answer soon".into())
        }
        "BUSY" => {
            (StoreErrorKind::Loading, "somebody's script runs too long there; SCRIPT KILL ends it".into())
        }
        "READONLY" | "MASTERDOWN" => (
            StoreErrorKind::ReadOnly,
            "it is a replica; after a failover give the new master's address".into(),
        ),
        "NOREPLICAS" => (StoreErrorKind::ReadOnly, "it takes no writes while it has too few replicas".into()),
        "OOM" => (StoreErrorKind::Full, "its memory is full; raise maxmemory or free some".into()),
        "MISCONF" => (StoreErrorKind::Full, "it can't save its data to disk and takes no writes".into()),
        "NOPERM" => (StoreErrorKind::Denied, RIGHTS.into()),
        // What a script meets, Redis up to 7.0 and from 7.2 on.
        "ERR" if said.contains("user executing the script") || said.contains("ACL failure") => {
            (StoreErrorKind::Denied, RIGHTS.into())
        }
        "NOAUTH" => (StoreErrorKind::Denied, "it wants a password; give one".into()),
        "WRONGPASS" => (StoreErrorKind::Denied, "check user and password".into()),
        "DENIED" => (StoreErrorKind::Denied, "it is in protected mode; set a password there".into()),
        "WRONGTYPE" => {
            (StoreErrorKind::WrongType, "other data lies under the lock's key; use another prefix".into())
        }
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => (
            StoreErrorKind::Unsupported,
            "it is a node of a Redis Cluster, which is not supported yet".into(),
        ),
        "ERR" if said.contains("max number of clients") => {
            (StoreErrorKind::Unreachable, "it has too many connections; raise maxclients there".into())
        }
        "ERR" if said.contains("unknown command") => {
            (StoreErrorKind::Unsupported, format!("Redis 6.2 or later is needed; {RIGHTS}"))
        }
        _ => (StoreErrorKind::Internal, "this was not expected".to_owned()),
    };
    // A script that was broken off may have done its work for some locks.
    let maybe_done = kind == StoreErrorKind::Internal || said.contains("user_script");
    StoreError { kind, maybe_done, message: format!("{address} refused ({said}): {advice}").into() }
}

/// The server's words, but for those in which it repeats ours: they may have a token or password in them.
fn shown(error: &ServerError) -> String {
    let details = error.details().unwrap_or_default();
    let repeated =
        [", with args", " with args", " script: "].iter().filter_map(|mark| details.find(mark)).min();
    let details = match repeated {
        Some(end) if details[end..].starts_with(" script: ") => format!("{} in user_script", &details[..end]),
        Some(end) => details[..end].to_owned(),
        None => details.to_owned(),
    };
    format!("{} {}", error.code(), details.chars().take(200).collect::<String>()).trim_end().to_owned()
}

/// An error of the connection. `sent` says whether requests may have reached the server.
pub fn broken(address: &RedisAddress, error: &RedisError, sent: bool) -> StoreError {
    let (kind, message) = match error.kind() {
        ErrorKind::Io => (
            StoreErrorKind::Unreachable,
            format!("the connection to {address} broke: {error}; is the server up?"),
        ),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            return not_a_redis(address, sent);
        }
        _ => (StoreErrorKind::Internal, format!("the connection to {address} failed: {}", error.category())),
    };
    StoreError { kind, maybe_done: sent, message: message.into() }
}

/// What answers speaks no RESP, or says what no Redis says.
pub fn not_a_redis(address: &RedisAddress, sent: bool) -> StoreError {
    let message =
        format!("what answers at {address} is not a Redis server that we understand; check host and port");
    StoreError { kind: StoreErrorKind::Unsupported, maybe_done: sent, message: message.into() }
}
