//! The batches that the engine gives the thread of a lock file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use tokio::sync::oneshot;

use super::super::{Answer, Request, StoreError, all_failed};
use crate::lease::Instant;

/// Sends messages to the thread.
pub type Inbox = Sender<Message>;

/// A transaction gets no further job once it has this many requests. If this is larger, other
/// processes wait longer before they can write. If it is smaller, many requests take more
/// transactions.
const MOST_REQUESTS: usize = 4096;

/// A message to the thread.
#[derive(Debug)]
pub enum Message {
    Run(Job),
    /// Ends the thread, which answers when it has released everything.
    Close(oneshot::Sender<()>),
}

/// A batch, and where its answers go.
#[derive(Debug)]
pub struct Job {
    pub batch: Vec<Request>,
    pub deadline: Instant,
    pub claim: JobClaim,
    pub answers: oneshot::Sender<Vec<Answer>>,
}

/// Decides whether a batch is carried out or given up: the thread and the time-out both try to take
/// the claim, and the first one gets it.
#[derive(Clone, Debug, Default)]
pub struct JobClaim(Arc<AtomicBool>);

impl JobClaim {
    /// Takes the claim. Returns true if it was not taken before.
    pub fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }
}

/// Returns the first job and the jobs that already wait, and where to answer if the thread has to
/// end after them.
pub fn gather(first: Job, messages: &Receiver<Message>) -> (Vec<Job>, Option<oneshot::Sender<()>>) {
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

/// Answers every request of `job` with `error`.
pub fn fail(job: Job, error: &StoreError) {
    let count = job.batch.len();
    let _ = job.answers.send(all_failed(count, error));
}
