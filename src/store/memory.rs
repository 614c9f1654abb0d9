//! The store in memory: for tests, and for programs with one process and its worker threads.
//!
//! [`LeaseTable`] has all rules and is pure: time comes in as an argument, so that any number of
//! stores can be simulated at any instant. [`MemoryStore`] keeps the store contract with it, using
//! the real clock.

mod fence_limiter;
mod shared;
mod table;

use std::cell::OnceCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use self::shared::{SharedTable, lock};
pub use self::table::LeaseTable;
use super::{Answer, Listener, Request, Store, StoreError, StoreErrorKind};
use crate::engine::clock;
use crate::lease::{Instant, Key};

/// A [`LeaseTable`] as a [`Store`]. Clients that share its locks share one `Rc`.
#[derive(Default)]
pub struct MemoryStore {
    table: SharedTable,
    listener: OnceCell<Listener>,
}

impl MemoryStore {
    /// Returns a store without leases.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Opens the store of `url`. All stores of one URL in the process have the same locks.
    pub fn named(url: &str) -> Rc<Self> {
        Rc::new(Self { table: shared::table(url), listener: OnceCell::new() })
    }

    /// Waits until `request` may be carried out.
    ///
    /// # Errors
    /// Fails if that would be after `deadline`.
    async fn wait(&self, request: &Request, deadline: Instant) -> Result<(), StoreError> {
        loop {
            let now = clock::now();
            let Some(delay) = lock(&self.table).delay(request, now) else { return Ok(()) };
            if now + delay > deadline {
                let message = format!(
                    "{} did not break the lock: locks are broken so often that their fences would run ahead \
                     of the clock; break locks less often",
                    lock(&self.table).name()
                );
                return Err(StoreError::not_done(StoreErrorKind::Loading, message));
            }
            // Waiters that were handed leases need not wait for this request.
            self.notify();
            tokio::time::sleep(delay).await;
        }
    }

    /// Notifies the waiters that were handed leases.
    fn notify(&self) {
        let notices = lock(&self.table).take_notices();
        if let Some(listener) = self.listener.get() {
            notices.into_iter().for_each(|notice| listener(notice));
        }
    }

    /// Returns the number of locks that are remembered, including expired ones that no sweep has
    /// removed.
    pub fn len(&self) -> usize {
        lock(&self.table).len()
    }

    /// Returns true if no lock is remembered.
    pub fn is_empty(&self) -> bool {
        lock(&self.table).is_empty()
    }
}

/// Reads the wall clock first and the monotonic clock second, because the thread may pause in
/// between. In the other order, [`FenceLimiter`] would take the wall clock for later than it is.
/// Breaks would then put fences ahead of the wall clock by the length of the pause.
fn read_clocks() -> (u64, Instant) {
    let wall_us = clock::wall_us();
    (wall_us, clock::now())
}

impl Store for MemoryStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        Box::pin(async move {
            let (mut wall_us, mut now) = read_clocks();
            let deadline = now + timeout;
            let mut answers = Vec::with_capacity(batch.len());
            for request in batch {
                if lock(&self.table).delay(&request, now).is_some() {
                    if let Err(error) = self.wait(&request, deadline).await {
                        answers.push(Err(error));
                        continue;
                    }
                    (wall_us, now) = read_clocks();
                }
                answers.push(lock(&self.table).apply(request, now, wall_us));
            }
            self.notify();
            answers
        })
    }

    /// Puts requests for locks that are broken into a separate part, because breaks may have to
    /// wait.
    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        let is_break = |request: &&Request| matches!(request, Request::Break { .. });
        let broken: HashSet<&Key> = batch.iter().filter(is_break).filter_map(Request::key).collect();
        let part = |request: &Request| u32::from(request.key().is_some_and(|key| broken.contains(key)));
        (!broken.is_empty()).then(|| batch.iter().map(part).collect())
    }

    fn listen(&self, listener: Listener) {
        // The contract allows one call. A second listener would be ignored.
        let _ = self.listener.set(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        drop(self);
        shared::forget_unused(clock::now());
        Box::pin(std::future::ready(()))
    }
}
