//! Limits the memory that a connection makes the client use.
//!
//! redis-rs keeps replies until the last one of a pipeline is there, and messages until the client
//! takes them. [`MeteredStream`] sits between the socket and redis-rs and scans what arrives. If
//! the server exceeds a limit, reading fails and the connection ends. The connections of a store
//! share its [`budget`](super::budget) and its turn to read.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::budget::{ConnectionBudget, ROOM};
use super::dial::Stream;
use super::read_turn::{MayRead, ReaderId};
use super::reply_scanner::{Excess, MOST_DEPTH, MOST_LINE, MOST_STRING, ReplyScanner};
use super::turn_schedule::TurnSchedule;

/// The most bytes per read. redis-rs parses all bytes of a read before other tasks run: about 4 ms
/// for short messages in a build without optimization. If this is larger, other stores wait for
/// longer; if it is smaller, long replies take more system calls.
const MOST_READ: usize = 4 << 10;

thread_local! {
    /// The turns of all stores of this thread.
    static SCHEDULE: RefCell<TurnSchedule> = RefCell::default();
}

/// A stream that scans its input.
pub struct MeteredStream {
    stream: Stream,
    scanner: ReplyScanner,
    connection_budget: Arc<ConnectionBudget>,
    reader: ReaderId,
    /// The bytes of the last read, and when it ended. The client parses them before it reads again.
    last_read: Option<(usize, Instant)>,
    /// The pause until the next turn.
    pause: Option<Pin<Box<Sleep>>>,
}

impl MeteredStream {
    /// Checks what `stream` receives from now on, and counts it in `connection_budget`. The next
    /// byte must begin a reply.
    pub fn new(stream: Stream, connection_budget: Arc<ConnectionBudget>) -> Self {
        let reader = connection_budget.budget().turn().new_reader();
        Self {
            stream,
            scanner: ReplyScanner::default(),
            connection_budget,
            reader,
            last_read: None,
            pause: None,
        }
    }

    /// Returns `Pending` while the connection may not read, so that the other stores get their
    /// part of the time.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let mut turn = self.connection_budget.budget().turn();
            let last_read = self.last_read.take();
            if last_read.is_none() && turn.is_free() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            if let Some((bytes, began)) = last_read {
                SCHEDULE.with_borrow_mut(|schedule| turn.charge(bytes, began, now, schedule));
            }
            let may_read = turn.ask(self.reader, now, cx.waker());
            drop(turn);
            self.pause = match may_read {
                MayRead::Now => return Poll::Ready(()),
                MayRead::After(pause) => Some(Box::pin(sleep(pause))),
            };
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
            }
        }
    }
}

impl Drop for MeteredStream {
    fn drop(&mut self) {
        self.connection_budget.budget().turn().leave(self.reader, Instant::now());
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
        ready!(me.poll_turn(cx));
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
        ready!(read)?;
        let news = &buf.filled()[before..];
        me.last_read = Some((news.len(), Instant::now()));
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
