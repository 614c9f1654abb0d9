//! Limits the memory that a connection makes the client use.
//!
//! redis-rs keeps replies until the last one of a pipeline is there, and messages until the client
//! takes them. [`MeteredStream`] sits between the socket and redis-rs and scans what arrives. If
//! the server exceeds a limit, reading fails and the connection ends. The connections of a store
//! share its [`budget`](super::budget).

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::budget::{ConnectionBudget, ROOM};
use super::dial::Stream;
use super::reply_scanner::{Excess, MOST_DEPTH, MOST_LINE, MOST_STRING, ReplyScanner};

/// The most bytes per read. redis-rs parses all bytes of a read before other tasks run: about 4 ms
/// for short messages in a build without optimization. If this is larger, other stores wait for
/// longer; if it is smaller, long replies take more system calls.
const MOST_READ: usize = 4 << 10;
/// How long a connection reads and parses in a row before it pauses for as long. The time is
/// measured, because the same bytes take longer to parse in a slower build, or on a busy machine.
/// If this is larger, other stores wait for longer; if it is smaller, long replies take longer.
const MOST_TIME_IN_A_ROW: Duration = Duration::from_millis(2);
/// The longest pause. If this is larger, a process that was suspended during a read continues
/// later; if it is smaller, a server that sends without end takes more than half of the time of the
/// engine's thread on a busy machine.
const MOST_PAUSE: Duration = Duration::from_millis(100);

/// A stream that scans its input.
pub struct MeteredStream {
    stream: Stream,
    scanner: ReplyScanner,
    connection_budget: Arc<ConnectionBudget>,
    turn: ReadTurn,
    /// The pause after a long turn. Without it, a server that sends without end keeps the engine's
    /// thread busy. A renewal at another store takes several steps, each of which would wait for
    /// one more turn, and on a busy machine the system prefers threads that sleep.
    pause: Option<Pin<Box<Sleep>>>,
}

/// What the stream has read since it last paused, or since it last had nothing to read.
#[derive(Default)]
struct ReadTurn {
    bytes: usize,
    /// When the first bytes were parsed. Most turns read few bytes, and need no clock.
    long_since: Option<Instant>,
}

impl ReadTurn {
    /// Returns how long the stream has to pause before the next read.
    fn pause(&mut self) -> Option<Duration> {
        if self.bytes < MOST_READ / 2 {
            return None;
        }
        let took = self.long_since.get_or_insert_with(Instant::now).elapsed();
        (took >= MOST_TIME_IN_A_ROW).then(|| took.min(MOST_PAUSE))
    }
}

impl MeteredStream {
    /// Checks what `stream` receives from now on, and counts it in `connection_budget`. The next
    /// byte must begin a reply.
    pub fn new(stream: Stream, connection_budget: Arc<ConnectionBudget>) -> Self {
        Self {
            stream,
            scanner: ReplyScanner::default(),
            connection_budget,
            turn: ReadTurn::default(),
            pause: None,
        }
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
        if let Some(pause) = me.turn.pause() {
            me.turn = ReadTurn::default();
            me.pause = Some(Box::pin(sleep(pause)));
        }
        if let Some(pause) = &mut me.pause {
            ready!(pause.as_mut().poll(cx));
            me.pause = None;
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
            me.turn = ReadTurn::default();
        }
        ready!(read)?;
        let news = &buf.filled()[before..];
        me.turn.bytes += news.len();
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
            Self::Line => write!(f, "a line of more than {} kB", MOST_LINE >> 10),
            Self::String => write!(f, "a string of more than {} MB", MOST_STRING >> 20),
            Self::Replies => write!(f, "replies that take more than {} MB", ROOM.replies >> 20),
            Self::Pushes => write!(f, "unread messages that take more than {} MB", ROOM.pushes >> 20),
        }
    }
}

#[cfg(test)]
#[path = "metered_stream_tests.rs"]
mod tests;
