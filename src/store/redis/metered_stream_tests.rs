//! Tests of how long the connections of a store keep the engine's thread.

use std::task::Waker;
use std::time::Duration;

use tokio::io::{AsyncReadExt, join, sink};
use tokio::runtime::Builder;
use tokio::time::{advance, timeout};

use super::super::budget::Budget;
use super::super::dial::buffered;
use super::super::read_turn::MOST_TIME_IN_A_ROW;
use super::*;

/// Sends one short reply after the other, without end.
struct Endless {
    /// True if the stream has nothing to read after each read.
    rests: bool,
    has_more: bool,
}

impl AsyncRead for Endless {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        me.has_more = !me.rests || !me.has_more;
        if !me.has_more {
            return Poll::Pending;
        }
        buf.put_slice(&b":1\r\n".repeat(buf.remaining() / 4));
        Poll::Ready(Ok(()))
    }
}

/// Reads until the stream pauses or has nothing to read, at most `most` times, with a buffer of
/// `room` bytes. Advances the paused time by `work` after each read, if `work` is given. Returns
/// the bytes of each read.
async fn reads_in_a_row(
    stream: &mut MeteredStream,
    room: usize,
    work: impl Into<Option<Duration>>,
    most: usize,
) -> Vec<usize> {
    let work = work.into();
    let mut reads = Vec::new();
    let mut bytes = vec![0; room];
    while reads.len() < most {
        let mut buf = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buf) {
            Poll::Ready(read) => read.unwrap(),
            Poll::Pending => break,
        }
        reads.push(buf.filled().len());
        // The client takes the replies that were read.
        stream.connection_budget.answered();
        if let Some(work) = work {
            advance(work).await;
        }
    }
    reads
}

fn endless(budget: &Arc<Budget>, rests: bool) -> MeteredStream {
    let endless = Endless { rests, has_more: false };
    MeteredStream::new(buffered(join(endless, sink())), ConnectionBudget::of(budget))
}

/// Only [`advance`] moves the time.
fn with_paused_time(test: impl Future<Output = ()>) {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(test);
}

#[test]
fn a_connection_whose_replies_take_long_to_parse_pauses_for_as_long() {
    with_paused_time(async {
        for room in [8 << 10, 1 << 20] {
            let mut stream = endless(&Budget::new(), false);
            for _ in 0..3 {
                let reads = reads_in_a_row(&mut stream, room, MOST_TIME_IN_A_ROW / 2, 9).await;
                assert_eq!(reads, [MOST_READ; 2], "with room for {room} bytes");
                advance(MOST_TIME_IN_A_ROW / 2).await;
                assert_eq!(
                    reads_in_a_row(&mut stream, room, Duration::ZERO, 9).await,
                    [0; 0],
                    "in the pause"
                );
                advance(MOST_TIME_IN_A_ROW / 2).await;
            }
        }
    });
}

/// Sends short replies. Each read keeps the thread busy for longer than a turn.
struct Slow;

impl AsyncRead for Slow {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let began = Instant::now();
        while began.elapsed() < 2 * MOST_TIME_IN_A_ROW {}
        buf.put_slice(&b":1\r\n".repeat(buf.remaining() / 4));
        Poll::Ready(Ok(()))
    }
}

#[test]
fn the_time_of_the_read_itself_counts() {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        let stream = buffered(join(Slow, sink()));
        let mut stream = MeteredStream::new(stream, ConnectionBudget::of(&Budget::new()));
        let reads = reads_in_a_row(&mut stream, 8 << 10, None, 9).await;
        assert_eq!(reads.len(), 1);
    });
}

#[test]
fn a_connection_whose_replies_take_no_time_reads_many_of_them_in_a_row() {
    with_paused_time(async {
        let reads = reads_in_a_row(&mut endless(&Budget::new(), false), 1 << 20, Duration::ZERO, 99).await;
        assert_eq!(reads.len(), 99);
    });
}

/// Reads from all of `streams`, whenever they may read, for the time of 4000 reads. Returns how
/// often each of them has read.
async fn reads_of_4000(streams: &mut [MeteredStream]) -> Vec<usize> {
    let work = MOST_TIME_IN_A_ROW / 4;
    let (began, mut reads) = (Instant::now(), vec![0; streams.len()]);
    while began.elapsed() < work * 4000 {
        let before: usize = reads.iter().sum();
        for (stream, reads) in streams.iter_mut().zip(&mut reads) {
            *reads += reads_in_a_row(stream, 8 << 10, work, usize::MAX).await.len();
        }
        if before == reads.iter().sum::<usize>() {
            advance(work).await;
        }
    }
    reads
}

#[test]
fn the_connections_of_a_store_read_for_half_of_the_time_together() {
    with_paused_time(async {
        for (count, rests) in [(1, false), (1, true), (2, false), (2, true), (100, false), (100, true)] {
            let budget = Budget::new();
            let mut streams: Vec<_> = (0..count).map(|_| endless(&budget, rests)).collect();
            let reads = reads_of_4000(&mut streams).await;
            let all: usize = reads.iter().sum();
            // Timers end pauses at whole milliseconds.
            assert!((1750..=2010).contains(&all), "{count} connections, rests: {rests}, {all} reads of 4000");
            let (least, most) = (reads.iter().min().unwrap(), reads.iter().max().unwrap());
            assert!(most - least <= 8, "{count} connections, rests: {rests}, {least} to {most} reads");
        }
    });
}

#[test]
fn stores_that_send_without_end_read_for_half_of_the_time_together() {
    with_paused_time(async {
        for stores in [1, 2, 8] {
            let mut streams: Vec<_> = (0..stores).map(|_| endless(&Budget::new(), false)).collect();
            let reads = reads_of_4000(&mut streams).await;
            let all: usize = reads.iter().sum();
            assert!((1750..=2040).contains(&all), "{stores} stores, {all} reads of 4000");
            let (least, most) = (reads.iter().min().unwrap(), reads.iter().max().unwrap());
            assert!(most - least <= 8, "{stores} stores, {least} to {most} reads");
        }
    });
}

#[test]
fn a_store_that_sends_little_does_not_pause_for_others_that_send_without_end() {
    with_paused_time(async {
        let mut hostile: Vec<_> = (0..8).map(|_| endless(&Budget::new(), false)).collect();
        let mut honest = endless(&Budget::new(), true);
        for _ in 0..100 {
            for stream in &mut hostile {
                reads_in_a_row(stream, 8 << 10, MOST_TIME_IN_A_ROW / 4, usize::MAX).await;
            }
            let reads = reads_in_a_row(&mut honest, 8 << 10, MOST_TIME_IN_A_ROW / 4, 9).await;
            assert_eq!(reads.len(), 1);
            advance(MOST_TIME_IN_A_ROW / 4).await;
        }
    });
}

#[test]
fn a_connection_reads_although_the_first_one_of_the_queue_is_not_polled() {
    with_paused_time(async {
        let budget = Budget::new();
        let (mut first, mut next) = (endless(&budget, false), endless(&budget, false));
        let reads = reads_in_a_row(&mut first, 8 << 10, MOST_TIME_IN_A_ROW, 9).await;
        assert_eq!(reads.len(), 1, "the turn is over");
        let mut bytes = vec![0; 8 << 10];
        let read = timeout(Duration::from_secs(1), next.read(&mut bytes)).await;
        assert_eq!(read.expect("the connection waits").unwrap(), MOST_READ);
    });
}
