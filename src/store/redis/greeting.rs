//! The first words on a connection.
//!
//! They are exchanged on the bare stream, because here it has to be told apart who answers nonsense, who hangs up, and
//! what was said before that. A multiplexed connection drops what comes unasked, and a stranger often speaks first.

use std::io::{self, ErrorKind};

use redis::{Cmd, Parser, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// More than any server answers to a greeting.
const MOST_BYTES: usize = 256 * 1024;

/// What was answered to the greeting.
pub struct Replies {
    /// As many as there were.
    pub values: Vec<Value>,
    /// Why there were no more of them, if some are missing.
    pub end: Option<End>,
}

/// How a greeting fails.
pub enum End {
    /// What came is not the Redis protocol.
    Nonsense,
    /// The connection broke.
    HungUp(io::Error),
}

/// Sends `commands` and reads a reply to each.
pub async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), commands: &[Cmd]) -> Replies {
    let words: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    // Who refuses us may say why and hang up before we have said all. So what counts is what can be read.
    let written = stream.write_all(&words).await;
    let mut bytes = Vec::new();
    loop {
        let read = stream.read_buf(&mut bytes).await;
        let (values, nonsense) = parse(&bytes, commands.len());
        let end = match read {
            _ if nonsense || bytes.len() > MOST_BYTES => Some(End::Nonsense),
            _ if values.len() == commands.len() => None,
            Ok(0) => Some(End::HungUp(written.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into()))),
            Ok(_) => continue,
            Err(error) => Some(End::HungUp(error)),
        };
        return Replies { values, end };
    }
}

/// The first `count` values in `bytes`, or as many as there are, and whether something else follows them.
fn parse(mut bytes: &[u8], count: usize) -> (Vec<Value>, bool) {
    let mut parser = Parser::new();
    let mut values = Vec::with_capacity(count);
    while values.len() < count {
        match parser.parse_value(&mut bytes) {
            Ok(value) => values.push(value),
            Err(error) => return (values, !error.is_io_error()),
        }
    }
    (values, false)
}
