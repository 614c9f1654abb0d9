//! Fuzz targets: what a server sends, from the socket to the answers.

mod values;

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use proptest::collection::vec;
use proptest::prelude::*;
use redis::{FromRedisValue, Parser, PushInfo, Value};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf, join, sink};
use tokio::runtime::Builder;

use self::values::values;
use super::address::RedisAddress;
use super::budget::{Budget, ConnectionBudget};
use super::cluster::{NodeAddress, Redirect, SlotMap};
use super::dial::buffered;
use super::metered_stream::MeteredStream;
use super::outcomes::Outcomes;
use super::pace::Pace;
use super::pipeline::groups;
use super::reader::Reader;
use super::reply_scanner::{ByteLimits, Excess, ReplyScanner};
use super::sentinel::failover::Event;
use super::sentinel::sentinel_reply;
use super::{fault, notices, reply};
use crate::fuzzing::memory::peak_of;
use crate::fuzzing::{fuzz, hash, runner};
use crate::lease::{Fence, Token, Ttl};
use crate::store::{Access, AcquireRequest, AdoptedLease, Reply, Request, Source};

const ROOM: ByteLimits = ByteLimits { replies: 1 << 20, pushes: 1 << 20 };
/// How many bytes the parser may take beyond those for values, for its buffer and the texts of its
/// errors.
const OF_PARSER: u64 = 64 << 10;
const WORDS: &[&str] = &[
    "\r\n",
    "*1\r\n",
    "*2\r\n",
    "*0\r\n",
    "*-1\r\n",
    "$-1\r\n",
    "$0\r\n\r\n",
    "%1\r\n",
    "|1\r\n",
    ">2\r\n",
    "~1\r\n",
    ":1\r\n",
    "+OK\r\n",
    "-ERR ",
    "_\r\n",
    "=",
    "!",
    "(",
    ",inf\r\n",
    "#t\r\n",
    "-",
    "0",
    "9",
    "000",
    "2000000000",
    "99999999999",
    "999999999999999999",
    "4194304",
    "18446744073709551615",
    "\r",
    "\n",
];

/// Bytes that arrive in pieces, whose lengths depend on the bytes only.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    random: fastrand::Rng,
}

impl Pieces {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), at: 0, random: fastrand::Rng::with_seed(hash(bytes)) }
    }

    /// Returns the next piece, with at most `most` bytes. It is empty at the end.
    fn next(&mut self, most: usize) -> &[u8] {
        let count = self.random.usize(1..40).min(most).min(self.bytes.len() - self.at);
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }
}

impl io::Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.next(into.len());
        into[..piece.len()].copy_from_slice(piece);
        Ok(piece.len())
    }
}

impl AsyncRead for Pieces {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = into.remaining();
        into.put_slice(self.get_mut().next(most));
        Poll::Ready(Ok(()))
    }
}

/// What the scanner finds: the ends of the replies, why it stopped, and the room that is left.
#[derive(Debug, PartialEq, Eq)]
struct Scan {
    ends: Vec<usize>,
    excess: Option<Excess>,
    room: ByteLimits,
}

/// Scans `bytes` in pieces, whose lengths `next` returns. Also returns how many bytes are good.
fn scan(bytes: &[u8], mut next: impl FnMut() -> usize) -> (Scan, usize) {
    let (mut scanner, mut room) = (ReplyScanner::default(), ROOM);
    let (mut ends, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let piece_end = bytes.len().min(at.saturating_add(next()));
        while at < piece_end {
            let before = room;
            let found = scanner.next_end(&bytes[at..piece_end], &mut room);
            assert!(room.replies <= before.replies && room.pushes <= before.pushes, "the room grew");
            match found {
                Ok(Some(read)) => {
                    assert!(read > 0, "a reply without bytes");
                    at += read;
                    ends.push(at);
                }
                Ok(None) => at = piece_end,
                Err((good, excess)) => return (Scan { ends, excess: Some(excess), room }, at + good),
            }
        }
    }
    (Scan { ends, excess: None, room }, at)
}

