//! A quorum: several independent stores, of which a majority makes a lease (Redis, "Distributed locks with Redis", the
//! Redlock algorithm), with fences.
//!
//! - The quorum asks all nodes at the same time, and decides when most of them agree. It does not
//!   wait for the slowest node.
//! - **Fences.** Each node answers with a fence of its own. The largest becomes the lease's fence,
//!   and is written back to the nodes, guarded by the token ([`Request::Accept`]); the lease is
//!   granted only when most nodes have accepted this fence. Two leases share a node at which both
//!   fences were accepted while their lease was held there. So one came first there, and the other
//!   one's node answered with a larger fence. This needs no clock as long as nodes keep their data.
//! - **Waiting.** A waiter stands in the queue of every node. After a release, each node hands it
//!   the lease, and the waiter asks as soon as most nodes have said so. If the nodes' queues
//!   disagree and no waiter has a majority, each of them gives way after a while
//!   ([`Reply::Split`]). The waiter with the fewest nodes mostly does so first.
//! - **Adoption.** An heir first claims most nodes with a fresh token. Then it asks the claimed
//!   nodes to move the lease to its own token, and has the lease when most nodes have done so. If
//!   several heirs have claimed some nodes each, only the heir with the smallest
//!   [mark](crate::lease::Token::mark) keeps its nodes. The others give theirs back to the ticket
//!   and try again. The heir that adopted the lease gets the other nodes when they can be
//!   reached.
//! - **Repair.** After a majority has renewed a lease, the quorum asks the nodes that do not know
//!   the lease to grant it again. A node counts for the lease from the next renewal on.
//!   `council/repairing.rs` describes repairs, and why there are never two holders.
//! - **Validity.** The engine counts a lease's deadline from the time before the quorum asks the
//!   first node. So the time that the nodes take to answer shortens the lease for its holder.
//! - A node that has lost its data does not know the lease any more and is not counted for it. No
//!   quorum survives a node that forgets a lease and grants the lock again: nodes have to keep
//!   their data (`appendfsync always`), or stay away for the longest ttl after a crash.
//!
//! The modules:
//!
//! - [`council`]: all requests under way; pure;
//! - [`ballot`]: one of these requests;
//! - [`adoption`]: one attempt to adopt a detached lease;
//! - [`batches`]: the batches of the engine that have open requests;
//! - [`post`]: the calls to the nodes, and which requests go together;
//! - [`backers`]: on which nodes a lease depends;
//! - [`repairs`]: the requests that ask nodes to grant a lease again;
//! - [`places`]: the waiters;
//! - [`reach`]: whether a majority can be reached;
//! - [`debts`]: the releases and moves that nodes still have to carry out;
//! - [`sightings`]: the merged view of what the nodes show;
//! - [`reports`]: the merged results of diagnoses;
//! - [`votes`]: the messages of requests that failed.

mod adoption;
mod backers;
mod ballot;
mod batches;
pub mod council;
mod debts;
mod places;
mod post;
mod reach;
mod repairs;
mod reports;
mod rivals;
mod sightings;
mod votes;

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, oneshot};
use tokio::task::{JoinHandle, spawn_local};

use self::council::{Call, Council};
use super::{Answer, Listener, Notice, Request, Store, StoreError, StoreErrorKind, all_failed};
use crate::engine::clock;
use crate::lease::Instant;

/// The fewest nodes of a quorum. With two nodes, none could fail.
pub const FEWEST: usize = 3;
/// The most nodes of a quorum.
pub const MOST: usize = 63;

/// How long a quorum that is not used any more waits for its nodes, and repeats the releases that
/// they are owed. If this is smaller, more leases are left to their ttl. If it is larger, an unused
/// quorum keeps its connections for longer.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// A quorum of stores as a [`Store`]. It needs a local tokio runtime (or a `LocalSet` on one) with time.
pub struct QuorumStore {
    nodes: Vec<Rc<dyn Store>>,
    council: RefCell<Council>,
    /// The sender of the answers to each batch.
    waiting: RefCell<FxHashMap<u64, oneshot::Sender<Vec<Answer>>>>,
    last_batch: Cell<u64>,
    /// Whether [`QuorumStore::carry_out`] is about to run.
    carrying_out: Cell<bool>,
    /// The next instant at which something is due, and the task that sleeps until then.
    alarm: RefCell<Option<(Instant, JoinHandle<()>)>>,
    listener: OnceCell<Listener>,
    /// Wakes `close` when no node has an answer to give or a release to get.
    idle: Notify,
}

