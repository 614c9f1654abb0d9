//! Shares the engine's thread between the connections of a store and all other stores.
//!
//! A server that sends without end, over one connection or over a thousand, keeps the thread busy.
//! A renewal at another store takes several steps, each of which would wait until all of these
//! connections have read. So they share one turn: after [`MOST_TIME_IN_A_ROW`], all of them pause
//! until the [`TurnSchedule`] of all stores gives them the next turn.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

use super::turn_schedule::TurnSchedule;

/// How long the connections of a store read and parse in a row before they pause. The time is
/// measured, because the same bytes take longer to parse in a slower build, or on a busy machine.
/// If this is larger, other stores wait for longer; if it is smaller, long replies take longer.
pub const MOST_TIME_IN_A_ROW: Duration = Duration::from_millis(2);
/// The most time that counts per read, in addition to [`MOST_TIME_PER_BYTE`]. A read is a system
/// call, and takes a few µs even for a single byte. On a busy machine, the thread may stand still
/// during a read, and the process may be suspended. If this is larger, a store with short replies
/// may pause then. If it is smaller, a server that sends without end takes more than half of the
/// time of the engine's thread.
const MOST_TIME_PER_READ: Duration = Duration::from_micros(20);
/// The most time that counts per byte, for the same reasons.
const MOST_TIME_PER_BYTE: Duration = Duration::from_micros(5);
/// How long the first connection of the queue may take until it reads. After that, it loses its
/// place, and the next one goes on. If this is larger, a connection that never reads stops the
/// others for longer. If it is smaller, connections lose their places on a busy machine.
const LONGEST_DELAY: Duration = Duration::from_millis(20);

/// The turn in which a store's connections may read.
#[derive(Debug)]
pub struct ReadTurn {
    /// How much of the turn was used up at `counted_at`. This grows while a connection reads, and
    /// falls while none reads.
    spent: Duration,
    counted_at: Instant,
    /// When the next turn begins; `None` until the connections have used up their turn.
    over_until: Option<Instant>,
    /// The connections that wait for the next turn, the first one in front. While the turn is over,
    /// the first one waits for a timer. Otherwise, it has been woken, and wakes the next one when
    /// it reads. The others have timers in case that those in front of them do not read.
    waiting: VecDeque<(ReaderId, Waker)>,
    /// Since when the first of `waiting` may read. Not valid while the turn is over.
    free_since: Instant,
    last_reader: ReaderId,
}

/// The number of a connection, a handshake or a batch, among those of its store.
pub type ReaderId = u64;

/// Says when a connection may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayRead {
    /// At once.
    Now,
    /// After this time, or when its waker is called. The connection has to ask again then.
    After(Duration),
}

impl ReadTurn {
    /// Returns the turn of a store that has not read yet.
    pub fn new(now: Instant) -> Self {
        Self {
            spent: Duration::ZERO,
            counted_at: now,
            over_until: None,
            waiting: VecDeque::new(),
            free_since: now,
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
        self.over_until.is_none() && self.waiting.is_empty()
    }

    /// Returns when `reader` may read. If it has to wait, it has a place in the queue until it may
    /// read, leaves, or loses the place.
    pub fn ask(&mut self, reader: ReaderId, now: Instant, waker: &Waker) -> MayRead {
        self.count_until(now);
        self.skip_first_if_late(reader, now);
        let place = self.place_of(reader);
        if self.over_until.is_none() && place.unwrap_or(self.waiting.len()) == 0 {
            self.leave(reader, now);
            return MayRead::Now;
        }
        let place = place.unwrap_or_else(|| {
            self.waiting.push_back((reader, waker.clone()));
            self.waiting.len() - 1
        });
        self.waiting[place].1.clone_from(waker);
        let pause = self.over_until.map_or(Duration::ZERO, |next| next - now);
        MayRead::After(pause + LONGEST_DELAY.saturating_mul(u32::try_from(place).unwrap_or(u32::MAX)))
    }

    /// Notes that a connection was busy with `bytes` bytes from `began` until `now`. If that ends
    /// the turn, takes the next one from `schedule`.
    pub fn charge(&mut self, bytes: usize, began: Instant, now: Instant, schedule: &mut TurnSchedule) {
        self.count_until(began);
        let most = MOST_TIME_PER_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        let most = most.saturating_add(MOST_TIME_PER_READ);
        let took = now.saturating_duration_since(self.counted_at).min(most);
        self.counted_at = self.counted_at.max(now);
        if let Some(next) = &mut self.over_until {
            *next += took;
            return;
        }
        self.spent += took;
        if self.spent >= MOST_TIME_IN_A_ROW {
            self.over_until = Some(schedule.next_turn(now, self.spent));
        }
    }

    /// Removes `reader` from the queue, if it is there.
    pub fn leave(&mut self, reader: ReaderId, now: Instant) {
        let Some(place) = self.place_of(reader) else { return };
        self.waiting.remove(place);
        if place == 0 {
            self.free_since = now;
            if let Some((_, next)) = self.waiting.front() {
                next.wake_by_ref();
            }
        }
    }

    fn place_of(&self, reader: ReaderId) -> Option<usize> {
        self.waiting.iter().position(|(waiting, _)| *waiting == reader)
    }

    /// Removes the first connection of the queue if it did not read in time, unless it is `reader`.
    fn skip_first_if_late(&mut self, reader: ReaderId, now: Instant) {
        let is_late =
            self.over_until.is_none() && now.saturating_duration_since(self.free_since) >= LONGEST_DELAY;
        if let Some(&(first, _)) = self.waiting.front()
            && first != reader
            && is_late
        {
            self.leave(first, now);
        }
    }

    /// Subtracts the time since `counted_at`, in which no connection has read.
    fn count_until(&mut self, now: Instant) {
        if let Some(next) = self.over_until.take_if(|next| *next <= now) {
            self.spent = Duration::ZERO;
            self.free_since = next;
        } else if self.over_until.is_none() {
            self.spent = self.spent.saturating_sub(now.saturating_duration_since(self.counted_at));
        }
        self.counted_at = self.counted_at.max(now);
    }
}

#[cfg(test)]
#[path = "read_turn_tests.rs"]
mod tests;
