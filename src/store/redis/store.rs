//! A store on one Redis server.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::address::RedisAddress;
use super::batch_attempt::BatchAttempt;
use super::budget::Budget;
use super::connect::Role;
use super::connection_attempt::Connecting;
use super::endpoint::Endpoint;
use super::link::{Disconnect, Link};
use super::outcomes::Outcomes;
use super::reader::Reader;
use super::releases::Releases;
use super::replicas::AwaitedWrites;
use super::sentinel::master_tracker::MasterTracker;
use super::time_limit::TimeLimit;
use super::{connection_attempt, diagnose, notices, order, permission_check, pipeline, reply};
use crate::store::diagnosis::{self, Facts, Report, ServerFacts};
use crate::store::{Answer, Listener, Notice, Reply, Request, Store, StoreError, StoreErrorKind, all_failed};

/// A store on one Redis server, or on the master that sentinels name. Connects on the first
/// request, and again after the connection has failed. Of the requests that the server may have
/// carried out, repeats only releases, and only after a failover.
///
/// The store needs a local tokio runtime (or a `LocalSet` on one) with I/O and time.
pub struct RedisStore {
    pub(super) address: RedisAddress,
    pub(super) role: Cell<Role>,
    /// Limits the memory that the connections take. The nodes of a cluster share it.
    pub(super) budget: Arc<Budget>,
    pub(super) state: RefCell<State>,
    /// True if there has been a connection.
    pub(super) met: Cell<bool>,
    pub(super) listener: OnceCell<Listener>,
    /// Knows where the master is, if sentinels name it.
    pub(super) master_tracker: Rc<MasterTracker>,
    /// True while the store listens to the sentinels.
    pub(super) listens: Cell<bool>,
    /// The last releases, if sentinels name the master.
    pub(super) releases: RefCell<Releases>,
    /// True while a task repeats releases at the new master.
    pub(super) repeats: Cell<bool>,
    /// When the task that connects to a new master gives up; `None` if no such task runs.
    pub(super) reconnects_until: Cell<Option<Instant>>,
    /// The tasks in the background. They end when the store closes.
    pub(super) tasks: RefCell<JoinSet<()>>,
    /// This store, for its tasks.
    pub(super) me: Weak<RedisStore>,
}

pub(super) enum State {
    Apart,
    /// One attempt, for all batches that wait for it.
    Connecting(Connecting),
    Connected(Rc<Link>),
}

impl RedisStore {
    /// Returns the store on the server at `address`.
    pub fn new(address: RedisAddress) -> Rc<Self> {
        Self::with_role(address, Role::Alone, Budget::new())
    }

