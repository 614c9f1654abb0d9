//! A quorum: several independent stores, of which a majority makes a lease (Redis, "Distributed
//! locks with Redis", the Redlock algorithm), with fences.
//!
//! - The quorum asks all nodes at the same time, and decides when most of them agree. It does not
//!   wait for the slowest node.
//! - **Fences.** Each node answers with a fence of its own. The largest becomes the lease's fence,
//!   and is written back to the nodes, guarded by the token ([`Request::Accept`]); the lease is
//!   granted only when most nodes have accepted this fence. Any two leases share a node that
//!   accepted the fence of each lease while it held that lease. That node answered the later lease
//!   with a larger fence. This needs no clock as long as nodes keep their data.
//! - **Waiting.** A waiter stands in the queue of every node. After a release, each node hands it
//!   the lease and sends it a notice. The waiter polls as soon as most nodes have done so. If the
//!   nodes' queues disagree and no waiter has a majority, each of them backs off after a while
//!   ([`Reply::Split`]). The waiter with the fewest nodes usually backs off first.
//! - **Adoption.** An adopter first claims most nodes with a fresh token. Then it asks the claimed
//!   nodes to move the lease to its own token, and has the lease when most nodes have done so. If
//!   several adopters have claimed some nodes each, only the adopter with the smallest
//!   [mark](crate::lease::Token::mark) keeps its nodes. The others give theirs back to the ticket
//!   and try again. The adopter that has the lease also gets the other nodes, as soon as they can
//!   be reached.
//! - **Repair.** After a majority has renewed a lease, the quorum asks the nodes that do not know
//!   the lease to grant it again. A node counts for the lease from the next renewal on.
//!   `coordinator/repairing.rs` describes repairs, and why there are never two holders.
//! - **Validity.** The engine counts a lease's deadline from the time before the quorum asks the
//!   first node. So the time that the nodes take to answer shortens the lease for its holder.
//! - **Lost data.** A node that has lost its data does not know the lease any more, and does not
//!   count for it. No quorum survives a node that forgets a lease and grants the lock again: nodes
//!   have to keep their data (`appendfsync always`), or stay away for the longest ttl after a
//!   crash.
//!
//! The modules:
//!
//! - [`coordinator`]: all requests under way; pure;
//! - [`vote_round`]: one of these requests;
//! - [`adoption`]: one attempt to adopt a detached lease;
//! - [`adoptions`]: all these attempts;
//! - [`other_adopters`]: the claims of other adopters;
//! - [`batches`]: the batches of the engine that have open requests;
//! - [`nodes`]: the names of the nodes, and the size of a majority;
//! - [`call_queue`]: the calls to the nodes, and which requests go together;
//! - [`lease_nodes`]: on which nodes a lease depends;
//! - [`adopted_ends`]: when adopted leases end;
//! - [`repairs`]: the requests that ask nodes to grant a lease again;
//! - [`waiter_tracker`]: the waiters;
//! - [`ticket_ends`]: when each ticket that this process adopts ends;
//! - [`quorum_availability`]: whether a majority can be reached;
//! - [`pending_releases`]: the releases and moves that nodes still have to carry out;
//! - [`release_result`]: whether such a request is repeated after an answer;
//! - [`merged_views`]: the merged view of what the nodes show;
//! - [`reports`]: the merged results of diagnoses;
//! - [`votes`]: the errors of requests that failed.

mod adopted_ends;
mod adoption;
mod adoptions;
mod batches;
mod call_queue;
pub mod coordinator;
mod detached_leases;
mod lease_nodes;
mod merged_views;
mod nodes;
mod other_adopters;
mod pending_releases;
mod quorum_availability;
mod release_result;
mod repairs;
mod reports;
mod ticket_ends;
mod vote_round;
mod votes;
mod waiter_tracker;

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use rustc_hash::FxHashMap;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::task::{JoinHandle, spawn_local, yield_now};

use self::coordinator::{Call, Coordinator};
use self::merged_views::merge;
use super::{Answer, Listener, Notice, Reply, Request, Store, StoreError, StoreErrorKind, all_failed};
use crate::engine::clock;
use crate::lease::Instant;

/// The fewest nodes of a quorum. With two nodes, none could fail.
pub const FEWEST: usize = 3;
/// The most nodes of a quorum. A set of nodes is kept as the bits of a `u64`.
pub const MOST: usize = 63;

/// How long a quorum merges the views of its nodes before other tasks get the thread. A hostile
/// node can list hundreds of thousands of leases. If this is larger, other stores wait for longer;
/// if it is smaller, the merge is interrupted more often and takes longer.
const MOST_TIME_IN_A_ROW: Duration = Duration::from_millis(1);

/// A quorum of stores as a [`Store`]. It needs a local tokio runtime (or a `LocalSet`) with timers.
pub struct QuorumStore {
    nodes: Vec<Rc<dyn Store>>,
    coordinator: RefCell<Coordinator>,
    /// The sender of the answers to each batch.
    waiting: RefCell<FxHashMap<u64, oneshot::Sender<Vec<Answer>>>>,
    last_batch: Cell<u64>,
    /// True if a task is about to run [`QuorumStore::carry_out`].
    carrying_out: Cell<bool>,
    /// The next instant at which something is due, and the task that sleeps until then.
    alarm: RefCell<Option<(Instant, JoinHandle<()>)>>,
    listener: OnceCell<Listener>,
    /// Wakes `finish` when no node still has to answer or to carry out a release.
    idle: Notify,
    /// Held while the quorum merges an answer. Because answers are merged one after another,
    /// merging several of them leaves other stores as much time as merging one.
    merging: Mutex<()>,
}

