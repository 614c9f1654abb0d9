//! Limits the memory that a connection makes the client use.
//!
//! redis-rs keeps replies until the last one of a pipeline is there, and messages until the client
//! takes them. [`Checked`] sits between the socket and redis-rs and scans what arrives. If the
//! server exceeds a limit, reading fails and the connection ends. The connections of a store share
//! its [`budget`](super::budget).

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::budget::{Intake, ROOM};
use super::dial::Stream;
use super::reply_scanner::{Excess, MOST_DEPTH, MOST_LINE, MOST_STRING, ReplyScanner};

/// The most bytes per read. If this is larger, a read keeps the engine's thread from the other
/// stores for longer; if it is smaller, long replies take more system calls.
const MOST_READ: usize = 64 << 10;
/// The most bytes that are read in a row before other tasks run. Parsing them takes about 10 ms,
/// even if they are many small values. If this is larger, other stores wait for longer; if it is
/// smaller, long replies take longer.
const MOST_IN_A_ROW: usize = 256 << 10;

/// A stream that scans its input.
pub struct Checked {
    stream: Stream,
    scanner: ReplyScanner,
    intake: Arc<Intake>,
    in_a_row: usize,
}

impl Checked {
    /// Checks what `stream` receives from now on, and counts it in `intake`. The next byte must
    /// begin a reply.
    pub fn new(stream: Stream, intake: Arc<Intake>) -> Self {
        Self { stream, scanner: ReplyScanner::default(), intake, in_a_row: 0 }
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        // The client may keep its end for longer than the connection lasts.
        self.intake.ended();
    }
}

impl AsyncRead for Checked {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if let Some(excess) = me.intake.excess() {
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, excess.to_string())));
        }
        if me.in_a_row >= MOST_IN_A_ROW {
            me.in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
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
        if read.is_pending() {
            me.in_a_row = 0;
        }
        ready!(read)?;
        let news = &buf.filled()[before..];
        me.in_a_row += news.len();
        let end = me.intake.charge(&mut me.scanner, |scanner, room| scanner.read(news, room));
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

impl AsyncWrite for Checked {
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
            Self::Line => write!(f, "a line of more than {} kB", MOST_LINE >> 10),
            Self::String => write!(f, "a string of more than {} MB", MOST_STRING >> 20),
            Self::Replies => write!(f, "replies that take more than {} MB", ROOM.replies >> 20),
            Self::Pushes => write!(f, "unread messages that take more than {} MB", ROOM.pushes >> 20),
        }
    }
}
