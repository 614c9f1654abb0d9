//! What goes wrong with a Redis server, in the contract's words.

use std::error::Error;
use std::io;

use redis::{ErrorKind, RedisError, ServerError};

use super::address::RedisAddress;
use crate::store::{StoreError, StoreErrorKind};

/// A server's error as it sent it.
pub fn text_of(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default()).trim_end().into()
}

/// What kind of failure a server's error text tells of, by its first word.
fn kind_of(text: &str) -> StoreErrorKind {
    match text.split([' ', ':']).next().unwrap_or_default() {
        "LOADING" | "BUSY" | "TRYAGAIN" => StoreErrorKind::Loading,
        "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" | "NOREPLICAS" => StoreErrorKind::ReadOnly,
        "OOM" | "MISCONF" => StoreErrorKind::Full,
        "NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED" => StoreErrorKind::Denied,
        "WRONGTYPE" => StoreErrorKind::WrongType,
        "MOVED" | "ASK" | "CROSSSLOT" => StoreErrorKind::Unsupported,
        // So say Redis 6.2 and 7.0 of a command within a script; later ones say NOPERM.
        _ if text.contains("The user executing the script") => StoreErrorKind::Denied,
        "ERR" if text.contains("max number of clients") => StoreErrorKind::Unreachable,
        _ => StoreErrorKind::Internal,
    }
}

/// Redis 6.2 hides an error that a script met behind the place where it did:
/// `ERR Error running script (…): @user_script:3: @user_script: 3: -OOM command not allowed …`.
fn unwrapped(text: &str) -> &str {
    let Some((_, rest)) = text.rsplit_once("@user_script:") else { return text };
    match rest.trim_start().split_once(": ") {
        Some((line, error)) if line.bytes().all(|byte| byte.is_ascii_digit()) => {
            error.strip_prefix('-').unwrap_or(error)
        }
        _ => text,
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

/// An error that the server answered to one request. It was not carried out, unless the script was stopped in the
/// middle, which our scripts leave no cause for.
pub fn refused(address: &RedisAddress, text: &str) -> StoreError {
    let stopped = text.contains("Error running script") || text.contains(", on @user_script");
    let text = unwrapped(text).trim_end();
    let kind = kind_of(text);
    let message = format!("{address} refused: {text}{}", advice(kind));
    if stopped { StoreError::maybe_done(kind, message) } else { StoreError::not_done(kind, message) }
}

/// The server's answer to a login. Some repeat what they did not understand, and that has the password in it.
pub fn no_login(address: &RedisAddress, error: &ServerError) -> StoreError {
    let text = text_of(error);
    match kind_of(&text) {
        StoreErrorKind::Internal => {
            let why = if text.contains("without any password configured") {
                ": it has no password set"
            } else {
                ""
            };
            let kind = StoreErrorKind::Denied;
            StoreError::not_done(kind, format!("{address} refused the login{why}{}", advice(kind)))
        }
        kind if address.is_secret_in(&text) => {
            StoreError::not_done(kind, format!("{address} refused the login{}", advice(kind)))
        }
        _ => refused(address, &text),
    }
}

/// An error of the connection, or of making it. `sent` says whether requests may have reached the server.
pub fn failed(address: &RedisAddress, error: &RedisError, sent: bool) -> StoreError {
    let (kind, message) = match error.kind() {
        // The end of the connection within an answer is to the parser like any other fault.
        ErrorKind::Parse if error.to_string().contains("end of input") => {
            (StoreErrorKind::Unreachable, format!("{address} hung up in the middle of an answer"))
        }
        ErrorKind::Parse => return StoreError { maybe_done: sent, ..no_redis(address) },
        ErrorKind::Io => {
            let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
            let kind = match cause.map(io::Error::kind) {
                Some(io::ErrorKind::PermissionDenied) => StoreErrorKind::Denied,
                _ => StoreErrorKind::Unreachable,
            };
            (kind, format!("{address} can't be reached: {error}"))
        }
        _ => (StoreErrorKind::Internal, format!("{address}: {error}")),
    };
    StoreError { kind, maybe_done: sent, message: message.into() }
}

/// Of a server whose answers are not Redis'.
pub fn no_redis(address: &RedisAddress) -> StoreError {
    let message = format!("what answers at {address} is not a Redis server");
    StoreError::not_done(StoreErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_within_a_script_is_found_whatever_the_version() {
        for (text, kind) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", StoreErrorKind::Full),
            ("@user_script: 50: -OOM command not allowed.", StoreErrorKind::Full),
            (
                "ERR Error running script (call to f_1a): @user_script:5: @user_script: 5: -READONLY You can't",
                StoreErrorKind::ReadOnly,
            ),
            (
                "ERR Error running script (call to f_1a): @user_script:5: WRONGTYPE Operation",
                StoreErrorKind::WrongType,
            ),
            ("NOPERM ACL failure script: 1a, on @user_script:5.", StoreErrorKind::Denied),
            (
                "ERR user_script:3: attempt to index a nil value script: 1a, on @user_script:3.",
                StoreErrorKind::Internal,
            ),
        ] {
            assert_eq!(kind_of(unwrapped(text)), kind, "{text}");
        }
    }
}
