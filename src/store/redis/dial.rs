//! Opens a socket to a server, with TLS if the URL says so.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::AsyncStream;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::{self, InvalidMessage};

use super::address::RedisAddress;
use super::budget::Budget;
use super::endpoint::Endpoint;
use super::metered_tls::MeteredTls;
use super::{connect_error, fault};
use crate::store::{StoreError, StoreErrorKind, Tls};

/// How long a connection is silent before the kernel probes it, and the time between two probes. If
/// this is smaller, idle connections cause more traffic; if it is larger, the client notices later
/// that the server's machine is gone.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent data may stay unacknowledged before the kernel gives the connection up. The
/// kernel's default is about 15 minutes. If this is smaller, connections over slow networks break;
/// if it is larger, the client stays longer on a connection that leads nowhere.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// How long a TLS handshake goes unanswered before the client checks whether the server speaks TLS
/// at all, and how long that check may take. If this is smaller, the check may miss a slow server;
/// if it is larger, the error comes later.
const SILENCE: Duration = Duration::from_millis(300);

/// The size of a connection's buffer in bytes. A read with room for as many bytes bypasses the
/// buffer. If this is larger, many connections take more memory that is not counted; if it is
/// smaller, the client reads the replies to a handshake in more pieces.
const BUFFER: usize = 4 << 10;

/// A connection. The buffer lets the handshake stop at the end of its last reply.
pub type Stream = BufReader<Box<dyn AsyncStream + Send + Unpin>>;

/// Gives a connection its buffer.
pub fn buffered(stream: impl AsyncStream + Send + Unpin + 'static) -> Stream {
    BufReader::with_capacity(BUFFER, Box::new(stream))
}

/// Connects. Has no time-out of its own: the caller sets one. A TLS handshake waits for the turn of
/// the store with this budget, and its time counts.
pub async fn dial(address: &RedisAddress, budget: &Arc<Budget>) -> Result<Stream, StoreError> {
    let unreachable = |error| connect_error::unreachable(address, &error);
    match (&address.endpoint, &address.tls) {
        (Endpoint::Tcp(host, port), None) => {
            Ok(buffered(dial_tcp(address, host, *port).await.map_err(unreachable)?))
        }
        (Endpoint::Tcp(host, port), Some(tls)) => {
            let stream = dial_tcp(address, host, *port).await.map_err(unreachable)?;
            Ok(buffered(shake_hands(address, tls, (host, *port), stream, budget).await?))
        }
        #[cfg(unix)]
        (Endpoint::Unix(path), _) => {
            Ok(buffered(tokio::net::UnixStream::connect(path).await.map_err(unreachable)?))
        }
        #[cfg(not(unix))]
        (Endpoint::Unix(_), _) => Err(unreachable(ErrorKind::Unsupported.into())),
        // The caller has found out before which server is the master.
        (Endpoint::Master(_), _) => Err(unreachable(ErrorKind::Unsupported.into())),
    }
}

async fn dial_tcp(address: &RedisAddress, host: &str, port: u16) -> io::Result<TcpStream> {
    // All addresses of a name at once: localhost is ::1 and 127.0.0.1, and mostly one of them
    // answers.
    let places = address.lookups.addresses(host, port).await?;
    let attempts: Vec<_> = places.into_iter().map(|place| Box::pin(TcpStream::connect(place))).collect();
    if attempts.is_empty() {
        return Err(io::Error::other("the name has no address"));
    }
    let (stream, _) = select_ok(attempts).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(stream)
}

/// Begins TLS on `stream`. Returns an error if the client can't trust the server.
async fn shake_hands(
    address: &RedisAddress,
    tls: &Tls,
    (host, port): (&str, u16),
    stream: TcpStream,
    budget: &Arc<Budget>,
) -> Result<MeteredTls<TcpStream>, StoreError> {
    let untrusted =
        |why| StoreError::not_done(StoreErrorKind::Untrusted, format!("{address} can't be trusted: {why}"));
    let config = tls.config().await.map_err(untrusted)?;
    // A server may have named the host, so the host may contain the password.
    let named = |why: String| untrusted(fault::without_secrets(address, &why, &why).to_owned());
    let name = tls.server_name(host).map_err(named)?;
    let mut handshake = pin!(MeteredTls::shake_hands(config, name, stream, budget));
    // A Redis server without TLS takes the first bytes of the handshake for the beginning of a
    // line, and waits for the end of that line without limit.
    let silent_in_tls = async {
        sleep(SILENCE).await;
        speaks_plain(address, host, port).await
    };
    let shaken = tokio::select! {
        biased;
        shaken = &mut handshake => shaken,
        true = silent_in_tls => return Err(connect_error::no_tls(address)),
        else => handshake.await,
    };
    shaken.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => connect_error::broken_off(address, &error),
        _ => connect_error::unreachable(address, &error),
    })
}

/// Returns true if the server speaks the Redis protocol in plain. Tells the server nothing.
async fn speaks_plain(address: &RedisAddress, host: &str, port: u16) -> bool {
    let question = async {
        let mut stream = dial_tcp(address, host, port).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    matches!(timeout(SILENCE, question).await, Ok(Ok(b'+' | b'-')))
}

/// Returns true if the server, which did not answer in plain, speaks TLS. Tells the server nothing,
/// because it is not trusted.
pub async fn speaks_tls(address: &RedisAddress, budget: &Arc<Budget>) -> bool {
    let Endpoint::Tcp(host, port) = &address.endpoint else { return false };
    let question = async {
        let Ok(config) = Tls::config_that_trusts_nobody() else { return false };
        let Ok(name) = Tls::default().server_name(host) else { return false };
        let Ok(stream) = dial_tcp(address, host, *port).await else { return false };
        let shaken = MeteredTls::shake_hands(config, name, stream, budget).await;
        let Err(error) = shaken else { return true };
        let said = error.get_ref().and_then(|error| error.downcast_ref());
        said.is_some_and(|said: &rustls::Error| {
            !matches!(said, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType))
        })
    };
    timeout(SILENCE, question).await.unwrap_or(false)
}