/// Parses the values in `bytes` as redis-rs does, until it rejects one or `bytes` end.
fn parse_all(bytes: &[u8]) -> Vec<Value> {
    let (mut pieces, mut parser) = (Pieces::of(bytes), Parser::new());
    std::iter::from_fn(|| parser.parse_value(&mut pieces).ok()).collect()
}

/// Returns whether `bytes` are one whole value, or `None` if the parser rejects them.
fn is_whole(bytes: &[u8]) -> Option<bool> {
    match Parser::new().parse_value(bytes) {
        Ok(_) => Some(true),
        Err(error) => error.is_io_error().then_some(false),
    }
}

/// Asserts that the scanner finds the ends that the parser finds, in pieces of any length. Asserts
/// that the parser takes at most twice the charged memory and [`OF_PARSER`].
fn measure(bytes: &[u8]) {
    let (whole, _) = scan(bytes, || usize::MAX);
    let (in_bytes, good) = scan(bytes, || 1);
    let mut random = fastrand::Rng::with_seed(hash(bytes));
    let (in_pieces, _) = scan(bytes, || random.usize(1..40));
    for other in [in_bytes, in_pieces] {
        assert_eq!((&whole.ends, whole.excess), (&other.ends, other.excess));
        // If a line is larger than the room, a scan in pieces has charged some of its pieces.
        assert!(whole.excess.is_some() || whole.room == other.room, "{whole:?} {other:?}");
    }

    let charged = (ROOM.replies - whole.room.replies) + (ROOM.pushes - whole.room.pushes);
    let (values, taken) = peak_of(|| parse_all(&bytes[..good]));
    assert!(taken <= 2 * charged + OF_PARSER, "{taken} bytes were taken, {charged} were charged");
    assert!(values.len() <= whole.ends.len(), "the parser found a value that was not charged");

    let mut start = 0;
    for &end in &whole.ends {
        assert_ne!(is_whole(&bytes[start..end - 1]), Some(true), "the parser needs less than {end} bytes");
        match is_whole(&bytes[start..end]) {
            Some(true) => start = end,
            Some(false) => panic!("the parser needs more than {end} bytes"),
            // The parser rejects more than the scanner. With such a value, redis-rs ends the
            // connection.
            None => return,
        }
    }
    if whole.excess.is_none() && start < bytes.len() {
        assert_ne!(is_whole(&bytes[start..]), Some(true), "the parser takes the rest for whole");
    }
}

