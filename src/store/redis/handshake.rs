//! Exchanges the first commands on a connection.
//!
//! This module uses the bare stream. It has to tell a server that sends nonsense from a server that
//! hangs up, and it needs the replies from before that. A multiplexed connection drops unrequested
//! messages, and a server of another kind often sends the first message.

use std::io::{self, ErrorKind};

use redis::{Cmd, Parser, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::budget::ConnectionBudget;
use super::reply_scanner::{Excess, ReplyScanner};

/// The most bytes of a handshake's replies. The longest reply answers `INFO`, with some 10 kB. If
/// this is larger, a false server can take more memory; if it is smaller, a real one may be
/// refused.
const MOST_BYTES: usize = 256 * 1024;

/// The replies to a handshake.
pub struct Replies {
    /// The replies that arrived.
    pub values: Vec<Value>,
    /// Why replies are missing, if some are.
    pub end: Option<End>,
}

/// Says how a handshake failed.
pub enum End {
    /// The server sent bytes that are not the Redis protocol, or too many bytes.
    Nonsense,
    /// The connection broke.
    HungUp(io::Error),
}

/// Sends `commands` and reads a reply to each. `connection_budget` counts the replies until the
/// caller ends or drops it.
pub async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    commands: &[Cmd],
    connection_budget: &ConnectionBudget,
) -> Replies {
    let words: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    // A server that refuses the client may say why, and hang up before the client has sent
    // everything. So read the replies even if writing fails.
    let written = stream.write_all(&words).await;
    let mut replies = Unread {
        bytes: Vec::new(),
        scanner: ReplyScanner::default(),
        connection_budget,
        scanned: 0,
        parsed: 0,
    };
    let mut values = Vec::with_capacity(commands.len());
    loop {
        let read = stream.read_buf(&mut replies.bytes).await;
        let nonsense = loop {
            match replies.next() {
                Ok(Some(value)) if values.len() < commands.len() => values.push(value),
                Ok(_) => break false,
                Err(()) => break values.len() < commands.len(),
            }
        };
        let end = match read {
            _ if nonsense || replies.bytes.len() > MOST_BYTES => Some(End::Nonsense),
            _ if values.len() == commands.len() => None,
            Ok(0) => Some(End::HungUp(written.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into()))),
            Ok(_) => continue,
            Err(error) => Some(End::HungUp(error)),
        };
        return Replies { values, end };
    }
}

/// Holds the bytes that were read, and how far they were parsed. Scans each byte once, even if the
/// bytes arrive in small pieces.
struct Unread<'a> {
    bytes: Vec<u8>,
    scanner: ReplyScanner,
    connection_budget: &'a ConnectionBudget,
    scanned: usize,
    parsed: usize,
}

impl Unread<'_> {
    /// Returns the next value, if it is whole. Returns `Err` if the bytes are not a value, or the
    /// value is too large.
    fn next(&mut self) -> Result<Option<Value>, ()> {
        let news = &self.bytes[self.scanned..];
        let read =
            self.connection_budget.charge(&mut self.scanner, |scanner, room| scanner.next_end(news, room));
        let Some(read) = read.map_err(|_: (usize, Excess)| ())? else {
            self.scanned = self.bytes.len();
            return Ok(None);
        };
        self.scanned += read;
        let value = &self.bytes[self.parsed..self.scanned];
        self.parsed = self.scanned;
        Parser::new().parse_value(value).map(Some).map_err(drop)
    }
}
