//! One Redis server, 6.2 or later, or Valkey.
//!
//! A lock is a plain string key that holds the lease's token and expires by itself, so leasehold and any library
//! that does `SET key token NX PX ttl` exclude each other (Redis, "Distributed locks with Redis"). Of shared leases it is
//! a sorted set, which such a library finds taken just so. Beside it, in the same slot, a fence key remembers the last
//! fence, and whose it was; and, as long as somebody waits, other keys who does. All that is said in
//! `scripts/rules.lua`, where the contract's rules for one lock are.
//!
//! Notices come over the same connection, as pushes of RESP3 on a channel that is the connection's own.
//!
//! - [`address`]: where it is, and [`url`], how that is written;
//! - [`dial`]: the way to the server, also over TLS, and [`distrust`], why connecting failed;
//! - [`connect`]: a connection that is fit for locks, and [`attempt`], one try to have one;
//! - [`greeting`]: the first words on it;
//! - [`intake`]: limits the memory that a server makes us use; [`reply_scanner`] measures it, and
//!   [`budget`] counts it for all connections of a store;
//! - [`link`]: the connection in use, and when to give it up;
//! - [`notices`]: what comes over it unasked;
//! - [`scripts`]: what the server runs, and [`side_keys`], which other keys belong to a lock;
//! - [`plan`]: requests as script calls;
//! - [`reply`]: the calls' replies as answers, [`outcomes`], where they are put, and [`replicas`], which of them count;
//! - [`listing`]: which locks there are;
//! - [`info`]: the replies to `INFO`;
//! - [`diagnose`]: what there is to know about the server, and [`trial`], whether this user may
//!   lock there;
//! - [`fault`]: the server's errors in the contract's words;
//! - [`sentinel`]: which server is the master;
//! - [`following`]: what happens to requests during and after a failover;
//! - [`order`]: which requests wait for the end of a failover, and [`releases`]: the last releases,
//!   to repeat them at the new master;
//! - [`cluster`]: many such servers as one store.

mod address;
#[cfg(test)]
mod address_fuzz;
mod attempt;
mod budget;
mod cluster;
mod connect;
mod diagnose;
mod dial;
mod distrust;
mod fault;
mod following;
mod greeting;
mod info;
mod intake;
mod link;
mod listing;
mod notices;
mod order;
mod outcomes;
mod plan;
mod releases;
mod replicas;
mod reply;
#[cfg(test)]
mod reply_fuzz;
mod reply_scanner;
mod scripts;
mod sentinel;
mod side_keys;
#[cfg(test)]
mod side_keys_fuzz;
mod trial;
mod url;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

pub use address::RedisAddress;
pub use cluster::{ClusterAddress, ClusterStore};
pub use side_keys::lock_beside;

use self::address::Endpoint;
use self::attempt::Connecting;
use self::budget::Budget;
use self::connect::Role;
use self::link::{Cut, Link};
use self::outcomes::Outcomes;
use self::plan::Group;
use self::releases::Releases;
use self::replicas::Watched;
use self::sentinel::lookout::Lookout;
use super::diagnosis::{self, Facts, Report, ServerFacts};
use super::{Answer, Listener, Notice, Reply, Request, Store, StoreError, StoreErrorKind, all_failed};

/// A Redis server. Connects when it is first needed, and again whenever the connection has failed; requests that may
/// have been carried out are never sent again.
///
/// It needs a local tokio runtime (or a `LocalSet` on one) with I/O and time.
pub struct RedisStore {
    address: RedisAddress,
    role: Cell<Role>,
    /// Limits the memory that the connections take. The nodes of a cluster share it.
    budget: Arc<Budget>,
    state: RefCell<State>,
    /// Whether there has been a connection.
    met: Cell<bool>,
    listener: OnceCell<Listener>,
    /// Knows where the master is, if sentinels name it.
    lookout: Rc<Lookout>,
    /// True while the store listens to the sentinels.
    listens: Cell<bool>,
    /// The last releases, if sentinels name the master.
    releases: RefCell<Releases>,
    /// True while a task repeats releases at the new master.
    repeats: Cell<bool>,
    /// The tasks in the background. They end when the store closes.
    tasks: RefCell<JoinSet<()>>,
    /// This store, for its tasks.
    me: Weak<RedisStore>,
}