/// Asserts that a connection hands on the good bytes, then fails, and says why.
fn take_in(bytes: &[u8]) {
    let connection_budget = ConnectionBudget::of(&Budget::new());
    // Pauses pass at once.
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let stream = MeteredStream::new(buffered(join(Pieces::of(bytes), sink())), connection_budget.clone());
    let mut stream = Box::pin(stream);
    let (mut handed_on, mut buffer) = (Vec::new(), vec![0; 1 + hash(bytes) as usize % 100]);
    let end = loop {
        match runtime.block_on(stream.read(&mut buffer)) {
            Ok(0) => break None,
            Ok(count) => handed_on.extend(&buffer[..count]),
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(end, connection_budget.excess().map(|_| ErrorKind::InvalidData));
    assert!(bytes.starts_with(&handed_on));
    let (scanned, _) = scan(bytes, || 1);
    match scanned.excess {
        // The connection has more room.
        Some(Excess::Replies | Excess::Pushes) => {}
        excess => assert_eq!(connection_budget.excess(), excess),
    }
    if connection_budget.excess().is_none() {
        assert_eq!(handed_on, bytes);
    }
}

/// One request of each kind, so that each kind of reply is read.
fn requests() -> Vec<Request> {
    let (key, token, ttl) = (|| "a".into(), Token::random(), Ttl::MIN);
    let source = Source::Ticket { fence: Fence(1), with_ttl: true };
    let (holder, adopter, to) = ("h".into(), Token::random(), Token::random());
    vec![
        Request::Ping,
        Request::Acquire(AcquireRequest::new(key(), token, ttl, "h".into())),
        Request::Renew { key: key(), token, ttl, fences: 0 },
        Request::Renew { key: key(), token, ttl, fences: 4 },
        Request::Detach { key: key(), token, ttl, own_ttl: ttl, fence: Fence(1) },
        Request::Release { key: key(), token, used: None },
        Request::Adopt { key: key(), token, adopter, ttl, holder, outlives_process: false, source },
        Request::Move { key: key(), token, to, adopter, most: None },
        Request::Accept { key: key(), token, fence: Fence(1), count: 1 },
        Request::Break { key: key(), bars_repairs: true },
        Request::Inspect { key: key() },
    ]
}

/// Reads `value` as a reply to each request. Asserts that every fence is possible, and that every
/// message is safe to show.
fn read(value: &Value) {
    let address = RedisAddress::parse("redis://:hunter2@host", &Access::default()).unwrap();
    let place = NodeAddress { host: "host".into(), port: 1 };
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    for request in requests() {
        for reply in [value.clone(), Value::Array(vec![value.clone()])] {
            let mut outcomes = Outcomes::none(1, Some(place.clone()));
            let batch = [request.clone()];
            let mut reader = Reader::of(&Budget::new());
            runtime.block_on(async {
                let mut pace = Pace::begin(&mut reader).await;
                reply::read(&address, &groups(&batch, false)[0], reply, true, &mut pace, &mut outcomes).await;
            });
            let fences = match &outcomes.answers[0] {
                Some(Ok(Reply::Acquired { fence, .. })) => vec![*fence],
                Some(Ok(Reply::Renewed { block: Some((fence, _)) })) => vec![*fence],
                Some(Ok(Reply::Adopted(AdoptedLease { first, last, granted, .. }))) => {
                    vec![*first, *last, *granted]
                }
                Some(Err(error)) => {
                    assert!(!error.message.chars().any(char::is_control), "{error:?}");
                    vec![]
                }
                _ => vec![],
            };
            for fence in fences {
                assert!((Fence::EARLIEST_WALL_US..=Fence::MAX.0).contains(&fence.0), "{fence:?}");
            }
        }
    }
    let _ = (sentinel_reply::others(value).count(), sentinel_reply::place(value));
    if let Some(map) = SlotMap::read(value, &place) {
        assert!((0..16384).all(|slot| map.owner(slot).is_none_or(|place| place.port > 0)));
        for (place, _) in map.masters() {
            assert!(!address.at(&place.host, place.port).to_string().contains("hunter2"), "{place:?}");
        }
    }
    if let Value::ServerError(error) = value {
        let _ = Redirect::read(error, &place, &address);
        let said = fault::said_by(&address, error);
        assert!(!said.chars().any(char::is_control), "{error:?}");
        assert!(!said.contains("hunter2"), "{error:?}");
    }
    if let Value::Push { kind, data } = value {
        let _ = notices::read(PushInfo { kind: kind.clone(), data: data.clone() });
        let texts: Vec<String> = data.iter().flat_map(String::from_redis_value_ref).collect();
        if let [channel, said, ..] = &texts[..] {
            let _ = Event::read(channel, said, "m");
        }
    }
}

/// No bytes of a server make the client panic, or take much more memory than the scanner charged,
/// in pieces of any length.
#[test]
fn no_bytes_of_a_server_do_harm() {
    let generated = vec(values(), 1..4).prop_map(|values| values.concat());
    fuzz("replies", 10_000, WORDS, generated, |bytes| {
        measure(bytes);
        take_in(bytes);
        let (_, good) = scan(bytes, || 1);
        parse_all(&bytes[..good]).iter().for_each(read);
    });
}

/// The scanner accepts every reply that a server may send, and finds its end where the parser does.
#[test]
fn no_reply_of_a_server_is_refused() {
    let result = runner(2_000).run(&vec(values(), 1..4), |values| {
        let bytes = values.concat();
        let (scanned, _) = scan(&bytes, || usize::MAX);
        prop_assert_eq!(scanned.excess, None);
        let lengths = values.iter().map(Vec::len);
        let ends: Vec<usize> = lengths
            .scan(0, |end, length| {
                Some({
                    *end += length;
                    *end
                })
            })
            .collect();
        prop_assert_eq!(scanned.ends, ends);
        prop_assert_eq!(parse_all(&bytes).len(), values.len());
        Ok(())
    });
    result.unwrap();
}
