//! Shares the engine's thread between the connections of a store and all other stores.
//!
//! A server that sends without end, over one connection or over a thousand, keeps the thread busy.
//! A renewal at another store takes several steps, each of which would wait until all of these
//! connections have read. So they take turns: after [`MOST_TIME_IN_A_ROW`], all of them pause.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

/// How long the connections of a store read and parse in a row before they pause for as long. The
/// time is measured, because the same bytes take longer to parse in a slower build, or on a busy
/// machine. If this is larger, other stores wait for longer; if it is smaller, long replies take
/// longer.
pub const MOST_TIME_IN_A_ROW: Duration = Duration::from_millis(2);
/// The most time that counts per byte. On a busy machine, the thread may stand still in the middle
/// of a read, and the process may be suspended. If this is larger, a store with short replies may
/// pause then. If it is smaller, a server that sends without end takes more than half of the time
/// of the engine's thread on a busy machine.
const MOST_TIME_PER_BYTE: Duration = Duration::from_micros(5);

/// The turn of a store's connections to read.
#[derive(Debug)]
pub struct ReadTurn {
    /// How long the connections had read at `counted_at`, minus the time in which none has read.
    spent: Duration,
    counted_at: Instant,
    /// True from when the connections have used up their turn until they have paused for as long.
    is_over: bool,
    /// The connections that wait for the next turn, the first one in front. While the turn is over,
    /// the first one has a timer. Otherwise, it has been woken, and wakes the next one when it
    /// reads.
    waiting: VecDeque<(ReaderId, Waker)>,
    last_reader: ReaderId,
}

/// The number of a connection, among those of its store.
pub type ReaderId = u64;

/// Says when a connection may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// At once.
    Now,
    /// After this time. The connection has to ask again then.
    After(Duration),
    /// When its waker is called. The connection has to ask again then.
    WhenWoken,
}

impl ReadTurn {
    /// Returns the turn of a store that has not read yet.
    pub fn new(now: Instant) -> Self {
        Self {
            spent: Duration::ZERO,
            counted_at: now,
            is_over: false,
            waiting: VecDeque::new(),
            last_reader: 0,
        }
    }

    /// Returns the number of a new connection.
    pub fn new_reader(&mut self) -> ReaderId {
        self.last_reader += 1;
        self.last_reader
    }

    /// Returns true if any connection may read at once, whatever the time.
    pub fn is_free(&self) -> bool {
        !self.is_over && self.waiting.is_empty()
    }

    /// Returns when `reader` may read. If it has to wait, it has a place in the queue until it may
    /// read or leaves.
    pub fn ask(&mut self, reader: ReaderId, now: Instant, waker: &Waker) -> Permit {
        self.count_until(now);
        let is_first = self.waiting.front().is_none_or(|(first, _)| *first == reader);
        if is_first && !self.is_over {
            self.leave(reader);
            return Permit::Now;
        }
        match self.waiting.iter_mut().find(|(waiting, _)| *waiting == reader) {
            Some((_, known)) => known.clone_from(waker),
            None => self.waiting.push_back((reader, waker.clone())),
        }
        if is_first { Permit::After(self.spent) } else { Permit::WhenWoken }
    }

    /// Notes that a connection was busy with `bytes` bytes from `began` until `now`.
    pub fn charge(&mut self, bytes: usize, began: Instant, now: Instant) {
        self.count_until(began);
        let most = MOST_TIME_PER_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.spent += now.saturating_duration_since(self.counted_at).min(most);
        self.counted_at = self.counted_at.max(now);
        self.is_over |= self.spent >= MOST_TIME_IN_A_ROW;
    }

    /// Removes `reader` from the queue, if it is there.
    pub fn leave(&mut self, reader: ReaderId) {
        let Some(place) = self.waiting.iter().position(|(waiting, _)| *waiting == reader) else { return };
        self.waiting.remove(place);
        if place == 0
            && let Some((_, next)) = self.waiting.front()
        {
            next.wake_by_ref();
        }
    }

    /// Subtracts the time since `counted_at`, in which no connection has read.
    fn count_until(&mut self, now: Instant) {
        self.spent = self.spent.saturating_sub(now.saturating_duration_since(self.counted_at));
        self.counted_at = self.counted_at.max(now);
        self.is_over &= self.spent > Duration::ZERO;
    }
}

#[cfg(test)]
#[path = "read_turn_tests.rs"]
mod tests;
