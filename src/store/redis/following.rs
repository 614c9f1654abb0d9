//! Follows failovers, for a store whose master is named by sentinels: which requests wait while a
//! failover is under way, and what the store repeats at the new master.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::address::Endpoint;
use super::link::Link;
use super::sentinel::watch::watch;
use super::{Limit, RedisStore, State};
use crate::lease::{Key, Token};
use crate::store::{Answer, Listener, Notice, Reply, Request, StoreError, StoreErrorKind};

/// How long the store tries to reach a new master by itself. After that, the next request connects.
/// A smaller value leaves the leases of an idle client unrenewed if the new master is slow to
/// start. A larger one costs more attempts if the new master never answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts to connect. A smaller value sends more attempts to a new master
/// that is not up yet. A larger one delays the first renewals there.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one attempt to connect, or one batch of repeated releases, may take. A smaller value
/// gives up a slow master too early. A larger one delays the next attempt, and with it the
/// renewals.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The most releases in one repeated batch. A smaller value takes more round trips. A larger one
/// blocks the new master for longer at a time.
const MOST_RELEASES: usize = 1_000;

/// Returns true for a request that begins or prolongs a lease.
fn grants(request: &Request) -> bool {
    request.lease().is_some()
}

/// Returns true for an answer that gives its client a lease or prolongs one.
fn is_grant(answer: &Answer) -> bool {
    matches!(answer, Ok(Reply::Acquired { .. } | Reply::Renewed { .. } | Reply::Adopted))
}

impl RedisStore {
    /// Returns true if sentinels name the store's master.
    fn has_sentinels(&self) -> bool {
        matches!(self.address.endpoint, Endpoint::Master(_))
    }

    /// Returns true if `link` leads to the server that is the master as far as the lookout knows.
    fn leads_to_master(&self, link: &Link) -> bool {
        link.server().is_none_or(|server| match &server.endpoint {
            Endpoint::Tcp(host, port) => self.lookout.is_master(host, *port),
            Endpoint::Unix(_) | Endpoint::Master(_) => true,
        })
    }

    /// Begins to listen to the sentinels, if there are some. Returns true if `link` leads to
    /// another master than the connection before.
    pub(super) fn follow(&self, link: &Link) -> bool {
        let (Endpoint::Master(sentinels), Some(server)) = (&self.address.endpoint, link.server()) else {
            return false;
        };
        let is_other = self.lookout.connected(&server.endpoint);
        if !self.listens.replace(true) {
            let (sentinels, lookout, me) = (sentinels.clone(), self.lookout.clone(), self.me.clone());
            self.tasks.borrow_mut().spawn_local(async move {
                let switched = || {
                    if let Some(store) = me.upgrade() {
                        store.leave();
                    }
                };
                watch(&sentinels, lookout, switched).await;
            });
        }
        is_other
    }

    /// Gives up the connection to the old master, and connects to the new one.
    fn leave(&self) {
        let mut state = self.state.borrow_mut();
        match &*state {
            State::Connected(link) if self.leads_to_master(link) => {}
            State::Connected(link) => {
                link.give_up();
                *state = State::Apart;
            }
            State::Connecting(_) | State::Apart => *state = State::Apart,
        }
        drop(state);
        let me = self.me.clone();
        self.spawn(async move {
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end {
                let Some(store) = me.upgrade() else { return };
                let limit = Limit { deadline: Instant::now() + ATTEMPT, timeout: ATTEMPT };
                if store.link(limit).await.is_ok() {
                    return;
                }
                drop(store);
                sleep(PAUSE).await;
            }
        });
    }

    /// Runs `task` in the background until it ends or the store closes.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let tasks = &mut *self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }

    /// Repeats the last releases at a new master, which may not have received them from the old
    /// one. Then tells the engine, so that holders renew and waiters ask again.
    pub(super) fn move_on(&self) {
        let (me, listener) = (self.me.clone(), self.listener.get().cloned());
        self.spawn(async move {
            if let Some(store) = me.upgrade() {
                store.release_again().await;
            }
            if let Some(listener) = listener {
                listener(Notice::Moved);
            }
        });
    }

    /// Repeats the last releases. If that fails, those leases end with their ttls.
    async fn release_again(&self) {
        let releases = self.releases.borrow_mut().take();
        for part in releases.chunks(MOST_RELEASES) {
            let release = |(key, token): &(Key, Token)| Request::Release {
                key: key.clone(),
                token: *token,
                used: None,
            };
            let batch: Vec<_> = part.iter().map(release).collect();
            let limit = Limit { deadline: Instant::now() + ATTEMPT, timeout: ATTEMPT };
            self.run(&batch, limit, false).await;
        }
    }

