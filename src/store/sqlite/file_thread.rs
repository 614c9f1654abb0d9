//! Runs the one thread that owns the file, so that the engine's thread never blocks on it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::super::{Notice, StoreError, StoreErrorKind};
use super::change_watcher::ChangeWatcher;
use super::file_location::FileLocation;
use super::identity::Files;
use super::job::{Inbox, Job, Message, fail, gather};
use super::owner::Owner;
use super::session::Session;
use super::session_error::SessionError;
use super::usage::Usage;
use super::work::{Done, Work};
use crate::engine::clock;
use crate::lease::Instant;

/// The longest time before a batch's deadline at which the thread stops waiting for other
/// processes. If this is larger, requests fail earlier than they have to. If it is smaller, the
/// time-out may come first, and the caller does not learn why the batch failed and that nothing was
/// done.
const RESERVE: Duration = Duration::from_millis(20);

/// The first and the longest pause before an idle thread tidies up. The pause doubles each time.
const TIDY_FIRST: Duration = Duration::from_secs(1);
const TIDY_LAST: Duration = Duration::from_secs(64);

/// How long the thread waits for other processes when it tidies up and when it ends.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the thread waits for other processes when it hands on the leases of a dead process. If
/// that is too short, this thread or another process tries again.
pub const WATCH_PATIENCE: Duration = Duration::from_millis(50);

/// Starts the thread for the file at `path`. The thread ends after [`Message::Close`], or when the
/// inbox is dropped. It sends its notices to `notices`.
pub fn start(path: PathBuf, notices: UnboundedSender<Notice>) -> Result<Inbox, StoreError> {
    let (inbox, messages) = channel();
    let file_thread = FileThread::new(path, notices);
    let thread = std::thread::Builder::new().name("leasehold-sqlite".into());
    match thread.spawn(move || file_thread.run(&messages)) {
        Ok(_) => Ok(inbox),
        Err(error) => {
            let message = format!("no thread for the lock file could be started: {error}");
            Err(StoreError::not_done(StoreErrorKind::Internal, message))
        }
    }
}

/// The state of the thread.
pub struct FileThread {
    pub(super) path: PathBuf,
    pub(super) session: Option<Session>,
    /// The place of the session's files.
    pub(super) place: Option<FileLocation>,
    /// Outlives the session, so that leases keep their owner when the file is opened again.
    pub(super) owner: Option<Owner>,
    /// Owners whose files are no longer in their places. Rows may still name them.
    pub(super) former: Vec<Owner>,
    /// The files that the owner has registered. After an error, they stay registered without a
    /// session.
    pub(super) used: Option<Files>,
    /// True if this store is admitted: no live owner uses other files.
    pub(super) admitted: bool,
    /// When to check the files next.
    pub(super) check_at: Instant,
    /// The leases of this process in the files.
    pub(super) usage: Usage,
    /// The waiters of this process.
    pub(super) change_watcher: ChangeWatcher,
    pub(super) notices: UnboundedSender<Notice>,
    tidy: Option<TidySchedule>,
}

/// When to tidy up next, and the pause before that.
#[derive(Clone, Copy)]
struct TidySchedule {
    at: Instant,
    pause: Duration,
}

impl FileThread {
    pub(super) fn new(path: PathBuf, notices: UnboundedSender<Notice>) -> Self {
        Self {
            path,
            session: None,
            place: None,
            owner: None,
            former: Vec::new(),
            used: None,
            admitted: false,
            check_at: Instant::default(),
            usage: Usage::default(),
            change_watcher: ChangeWatcher::default(),
            notices,
            tidy: None,
        }
    }

