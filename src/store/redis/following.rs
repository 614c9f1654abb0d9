//! A store whose master sentinels name: what it does while a failover is under way, and after one.

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

/// How long the store tries to reach a new master by itself. After that, the next request does.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How long one attempt, or a batch of repeated releases, may take.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The most releases that are repeated in one batch.
const MOST_RELEASES: usize = 1_000;

/// Returns true for a request that begins or prolongs a lease.
fn grants(request: &Request) -> bool {
    request.lease().is_some()
}

fn is_grant(answer: &Answer) -> bool {
    matches!(answer, Ok(Reply::Acquired { .. } | Reply::Renewed { .. } | Reply::Adopted))
}

impl RedisStore {
    /// Returns true if sentinels name the master.
    fn has_sentinels(&self) -> bool {
        matches!(self.address.endpoint, Endpoint::Master(_))
    }

    /// Returns true if `link` leads to the server that is the master as far as is known.
    fn leads_to_master(&self, link: &Link) -> bool {
        link.server().is_none_or(|server| match &server.endpoint {
            Endpoint::Tcp(host, port) => self.lookout.is_master(host, *port),
            Endpoint::Unix(_) | Endpoint::Master(_) => true,
        })
    }

    /// Begins to listen to the sentinels, if there are some. Returns true if `link` leads to another master than the one
    /// before.
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

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let tasks = &mut *self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }

    /// There is a connection to another master. It may not have heard of the last releases at the one before, so they are
    /// repeated. Then holders renew, and waiters ask again.
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

    /// Repeats the last releases. Nothing is lost if that fails: the leases end by their ttls.
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

    /// Asks the server. While a failover is under way, requests that begin or prolong a lease wait for its end; the others do
    /// not.
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
            // With little time left, replicas that have yet to find the new master would not have it in time. Asked again, they
            // have all of it.
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

    /// Asks the server, and takes back what it granted if it may be the master no more.
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
                // Also one that only gave up a place in the queue, in which the new master would keep it.
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

    fn unsettled(&self) -> StoreError {
        let message = format!(
            "{}: a failover is under way, and the new master may not hear of this lease, so it does not count; try again \
             when the sentinels have named the new master",
            self.address
        );
        StoreError::maybe_done(StoreErrorKind::ReadOnly, message)
    }

    /// The listener for the notices of a connection. While a failover is under way, a waiter that is handed a lease has to ask
    /// for it: told its fence, it would take the lease up without asking.
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

    /// Ends what goes on in the background.
    pub(super) fn stop_following(&self) {
        *self.tasks.borrow_mut() = JoinSet::new();
        self.listens.set(false);
    }
}
