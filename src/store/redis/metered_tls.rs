//! Limits the time that TLS takes of the engine's thread.
//!
//! TLS has messages of its own, from which no byte reaches the client: session tickets, new keys
//! and empty records. tokio-rustls reads on until it has a byte for the client, so a server that
//! sends such messages without end would keep the thread for ever. [`MeteredTls`] limits the bytes
//! that TLS reads at a time, and charges their time to the store's turn to read.
//!
//! The handshake waits for that turn itself. Later, the owner of the stream waits for it: see
//! [`MeteredStream`](super::metered_stream).

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::budget::Budget;
use super::reader::Reader;

/// The most bytes that TLS reads from the socket at a time, a quarter of the longest record. If
/// this is larger, other stores wait for longer; if it is smaller, long replies take more time.
const MOST_READ: usize = 4 << 10;

/// The most bytes for which a read is charged: a whole record, and the bytes of the next record
/// that arrive with its end. If this is larger, more of the time in which the system suspends the
/// thread counts; if it is smaller, only a part of the time for a long record counts.
const LONGEST_RECORD: usize = (16 << 10) + MOST_READ;

/// A TLS connection that charges the time of its reads.
pub struct MeteredTls<S> {
    stream: TlsStream<PacedSocket<S>>,
    reader: Reader,
    /// The bytes read since the client last got some. The end of a record takes the time for all of
    /// its bytes.
    unfinished: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> MeteredTls<S> {
    /// Begins TLS on `socket` with the server `name`, in turns of the store with this budget.
    pub async fn shake_hands(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        socket: S,
        budget: &Arc<Budget>,
    ) -> io::Result<Self> {
        let mut reader = Reader::of(budget);
        let mut handshake = TlsConnector::from(config).connect(name, PacedSocket { socket, room: 0 });
        let mut bytes = 0;
        let stream = poll_fn(|cx| {
            ready!(reader.poll_turn(cx));
            let began = Instant::now();
            if let Some(socket) = handshake.get_mut() {
                socket.room = MOST_READ;
            }
            let polled = Pin::new(&mut handshake).poll(cx);
            let room = match &polled {
                Poll::Ready(Ok(stream)) => stream.get_ref().0.room,
                _ => handshake.get_ref().map_or(0, |socket| socket.room),
            };
            // The last bytes of the server's certificates take the time for all of them.
            bytes += MOST_READ - room;
            reader.charge(bytes, began);
            polled
        });
        let stream = stream.await?;
        Ok(Self { stream, reader, unfinished: 0 })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for MeteredTls<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let began = Instant::now();
        me.stream.get_mut().0.room = MOST_READ;
        let read = Pin::new(&mut me.stream).poll_read(cx, buf);
        let bytes = MOST_READ - me.stream.get_ref().0.room;
        me.unfinished = (me.unfinished + bytes).min(LONGEST_RECORD);
        me.reader.charge(me.unfinished, began);
        if read.is_ready() {
            me.unfinished = 0;
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MeteredTls<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A socket that gives at most `room` bytes, until its owner makes more room.
struct PacedSocket<S> {
    socket: S,
    room: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedSocket<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.room == 0 {
            // The owner makes room when it reads again.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(me.room.min(buf.remaining())));
        ready!(Pin::new(&mut me.socket).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        buf.advance(count);
        me.room -= count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
#[path = "metered_tls_tests.rs"]
mod tests;
