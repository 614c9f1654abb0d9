//! Limits the memory that a connection makes the client use.
//!
//! redis-rs keeps replies until the last one of a pipeline is there, and messages until the client
//! takes them. [`MeteredStream`] sits between the socket and redis-rs and scans what arrives. If
//! the server exceeds a limit, reading fails and the connection ends. The connections of a store
//! share its [`budget`](super::budget) and its turn to read.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::budget::{ConnectionBudget, ROOM};
use super::dial::Stream;
use super::reader::Reader;
use super::reply_scanner::{Excess, MOST_DEPTH, MOST_LINE, MOST_STRING, ReplyScanner};

/// The most bytes per read. redis-rs parses all bytes of a read before other tasks run: about 4 ms
/// for short messages in a build without optimization. If this is larger, other stores wait for
/// longer; if it is smaller, long replies take more system calls.
pub const MOST_READ: usize = 4 << 10;

/// A stream that scans its input.
pub struct MeteredStream {
    stream: Stream,
    scanner: ReplyScanner,
    connection_budget: Arc<ConnectionBudget>,
    /// The client parses the bytes of a read before it reads again, so the reader is busy until
    /// then.
    reader: Reader,
}

impl MeteredStream {
    /// Checks what `stream` receives from now on, and counts it in `connection_budget`. The next
    /// byte must begin a reply.
    pub fn new(stream: Stream, connection_budget: Arc<ConnectionBudget>) -> Self {
        let reader = Reader::of(connection_budget.budget());
        Self { stream, scanner: ReplyScanner::default(), connection_budget, reader }
    }
}

impl Drop for MeteredStream {
    fn drop(&mut self) {
        // The client may keep the count for longer than the connection lasts.
        self.connection_budget.ended();
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if let Some(excess) = me.connection_budget.excess() {
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, excess.to_string())));
        }
        ready!(me.reader.poll_turn(cx));
        let (before, began) = (buf.filled().len(), Instant::now());
        let stream = Pin::new(&mut me.stream);
        let read = if buf.remaining() <= MOST_READ {
            stream.poll_read(cx, buf)
        } else {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(MOST_READ));
            let read = stream.poll_read(cx, &mut part);
            let count = part.filled().len();
            buf.advance(count);
            read
        };
        ready!(read)?;
        let news = &buf.filled()[before..];
        me.reader.begin(news.len(), began);
        let end = me.connection_budget.charge(&mut me.scanner, |scanner, room| scanner.read(news, room));
        if let Err((good, excess)) = end {
            // Hand on the good bytes first. Zero bytes without an error would mean the end of the
            // stream.
            buf.set_filled(before + good);
            if good == 0 {
                return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, excess.to_string())));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MeteredStream {
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
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl std::fmt::Display for Excess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nonsense => write!(f, "bytes that are not the Redis protocol"),
            Self::Depth => write!(f, "a reply that is nested more than {MOST_DEPTH} levels deep"),
            Self::Line => write!(f, "a line or an error of more than {} kB", MOST_LINE >> 10),
            Self::String => write!(f, "a string of more than {} MB", MOST_STRING >> 20),
            Self::Replies => write!(f, "replies that take more than {} MB", ROOM.replies >> 20),
            Self::Pushes => write!(f, "unread messages that take more than {} MB", ROOM.pushes >> 20),
        }
    }
}

#[cfg(test)]
#[path = "metered_stream_tests.rs"]
mod tests;
