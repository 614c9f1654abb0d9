//! The one thread that owns the file, so that the engine's never blocks on it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::super::{Answer, Notice, Request, StoreError, StoreErrorKind, all_failed};
use super::identity::Files;
use super::owner::Owner;
use super::session::{Place, Session, Trouble};
use super::usage::Usage;
use super::watch::Watch;
use super::work::{Done, Work};
use crate::engine::clock;
use crate::lease::Instant;

/// The way to the thread.
pub type Inbox = Sender<Message>;

/// How many requests are carried out in one transaction at most: while it lasts, no other process can write.
const MOST_REQUESTS: usize = 4096;

/// How long before a batch's deadline, at most, the thread gives up waiting for other processes, so that it can
/// still say why, and that nothing was done.
const RESERVE: Duration = Duration::from_millis(20);

/// How long an idle thread waits before it tidies up, at first and at most; each time twice as long.
const TIDY_FIRST: Duration = Duration::from_secs(1);
const TIDY_LAST: Duration = Duration::from_secs(64);

/// How long the thread waits for other processes when it tidies up and when it ends.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long the thread waits for other processes when it hands on the leases of a dead process. If
/// that is too short, this thread or another process tries again.
pub const WATCH_PATIENCE: Duration = Duration::from_millis(50);

/// What the thread is told.
#[derive(Debug)]
pub enum Message {
    Run(Job),
    /// End, and say so when everything is given back.
    Close(oneshot::Sender<()>),
}

/// A batch, and where its answers go.
#[derive(Debug)]
pub struct Job {
    pub batch: Vec<Request>,
    pub deadline: Instant,
    pub claim: Claim,
    pub answers: oneshot::Sender<Vec<Answer>>,
}

/// Whether a batch is carried out or given up: whoever takes it first decides, the thread or the time-out.
#[derive(Clone, Debug, Default)]
pub struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Says whether nobody had taken it yet.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Starts the thread for the file at `path`. It ends when it is told to, or when the inbox is dropped. What it has to say
/// by itself goes to `notices`.
pub fn start(path: PathBuf, notices: UnboundedSender<Notice>) -> Result<Inbox, StoreError> {
    let (inbox, messages) = channel();
    let keeper = Keeper::new(path, notices);
    let thread = std::thread::Builder::new().name("leasehold-sqlite".into());
    match thread.spawn(move || keeper.run(&messages)) {
        Ok(_) => Ok(inbox),
        Err(error) => {
            let message = format!("no thread for the lock file could be started: {error}");
            Err(StoreError::not_done(StoreErrorKind::Internal, message))
        }
    }
}

/// What the thread keeps.
pub struct Keeper {
    pub(super) path: PathBuf,
    pub(super) session: Option<Session>,
    /// The place of the session's files.
    pub(super) place: Option<Place>,
    /// Outlives the session, so that leases keep their owner when the file is opened anew.
    pub(super) owner: Option<Owner>,
    /// Owners whose files are no longer in their places. Rows may still name them.
    pub(super) former: Vec<Owner>,
    /// The files that the owner has registered. After an error, they stay registered without a
    /// session.
    pub(super) used: Option<Files>,
    /// Whether this store is admitted: no live owner uses other files.
    pub(super) admitted: bool,
    /// When to check the files next.
    pub(super) check_at: Instant,
    /// What this process has in the files.
    pub(super) usage: Usage,
    /// What this process waits for.
    pub(super) watch: Watch,
    pub(super) notices: UnboundedSender<Notice>,
    tidy: Option<Tidy>,
}

/// When to tidy up next, and after how much longer again.
#[derive(Clone, Copy)]
struct Tidy {
    at: Instant,
    pause: Duration,
}