impl QuorumStore {
    /// Creates the quorum of `nodes`, each with its name in messages. There must be [`FEWEST`] to
    /// [`MOST`] nodes.
    pub fn new(nodes: Vec<(Arc<str>, Rc<dyn Store>)>) -> Rc<Self> {
        let (names, nodes): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        debug_assert!((FEWEST..=MOST).contains(&nodes.len()), "{} nodes", nodes.len());
        let quorum = Rc::new(Self {
            nodes,
            council: RefCell::new(Council::new(names, fastrand::u64(..))),
            waiting: RefCell::default(),
            last_batch: Cell::new(0),
            carrying_out: Cell::new(false),
            alarm: RefCell::default(),
            listener: OnceCell::new(),
            idle: Notify::new(),
        });
        for (node, store) in quorum.nodes.iter().enumerate() {
            let quorum = Rc::downgrade(&quorum);
            store.listen(Rc::new(move |notice: Notice| {
                let Some(quorum) = quorum.upgrade() else { return };
                quorum.council.borrow_mut().noticed(clock::now(), node, notice);
                quorum.carry_out();
            }));
        }
        quorum
    }

    /// Does what the council wants done after all tasks that are ready have run, so that requests
    /// for the same node go together.
    fn carry_out_soon(self: &Rc<Self>) {
        if !self.carrying_out.replace(true) {
            let quorum = self.clone();
            spawn_local(async move {
                quorum.carrying_out.set(false);
                quorum.carry_out();
            });
        }
    }

    /// Does what the council wants done.
    fn carry_out(self: &Rc<Self>) {
        let effects = self.council.borrow_mut().take_effects();
        for Call { id, node, requests, timeout } in effects.calls {
            let (store, count, quorum) = (self.nodes[node].clone(), requests.len(), self.clone());
            spawn_local(async move {
                let answers =
                    AssertUnwindSafe(async move { store.execute(requests, timeout).await }).catch_unwind();
                // A node that panics, or leaves out an answer, counts as failed. So each request
                // still gets an answer, and the node stays owed what it was owed.
                let answers = answers.await.ok().filter(|answers| answers.len() == count);
                let answers = answers.unwrap_or_else(|| {
                    let name = quorum.council.borrow().name(node);
                    let message =
                        format!("{name} failed by a bug: it panicked, or did not answer every request");
                    all_failed(count, &StoreError::maybe_done(StoreErrorKind::Internal, message))
                });
                quorum.council.borrow_mut().answered(clock::now(), id, answers);
                quorum.carry_out_soon();
            });
        }
        for (batch, answers) in effects.answers {
            if let Some(waiting) = self.waiting.borrow_mut().remove(&batch) {
                // A caller that does not wait any more needs no answer.
                let _ = waiting.send(answers);
            }
        }
        if let Some(listener) = self.listener.get() {
            effects.notices.into_iter().for_each(|notice| listener(notice));
        }
        if !self.council.borrow().is_busy() {
            self.idle.notify_waiters();
        }
        self.set_alarm();
    }

    /// Lets the council know when its next instant has come.
    fn set_alarm(self: &Rc<Self>) {
        let Some(at) = self.council.borrow().next_wake() else { return };
        let mut alarm = self.alarm.borrow_mut();
        if alarm.as_ref().is_some_and(|(set, task)| *set <= at && !task.is_finished()) {
            return;
        }
        let quorum = Rc::downgrade(self);
        let task = spawn_local(async move {
            tokio::time::sleep(at.since(clock::now())).await;
            let Some(quorum) = quorum.upgrade() else { return };
            *quorum.alarm.borrow_mut() = None;
            quorum.council.borrow_mut().tick(clock::now());
            quorum.carry_out();
        });
        if let Some((_, earlier)) = alarm.replace((at, task)) {
            earlier.abort();
        }
    }
}

impl Store for QuorumStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            if batch.is_empty() {
                return Vec::new();
            }
            let (count, id) = (batch.len(), self.last_batch.get() + 1);
            self.last_batch.set(id);
            let (sender, answers) = oneshot::channel();
            self.waiting.borrow_mut().insert(id, sender);
            self.council.borrow_mut().submit(clock::now(), id, batch, timeout);
            self.carry_out_soon();
            answers.await.unwrap_or_else(|_| {
                let gone = StoreError::maybe_done(StoreErrorKind::Internal, "the quorum forgot a batch");
                all_failed(count, &gone)
            })
        }
        .boxed_local()
    }

    /// Separates the requests that wait for all nodes: a node that does not answer must not hold up
    /// the requests that a majority decides.
    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        let parts = || batch.iter().map(|request| u32::from(asks_all_nodes(request))).collect();
        batch.iter().any(asks_all_nodes).then(parts)
    }

    fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async move {
            if self.council.borrow().is_busy() {
                let _ = tokio::time::timeout(LAST_PATIENCE, self.idle.notified()).await;
            }
            if let Some((_, alarm)) = self.alarm.borrow_mut().take() {
                alarm.abort();
            }
            join_all(self.nodes.iter().map(|node| node.clone().close())).await;
        }
        .boxed_local()
    }
}

/// Returns true if the answer to `request` has to wait for the answers of all nodes.
fn asks_all_nodes(request: &Request) -> bool {
    matches!(request, Request::Inspect { .. } | Request::List(_) | Request::Diagnose { .. })
}

#[cfg(test)]
#[path = "quorum_tests.rs"]
mod tests;
