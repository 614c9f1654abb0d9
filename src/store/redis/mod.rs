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
//! - [`address`]: the URL;
//! - [`connect`]: a connection that is fit for locks;
//! - [`greeting`]: the first words on it;
//! - [`link`]: the connection in use, and when to give it up;
//! - [`notices`]: what comes over it unasked;
//! - [`scripts`]: what the server runs;
//! - [`plan`]: requests as script calls;
//! - [`reply`]: the calls' replies as answers, and [`outcomes`]: where they are put;
//! - [`fault`]: the server's errors in the contract's words;
//! - [`cluster`]: many such servers as one store.

mod address;
mod cluster;
mod connect;
mod fault;
mod greeting;
mod link;
mod notices;
mod outcomes;
mod plan;
mod reply;
mod scripts;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, Shared};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

pub use address::RedisAddress;
pub use cluster::{ClusterAddress, ClusterStore};

use self::connect::Role;
use self::link::{Cut, Link};
use self::outcomes::Outcomes;
use self::plan::Group;
use super::{Answer, Listener, Notice, Request, Store, StoreError, StoreErrorKind, all_failed};

type Connecting = Shared<LocalBoxFuture<'static, Result<Rc<Link>, StoreError>>>;

/// A Redis server. Connects when it is first needed, and again whenever the connection has failed; requests that may
/// have been carried out are never sent again.
///
/// It needs a local tokio runtime (or a `LocalSet` on one) with I/O and time.
pub struct RedisStore {
    address: RedisAddress,
    role: Cell<Role>,
    state: RefCell<State>,
    /// Whether there has been a connection.
    met: Cell<bool>,
    listener: OnceCell<Listener>,
}

/// How long one attempt to connect may take; the batch after that begins another.
const ATTEMPT: Duration = Duration::from_secs(2);

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

/// Begins to connect, in a task of its own: it goes on, and ends, also while nobody waits for it, and no longer than
/// [`ATTEMPT`]. It is given up with the last of its clones.
fn begin(address: RedisAddress, role: Role) -> Connecting {
    let connecting = async move {
        let mut task = JoinSet::new();
        task.spawn(timeout(ATTEMPT, connect::connect(address.clone(), role)));
        match task.join_next().await {
            Some(Ok(Ok(link))) => link.map(Rc::new),
            Some(Ok(Err(_))) => Err(StoreError::not_done(
                StoreErrorKind::TimedOut,
                format!("{address} let nobody in within {} s: is it overloaded?", ATTEMPT.as_secs()),
            )),
            _ => Err(StoreError::not_done(StoreErrorKind::Internal, format!("{address}: connecting failed"))),
        }
    };
    connecting.boxed_local().shared()
}

impl RedisStore {
    /// The server at `address`.
    pub fn new(address: RedisAddress) -> Rc<Self> {
        Self::with_role(address, Role::Alone)
    }

    fn with_role(address: RedisAddress, role: Role) -> Rc<Self> {
        let (role, state) = (Cell::new(role), RefCell::new(State::Apart));
        Rc::new(Self { address, role, state, met: Cell::new(false), listener: OnceCell::new() })
    }

    /// The connection, made unless it is there or being made.
    async fn link(&self, limit: Limit) -> Result<Rc<Link>, StoreError> {
        let known = match &*self.state.borrow() {
            State::Connected(link) if !link.is_dead() => return Ok(link.clone()),
            State::Connecting(attempt) => Some(attempt.clone()),
            _ => None,
        };
        // One that failed while nobody waited for it says nothing about now.
        let known = known.filter(|attempt| !matches!(attempt.clone().now_or_never(), Some(Err(_))));
        let attempt = known.unwrap_or_else(|| {
            let attempt = begin(self.address.clone(), self.role.get());
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
                    "{} let nobody in within {} ms: is it a Redis server, and is it overloaded?",
                    self.address,
                    limit.timeout.as_millis()
                );
                Err(StoreError::not_done(StoreErrorKind::TimedOut, message))
            }
        }
    }

    /// Notices come over `link` from now on.
    fn connected(&self, link: &Rc<Link>) {
        let pushes = link.take_pushes();
        let Some(listener) = self.listener.get() else { return };
        if let Some(pushes) = pushes {
            notices::hand_on(pushes, listener.clone(), Rc::downgrade(link));
        }
        // Those who wait have told the server of a channel that nobody listens to any more.
        if self.met.replace(true) {
            listener(Notice::Missed);
        }
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
        let missing = match self.ask(&link, batch, limit, asking, &mut outcomes).await {
            Ok(()) => fault::not_a_redis(&self.address, true),
            Err(cut) => self.cut(&cut, limit),
        };
        outcomes.fill_in(&missing);
        if outcomes.answers.iter().flatten().any(|answer| answer.as_ref().is_err_and(wants_new_connection)) {
            let mut state = self.state.borrow_mut();
            if matches!(&*state, State::Connected(current) if Rc::ptr_eq(current, &link)) {
                *state = State::Apart;
            }
        }
        outcomes
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
        let mut groups = plan::groups(batch, self.node().is_some());
        let mut load = false;
        // More than one round only for groups that were refused as a whole, and so certainly not carried out:
        // because the server did not know the scripts (any more), for the rights on one of their keys, or because one
        // of their keys is on its way to another node.
        for round in 0..3 {
            let pipeline = plan::pipeline(batch, &groups, load, asking, link.channel());
            let mut replies = link.send(&pipeline, limit.deadline, limit.timeout).await?.into_iter();
            let each = 1 + usize::from(asking);
            let before = pipeline.len() - groups.len() * each;
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
                    (Some("NOSCRIPT"), Some(error)) => outcomes.refuse(&self.address, &group.members, error),
                    (Some("NOPERM" | "TRYAGAIN"), _) if round < 2 && group.members.len() > 1 => {
                        again.extend(group.apart())
                    }
                    _ => reply::read(&self.address, &group, reply, link.channel().is_some(), outcomes),
                }
            }
            if again.is_empty() {
                break;
            }
            groups = again;
        }
        Ok(())
    }

    fn cut(&self, cut: &Cut, limit: Limit) -> StoreError {
        match cut {
            Cut::TimedOut => {
                let message =
                    format!("{} did not answer within {} ms", self.address, limit.timeout.as_millis());
                StoreError::maybe_done(StoreErrorKind::TimedOut, message)
            }
            Cut::Broken(error) => fault::broken(&self.address, error, true),
            Cut::Torn => {
                let message =
                    format!("{} gave a slot away meanwhile, so the connection is renewed", self.address);
                StoreError::maybe_done(StoreErrorKind::Unreachable, message)
            }
        }
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
            self.run(&batch, limit, false).await.answers.into_iter().flatten().collect()
        }
        .boxed_local()
    }

    fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async move {
            *self.state.borrow_mut() = State::Apart;
            // The driver, which holds the socket, ends when it is next scheduled.
            tokio::task::yield_now().await;
        }
        .boxed_local()
    }
}
