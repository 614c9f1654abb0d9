//! Holds settlements on their way to one JavaScript environment.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Status, sys};

use crate::engine::command::Settlement;
use crate::engine::driver::Outbox;

/// The function that tells JavaScript to drain. Weak: it does not keep the process alive by itself.
pub type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// One environment's outbox. The engine fills it, and wakes JavaScript only once until JavaScript
/// drains it.
pub struct EnvOutbox {
    settled: Mutex<Vec<Settlement>>,
    /// Whether JavaScript was woken and has not drained since.
    awake: AtomicBool,
    /// Whether the environment is gone.
    closed: AtomicBool,
    wake: Wake,
}

impl EnvOutbox {
    /// Returns an empty outbox that wakes JavaScript by `wake`.
    pub fn new(wake: Wake) -> Self {
        Self {
            settled: Mutex::default(),
            awake: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            wake,
        }
    }

    /// Takes all settlements out, in order. The next delivery wakes JavaScript again.
    pub fn take(&self) -> Vec<Settlement> {
        // Do this first, so that a settlement that comes later wakes JavaScript again.
        self.awake.store(false, Ordering::SeqCst);
        mem::take(&mut *self.settled.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Stops all wakes, because the environment is about to end.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Stops all wakes and releases the wake function. Only the environment's own thread may call
    /// this. If the last reference to the outbox released the function, the engine's thread could
    /// do so while Node deletes the function at the end of the environment.
    pub fn release_wake(&self) {
        self.close();
        let handle = &self.wake.handle;
        handle.with_write_aborted(|mut is_released| {
            if !*is_released {
                // SAFETY: Node has not deleted the function: a deleted one is marked as released.
                unsafe {
                    sys::napi_release_threadsafe_function(
                        handle.get_raw(),
                        sys::ThreadsafeFunctionReleaseMode::abort,
                    );
                }
                *is_released = true;
            }
        });
    }

    /// Returns the raw wake function, which can keep the process alive.
    pub fn raw_wake(&self) -> sys::napi_threadsafe_function {
        self.wake.raw()
    }
}

impl Outbox for EnvOutbox {
    fn deliver(&self, mut settled: Vec<Settlement>) {
        {
            let mut waiting = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.is_empty() {
                *waiting = settled;
            } else {
                waiting.append(&mut settled);
            }
        }
    }

    fn wake(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) && !self.closed.load(Ordering::SeqCst) {
            self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    fn ping(&self) {
        self.awake.store(true, Ordering::SeqCst);
        if !self.closed.load(Ordering::SeqCst) {
            self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }
}
