//! Turns the errors of Redis servers into store errors.

use redis::{ErrorKind, RedisError, ServerError};

use super::address::RedisAddress;
use super::cluster::ClusterAddress;
use super::reply_scanner::Excess;
use crate::store::printable::printable;
use crate::store::{StoreError, StoreErrorKind};

/// The most characters of a server's error that messages show. The errors of Redis servers have up
/// to 150. If this is larger, a server could fill logs; if it is smaller, messages lose their end.
pub const MOST_SAID: usize = 200;
/// The most bytes of a text in which the client searches for passwords. The errors of Redis servers
/// have less than 1 kB. If this is larger, a server that answers each request with a long error
/// takes more of the engine's time; if it is smaller, messages do not show some errors.
const MOST_SEARCHED: usize = 1 << 10;
/// Messages show this text in place of a longer one.
const TOO_LONG: &str = "a text of more than 1 kB";

/// The ACL rights that a user needs, for messages.
const RIGHTS: &str = "the user needs the keys ~PREFIX* and ~{* and the commands +set +get +getex +mget +del +type \
                      +exists +pttl +pexpire +pexpireat +zadd +zrem +zrange +zrangebyscore +zremrangebyscore +zcard \
                      +zscore +zrank +hset +hget +hdel +time +evalsha +script|load; to be told of free locks, \
                      the channels &leasehold:* and +subscribe +publish, and sooner with \
                      +pubsub|numsub, in a cluster with +ssubscribe +spublish +pubsub|shardnumsub +cluster|slots; \
                      with minReplicas +wait; to list locks +scan";

/// The advice for a refused login.
pub const CREDENTIALS: &str = "check user and password; a password alone is written redis://:PASSWORD@host";

/// The advice if a `redis://` URL names a node of a cluster.
const IN_CLUSTER: &str = "it is a node of a Redis Cluster: use redis-cluster:// in place of redis://";

/// Returns the error if a `redis://` URL names a node of a cluster.
pub fn in_cluster(address: &RedisAddress) -> StoreError {
    let message = format!("{address} can't be used by itself: {IN_CLUSTER}");
    StoreError::not_done(StoreErrorKind::Unsupported, message)
}

/// Returns the error if a `redis://` URL names a Sentinel.
pub fn is_sentinel(address: &RedisAddress) -> StoreError {
    let message = format!(
        "{address} is a Sentinel, which keeps no locks: use redis-sentinel://, with the name of the master as the path"
    );
    StoreError::not_done(StoreErrorKind::Unsupported, message)
}

/// Returns true if the server says that the user lacks a right. The last two texts come from
/// scripts, in Redis 6.2 and in later versions.
fn is_of_rights(said: &str) -> bool {
    said.starts_with("NOPERM") || said.contains("user executing the script") || said.contains("ACL failure")
}

/// Returns true if the user lacks the right to a key or a channel, and not to a command. Redis also
/// names the user, and that name may be any text.
fn is_of_one_key(said: &str) -> bool {
    said.contains(" to access ") || said.contains(" can't access ")
}