    fn run(mut self, messages: &Receiver<Message>) {
        let closed = loop {
            match self.next(messages) {
                Ok(Message::Run(job)) => {
                    let (jobs, closed) = gather(job, messages);
                    self.work(jobs);
                    self.tidy = Some(TidySchedule { at: clock::now() + TIDY_FIRST, pause: TIDY_FIRST });
                    if closed.is_some() {
                        break closed;
                    }
                }
                Ok(Message::Close(closed)) => break Some(closed),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            // Do what is due, however many messages wait.
            let now = clock::now();
            if self.check_due().is_some_and(|at| at <= now) {
                let _ = self.catch_panic(Self::check);
            }
            if self.change_watcher.due().is_some_and(|at| at <= now) {
                let _ = self.catch_panic(Self::look);
            }
            if self.tidy.is_some_and(|tidy| tidy.at <= now) {
                self.tidy = self.catch_panic(Self::tidy).unwrap_or(None);
            }
        };
        self.end();
        if let Some(closed) = closed {
            let _ = closed.send(());
        }
    }

    /// Returns the next message, or a time-out when something else is due.
    fn next(&self, messages: &Receiver<Message>) -> Result<Message, RecvTimeoutError> {
        let due = [self.change_watcher.due(), self.tidy.map(|tidy| tidy.at), self.check_due()];
        match due.into_iter().flatten().min() {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => messages.recv_timeout(at.since(clock::now())),
        }
    }

    /// Carries out `jobs`, in one transaction if none of them runs out of time before the others.
    pub(super) fn work(&mut self, mut jobs: Vec<Job>) {
        jobs.retain(|job| job.claim.take());
        self.usage.touch(clock::now());
        while let Some(first) = jobs.iter().map(|job| job.deadline).min() {
            let reserve = RESERVE.min(first.since(clock::now()) / 4);
            let result = self.catch_panic(|file_thread| file_thread.transact(&jobs, first - reserve));
            let failure = match result {
                Ok(Ok(Done { answers, handed, at })) => {
                    for (job, answers) in jobs.drain(..).zip(answers) {
                        for (request, answer) in job.batch.iter().zip(&answers) {
                            self.change_watcher.note(request, answer, at);
                            self.usage.note(request, answer, at);
                        }
                        let ended = Usage::ended_by(&job.batch, &answers);
                        if job.answers.send(answers).is_ok() {
                            self.usage.end(&ended);
                        }
                    }
                    let notices = self.change_watcher.tell(&handed, at);
                    self.send(notices);
                    return;
                }
                Ok(Err(SessionError::Busy(error))) => {
                    // Try again for the jobs that have time left.
                    let over = clock::now() + reserve;
                    for job in jobs.extract_if(.., |job| job.deadline <= over.max(first)) {
                        fail(job, &error);
                    }
                    continue;
                }
                Ok(Err(SessionError::Broken(error))) => error,
                Ok(Err(SessionError::Moved)) => {
                    let message = format!("the lock file {} keeps being replaced", self.path.display());
                    StoreError::not_done(StoreErrorKind::Unreachable, message)
                }
                Err(panicked) => panicked,
            };
            self.session = None;
            jobs.drain(..).for_each(|job| fail(job, &failure));
        }
    }

    fn transact(&mut self, jobs: &[Job], deadline: Instant) -> Result<Done, SessionError> {
        let mut retried = false;
        loop {
            let result = self.try_to_transact(jobs, deadline);
            if let Err(SessionError::Moved) = result {
                self.lose();
                if !retried {
                    retried = true;
                    continue;
                }
            }
            return result;
        }
    }

    fn try_to_transact(&mut self, jobs: &[Job], deadline: Instant) -> Result<Done, SessionError> {
        let (session, owner) = self.admit(deadline)?;
        let batches = jobs.iter().map(|job| &*job.batch).collect();
        session.transact(owner, Work { batches, ..Work::default() }, deadline)
    }

    /// Looks whether a waiter of this process was handed a lease, or whether a lease is to be
    /// handed on.
    fn look(&mut self) {
        let ends = self.change_watcher.begin(clock::now());
        let result = self.look_for_news().and_then(|()| if ends { self.look_for_ends() } else { Ok(()) });
        self.unless_broken(result);
    }

    fn look_for_news(&mut self) -> Result<(), SessionError> {
        let (Some(session), Some(owner)) = (&mut self.session, &self.owner) else { return Ok(()) };
        if let Some(handed) = session.news(owner)? {
            self.change_watcher.set_changed();
            let notices = self.change_watcher.tell_all(&handed, clock::now());
            self.send(notices);
        }
        Ok(())
    }

    /// Hands on the leases of processes that are gone, and leases that have run out.
    fn look_for_ends(&mut self) -> Result<(), SessionError> {
        let (Some(session), Some(owner), true) = (&mut self.session, &self.owner, self.admitted) else {
            return Ok(());
        };
        let (now, mut looks, mut trusted) = (clock::now(), Vec::new(), HashMap::new());
        for key in self.change_watcher.possibly_ended(now) {
            match session.ends(&key)?.filter(|ends| *ends > now) {
                Some(ends) => {
                    trusted.insert(key, ends);
                }
                None => looks.push(key),
            }
        }
        self.change_watcher.trust(&trusted);
        let dead = session.dead();
        if looks.is_empty() && dead.is_empty() {
            return Ok(());
        }
        let work = Work { looks, dead, ..Work::default() };
        let done = session.transact(owner, work, clock::now() + WATCH_PATIENCE)?;
        let notices = self.change_watcher.tell(&done.handed, done.at);
        self.send(notices);
        Ok(())
    }

    /// Tidies up. Returns when to do so again; `None` if nothing is left to tidy up.
    fn tidy(&mut self) -> Option<TidySchedule> {
        let tidy = self.tidy?;
        // Tidying does not create a deleted file again.
        if self.session.is_none() && !self.path.exists() {
            return None;
        }
        let deadline = clock::now() + PATIENCE;
        let result = self.admit(deadline).and_then(|(session, owner)| session.tidy(owner, deadline));
        let result = result.map(|(again, handed)| {
            let notices = self.change_watcher.tell(&handed, clock::now());
            self.send(notices);
            again
        });
        let pause = TIDY_LAST.min(tidy.pause * 2);
        self.unless_broken(result).unwrap_or(true).then(|| TidySchedule { at: clock::now() + pause, pause })
    }

    /// Gives up the session if it is broken or its files were replaced. After other errors, the
    /// caller only has to wait.
    pub(super) fn unless_broken<T>(&mut self, result: Result<T, SessionError>) -> Option<T> {
        match result {
            Err(SessionError::Moved) => self.lose(),
            Err(SessionError::Broken(_)) => self.session = None,
            _ => {}
        }
        result.ok()
    }

    pub(super) fn send(&self, notices: Vec<Notice>) {
        for notice in notices {
            // There may be no listener any more.
            let _ = self.notices.send(notice);
        }
    }

    /// Releases everything that the store holds, at the end of the thread.
    pub(super) fn end(mut self) {
        let _ = self.catch_panic(|file_thread| {
            let Some(owner) = file_thread.owner.take() else { return };
            let former = std::mem::take(&mut file_thread.former);
            // A file that was moved away needs no cleaning up. Unlocking the owner's file shows
            // that its rows are free.
            match file_thread.session.take().filter(|session| file_thread.admitted && !session.is_moved()) {
                Some(mut session) => session.retire(owner, former, clock::now() + PATIENCE),
                None if file_thread.usage.is_empty() => owner.retire(),
                None => {}
            }
        });
    }

    /// Runs `act`. If it panics, gives up the session and returns an error, so that the thread goes
    /// on.
    fn catch_panic<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> Result<T, StoreError> {
        catch_unwind(AssertUnwindSafe(|| act(self))).map_err(|_| {
            self.session = None;
            let message = format!("a bug: the thread of the lock file {} panicked", self.path.display());
            StoreError::maybe_done(StoreErrorKind::Internal, message)
        })
    }
}

#[cfg(test)]
#[path = "file_thread_tests.rs"]
mod tests;