impl Keeper {
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
            watch: Watch::default(),
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
                    self.tidy = Some(Tidy { at: clock::now() + TIDY_FIRST, pause: TIDY_FIRST });
                    if closed.is_some() {
                        break closed;
                    }
                }
                Ok(Message::Close(closed)) => break Some(closed),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            // However many messages there are.
            let now = clock::now();
            if self.check_due().is_some_and(|at| at <= now) {
                let _ = self.guarded(Self::check);
            }
            if self.watch.due().is_some_and(|at| at <= now) {
                let _ = self.guarded(Self::look);
            }
            if self.tidy.is_some_and(|tidy| tidy.at <= now) {
                self.tidy = self.guarded(Self::tidy).unwrap_or(None);
            }
        };
        self.end();
        if let Some(closed) = closed {
            let _ = closed.send(());
        }
    }

    /// The next message, or the time-out at which there is something else to do.
    fn next(&self, messages: &Receiver<Message>) -> Result<Message, RecvTimeoutError> {
        let due = [self.watch.due(), self.tidy.map(|tidy| tidy.at), self.check_due()];
        match due.into_iter().flatten().min() {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => messages.recv_timeout(at.since(clock::now())),
        }
    }

    /// Carries out `jobs`, in one transaction if none is out of time before the others.
    pub(super) fn work(&mut self, mut jobs: Vec<Job>) {
        jobs.retain(|job| job.claim.take());
        self.usage.touch(clock::now());
        while let Some(first) = jobs.iter().map(|job| job.deadline).min() {
            let reserve = RESERVE.min(first.since(clock::now()) / 4);
            let result = self.guarded(|keeper| keeper.transact(&jobs, first - reserve));
            let failure = match result {
                Ok(Ok(Done { answers, handed, at })) => {
                    for (job, answers) in jobs.drain(..).zip(answers) {
                        for (request, answer) in job.batch.iter().zip(&answers) {
                            self.watch.note(request, answer, at);
                            self.usage.note(request, answer, at);
                        }
                        let _ = job.answers.send(answers);
                    }
                    let notices = self.watch.tell(&handed, at);
                    self.send(notices);
                    return;
                }
                Ok(Err(Trouble::Busy(error))) => {
                    // Those who have time left try again.
                    let over = clock::now() + reserve;
                    for job in jobs.extract_if(.., |job| job.deadline <= over.max(first)) {
                        fail(job, &error);
                    }
                    continue;
                }
                Ok(Err(Trouble::Broken(error))) => error,
                Ok(Err(Trouble::Moved)) => {
                    let message = format!("the lock file {} keeps being replaced", self.path.display());
                    StoreError::not_done(StoreErrorKind::Unreachable, message)
                }
                Err(panicked) => panicked,
            };
            self.session = None;
            jobs.drain(..).for_each(|job| fail(job, &failure));
        }
    }

    fn transact(&mut self, jobs: &[Job], deadline: Instant) -> Result<Done, Trouble> {
        let mut retried = false;
        loop {
            let result = self.try_to_transact(jobs, deadline);
            if let Err(Trouble::Moved) = result {
                self.lose();
                if !retried {
                    retried = true;
                    continue;
                }
            }
            return result;
        }
    }

    fn try_to_transact(&mut self, jobs: &[Job], deadline: Instant) -> Result<Done, Trouble> {
        let (session, owner) = self.admit(deadline)?;
        let batches = jobs.iter().map(|job| &*job.batch).collect();
        session.transact(owner, Work { batches, ..Work::default() }, deadline)
    }

    /// Looks whether a waiter of this process was handed a lease, or whether there is one to be handed to somebody.
    fn look(&mut self) {
        let ends = self.watch.begin(clock::now());
        let result = self.look_for_news().and_then(|()| if ends { self.look_for_ends() } else { Ok(()) });
        self.unless_broken(result);
    }

    fn look_for_news(&mut self) -> Result<(), Trouble> {
        let (Some(session), Some(owner)) = (&mut self.session, &self.owner) else { return Ok(()) };
        if let Some(handed) = session.news(owner)? {
            self.watch.doubt();
            let notices = self.watch.tell_all(&handed, clock::now());
            self.send(notices);
        }
        Ok(())
    }

    /// Hands on what a process left that is gone, and leases that have run out, to those who wait for them.
    fn look_for_ends(&mut self) -> Result<(), Trouble> {
        let (Some(session), Some(owner), true) = (&mut self.session, &self.owner, self.admitted) else {
            return Ok(());
        };
        let (now, mut looks, mut trusted) = (clock::now(), Vec::new(), FxHashMap::default());
        for key in self.watch.doubtful(now) {
            match session.ends(&key)?.filter(|ends| *ends > now) {
                Some(ends) => {
                    trusted.insert(key, ends);
                }
                None => looks.push(key),
            }
        }
        self.watch.trust(&trusted);
        let dead = session.dead();
        if looks.is_empty() && dead.is_empty() {
            return Ok(());
        }
        let work = Work { looks, dead, ..Work::default() };
        let done = session.transact(owner, work, clock::now() + WATCH_PATIENCE)?;
        let notices = self.watch.tell(&done.handed, done.at);
        self.send(notices);
        Ok(())
    }

    /// Says when to come again.
    fn tidy(&mut self) -> Option<Tidy> {
        let tidy = self.tidy?;
        // Tidying does not create a deleted file again.
        if self.session.is_none() && !self.path.exists() {
            return None;
        }
        let deadline = clock::now() + PATIENCE;
        let result = self.admit(deadline).and_then(|(session, owner)| session.tidy(owner, deadline));
        let result = result.map(|(again, handed)| {
            let notices = self.watch.tell(&handed, clock::now());
            self.send(notices);
            again
        });
        let pause = TIDY_LAST.min(tidy.pause * 2);
        self.unless_broken(result).unwrap_or(true).then(|| Tidy { at: clock::now() + pause, pause })
    }

    /// Gives up the session if it is broken or its files were replaced. For other trouble, the
    /// caller only has to wait.
    pub(super) fn unless_broken<T>(&mut self, result: Result<T, Trouble>) -> Option<T> {
        match result {
            Err(Trouble::Moved) => self.lose(),
            Err(Trouble::Broken(_)) => self.session = None,
            _ => {}
        }
        result.ok()
    }

    pub(super) fn send(&self, notices: Vec<Notice>) {
        for notice in notices {
            // Nobody may be listening.
            let _ = self.notices.send(notice);
        }
    }

    /// Releases everything that the store holds, at the end of the thread.
    pub(super) fn end(mut self) {
        let _ = self.guarded(|keeper| {
            let Some(owner) = keeper.owner.take() else { return };
            let former = std::mem::take(&mut keeper.former);
            // A file that was moved away needs no cleaning up. Unlocking the owner's file says that
            // its rows are free.
            match keeper.session.take().filter(|session| keeper.admitted && !session.is_moved()) {
                Some(mut session) => session.retire(owner, former, clock::now() + PATIENCE),
                None if keeper.usage.is_empty() => owner.retire(),
                None => {}
            }
        });
    }

    /// A panic costs the session and becomes an error, never the end of the thread.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> Result<T, StoreError> {
        catch_unwind(AssertUnwindSafe(|| act(self))).map_err(|_| {
            self.session = None;
            let message = format!("a bug: the thread of the lock file {} panicked", self.path.display());
            StoreError::maybe_done(StoreErrorKind::Internal, message)
        })
    }
}