/// Returns the error for a server's reply that refuses a request or a group of requests.
pub fn refused(address: &RedisAddress, error: &ServerError) -> StoreError {
    let text = text_of(error);
    let Words { said, broken_off } = words(&text);
    let shown = without_secrets(address, &text, &said);
    let (kind, advice) = match said.split(' ').next().unwrap_or_default() {
        // The user may have the rights to other keys.
        _ if is_of_rights(&said) && is_of_one_key(&said) => (StoreErrorKind::Forbidden, RIGHTS.into()),
        _ if is_of_rights(&said) => (StoreErrorKind::Denied, RIGHTS.into()),
        "LOADING" => {
            (StoreErrorKind::Loading, "it is reading its data from disk and will answer soon".into())
        }
        "BUSY" => (
            StoreErrorKind::Loading,
            "a script of another client runs too long there; SCRIPT KILL ends it".into(),
        ),
        "READONLY" | "MASTERDOWN" => (
            StoreErrorKind::ReadOnly,
            "it is a replica; after a failover give the new master's address".into(),
        ),
        "NOREPLICAS" => (StoreErrorKind::ReadOnly, "it takes no writes while it has too few replicas".into()),
        "UNBLOCKED" => (StoreErrorKind::ReadOnly, "it became a replica: a failover is under way".into()),
        "OOM" => (StoreErrorKind::Full, "its memory is full; raise maxmemory or free some".into()),
        "MISCONF" => (StoreErrorKind::Full, "it can't save its data to disk and takes no writes".into()),
        "NOAUTH" => (StoreErrorKind::Denied, "it wants a password; give one".into()),
        "WRONGPASS" => (StoreErrorKind::Denied, CREDENTIALS.into()),
        "DENIED" => (StoreErrorKind::Denied, "it is in protected mode; set a password there".into()),
        "WRONGTYPE" => {
            (StoreErrorKind::WrongType, "other data lies under the lock's key; use another prefix".into())
        }
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" | "TRYAGAIN" => {
            (StoreErrorKind::Unsupported, IN_CLUSTER.into())
        }
        "ERR" if said.contains("max number of clients") => {
            (StoreErrorKind::Unreachable, "it has too many connections; raise maxclients there".into())
        }
        "ERR" if said.contains("unknown command") => {
            (StoreErrorKind::Unsupported, format!("Redis 6.2 or later is needed; {RIGHTS}"))
        }
        _ => (StoreErrorKind::Internal, "this was not expected".to_owned()),
    };
    let maybe_done = broken_off || kind == StoreErrorKind::Internal;
    StoreError { maybe_done, ..StoreError::not_done(kind, format!("{address} refused ({shown}): {advice}")) }
}

/// The error of a server, prepared for messages.
struct Words {
    /// The error's text. It begins with the word that names the kind of error. It does not have the
    /// arguments that the server repeats, because they may contain a token or a password.
    said: String,
    /// True if a script failed halfway, and may have done its work for some locks.
    broken_off: bool,
}

/// Returns an error as the server wrote it. Do not show this text; [`said_by`] escapes it.
pub fn text_of(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

/// Returns the server's error, escaped for messages. If it is long, or contains the password,
/// returns a fixed text instead.
pub fn said_by(address: &RedisAddress, error: &ServerError) -> String {
    let text = text_of(error);
    without_secrets(address, &text, &words(&text).said).to_owned()
}

/// Returns `shown`, the short form of a server's `text`, or the text that [`replacement`] returns.
pub fn without_secrets<'a>(address: &RedisAddress, text: &str, shown: &'a str) -> &'a str {
    replacement(address, text).unwrap_or(shown)
}

/// Returns a fixed text for messages if they must not show any part of a server's `text`, because
/// it is long or contains the password. A hostile server may repeat the password anywhere. The
/// client searches the whole text or shows nothing of it: if it searched only the beginning, the
/// password could lie across the end of that part.
pub fn replacement(address: &RedisAddress, text: &str) -> Option<&'static str> {
    if text.len() > MOST_SEARCHED {
        return Some(TOO_LONG);
    }
    address.is_secret_in(text).then_some("a text that contains the password")
}

fn words(text: &str) -> Words {
    const IN_SCRIPT: &str = "@user_script: ";
    // Redis 6.2 writes the place in the script before the error, and later versions write it after
    // the error: "@user_script: 29: -READONLY You can't …", "READONLY You can't … script: HASH, on
    // @user_script:29."
    let broken_off = text.contains("Error running script") || text.contains(" script: ");
    let said = text.rfind(IN_SCRIPT).map_or(text, |place| {
        text[place + IN_SCRIPT.len()..].trim_start_matches(|c: char| c.is_ascii_digit() || ": -".contains(c))
    });
    let ours = [", with args", " with args", " script: "].iter().filter_map(|mark| said.find(mark)).min();
    let said = printable(said[..ours.unwrap_or(said.len())].trim_end(), MOST_SAID);
    Words { said, broken_off }
}

/// Returns the error of requests whose connection failed. `sent` is true if requests may have
/// reached the server.
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
    StoreError { maybe_done: sent, ..StoreError::not_done(kind, message) }
}

/// Returns the error of requests whose connection ended because the server sent too much.
pub fn too_much(address: &RedisAddress, excess: Excess) -> StoreError {
    if excess == Excess::Nonsense {
        return not_a_redis(address, true);
    }
    let message = format!(
        "{address} sent {excess}, so the client closed the connection: no Redis server has reason to; check host and \
         port, and who controls that server"
    );
    StoreError::maybe_done(StoreErrorKind::Unreachable, message)
}

