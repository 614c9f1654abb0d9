//! The one thread that owns the file, so that the engine's never blocks on it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::{Answer, Request, StoreError, StoreErrorKind, all_failed};
use super::owner::Owner;
use super::session::{Session, Trouble};
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

/// Starts the thread for the file at `path`. It ends when it is told to, or when the inbox is dropped.
pub fn start(path: PathBuf) -> Result<Inbox, StoreError> {
    let (inbox, messages) = channel();
    let keeper = Keeper { path, session: None, owner: None };
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
struct Keeper {
    path: PathBuf,
    session: Option<Session>,
    /// Outlives the session, so that leases keep their owner when the file is opened anew.
    owner: Option<Owner>,
}

impl Keeper {
    fn run(mut self, messages: &Receiver<Message>) {
        let mut pause = None;
        loop {
            let message = match pause {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(pause) => messages.recv_timeout(pause),
            };
            let closed = match message {
                Ok(Message::Run(job)) => {
                    let (jobs, closed) = gather(job, messages);
                    self.work(jobs);
                    pause = Some(TIDY_FIRST);
                    closed
                }
                Ok(Message::Close(closed)) => Some(closed),
                Err(RecvTimeoutError::Timeout) => {
                    let again = self.guarded(Self::tidy).unwrap_or(false);
                    pause = pause.filter(|_| again).map(|pause| TIDY_LAST.min(pause * 2));
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if let Some(closed) = closed {
                self.end();
                let _ = closed.send(());
                return;
            }
        }
        self.end();
    }

    /// Carries out `jobs`, in one transaction if none is out of time before the others.
    fn work(&mut self, mut jobs: Vec<Job>) {
        jobs.retain(|job| job.claim.take());
        while let Some(first) = jobs.iter().map(|job| job.deadline).min() {
            let reserve = RESERVE.min(first.since(clock::now()) / 4);
            let result = self.guarded(|keeper| keeper.transact(&jobs, first - reserve));
            let failure = match result {
                Ok(Ok(answers)) => {
                    for (job, answers) in jobs.drain(..).zip(answers) {
                        let _ = job.answers.send(answers);
                    }
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

    fn transact(&mut self, jobs: &[Job], deadline: Instant) -> Result<Vec<Vec<Answer>>, Trouble> {
        let batches: Vec<&[Request]> = jobs.iter().map(|job| &*job.batch).collect();
        let mut retried = false;
        loop {
            let session = match &mut self.session {
                Some(session) => session,
                none => none.insert(Session::open(&self.path, deadline)?),
            };
            match session.transact(&mut self.owner, &batches, deadline) {
                Err(Trouble::Moved) if !retried => {
                    retried = true;
                    self.session = None;
                }
                result => return result,
            }
        }
    }

    /// Says whether to come again.
    fn tidy(&mut self) -> bool {
        let Some(session) = &mut self.session else { return false };
        match session.tidy(&mut self.owner, clock::now() + PATIENCE) {
            Ok(again) => again,
            Err(Trouble::Busy(_)) => true,
            Err(Trouble::Moved | Trouble::Broken(_)) => {
                self.session = None;
                false
            }
        }
    }

    /// Gives back everything.
    fn end(mut self) {
        let _ = self.guarded(|keeper| {
            // A file that was moved away is nobody's business any more, and its owner's file tells that.
            let session = keeper.session.take().filter(|session| !session.is_moved());
            if let (Some(mut session), Some(owner)) = (session, keeper.owner.take()) {
                session.retire(owner, clock::now() + PATIENCE);
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
    use crate::store::Reply;

    fn keeper() -> (Keeper, PathBuf) {
        let folder = std::env::temp_dir().join(format!("leasehold-thread-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        (Keeper { path: folder.join("locks.db"), session: None, owner: None }, folder)
    }

    fn job(request: Request) -> (Job, Claim, oneshot::Receiver<Vec<Answer>>) {
        let (claim, (answers, receiver)) = (Claim::default(), oneshot::channel());
        let deadline = clock::now() + Duration::from_secs(5);
        (Job { batch: vec![request], deadline, claim: claim.clone(), answers }, claim, receiver)
    }

    fn acquire() -> Request {
        Request::Acquire {
            key: "k".into(),
            token: Token::random(),
            ttl: Ttl::from_millis(60_000).unwrap(),
            holder: "h".into(),
        }
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
