//! Opening a socket to a server, and keeping the traffic on it going.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinHandle;

/// After how long without a sign from the other side the kernel asks for one, and how often it asks.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// How long sent data may stay unacknowledged before the kernel gives the connection up: well below the hours that
/// it would try otherwise, above what a slow network needs.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// A connection. Its clones share it; it ends with the last of them.
#[derive(Clone)]
pub struct Wire {
    pub connection: MultiplexedConnection,
    traffic: Arc<Traffic>,
}

/// The task that writes and reads. It ends when the connection does.
struct Traffic(JoinHandle<()>);

impl Drop for Traffic {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Wire {
    /// Whether the other side was still there when we last heard of it. What is sent when it was not is lost for
    /// certain, so it is better asked before.
    pub fn is_open(&self) -> bool {
        !self.traffic.0.is_finished()
    }

    async fn over<S>(socket: S) -> Result<Self, RedisError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // Nothing is said here: the login is ours, for redis-rs would keep the server's reasons to itself. So are the
        // time-outs: they belong to a batch, not to a connection.
        let silent = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let (connection, traffic) = MultiplexedConnection::new_with_config(&silent, socket, config).await?;
        Ok(Self { connection, traffic: Arc::new(Traffic(tokio::spawn(traffic))) })
    }
}

/// Connects to whichever address of the name answers first.
pub async fn tcp(host: &str, port: u16) -> Result<Wire, RedisError> {
    let attempts: Vec<_> =
        lookup_host((host, port)).await?.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
    }
    let (socket, _) = select_ok(attempts).await?;
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    options.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    options.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Wire::over(socket).await
}

/// Connects to a unix socket.
#[cfg(unix)]
pub async fn unix(path: &Path) -> Result<Wire, RedisError> {
    Wire::over(tokio::net::UnixStream::connect(path).await?).await
}

/// There are none here.
#[cfg(not(unix))]
pub async fn unix(_path: &Path) -> Result<Wire, RedisError> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no unix sockets").into())
}
