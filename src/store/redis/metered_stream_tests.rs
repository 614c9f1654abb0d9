//! Tests of how long a connection keeps the engine's thread.

use std::task::Waker;

use tokio::io::{join, sink};
use tokio::runtime::Builder;
use tokio::time::advance;

use super::super::budget::Budget;
use super::*;

/// Sends one short reply after the other, without end.
struct Endless;

impl AsyncRead for Endless {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        buf.put_slice(&b":1\r\n".repeat(buf.remaining() / 4));
        Poll::Ready(Ok(()))
    }
}

/// Reads until the stream pauses, with a buffer of `room` bytes, and works for `work` after each
/// read. Returns the bytes of each read.
fn reads_in_a_row(stream: &mut MeteredStream, room: usize, work: Duration) -> Vec<usize> {
    let mut reads = Vec::new();
    let mut bytes = vec![0; room];
    loop {
        let mut buf = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf) {
            Poll::Ready(read) => read.unwrap(),
            Poll::Pending => return reads,
        }
        reads.push(buf.filled().len());
        // The client takes the replies that were read.
        stream.connection_budget.answered();
        std::thread::sleep(work);
    }
}

fn endless() -> MeteredStream {
    MeteredStream::new(Box::new(join(Endless, sink())), ConnectionBudget::of(&Budget::new()))
}

/// Only [`advance`] moves the time of pauses.
fn with_paused_time(test: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test);
}

#[test]
fn a_connection_whose_replies_take_long_to_parse_pauses_for_as_long() {
    with_paused_time(async {
        for room in [8 << 10, 1 << 20] {
            let mut stream = endless();
            for _ in 0..3 {
                let reads = reads_in_a_row(&mut stream, room, MOST_TIME_IN_A_ROW);
                assert_eq!(reads, [MOST_READ; 2], "with room for {room} bytes");
                advance(MOST_TIME_IN_A_ROW / 2).await;
                assert_eq!(reads_in_a_row(&mut stream, room, Duration::ZERO), [0; 0], "in the pause");
                advance(MOST_PAUSE).await;
            }
        }
    });
}

#[test]
fn a_connection_whose_replies_take_no_time_reads_many_of_them_in_a_row() {
    with_paused_time(async {
        // On a busy machine, a turn may be over before its third read.
        let is_long = |_| reads_in_a_row(&mut endless(), 1 << 20, Duration::ZERO).len() > 2;
        assert!((0..100).any(is_long));
    });
}
