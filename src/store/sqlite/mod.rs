//! The embedded store: one SQLite file, shared by every process of one host.
//!
//! - this file: the store as the engine sees it;
//! - `file_thread`: the one thread that owns the file, so that the engine's thread never blocks,
//!   and `job`: a batch on its way to the file's thread;
//! - `file_location`: where a lock file is, and `opened_file`: the connection to it;
//! - `session`: one transaction after the other in the opened file, and `session_error`: why one
//!   was not carried out;
//! - `work`: the work of one transaction, and its result;
//! - `leases`: the store contract's rules, applied to rows at one instant;
//! - `rows`: one lock, read from rows and written back;
//! - `log_limit`: limits the log by the room on the disk;
//! - `change_watcher`: what this process waits for, and when to look for it;
//! - `schema`: the file's layout, and which files are refused;
//! - `owner`: the file that shows other stores that a store lives;
//! - `owners`: which other owners live, and which keep this store from its files;
//! - `record`: what an owner's file records about the files that its store uses;
//! - `identity`: which files the names lead to, and `file_id`: what identifies a file;
//! - `links`: which links in the path of a lock file are followed;
//! - `lock_file`: which clients share a store;
//! - `creation`: a new lock file, complete before it has its name;
//! - `reserved_names`: the names of the files beside a lock file, and `leftovers`: which of these
//!   files other programs made, so that they must stay;
//! - `breaks`: which locks were broken lately, if the file is a node of a quorum;
//! - `admission`: when a store may use the files, and what happens when they are replaced;
//! - `usage`: what this store has in the files;
//! - `syscalls`, `probe`: locks that belong to the open file and not to the process;
//! - `row_lifetimes`: which owners live, as far as one transaction knows;
//! - `boot`: which boot of the machine this is;
//! - `kernel`: whether other kernels use the file;
//! - `network`: the kind of file system that the file is on;
//! - `directory`: where the default file lies, and when it is refused;
//! - `rights`: what other users may do with the files;
//! - `trust`: which users' files SQLite may use beside the database;
//! - `failure`: turns errors of SQLite and of the system into errors of the store contract.
//!
//! **Time.** Leases end by the clock of [`crate::engine::clock`], which all processes of a host
//! share and no process can set. It begins again at each boot, so every lease names its boot. The
//! leases of a process are free in another boot. Some processes can't read the id of their boot;
//! [`row_lifetimes`](self::row_lifetimes) has rules for them. A detached lease belongs to no
//! process and outlives the boot. So its commit waits for the disk, and the lease names the wall
//! clock at which it ends. Apart from that, the wall clock only makes fences grow.
//!
//! **Crashes.** Every opened store holds an operating system's lock on a file of its own beside the
//! database, in `PATH.owners/`, and the leases of its process name that file. The kernel drops the
//! lock when the process ends, however it ends. So a store that finds a lock held also finds out
//! whether its holder is gone. A copy of such a file frees no lease (`owners`). Neither does a file
//! that was moved away and back (`admission`). Detached leases, and leases that have to outlive
//! their process, name no file: they end by their ttl.
//!
//! **Waiting.** The queue is in the file. The process that ends a lease hands it on in the same
//! transaction. A process with waiters in the file looks every few milliseconds whether another one
//! has changed the file. It also hands on the leases of processes that are gone, and those that
//! have run out.
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
//! both is moved away, a new store can't see the old owners. The holder notices at its next check,
//! and `isHeld` turns false within 0.1 s.
//! While the files are used, they are touched every hour, because some systems delete old files.

