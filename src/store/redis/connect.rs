//! Making a connection that is fit for locks.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, Pipeline, Value};

use super::address::RedisAddress;
use super::fault;
use super::scripts::SCRIPTS;
use crate::store::{StoreError, StoreErrorKind};

/// How long one attempt to connect may take; the next batch then begins another.
const ATTEMPT: Duration = Duration::from_secs(2);
/// After how long without a sign from the other side the kernel asks for one, and how often it asks.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent data may stay unacknowledged before the kernel gives the connection up: well below the hours that
/// it would try otherwise, above what a slow network needs.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// The oldest server with everything that the scripts use (`SET … PX … GET`, 2021).
const OLDEST: (u32, u32) = (6, 2);

/// Connects, logs in, makes sure that the server is fit, and makes the scripts known to it.
pub async fn connect(address: RedisAddress) -> Result<MultiplexedConnection, StoreError> {
    match tokio::time::timeout(ATTEMPT, attempt(&address)).await {
        Ok(result) => result,
        Err(_) => Err(StoreError::not_done(
            StoreErrorKind::TimedOut,
            format!("{address} did not let us in within {} s", ATTEMPT.as_secs()),
        )),
    }
}

async fn attempt(address: &RedisAddress) -> Result<MultiplexedConnection, StoreError> {
    let failed = |error| fault::failed(address, &error, false);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
    let info = address.connection_info().map_err(failed)?.set_tcp_settings(tcp);
    let client = Client::open(info).map_err(failed)?;
    // Time-outs are ours: they belong to a batch, not to a connection.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let mut connection =
        client.get_multiplexed_async_connection_with_config(&config).await.map_err(failed)?;

    let mut setup = Pipeline::new();
    setup.cmd("CLIENT").arg("SETNAME").arg("leasehold").cmd("INFO").arg("server");
    for load in SCRIPTS.load() {
        setup.add_command(load);
    }
    let replies = connection.send_packed_commands(&setup, 0, setup.len()).await.map_err(failed)?;
    let mut replies = replies.into_iter();
    // Whether we may name ourselves is not worth a word.
    let _name = replies.next();
    check_version(address, replies.next())?;
    for reply in replies {
        if let Value::ServerError(error) = reply {
            let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
            return Err(fault::refused(address, text.trim()));
        }
    }
    Ok(connection)
}

/// A server that does not tell its version (`INFO` may be forbidden) is taken for new enough; the scripts would say.
fn check_version(address: &RedisAddress, info: Option<Value>) -> Result<(), StoreError> {
    let text = match info {
        Some(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Some(Value::VerbatimString { text, .. }) => text,
        Some(Value::ServerError(error)) if matches!(error.code(), "NOAUTH" | "LOADING") => {
            let text = format!("{} {}", error.code(), error.details().unwrap_or_default());
            return Err(fault::refused(address, text.trim()));
        }
        _ => return Ok(()),
    };
    let Some(version) = text.lines().find_map(|line| line.strip_prefix("redis_version:")) else {
        return Ok(());
    };
    let mut parts = version.trim().split('.').map_while(|part| part.parse::<u32>().ok());
    let known = (parts.next().unwrap_or(u32::MAX), parts.next().unwrap_or(0));
    if known >= OLDEST {
        return Ok(());
    }
    let message =
        format!("{address} runs Redis {}; at least {}.{} is needed", version.trim(), OLDEST.0, OLDEST.1);
    Err(StoreError::not_done(StoreErrorKind::Unsupported, message))
}
