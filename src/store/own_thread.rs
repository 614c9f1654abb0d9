//! Runs work that blocks in a thread of its own.
//!
//! tokio's `spawn_blocking` panics if the system has no room for another thread, as with a full
//! `pids.max`. Then a client could not connect again to a server that is up.

use std::io;

/// A function that starts a thread for some work.
pub type Start = fn(Work) -> io::Result<()>;
/// The work of a thread. If the thread can't be started, the work is dropped.
pub type Work = Box<dyn FnOnce() + Send>;

/// Starts a thread for `work`. Nothing waits for its end.
///
/// # Errors
/// If the system has no room for another thread.
pub fn start(work: Work) -> io::Result<()> {
    std::thread::Builder::new().name("leasehold-work".into()).spawn(work).map(drop)
}