mod admission;
mod boot;
mod breaks;
mod change_watcher;
mod creation;
mod directory;
mod failure;
#[cfg(unix)]
mod file_id;
mod file_location;
mod file_thread;
#[cfg(unix)]
mod identity;
#[cfg(not(unix))]
#[path = "identity_elsewhere.rs"]
mod identity;
mod job;
mod kernel;
mod leases;
mod leftovers;
#[cfg(unix)]
mod links;
mod lock_file;
mod log_limit;
mod network;
mod opened_file;
mod owner;
mod owners;
#[cfg(unix)]
mod probe;
#[cfg(unix)]
mod record;
mod reserved_names;
#[cfg(unix)]
mod rights;
mod row_lifetimes;
mod rows;
mod schema;
mod session;
mod session_error;
#[cfg(unix)]
mod syscalls;
#[cfg(unix)]
mod trust;
mod usage;
mod work;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

pub use self::directory::default_path;
pub use self::identity::resolve;
use self::job::{Inbox, Job, JobClaim, Message};
pub use self::lock_file::LockFile;
pub use self::reserved_names::check as check_name;
use super::diagnosis::{self, Facts, Report};
use super::{Answer, Listener, Notice, Reply, Request, Store, StoreError, StoreErrorKind, all_failed};
use crate::engine::clock;
use crate::lease::Ttl;

/// The longest time that [`Store::close`] waits for the thread.
const CLOSING: Duration = Duration::from_secs(1);

/// A lock file as a [`Store`].
pub struct SqliteStore {
    path: PathBuf,
    thread: RefCell<Thread>,
    listener: RefCell<Option<Listener>>,
}

enum Thread {
    /// No request has come yet.
    Idle,
    Running(Inbox),
    Closed,
}

impl SqliteStore {
    /// Returns the store in the file at `path`. The first batch opens the file, and creates it if
    /// it is missing. The store creates no directory except that of [`default_path`]. If the file
    /// can't be used, the answers to the batch say why.
    pub fn open(path: PathBuf) -> Rc<Self> {
        Rc::new(Self { path, thread: RefCell::new(Thread::Idle), listener: RefCell::default() })
    }

    /// Sends `message` to the thread. Starts the thread if need be.
    fn send(&self, message: Message) -> Result<(), StoreError> {
        let mut thread = self.thread.borrow_mut();
        if matches!(*thread, Thread::Idle) {
            let (sender, notices) = mpsc::unbounded_channel();
            *thread = Thread::Running(file_thread::start(self.path.clone(), sender)?);
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
        let (claim, (sender, mut answers)) = (JobClaim::default(), oneshot::channel());
        let deadline = clock::now() + timeout;
        let job = Job { batch, deadline, claim: claim.clone(), answers: sender };
        if let Err(error) = self.send(Message::Run(job)) {
            return all_failed(count, &error);
        }
        match tokio::time::timeout(timeout, &mut answers).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => all_failed(count, &self.gone(true)),
            Err(_) => {
                // Close the channel: then the thread learns that this task waits no longer. If the
                // thread has sent its answers by now, take them.
                answers.close();
                answers.try_recv().unwrap_or_else(|_| all_failed(count, &self.late(&claim)))
            }
        }
    }

    /// Returns the report on the file, which `answered` a request for a diagnosis.
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

    /// Returns the error for a thread that has ended, although it does not end by itself.
    fn gone(&self, maybe_done: bool) -> StoreError {
        let message = format!("the thread of the lock file {} is gone", self.path.display());
        StoreError { maybe_done, ..StoreError::not_done(StoreErrorKind::Internal, message) }
    }

    /// Returns the error for a thread that did not answer in time: it is stuck in a system call, or
    /// has too much to do.
    fn late(&self, claim: &JobClaim) -> StoreError {
        let message = format!("the lock file {} did not answer in time", self.path.display());
        // If the thread has not begun the batch by now, it never will.
        let maybe_done = !claim.take();
        StoreError { maybe_done, ..StoreError::not_done(StoreErrorKind::TimedOut, message) }
    }
}

/// Passes the notices of the file's thread to `listener`, on the engine's thread, until the file's
/// thread ends.
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
        // The first batch starts the task that calls the listener: only a batch is certain to come
        // from within the engine's runtime.
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