/// Returns the error of a request about a lock if the nodes of its cluster tell more of the locks
/// than the client keeps.
pub fn told_too_much(address: &ClusterAddress) -> StoreError {
    let message = format!(
        "the nodes of {address} told more of the locks than the client keeps: ask for fewer locks at a time, or for \
         locks with fewer waiters"
    );
    StoreError::not_done(StoreErrorKind::Internal, message)
}

/// Returns the error if the other side does not speak RESP, or sends what no Redis server sends.
/// `sent` is true if requests may have reached it.
pub fn not_a_redis(address: &RedisAddress, sent: bool) -> StoreError {
    let message =
        format!("what answers at {address} is not a Redis server that we understand; check host and port");
    StoreError { maybe_done: sent, ..StoreError::not_done(StoreErrorKind::Unsupported, message) }
}

/// Returns the error of requests whose replies may belong to other requests.
pub fn out_of_step(address: &RedisAddress) -> StoreError {
    let message = format!(
        "a reply of {address} does not fit its request: the replies are out of step, or the server's clock is \
         before 2020; the client connects again; if this goes on, check the server's clock"
    );
    StoreError::maybe_done(StoreErrorKind::Unreachable, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Access;
    use redis::{Value, parse_redis_value};

    #[test]
    fn no_error_of_a_server_shows_a_password_that_the_server_repeats() {
        let address = RedisAddress::parse("redis://:S3cr3t-word@host", &Access::default()).unwrap();
        let long = "x".repeat(MOST_SAID - 6);
        for said in [
            "NOAUTH S3cr3t-word",
            "DENIED what was S3cr3t-word",
            "S3cr3t-word",
            "MOVED 1 S3cr3t-word:1",
            &format!("ERR {long}S3cr3t-word"),
        ] {
            let Ok(Value::ServerError(error)) = parse_redis_value(format!("-{said}\r\n").as_bytes()) else {
                panic!("{said} is no error");
            };
            let shown = [refused(&address, &error).message, said_by(&address, &error).into()];
            for message in shown {
                assert!(message.contains("a text that contains the password"), "{message}");
                assert!(!message.contains("S3c"), "{message}");
            }
        }
        let Ok(Value::ServerError(error)) = parse_redis_value(b"-ERR nothing secret\r\n") else { panic!() };
        assert_eq!(said_by(&address, &error), "ERR nothing secret");
    }

    #[test]
    fn no_part_of_a_long_error_is_shown_or_searched() {
        let address = RedisAddress::parse("redis://:S3cr3t-word@host", &Access::default()).unwrap();
        for end in ["", "S3cr3t-word"] {
            let said = format!("-NOPERM {}{end}\r\n", "x".repeat(1024));
            let Ok(Value::ServerError(error)) = parse_redis_value(said.as_bytes()) else { panic!() };
            assert_eq!(said_by(&address, &error), "a text of more than 1 kB");
            let error = refused(&address, &error);
            assert_eq!(error.kind, StoreErrorKind::Denied);
            assert!(error.message.contains("refused (a text of more than 1 kB)"), "{}", error.message);
        }
    }

    #[test]
    fn a_missing_right_to_a_key_is_told_from_one_to_a_command_for_any_user_name() {
        for (said, of_one_key) in [
            ("NOPERM this user has no permissions to access one of the keys used as arguments", true),
            ("NOPERM No permissions to access a key", true),
            ("NOPERM User access has no permissions to access the 'k' key", true),
            ("ERR The user executing the script can't access at least one of the keys mentioned", true),
            ("ERR ACL failure in script: No permissions to access a channel", true),
            ("NOPERM this user has no permissions to run the 'evalsha' command or its subcommand", false),
            ("NOPERM User access-svc has no permissions to run the 'evalsha' command", false),
            ("NOPERM User access has no permissions to run the 'evalsha' command", false),
            ("ERR The user executing the script can't run this command or subcommand", false),
            ("ERR ACL failure in script: User access has no permissions to run the 'get' command", false),
        ] {
            assert!(is_of_rights(said), "{said}");
            assert_eq!(is_of_one_key(said), of_one_key, "{said}");
        }
    }
}
