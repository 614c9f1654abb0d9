//! Exchanges the first commands on a connection.
//!
//! This module uses the bare stream. It has to tell a server that sends nonsense from a server that
//! hangs up, and it needs the replies from before that. A multiplexed connection drops unrequested
//! messages, and a server of another kind often sends the first message.

use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Poll, ready};

use redis::{Cmd, Parser, Value};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::budget::ConnectionBudget;
use super::reader::Reader;
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
    /// Counts the time that the caller takes for the replies. Drop it before the caller waits.
    pub reader: Reader,
}

/// Says how a handshake failed.
pub enum End {
    /// The server sent bytes that are not the Redis protocol, or too many bytes.
    Nonsense,
    /// The connection broke.
    HungUp(io::Error),
}

/// Sends `commands` and reads a reply to each. Leaves what follows the last reply to the next
/// reader of `stream`: the server may send a message in the same packet. `connection_budget` counts
/// the replies until the caller ends or drops it. The handshake reads when it is the store's turn,
/// because a thousand nodes of a cluster may answer at the same time.
pub async fn exchange(
    stream: &mut (impl AsyncBufRead + AsyncWrite + Unpin),
    commands: &[Cmd],
    connection_budget: &ConnectionBudget,
) -> Replies {
    let words: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
    // A server that refuses the client may say why, and hang up before the client has sent
    // everything. So read the replies even if writing fails.
    let written = stream.write_all(&words).await;
    let mut reader = Reader::of(connection_budget.budget());
    let mut replies = ReplyReader { scanner: ReplyScanner::default(), connection_budget, begun: Vec::new() };
    let mut values = Vec::with_capacity(commands.len());
    let mut bytes = 0;
    while values.len() < commands.len() {
        let end = match fill_buffer(stream, &mut reader).await {
            Ok([]) => End::HungUp(written.err().unwrap_or_else(|| ErrorKind::UnexpectedEof.into())),
            Ok(news) => match replies.read(news) {
                Ok((read, _)) if bytes + read > MOST_BYTES => End::Nonsense,
                Ok((read, value)) => {
                    stream.consume(read);
                    bytes += read;
                    values.extend(value);
                    continue;
                }
                Err(()) => End::Nonsense,
            },
            Err(error) => End::HungUp(error),
        };
        return Replies { values, end: Some(end), reader };
    }
    Replies { values, end: None, reader }
}

/// Waits for the turn of `reader`, and then reads from `stream` unless it still has unread bytes.
/// Returns the unread bytes, with which `reader` is busy from then on.
async fn fill_buffer<'a>(
    stream: &'a mut (impl AsyncBufRead + Unpin),
    reader: &mut Reader,
) -> io::Result<&'a [u8]> {
    poll_fn(|cx| {
        ready!(reader.poll_turn(cx));
        let began = Instant::now();
        let news = ready!(Pin::new(&mut *stream).poll_fill_buf(cx))?;
        reader.begin(news.len(), began);
        Poll::Ready(Ok::<_, io::Error>(()))
    })
    .await?;
    // The buffer is full, or the stream has ended.
    stream.fill_buf().await
}

/// Reads one reply after the other. Scans each byte once, even if the bytes arrive in small pieces.
struct ReplyReader<'a> {
    scanner: ReplyScanner,
    connection_budget: &'a ConnectionBudget,
    /// The bytes of a reply that is not whole yet.
    begun: Vec<u8>,
}

impl ReplyReader<'_> {
    /// Reads `news` up to the end of the first reply. Returns how many bytes it has read, and the
    /// reply if it is whole. Returns `Err` if the bytes are not a reply, or the reply is too large.
    fn read(&mut self, news: &[u8]) -> Result<(usize, Option<Value>), ()> {
        let scan = |scanner: &mut ReplyScanner, room: &mut _| scanner.next_end(news, room);
        let end = self.connection_budget.charge(&mut self.scanner, scan).map_err(|_: (usize, Excess)| ())?;
        let read = end.unwrap_or(news.len());
        self.begun.extend(&news[..read]);
        if end.is_none() {
            return Ok((read, None));
        }
        let value = Parser::new().parse_value(&*self.begun).map_err(drop)?;
        self.begun.clear();
        Ok((read, Some(value)))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use futures_util::FutureExt;
    use futures_util::future::poll_immediate;
    use tokio::io::{AsyncRead, AsyncReadExt, BufReader, ReadBuf, join, sink};
    use tokio::runtime::Builder;

    use super::super::budget::Budget;
    use super::super::read_turn::MOST_TIME_IN_A_ROW;
    use super::*;

    /// Exchanges `count` commands with a server that sends `said` in one packet. Returns the
    /// replies, and the bytes that the next reader of the stream gets.
    fn exchange_with(said: &[u8], count: usize) -> (Replies, Vec<u8>) {
        let mut stream = BufReader::new(join(said, sink()));
        let connection_budget = ConnectionBudget::of(&Budget::new());
        let exchanged = async {
            let commands = vec![redis::cmd("PING"); count];
            let replies = exchange(&mut stream, &commands, &connection_budget).await;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
            (replies, rest)
        };
        let exchanged = exchanged.now_or_never().unwrap();
        assert_eq!(connection_budget.excess(), None, "the next reader judges the rest");
        exchanged
    }

    /// Sends one reply per read. Each read keeps the thread busy for longer than a turn.
    struct Slow(u32);

    impl AsyncRead for Slow {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let began = Instant::now();
            while began.elapsed() < 2 * MOST_TIME_IN_A_ROW {}
            self.get_mut().0 += 1;
            buf.put_slice(format!("+{}\r\n", "x".repeat(2_000)).as_bytes());
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_handshake_takes_part_in_the_turn_of_its_store() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let connection_budget = ConnectionBudget::of(&Budget::new());
        let mut stream = BufReader::new(join(Slow(0), sink()));
        let commands = vec![redis::cmd("PING"); 2];
        let exchanged = runtime.block_on(async {
            let exchanged = exchange(&mut stream, &commands, &connection_budget);
            poll_immediate(pin!(exchanged)).await
        });
        assert!(exchanged.is_none() && stream.get_ref().reader().0 == 1, "the turn is over after one read");
    }

    #[test]
    fn the_bytes_after_the_last_reply_are_left_to_the_next_reader() {
        for rest in
            [&b""[..], b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n7\r\n", b">3\r\n$7\r\nmes", b"nonsense"]
        {
            let (replies, left) = exchange_with(&[b"+one\r\n+two\r\n", rest].concat(), 2);
            let said = ["one", "two"].map(|text| Value::SimpleString(text.into()));
            assert!(replies.values == said && replies.end.is_none(), "{:?}", replies.values);
            assert_eq!(left, rest);
        }
    }
}
