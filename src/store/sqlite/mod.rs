//! The embedded store: one SQLite file, shared by every process of one host.
//!
//! - this file: the store as the engine sees it;
//! - `thread`: the one thread that owns the file, so that the engine's never blocks;
//! - `session`: the opened file, and one transaction in it;
//! - `work`: the work of one transaction, and its result;
//! - `leases`: the store contract's rules, applied to rows at one instant;
//! - `rows`: one lock, read from rows and written back;
//! - `room`: limits the log by the room on the disk;
//! - `watch`: what this process waits for, and when to look for it;
//! - `schema`: the file's layout, and which files are refused;
//! - `owner`: the file that shows other stores that a store lives;
//! - `owners`: which other owners live, and which keep this store from its files;
//! - `record`: what an owner's file records about the files that its store uses;
//! - `identity`: which files the names lead to;
//! - `lock_file`: which clients share a store;
//! - `creation`: a new lock file, complete before it has its name;
//! - `breaks`: which locks were broken lately, if the file is a node of a quorum;
//! - `admission`: when a store may use the files, and what happens when they are replaced;
//! - `usage`: what this store has in the files;
//! - `syscalls`, `probe`: locks that belong to the open file and not to the process;
//! - `peers`: which owners live, as far as one transaction knows;
//! - `boot`: which boot of the machine this is;
//! - `kernel`: whether other kernels use the file;
//! - `network`: the kind of file system that the file is on;
//! - `directory`: where the default file lies, and when it is refused;
//! - `rights`: what other users may do with the files;
//! - `failure`: SQLite's errors in the contract's words.
//!
//! **Time.** Leases end by the clock of [`crate::engine::clock`], which all processes of a host
//! share and no process can set. It begins anew at each boot, so every lease names its boot. The
//! leases of a process are free in another boot. Some processes can't read the id of their boot;
//! [`peers`](self::peers) has rules for them. A detached lease belongs to no process and outlives
//! the boot. So its commit waits for the disk, and the lease names the wall clock at which it ends.
//! Apart from that, the wall clock only makes fences grow.
//!
//! **Crashes.** Every opened store holds an operating system's lock on a file of its own beside the
//! database, in `PATH.owners/`, and the leases of its process name that file. The kernel drops the
//! lock when the process ends, however it ends. So a store that finds a lock held also finds out
//! whether its holder is gone. A copy of such a file frees no lease (`owners`). Neither does a file
//! that was moved away and back (`admission`). Detached leases, and leases that have to outlive
//! their process, name no file: they end by their ttl.
//!
//! **Waiting.** The queue is in the file. Whoever ends a lease hands it on in the same transaction. A process some of
//! whose waiters are in the file looks every few milliseconds whether another has changed it, and does what nobody may
//! be left to do: it hands on the leases of processes that are gone, and those that have run out.
//!
//! **Several copies of the library in one process** exclude each other like processes: SQLite's
//! locks belong to the open file (`syscalls`). Clients of one copy that name the same file share
//! one store. If the system has no such locks, the second copy is refused.
//!
//! **Files that are moved, replaced or removed.** The database, its log and the log's index belong
//! together. A store that has anything in them checks every 50 ms that all three names still lead
//! to the files that it has open. If not, the store first tells the engine, which marks all leases
//! of the store as lost. Only then does it give up the lock on its owner's file. That file names
//! the files that the store uses. While a live owner names those files, no store grants a lease in
//! others (`admission` says why that suffices). So **a holder knows before another client is
//! granted its lock**. If `PATH.owners/` is removed together with the files, or the directory of
//! both is moved away, a new store can't see the old owners; the holder then knows within 50 ms.
//! While the files are used, they are touched every hour, because some systems delete old files.

mod admission;
mod boot;
mod breaks;
mod creation;
mod directory;
mod failure;
#[cfg(unix)]
mod identity;
#[cfg(not(unix))]
#[path = "identity_elsewhere.rs"]
mod identity;
mod kernel;
mod leases;
mod lock_file;
mod network;
mod owner;
mod owners;
mod peers;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod record;
#[cfg(unix)]
mod rights;
mod room;
mod rows;
mod schema;
mod session;
#[cfg(unix)]
mod syscalls;
mod thread;
mod usage;
mod watch;
mod work;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

pub use self::directory::default_path;
pub use self::lock_file::LockFile;
use self::thread::{Claim, Inbox, Job, Message};
use super::diagnosis::{self, Facts, Report};
use super::{Answer, Listener, Notice, Reply, Request, Store, StoreError, StoreErrorKind, all_failed};
use crate::engine::clock;
use crate::lease::Ttl;

