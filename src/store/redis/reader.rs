//! Takes turns to read, for one connection, one handshake or the answers to one batch.
//!
//! See [`ReadTurn`](super::read_turn::ReadTurn).

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep};

use super::budget::Budget;
use super::read_turn::{MayRead, ReaderId};
use super::turn_schedule::TurnSchedule;

thread_local! {
    /// The turns of all stores of this thread.
    static SCHEDULE: RefCell<TurnSchedule> = RefCell::default();
}

/// Waits for the store's turn before it reads, and says how long it was busy.
#[derive(Debug)]
pub struct Reader {
    budget: Arc<Budget>,
    id: ReaderId,
    /// The bytes with which the reader is busy, and since when.
    busy: Option<(usize, Instant)>,
    /// The pause until the next turn.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Reader {
    /// Returns a reader of the store with this budget.
    pub fn of(budget: &Arc<Budget>) -> Self {
        let id = budget.turn().new_reader();
        Self { budget: budget.clone(), id, busy: None, pause: None }
    }

    /// Begins to charge for `bytes` bytes. The time from `began` counts until the reader asks for a
    /// turn again, stops, or is dropped.
    pub fn begin(&mut self, bytes: usize, began: Instant) {
        self.busy = Some((bytes, began));
    }

    /// Charges the time since `began`, in which the reader was busy with `bytes` bytes.
    pub fn charge(&mut self, bytes: usize, began: Instant) {
        self.begin(bytes, began);
        self.stop(Instant::now());
    }

    /// Returns `Pending` while the reader may not read, so that the other stores get their part of
    /// the time.
    pub fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.busy.is_none() && self.budget.turn().is_free() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            self.stop(now);
            let permit = self.budget.turn().ask(self.id, now, cx.waker());
            self.pause = match permit {
                MayRead::Now => return Poll::Ready(()),
                MayRead::After(pause) => Some(Box::pin(sleep(pause))),
            };
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
            }
        }
    }

    /// Waits until the reader may read.
    pub async fn turn(&mut self) {
        poll_fn(|cx| self.poll_turn(cx)).await;
    }

    /// Notes that the reader is no longer busy, and charges the time until `now`.
    pub fn stop(&mut self, now: Instant) {
        let Some((bytes, began)) = self.busy.take() else { return };
        // The schedule is gone if the thread ends.
        let _ = SCHEDULE.try_with(|schedule| {
            self.budget.turn().charge(bytes, began, now, &mut schedule.borrow_mut());
        });
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let now = Instant::now();
        self.stop(now);
        self.budget.turn().leave(self.id, now);
    }
}