/// The first job and whatever else is waiting already, and whether the thread is to end then.
fn gather(first: Job, messages: &Receiver<Message>) -> (Vec<Job>, Option<oneshot::Sender<()>>) {
    let mut requests = first.batch.len();
    let mut jobs = vec![first];
    while requests < MOST_REQUESTS {
        match messages.try_recv() {
            Ok(Message::Run(job)) => {
                requests += job.batch.len();
                jobs.push(job);
            }
            Ok(Message::Close(closed)) => return (jobs, Some(closed)),
            Err(_) => break,
        }
    }
    (jobs, None)
}

fn fail(job: Job, error: &StoreError) {
    let count = job.batch.len();
    let _ = job.answers.send(all_failed(count, error));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Token, Ttl};
    use crate::store::{Ask, Reply};

    fn keeper() -> (Keeper, PathBuf) {
        let folder = std::env::temp_dir().join(format!("leasehold-thread-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        let (notices, _) = tokio::sync::mpsc::unbounded_channel();
        (Keeper::new(folder.join("locks.db"), notices), folder)
    }

    fn job(request: Request) -> (Job, Claim, oneshot::Receiver<Vec<Answer>>) {
        let (claim, (answers, receiver)) = (Claim::default(), oneshot::channel());
        let deadline = clock::now() + Duration::from_secs(5);
        (Job { batch: vec![request], deadline, claim: claim.clone(), answers }, claim, receiver)
    }

    fn acquire() -> Request {
        let ttl = Ttl::from_millis(60_000).unwrap();
        Request::Acquire(Ask::new("k".into(), Token::random(), ttl, "h".into()))
    }

    #[test]
    fn what_was_given_up_before_it_was_begun_is_never_done() {
        let (mut keeper, folder) = keeper();
        let ((given_up, claim, mut silent), (asked, _, mut heard)) = (job(acquire()), job(acquire()));
        assert!(claim.take(), "the time-out was first");
        keeper.work(vec![given_up, asked]);
        assert!(silent.try_recv().is_err());
        assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
        keeper.end();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn unused_files_are_closed_and_opened_again_for_the_next_request() {
        let (mut keeper, folder) = keeper();
        keeper.work(vec![job(Request::Ping).0]);
        assert!(keeper.check_due().is_some());
        keeper.usage.touch(Instant::default());
        keeper.check();
        assert!(keeper.session.is_none() && keeper.check_due().is_none(), "the thread is not woken for them");
        assert!(keeper.owner.is_some(), "the owner lives");
        let (asked, _, mut heard) = job(acquire());
        keeper.work(vec![asked]);
        assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
        keeper.usage.touch(Instant::default());
        keeper.check();
        assert!(keeper.session.is_some() && keeper.check_due().is_some(), "the store has a lease");
        keeper.end();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn an_owner_file_removed_after_an_error_costs_no_lease() {
        let (mut keeper, folder) = keeper();
        let (sender, mut notices) = tokio::sync::mpsc::unbounded_channel();
        keeper.notices = sender;
        let (asked, _, mut heard) = job(acquire());
        keeper.work(vec![asked]);
        assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
        // As after an error of SQLite.
        keeper.session = None;
        let owners = folder.join("locks.db.owners");
        std::fs::remove_dir_all(&owners).unwrap();
        keeper.check();
        assert!(notices.try_recv().is_err(), "the engine is told of a loss");
        assert!(keeper.usage.last_end().is_some() && keeper.admitted, "the store has its lease");
        assert_eq!(std::fs::read_dir(&owners).unwrap().count(), 1, "others can see the store again");
        keeper.end();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_second_copy_is_refused_with_advice_and_leaves_no_owner_file() {
        let (mut keeper, folder) = keeper();
        keeper.work(vec![job(Request::Ping).0]);
        let refused = keeper.refuse_second_copy(true);
        let Err(Trouble::Broken(error)) = refused else { panic!("{refused:?}") };
        assert_eq!(error.kind, StoreErrorKind::Unsupported);
        assert!(error.message.contains("external") && error.message.contains("locks.db"), "{error}");
        assert_eq!(std::fs::read_dir(folder.join("locks.db.owners")).unwrap().count(), 0);
        let (asked, _, mut heard) = job(acquire());
        keeper.work(vec![asked]);
        assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
        assert!(keeper.refuse_second_copy(true).is_err());
        assert!(keeper.owner.is_some() && keeper.session.is_some(), "a copy with leases keeps them");
        keeper.end();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_next_batch_is_carried_out() {
        let (mut keeper, folder) = keeper();
        let (ping, _, mut heard) = job(Request::Ping);
        keeper.work(vec![ping]);
        assert!(heard.try_recv().unwrap()[0].is_ok());
        let error = keeper.guarded::<()>(|_| panic!("on purpose")).unwrap_err();
        assert!(error.kind == StoreErrorKind::Internal && error.maybe_done);
        let (again, _, mut heard) = job(acquire());
        keeper.work(vec![again]);
        assert!(matches!(heard.try_recv().unwrap()[..], [Ok(Reply::Acquired { .. })]));
        keeper.end();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