/// How long [`Store::close`] waits for the thread at most.
const CLOSING: Duration = Duration::from_secs(1);

/// A lock file as a [`Store`].
pub struct SqliteStore {
    path: PathBuf,
    thread: RefCell<Thread>,
    listener: RefCell<Option<Listener>>,
}

enum Thread {
    /// Nothing was asked yet.
    Idle,
    Running(Inbox),
    Closed,
}

impl SqliteStore {
    /// The store in the file at `path`, which is created if it is missing; its directory is not, other than
    /// that of [`default_path`]. Nothing is opened before the first batch, whose answers also tell what is wrong.
    pub fn open(path: PathBuf) -> Rc<Self> {
        Rc::new(Self { path, thread: RefCell::new(Thread::Idle), listener: RefCell::default() })
    }

    /// Hands `message` to the thread, which is started if need be.
    fn send(&self, message: Message) -> Result<(), StoreError> {
        let mut thread = self.thread.borrow_mut();
        if matches!(*thread, Thread::Idle) {
            let (sender, notices) = mpsc::unbounded_channel();
            *thread = Thread::Running(thread::start(self.path.clone(), sender)?);
            if let Some(listener) = self.listener.take() {
                drop(spawn_local(forward(notices, listener)));
            }
        }
        match &*thread {
            Thread::Running(inbox) => inbox.send(message).map_err(|_| self.gone(false)),
            Thread::Idle | Thread::Closed => {
                Err(StoreError::not_done(StoreErrorKind::Unreachable, "the store is closed"))
            }
        }
    }

    async fn run(&self, batch: Vec<Request>, timeout: Duration) -> Vec<Answer> {
        let count = batch.len();
        let (claim, (sender, answers)) = (Claim::default(), oneshot::channel());
        let deadline = clock::now() + timeout;
        let job = Job { batch, deadline, claim: claim.clone(), answers: sender };
        if let Err(error) = self.send(Message::Run(job)) {
            return all_failed(count, &error);
        }
        match tokio::time::timeout(timeout, answers).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => all_failed(count, &self.gone(true)),
            Err(_) => all_failed(count, &self.late(&claim)),
        }
    }

    /// What there is to say about the file, when that is what it `answered` to the question.
    fn report(&self, ttl: Ttl, answered: &Answer) -> Report {
        let name = format!("sqlite:{}", self.path.display());
        match answered {
            Ok(_) => {
                let network = network::name_of(&self.path);
                #[cfg(unix)]
                let exposure = rights::exposure(&self.path);
                #[cfg(not(unix))]
                let exposure = None;
                Report::new(name, Facts::Host { network, exposure }, ttl, false)
            }
            Err(error) => Report::unusable(name, error),
        }
    }

    /// The thread has ended, which it does not do by itself.
    fn gone(&self, maybe_done: bool) -> StoreError {
        let message = format!("the thread of the lock file {} is gone", self.path.display());
        StoreError { maybe_done, ..StoreError::not_done(StoreErrorKind::Internal, message) }
    }

    /// The thread did not answer in time: it is stuck in a system call, or has too much to do.
    fn late(&self, claim: &Claim) -> StoreError {
        let message = format!("the lock file {} did not answer in time", self.path.display());
        // What the thread has not begun by now it never will.
        let maybe_done = !claim.take();
        StoreError { maybe_done, ..StoreError::not_done(StoreErrorKind::TimedOut, message) }
    }
}

/// Hands on what the thread says, on the engine's, until the thread ends.
async fn forward(mut notices: mpsc::UnboundedReceiver<Notice>, listener: Listener) {
    while let Some(notice) = notices.recv().await {
        listener(notice);
    }
}

impl Store for SqliteStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        Box::pin(async move {
            if batch.is_empty() {
                return Vec::new();
            }
            let asked = diagnosis::asked(&batch);
            let mut answers = self.run(batch, timeout).await;
            for (index, ttl, _) in asked {
                answers[index] = Ok(Reply::Diagnosed(vec![self.report(ttl, &answers[index])]));
            }
            answers
        })
    }

    fn listen(&self, listener: Listener) {
        // Taken up with the first batch, which alone is sure to be sent from within the engine's runtime.
        self.listener.replace(Some(listener));
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(async move {
            let thread = self.thread.replace(Thread::Closed);
            let Thread::Running(inbox) = thread else { return };
            let (sender, closed) = oneshot::channel();
            if inbox.send(Message::Close(sender)).is_ok() {
                let _ = tokio::time::timeout(CLOSING, closed).await;
            }
        })
    }
}