    /// Sends a batch to the server. While a failover is under way, requests that begin or prolong a
    /// lease wait for its end. All other requests are sent at once.
    pub(super) async fn run_when_settled(&self, batch: &[Request], limit: Limit) -> Vec<Answer> {
        if !self.has_sentinels() {
            return self.run(batch, limit, false).await.answers.into_iter().flatten().collect();
        }
        let waits = |request: &Request| self.lookout.is_unsettled() && grants(request);
        let (later, now): (Vec<usize>, Vec<usize>) =
            (0..batch.len()).partition(|&index| waits(&batch[index]));
        if later.is_empty() {
            return self.run_and_check(batch, limit).await;
        }
        let part = |places: &[usize]| places.iter().map(|&place| batch[place].clone()).collect::<Vec<_>>();
        let (first, second) = (part(&now), part(&later));
        let at_once =
            async { if first.is_empty() { Vec::new() } else { self.run_and_check(&first, limit).await } };
        let when_settled = async {
            // Replicas may still be connecting to the new master. With little time left, they would
            // not acknowledge the lease in time. If the request fails now, the engine repeats it
            // with its whole time-out.
            let enough =
                |limit: Limit| limit.deadline.saturating_duration_since(Instant::now()) >= limit.timeout / 3;
            if self.lookout.settled(limit.deadline).await && enough(limit) {
                return self.run_and_check(&second, limit).await;
            }
            let error = StoreError { maybe_done: false, ..self.unsettled() };
            second.iter().map(|_| Err(error.clone())).collect()
        };
        let (first, second) = futures_util::join!(at_once, when_settled);
        let mut answers: Vec<(usize, Answer)> =
            now.into_iter().zip(first).chain(later.into_iter().zip(second)).collect();
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Sends a batch to the server. If a failover began or ended meanwhile, turns each grant into
    /// an error: the new master may not know the lease. Remembers the releases.
    async fn run_and_check(&self, batch: &[Request], limit: Limit) -> Vec<Answer> {
        let switches = self.lookout.switches();
        let mut answers: Vec<Answer> =
            self.run(batch, limit, false).await.answers.into_iter().flatten().collect();
        let switched = self.lookout.switches() != switches;
        let unsettled = switched || self.lookout.is_unsettled();
        let now = Instant::now();
        let mut released_too_late = false;
        for (request, answer) in batch.iter().zip(&mut answers) {
            match (request, &*answer) {
                // Remember also a release that only gave up a place in the queue: the new master
                // may still have the waiter there.
                (Request::Release { key, token, .. }, Ok(_)) => {
                    self.releases.borrow_mut().add(key.clone(), *token, now, unsettled);
                    released_too_late |= switched;
                }
                _ if unsettled && is_grant(answer) => *answer = Err(self.unsettled()),
                _ => {}
            }
        }
        if released_too_late {
            let me = self.me.clone();
            self.spawn(async move {
                if let Some(store) = me.upgrade() {
                    store.release_again().await;
                }
            });
        }
        answers
    }

    /// Returns the error of a request that a failover keeps from counting.
    fn unsettled(&self) -> StoreError {
        let message = format!(
            "{}: a failover is under way, and the new master may not receive this lease, so the lease does not count; try \
             again when the sentinels have named the new master",
            self.address
        );
        StoreError::maybe_done(StoreErrorKind::ReadOnly, message)
    }

    /// Returns the listener for the notices of a connection. While a failover is under way, it
    /// removes the fence from a notice. Without the fence, a waiter that is handed a lease has to
    /// ask for it, and the answer shows whether the lease counts.
    pub(super) fn listener_of_link(&self, listener: &Listener) -> Listener {
        if !self.has_sentinels() {
            return listener.clone();
        }
        let (lookout, listener) = (self.lookout.clone(), listener.clone());
        Rc::new(move |notice| match notice {
            Notice::Granted { number, fence: Some(_) } if lookout.is_unsettled() => {
                listener(Notice::Granted { number, fence: None });
            }
            notice => listener(notice),
        })
    }

    /// Ends all tasks in the background.
    pub(super) fn stop_following(&self) {
        *self.tasks.borrow_mut() = JoinSet::new();
        self.listens.set(false);
    }
}
