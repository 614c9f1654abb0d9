//! The way to a server: a socket that is fit for locks, and TLS on it where the URL says so.

use std::io::{self, ErrorKind};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::AsyncStream;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{self, InvalidMessage};

use super::address::{Endpoint, RedisAddress};
use super::{distrust, fault};
use crate::store::{StoreError, StoreErrorKind, Tls};

/// After how long without a sign from the other side the kernel asks for one, and how often it asks.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent data may stay unacknowledged before the kernel gives the connection up: well below the quarter of an
/// hour that it would try otherwise, above what a slow network needs.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// How long a handshake goes unanswered before we see whether the server speaks TLS at all; and how long that may take.
const SILENCE: Duration = Duration::from_millis(300);

pub type Stream = Box<dyn AsyncStream + Send + Unpin>;

/// Connects. It takes as long as it takes: time-outs are the business of whoever waits for it.
pub async fn dial(address: &RedisAddress) -> Result<Stream, StoreError> {
    let unreachable = |error| distrust::unreachable(address, &error);
    match (&address.endpoint, &address.tls) {
        (Endpoint::Tcp(host, port), None) => Ok(Box::new(dial_tcp(host, *port).await.map_err(unreachable)?)),
        (Endpoint::Tcp(host, port), Some(tls)) => {
            let stream = dial_tcp(host, *port).await.map_err(unreachable)?;
            Ok(Box::new(shake_hands(address, tls, (host, *port), stream).await?))
        }
        #[cfg(unix)]
        (Endpoint::Unix(path), _) => {
            Ok(Box::new(tokio::net::UnixStream::connect(path).await.map_err(unreachable)?))
        }
        #[cfg(not(unix))]
        (Endpoint::Unix(_), _) => Err(unreachable(ErrorKind::Unsupported.into())),
        // Whoever dials knows by then which server it is.
        (Endpoint::Master(_), _) => Err(unreachable(ErrorKind::Unsupported.into())),
    }
}

async fn dial_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    // All addresses of a name at once: localhost is ::1 and 127.0.0.1, and mostly one of them answers.
    let places = lookup_host((host, port)).await?;
    let attempts: Vec<_> = places.map(|place| Box::pin(TcpStream::connect(place))).collect();
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

/// Makes `stream` a connection to the server that is meant, and to nobody else.
async fn shake_hands(
    address: &RedisAddress,
    tls: &Tls,
    (host, port): (&str, u16),
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, StoreError> {
    let untrusted =
        |why| StoreError::not_done(StoreErrorKind::Untrusted, format!("{address} can't be trusted: {why}"));
    let config = tls.config().await.map_err(untrusted)?;
    // A server may have named the host.
    let named = |why: String| untrusted(fault::without_secrets(address, &why, &why).to_owned());
    let name = tls.server_name(host).map_err(named)?;
    let mut handshake = pin!(TlsConnector::from(config).connect(name, stream));
    // A Redis server that speaks no TLS takes our first words for the begin of a line, and waits for its end for ever.
    let silent_in_tls = async {
        sleep(SILENCE).await;
        speaks_plain(host, port).await
    };
    let shaken = tokio::select! {
        biased;
        shaken = &mut handshake => shaken,
        true = silent_in_tls => return Err(distrust::no_tls(address)),
        else => handshake.await,
    };
    shaken.map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => distrust::broken_off(address, &error),
        _ => distrust::unreachable(address, &error),
    })
}

/// Whether somebody there speaks the Redis protocol in plain. Tells them nothing.
async fn speaks_plain(host: &str, port: u16) -> bool {
    let question = async {
        let mut stream = dial_tcp(host, port).await?;
        stream.write_all(b"PING\r\n").await?;
        stream.read_u8().await
    };
    matches!(timeout(SILENCE, question).await, Ok(Ok(b'+' | b'-')))
}

/// Whether the server, which did not answer in plain, speaks TLS. Tells it nothing: whoever it is, it is not trusted.
pub async fn speaks_tls(address: &RedisAddress) -> bool {
    let Endpoint::Tcp(host, port) = &address.endpoint else { return false };
    let question = async {
        let nobody = Tls::distrustful();
        let (Ok(config), Ok(name)) = (nobody.config().await, nobody.server_name(host)) else { return false };
        let Ok(stream) = dial_tcp(host, *port).await else { return false };
        let Err(error) = TlsConnector::from(config).connect(name, stream).await else { return true };
        let said = error.get_ref().and_then(|error| error.downcast_ref());
        said.is_some_and(|said: &rustls::Error| {
            !matches!(said, rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType))
        })
    };
    timeout(SILENCE, question).await.unwrap_or(false)
}