enum State {
    Apart,
    /// One attempt, for all batches that wait for it.
    Connecting(Connecting),
    Connected(Rc<Link>),
}

/// When a batch has to be answered.
#[derive(Clone, Copy)]
struct Limit {
    deadline: Instant,
    timeout: Duration,
}

impl RedisStore {
    /// The server at `address`.
    pub fn new(address: RedisAddress) -> Rc<Self> {
        Self::with_role(address, Role::Alone, Budget::new())
    }

    fn with_role(address: RedisAddress, role: Role, budget: Arc<Budget>) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            address,
            role: Cell::new(role),
            budget,
            state: RefCell::new(State::Apart),
            met: Cell::new(false),
            listener: OnceCell::new(),
            lookout: Rc::default(),
            listens: Cell::new(false),
            releases: RefCell::default(),
            repeats: Cell::new(false),
            tasks: RefCell::default(),
            me: me.clone(),
        })
    }

    /// The connection, made unless it is there or being made.
    async fn link(&self, limit: Limit) -> Result<Rc<Link>, StoreError> {
        self.listen_to_sentinels();
        let known = match &*self.state.borrow() {
            State::Connected(link) if !link.is_dead() => return Ok(link.clone()),
            State::Connecting(attempt) => Some(attempt.clone()),
            _ => None,
        };
        // One that failed while nobody waited for it says nothing about now.
        let known = known.filter(|attempt| !matches!(attempt.clone().now_or_never(), Some(Err(_))));
        let attempt = known.unwrap_or_else(|| {
            let (role, lookout, budget) = (self.role.get(), self.lookout.clone(), self.budget.clone());
            let attempt = attempt::begin(self.address.clone(), role, lookout, budget);
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
            // It goes on: connecting takes more round trips than a batch, and may well outlast the most impatient.
            Err(_) => {
                let message = format!(
                    "{} did not answer in time when connecting to it: it may be frozen, overloaded, or no Redis server",
                    self.address
                );
                Err(StoreError::not_done(StoreErrorKind::TimedOut, message))
            }
        }
    }

    /// Notices come over `link` from now on.
    fn connected(&self, link: &Rc<Link>) {
        let is_other = self.follow(link);
        let pushes = link.take_pushes();
        if let Some(listener) = self.listener.get() {
            if let Some(pushes) = pushes {
                notices::hand_on(pushes, self.listener_of_link(listener), Rc::downgrade(link));
            }
            // The waiters' notices go to the channel of the connection before, which is closed.
            if self.met.replace(true) {
                listener(Notice::Missed);
            }
        }
        if is_other {
            self.move_on();
        }
    }

    /// What there is to know about the server.
    async fn facts(&self, limit: Limit) -> Result<Box<ServerFacts>, StoreError> {
        let link = self.link(limit).await?;
        let facts = diagnose::facts(&link, self.server(&link), limit.deadline, limit.timeout).await;
        let mut facts = facts.map_err(|cut| cut_off(&cut, &self.address))?;
        if let Endpoint::Master(_) = self.address.endpoint {
            // It may be another one next time.
            facts.run_id = None;
        }
        Ok(facts)
    }

    /// Asks the server. `asking`: also what is in a slot that it is still being given.
    async fn run(&self, batch: &[Request], limit: Limit, asking: bool) -> Outcomes {
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
                Some(Cut::OutOfStep)
            }
            Err(cut) => Some(cut),
        };
        if let Some(cut) = cut {
            outcomes.fill_in(&cut_off(&cut, self.server(&link)));
        }
        if outcomes.answers.iter().flatten().any(|answer| answer.as_ref().is_err_and(wants_new_connection)) {
            let mut state = self.state.borrow_mut();
            if matches!(&*state, State::Connected(current) if Rc::ptr_eq(current, &link)) {
                *state = State::Apart;
            }
        }
        outcomes
    }

    /// Who is at the other end of `link`.
    fn server<'a>(&'a self, link: &'a Link) -> &'a RedisAddress {
        link.server().unwrap_or(&self.address)
    }

    /// Fills in the answers that the server gives.
    async fn ask(
        &self,
        link: &Link,
        batch: &[Request],
        limit: Limit,
        asking: bool,
        outcomes: &mut Outcomes,
    ) -> Result<(), Cut> {
        let address = self.server(link);
        let mut groups = plan::groups(batch, self.node().is_some());
        let mut load = false;
        // More than one round only for groups that were refused as a whole, and so certainly not carried out:
        // because the server did not know the scripts (any more), for the rights on one of their keys, or because one
        // of their keys is on its way to another node.
        for round in 0..3 {
            let mut pipeline = plan::pipeline(batch, &groups, load, asking, link.channel());
            let each = 1 + usize::from(asking);
            let before = pipeline.len() - groups.len() * each;
            let watched = Watched::of(address, &groups, limit.deadline - Instant::now());
            if let Some(watched) = &watched {
                pipeline.add_command(watched.command(address));
            }
            let mut replies = link.send(&pipeline, limit.deadline, limit.timeout).await?;
            let waited = watched.as_ref().and_then(|_| replies.pop());
            let mut replies = replies.into_iter();
            let loaded = replies.by_ref().take(before).find_map(reply::server_error);
            let replies = replies.skip(each - 1).step_by(each);
            let mut again: Vec<Group> = Vec::new();
            load = false;
            for (group, reply) in groups.into_iter().zip(replies) {
                match (reply::refusal(&reply), &loaded) {
                    (Some("NOSCRIPT"), None) if round < 2 => {
                        load = true;
                        again.push(group);
                    }
                    // Why the script could not be loaded says more than that it is missing.
                    (Some("NOSCRIPT"), Some(error)) => outcomes.refuse(address, &group.members, error),
                    (Some("NOPERM" | "TRYAGAIN"), _) if round < 2 && group.members.len() > 1 => {
                        again.extend(group.apart())
                    }
                    _ => reply::read(address, &group, reply, link.channel().is_some(), outcomes),
                }
            }
            if let Some(watched) = watched {
                watched.check(address, waited, &mut outcomes.answers);
            }
            if again.is_empty() {
                break;
            }
            groups = again;
        }
        Ok(())
    }
}

/// The error of requests that were sent and not answered.
fn cut_off(cut: &Cut, address: &RedisAddress) -> StoreError {
    match cut {
        Cut::TimedOut => {
            // Not within how many ms: near the end of a lease there are fewer.
            let message = format!("{address} did not answer in time");
            StoreError::maybe_done(StoreErrorKind::TimedOut, message)
        }
        Cut::Torn => {
            let message = format!("{address} gave a slot away meanwhile, so the connection is renewed");
            StoreError::maybe_done(StoreErrorKind::Unreachable, message)
        }
        Cut::OutOfStep => fault::out_of_step(address),
        Cut::TooMuch(excess) => fault::too_much(address, *excess),
        Cut::Broken(error) => fault::broken(address, error, true),
    }
}

/// After a failover the name may lead to the new master; rights may have been granted; what answers nonsense may have
/// been replaced.
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
            let limit = Limit { deadline: Instant::now() + timeout, timeout };
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
                            let answers = self.run_when_settled(&trial::requests(key), limit).await;
                            facts.denied = trial::denial(&answers);
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
            // The driver, which holds the socket, ends when it is next scheduled.
            tokio::task::yield_now().await;
        }
        .boxed_local()
    }
}
