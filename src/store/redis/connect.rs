//! Making a connection that is fit for locks.

use std::time::Duration;

use redis::{Pipeline, ServerError, Value};

use super::address::RedisAddress;
use super::dial::Wire;
use super::fault;
use super::scripts::SCRIPTS;
use crate::store::{StoreError, StoreErrorKind};

/// How long one attempt to connect may take; the next batch then begins another.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The oldest server with everything that the scripts use (`SET … PX … GET`, 2021).
const OLDEST: (u32, u32) = (6, 2);

/// Connects, logs in, makes sure that the server is fit, and makes the scripts known to it.
pub async fn connect(address: RedisAddress) -> Result<Wire, StoreError> {
    match tokio::time::timeout(ATTEMPT, attempt(&address)).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::not_done(
            StoreErrorKind::TimedOut,
            format!("{address} did not let us in within {} s", ATTEMPT.as_secs()),
        )),
    }
}

async fn attempt(address: &RedisAddress) -> Result<Wire, StoreError> {
    let failed = |error| fault::failed(address, &error, false);
    let mut wire = address.dial().await.map_err(failed)?;
    // Alone, because a server that turns us away says why in answer to the first command, and hangs up.
    let reply = wire.connection.send_packed_command(&address.login()).await.map_err(failed)?;
    match reply {
        Value::Okay if address.has_password() => {}
        Value::SimpleString(pong) if pong == "PONG" && !address.has_password() => {}
        Value::ServerError(error) if address.has_password() => return Err(fault::no_login(address, &error)),
        Value::ServerError(error) => return Err(refused(address, &error)),
        _ => return Err(fault::no_redis(address)),
    }

    let mut setup = Pipeline::new();
    // What we are called there is not worth a word; who has no database 0 has none to choose.
    setup.cmd("CLIENT").arg("SETNAME").arg("leasehold").cmd("INFO").arg("server");
    setup.cmd("SELECT").arg(address.database());
    SCRIPTS.load().for_each(|load| {
        setup.add_command(load);
    });
    // Without a key: whether the user may run scripts at all.
    setup.cmd("EVALSHA").arg(&SCRIPTS.inspect.hash).arg(0);
    let replies = wire.connection.send_packed_commands(&setup, 0, setup.len()).await.map_err(failed)?;

    let mut replies = replies.into_iter().skip(1);
    check_server(address, replies.next())?;
    match replies.next() {
        Some(Value::ServerError(error)) if address.database() == 0 && error.code() == "NOPERM" => {}
        Some(Value::ServerError(error)) if error.code() == "ERR" => {
            let message = format!("{address}: there is no such database on this server");
            return Err(StoreError::not_done(StoreErrorKind::Unsupported, message));
        }
        Some(Value::ServerError(error)) => return Err(refused(address, &error)),
        _ => {}
    }
    for script in SCRIPTS.all() {
        match replies.next() {
            Some(Value::BulkString(hash)) if hash == script.hash.as_bytes() => {}
            Some(Value::ServerError(error)) => return Err(refused(address, &error)),
            _ => return Err(fault::no_redis(address)),
        }
    }
    if let Some(Value::ServerError(error)) = replies.next() {
        return Err(refused(address, &error));
    }
    Ok(wire)
}

fn refused(address: &RedisAddress, error: &ServerError) -> StoreError {
    fault::refused(address, &fault::text_of(error))
}

/// A server that does not tell what it is (`INFO` may be forbidden) is taken for fit; the scripts would say.
fn check_server(address: &RedisAddress, info: Option<Value>) -> Result<(), StoreError> {
    let text = match info {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Some(Value::VerbatimString { text, .. }) => text,
        _ => return Ok(()),
    };
    let told = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let unfit = |message| Err(StoreError::not_done(StoreErrorKind::Unsupported, message));
    match told("redis_mode:") {
        Some("sentinel") => {
            return unfit(format!("{address} is a Redis Sentinel, which keeps no locks; name the master"));
        }
        Some("cluster") => {
            return unfit(format!("{address} is a node of a Redis Cluster, which is not supported yet"));
        }
        _ => {}
    }
    let Some(version) = told("redis_version:") else { return Ok(()) };
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    let known = (parts.next().unwrap_or(u32::MAX), parts.next().unwrap_or(0));
    if known >= OLDEST {
        return Ok(());
    }
    unfit(format!("{address} runs Redis {version}; at least {}.{} is needed", OLDEST.0, OLDEST.1))
}
