//! What a Redis server says when it refuses, in the contract's words.

use redis::{ErrorKind, RedisError};

use super::address::RedisAddress;
use crate::store::{StoreError, StoreErrorKind};

/// What kind of failure a server's error text tells of, by its first word.
pub fn kind_of(text: &str) -> StoreErrorKind {
    if text.contains("DB index is out of range") {
        return StoreErrorKind::Unsupported;
    }
    match text.split([' ', ':']).next().unwrap_or_default() {
        "LOADING" | "BUSY" | "TRYAGAIN" => StoreErrorKind::Loading,
        "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" => StoreErrorKind::ReadOnly,
        "OOM" | "MISCONF" => StoreErrorKind::Full,
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => StoreErrorKind::Denied,
        "WRONGTYPE" => StoreErrorKind::WrongType,
        "MOVED" | "ASK" | "CROSSSLOT" => StoreErrorKind::Unsupported,
        _ => StoreErrorKind::Internal,
    }
}

fn advice(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::ReadOnly => "; it takes no writes: is it a replica, or has there been a failover?",
        StoreErrorKind::Denied => "; check the user, the password and the user's rights",
        StoreErrorKind::WrongType => {
            "; something else than a lock is kept under this key, choose another prefix"
        }
        StoreErrorKind::Full => "; it has no room for writes",
        _ => "",
    }
}

/// An error that the server answered to one request.
pub fn refused(address: &RedisAddress, text: &str) -> StoreError {
    let kind = kind_of(text);
    StoreError::not_done(kind, format!("{address} refused: {text}{}", advice(kind)))
}

/// An error of the connection, or of making it. `sent` says whether requests may have reached the server.
pub fn failed(address: &RedisAddress, error: &RedisError, sent: bool) -> StoreError {
    let said = error.to_string();
    let text = error.detail().unwrap_or(&said);
    let (kind, message) = match error.kind() {
        ErrorKind::Io if is_no_redis(error, text) => not_a_redis(address),
        ErrorKind::Io => (StoreErrorKind::Unreachable, format!("{address} can't be reached: {said}")),
        ErrorKind::AuthenticationFailed => (
            StoreErrorKind::Denied,
            format!("{address} refused the login: {text}{}", advice(StoreErrorKind::Denied)),
        ),
        ErrorKind::Parse => not_a_redis(address),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let whole = format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default());
            let refused = refused(address, whole.trim());
            (refused.kind, refused.message.to_string())
        }
        ErrorKind::UnexpectedReturnType => not_a_redis(address),
        _ if text.contains("database number") || said.contains("database number") => {
            (StoreErrorKind::Unsupported, format!("{address}: there is no such database on this server"))
        }
        _ if said.contains("AUTH") || said.contains("assword") => {
            (StoreErrorKind::Denied, format!("{address} refused the login{}", advice(StoreErrorKind::Denied)))
        }
        _ => (StoreErrorKind::Internal, format!("{address}: {said}")),
    };
    if sent { StoreError::maybe_done(kind, message) } else { StoreError::not_done(kind, message) }
}

/// The parser reports what it can't read as an I/O error of its own.
fn is_no_redis(error: &RedisError, text: &str) -> bool {
    text.contains("Parse") || error.to_string().contains("parse")
}

fn not_a_redis(address: &RedisAddress) -> (StoreErrorKind, String) {
    (StoreErrorKind::Unsupported, format!("what answers at {address} is not a Redis server"))
}