    pub(super) fn with_role(address: RedisAddress, role: Role, budget: Arc<Budget>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            address,
            role: Cell::new(role),
            budget,
            state: RefCell::new(State::Apart),
            met: Cell::new(false),
            listener: OnceCell::new(),
            master_tracker: Rc::default(),
            listens: Cell::new(false),
            releases: RefCell::default(),
            repeats: Cell::new(false),
            reconnects_until: Cell::new(None),
            tasks: RefCell::default(),
            me: me.clone(),
        })
    }

    /// Returns the connection. Begins to connect if there is neither a connection nor an attempt.
    pub(super) async fn link(&self, limit: TimeLimit) -> Result<Rc<Link>, StoreError> {
        self.listen_to_sentinels();
        let known = match &*self.state.borrow() {
            State::Connected(link) if !link.is_dead() => return Ok(link.clone()),
            State::Connecting(attempt) => Some(attempt.clone()),
            _ => None,
        };
        // An attempt that failed while no batch waited for it says nothing about the server now.
        let known = known.filter(|attempt| !matches!(attempt.clone().now_or_never(), Some(Err(_))));
        let attempt = known.unwrap_or_else(|| {
            let (role, master_tracker, budget) =
                (self.role.get(), self.master_tracker.clone(), self.budget.clone());
            let attempt = connection_attempt::begin(self.address.clone(), role, master_tracker, budget);
            *self.state.borrow_mut() = State::Connecting(attempt.clone());
            attempt
        });
        let result = timeout_at(limit.deadline, attempt.clone()).await;
        let mut state = self.state.borrow_mut();
        let is_current = matches!(&*state, State::Connecting(current) if current.ptr_eq(&attempt));
        match result {
            Ok(Ok(link)) => {
                if is_current {
                    *state = State::Connected(link.clone());
                    drop(state);
                    self.connected(&link);
                }
                Ok(link)
            }
            Ok(Err(error)) => {
                if is_current {
                    *state = State::Apart;
                }
                Err(error)
            }
            // The attempt goes on, for later batches: connecting takes more round trips than a
            // batch, and may take longer than this batch has.
            Err(_) => {
                let message = format!(
                    "{} did not answer in time when connecting to it: it may be frozen, overloaded, or no Redis server",
                    self.address
                );
                Err(StoreError::not_done(StoreErrorKind::TimedOut, message))
            }
        }
    }

    /// Takes the new connection `link` into use. Passes its notices to the listener, and repeats
    /// the last releases if it leads to another master than before.
    fn connected(&self, link: &Rc<Link>) {
        let is_other = self.follow(link);
        let pushes = link.take_pushes();
        if let Some(listener) = self.listener.get() {
            if let Some(pushes) = pushes {
                notices::forward(pushes, self.listener_of_link(listener), Rc::downgrade(link));
            }
            // Notices for the waiters go to the channel of the connection before, which is closed.
            if self.met.replace(true) {
                listener(Notice::Missed);
            }
        }
        if is_other {
            self.move_on();
        }
    }

    /// Asks the server for its facts.
    async fn facts(&self, limit: TimeLimit) -> Result<Box<ServerFacts>, StoreError> {
        let link = self.link(limit).await?;
        let facts = diagnose::facts(&link, self.server(&link), limit.deadline, limit.timeout).await;
        let mut facts = facts.map_err(|cut| cut.error(&self.address))?;
        if let Endpoint::Master(_) = self.address.endpoint {
            // The next connection may lead to another server.
            facts.run_id = None;
        }
        Ok(facts)
    }

    /// Sends a batch to the server. If `asking` is true, a node of a cluster also carries out
    /// requests in a slot that it is still importing.
    pub(super) async fn run(&self, batch: &[Request], limit: TimeLimit, asking: bool) -> Outcomes {
        let mut outcomes = Outcomes::none(batch.len(), self.node());
        let link = match self.link(limit).await {
            Ok(link) => link,
            Err(error) => {
                outcomes.answers = all_failed(batch.len(), &error).into_iter().map(Some).collect();
                return outcomes;
            }
        };
        let cut = match self.ask(&link, batch, limit, asking, &mut outcomes).await {
            Ok(()) if outcomes.are_whole() => None,
            Ok(()) => {
                link.lose_step();
                // The other replies fit, but they may belong to other requests.
                outcomes.answers.fill(None);
                Some(Disconnect::OutOfStep)
            }
            Err(cut) => Some(cut),
        };
        if let Some(cut) = cut {
            outcomes.fill_in(&cut.error(self.server(&link)));
        }
        if outcomes.answers.iter().flatten().any(|answer| answer.as_ref().is_err_and(wants_new_connection)) {
            let mut state = self.state.borrow_mut();
            if matches!(&*state, State::Connected(current) if Rc::ptr_eq(current, &link)) {
                *state = State::Apart;
            }
        }
        outcomes
    }

    /// Returns the address of the server at the other end of `link`.
    pub(super) fn server<'a>(&'a self, link: &'a Link) -> &'a RedisAddress {
        link.server().unwrap_or(&self.address)
    }

    /// Sends a batch over `link`, and adds the server's answers to `outcomes`.
    async fn ask(
        &self,
        link: &Link,
        batch: &[Request],
        limit: TimeLimit,
        asking: bool,
        outcomes: &mut Outcomes,
    ) -> Result<(), Disconnect> {
        let address = self.server(link);
        let mut groups = pipeline::groups(batch, self.node().is_some());
        let mut load = false;
        let mut reader = Reader::of(link.budget());
        // Later attempts repeat only groups that the server refused as a whole, and so did not
        // carry out. It refuses a group if it does not know the scripts, if the user lacks a right
        // to one of the keys, or if one of the keys is moving to another node.
        for attempt in 0..3 {
            let needs_replicas = address.min_replicas > 0;
            let mut pipeline =
                pipeline::pipeline(batch, &groups, load, asking, link.channel(), needs_replicas);
            let each = 1 + usize::from(asking);
            let before = pipeline.len() - groups.len() * each;
            let awaited = AwaitedWrites::of(address, &groups, limit.deadline - Instant::now());
            if let Some(awaited) = &awaited {
                pipeline.add_command(awaited.command(address));
            }
            let (mut replies, _charge) = link.send(&pipeline, limit.deadline, limit.timeout).await?;
            let waited = awaited.as_ref().and_then(|_| replies.pop());
            let mut replies = replies.into_iter();
            let loaded = replies.by_ref().take(before).find_map(reply::server_error);
            let replies = replies.skip(each - 1).step_by(each);
            let notified = link.channel().is_some();
            let read = BatchAttempt { address, loaded, is_last: attempt == 2, notified };
            let next = read.read(groups, replies, &mut reader, outcomes).await;
            if let Some(awaited) = awaited {
                awaited.check(address, waited, &mut outcomes.answers);
            }
            if next.groups.is_empty() {
                break;
            }
            (load, groups) = (next.load, next.groups);
        }
        Ok(())
    }
}

/// Returns true if a new connection may help: after a failover, the host name may lead to the new
/// master, and a server that the client can't use may have been replaced.
fn wants_new_connection(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::ReadOnly | StoreErrorKind::Unsupported)
}

impl Store for RedisStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            if batch.is_empty() {
                return Vec::new();
            }
            let limit = TimeLimit { deadline: Instant::now() + timeout, timeout };
            let asked = diagnosis::asked(&batch);
            if asked.is_empty() {
                let mut answers = self.run_when_settled(&batch, limit).await;
                self.list_all(&batch, limit, &mut answers).await;
                return answers;
            }
            let (mut answers, facts) =
                futures_util::join!(self.run_when_settled(&batch, limit), self.facts(limit));
            self.list_all(&batch, limit, &mut answers).await;
            for (index, ttl, key) in asked {
                let report = match &facts {
                    Ok(facts) => {
                        let mut facts = facts.clone();
                        if let Some(key) = key {
                            let answers =
                                self.run_when_settled(&permission_check::requests(key), limit).await;
                            facts.denied = permission_check::denial(&answers);
                        }
                        Report::new(self.address.to_string(), Facts::Server(facts), ttl, false)
                    }
                    Err(error) => Report::unusable(self.address.to_string(), error),
                };
                answers[index] = Ok(Reply::Diagnosed(vec![report]));
            }
            answers
        }
        .boxed_local()
    }

    /// Separates the requests that may wait for the sentinels, so that they do not hold up the
    /// others.
    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        if self.may_wait_for_sentinels() { order::parts(batch) } else { None }
    }

    fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async move {
            *self.state.borrow_mut() = State::Apart;
            self.stop_following();
            // The driver holds the socket, and ends when it is next scheduled.
            tokio::task::yield_now().await;
        }
        .boxed_local()
    }
}