impl QuorumStore {
    /// Creates the quorum of `nodes`, each with its name in messages. There must be [`FEWEST`] to
    /// [`MOST`] nodes.
    pub fn new(nodes: Vec<(Arc<str>, Rc<dyn Store>)>) -> Rc<Self> {
        let (names, nodes): (Vec<_>, Vec<_>) = nodes.into_iter().unzip();
        debug_assert!((FEWEST..=MOST).contains(&nodes.len()), "{} nodes", nodes.len());
        let quorum = Rc::new(Self {
            nodes,
            coordinator: RefCell::new(Coordinator::new(names, fastrand::u64(..))),
            waiting: RefCell::default(),
            last_batch: Cell::new(0),
            carrying_out: Cell::new(false),
            alarm: RefCell::default(),
            listener: OnceCell::new(),
            idle: Notify::new(),
            merging: Mutex::new(()),
        });
        for (node, store) in quorum.nodes.iter().enumerate() {
            let quorum = Rc::downgrade(&quorum);
            store.listen(Rc::new(move |notice: Notice| {
                let Some(quorum) = quorum.upgrade() else { return };
                quorum.coordinator.borrow_mut().noticed(clock::now(), node, notice);
                quorum.carry_out_soon();
            }));
        }
        quorum
    }

    /// Carries out the effects of the coordinator after the tasks that are ready now. If these
    /// tasks have requests for the same node, the requests make one call.
    fn carry_out_soon(self: &Rc<Self>) {
        if !self.carrying_out.replace(true) {
            let quorum = self.clone();
            spawn_local(async move {
                quorum.carrying_out.set(false);
                quorum.carry_out();
            });
        }
    }

    /// Carries out the effects of the coordinator.
    fn carry_out(self: &Rc<Self>) {
        let effects = self.coordinator.borrow_mut().take_effects();
        for Call { id, node, requests, timeout } in effects.calls {
            let (store, count, quorum) = (self.nodes[node].clone(), requests.len(), self.clone());
            spawn_local(async move {
                let answers =
                    AssertUnwindSafe(async move { store.execute(requests, timeout).await }).catch_unwind();
                // A node that panics, or leaves out an answer, counts as failed. So each request
                // still gets an answer, and the node keeps its pending releases.
                let answers = answers.await.ok().filter(|answers| answers.len() == count);
                let answers = answers.unwrap_or_else(|| {
                    let name = quorum.coordinator.borrow().name(node);
                    let message =
                        format!("{name} failed by a bug: it panicked, or did not answer every request");
                    all_failed(count, &StoreError::maybe_done(StoreErrorKind::Internal, message))
                });
                quorum.coordinator.borrow_mut().answered(clock::now(), id, answers);
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
        if !self.coordinator.borrow().is_busy() {
            self.idle.notify_waiters();
        }
        self.set_alarm();
    }

    /// Replaces the views in each answer by the merged view.
    async fn merge_views(&self, mut answers: Vec<Answer>) -> Vec<Answer> {
        let has_views = |answer: &Answer| matches!(answer, Ok(Reply::Views(_)));
        if !answers.iter().any(has_views) {
            return answers;
        }
        let _turn = self.merging.lock().await;
        let mut since = clock::now();
        let mut pause = async || {
            if clock::now().since(since) >= MOST_TIME_IN_A_ROW {
                yield_now().await;
                since = clock::now();
            }
        };
        for answer in &mut answers {
            if let Ok(Reply::Views(views)) = answer {
                let views = std::mem::take(views);
                *answer = Ok(merge(views, &mut pause).await);
            }
        }
        answers
    }

    /// Sleeps until the coordinator has something to do next, and then lets the coordinator do it.
    fn set_alarm(self: &Rc<Self>) {
        let Some(at) = self.coordinator.borrow().next_wake() else { return };
        let mut alarm = self.alarm.borrow_mut();
        if alarm.as_ref().is_some_and(|(set, task)| *set <= at && !task.is_finished()) {
            return;
        }
        let quorum = Rc::downgrade(self);
        let task = spawn_local(async move {
            tokio::time::sleep(at.since(clock::now())).await;
            let Some(quorum) = quorum.upgrade() else { return };
            *quorum.alarm.borrow_mut() = None;
            quorum.coordinator.borrow_mut().tick(clock::now());
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
            self.coordinator.borrow_mut().submit(clock::now(), id, batch, timeout);
            self.carry_out_soon();
            let answers = answers.await.unwrap_or_else(|_| {
                let gone = StoreError::maybe_done(StoreErrorKind::Internal, "the quorum forgot a batch");
                all_failed(count, &gone)
            });
            self.merge_views(answers).await
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

    /// Waits until each node has carried out the releases that most nodes have carried out, or
    /// until the coordinator gives up. Otherwise, a node that is away would keep these locks.
    fn finish(self: Rc<Self>) -> Option<LocalBoxFuture<'static, ()>> {
        let is_busy = self.coordinator.borrow().is_busy();
        let finished = async move {
            while self.coordinator.borrow().is_busy() {
                self.idle.notified().await;
            }
        };
        is_busy.then(|| finished.boxed_local())
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async move {
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
