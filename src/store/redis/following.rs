//! Follows failovers, for a store whose master is named by sentinels. Decides which requests wait
//! while a failover is under way, and repeats releases at the new master.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::endpoint::Endpoint;
use super::link::Link;
use super::order;
use super::releases::Released;
use super::sentinel::survey::Survey;
use super::sentinel::watcher::SentinelWatcher;
use super::store::{RedisStore, State};
use super::time_limit::TimeLimit;
use crate::store::{Answer, Listener, Notice, Reply, Request, StoreError, StoreErrorKind, all_failed};

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
/// The longest pause before the store repeats releases again that the new master did not answer.
/// The pause begins with [`PAUSE`] and doubles. A smaller value sends more attempts to a master
/// that is not up. A larger one frees the locks later.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The most releases in one repeated batch. A smaller value takes more round trips. A larger one
/// blocks the new master for longer at a time.
const MOST_RELEASES: usize = 1_000;

/// Returns true for an answer that gives its client a lease or prolongs one, or confirms the fence
/// of a lease.
fn is_grant(answer: &Answer) -> bool {
    matches!(answer, Ok(Reply::Acquired { .. } | Reply::Renewed { .. } | Reply::Adopted(_) | Reply::Accepted))
}

impl RedisStore {
    /// Returns true if sentinels name the store's master.
    fn has_sentinels(&self) -> bool {
        matches!(self.address.endpoint, Endpoint::Master(_))
    }

    /// Returns true if grants may have to wait until the sentinels have said whether a failover is
    /// under way. A new connection to the master makes the client ask them again.
    pub(super) fn may_wait_for_sentinels(&self) -> bool {
        let has_link = matches!(&*self.state.borrow(), State::Connected(link) if !link.is_dead());
        self.has_sentinels() && !(self.listens.get() && has_link && self.master_tracker.is_surveyed())
    }

    /// Returns true if `link` leads to the server that is the master as far as the master tracker
    /// knows.
    fn leads_to_master(&self, link: &Link) -> bool {
        link.server().is_none_or(|server| match &server.endpoint {
            Endpoint::Tcp(host, port) => self.master_tracker.is_master(host, *port),
            Endpoint::Unix(_) | Endpoint::Master(_) => true,
        })
    }

    /// Begins to listen to the sentinels, if there are any and the store does not listen yet. This
    /// takes about as long as connecting to the master, so the store does both at once.
    pub(super) fn listen_to_sentinels(&self) {
        let Endpoint::Master(sentinels) = &self.address.endpoint else { return };
        if self.listens.replace(true) {
            return;
        }
        let me = self.me.clone();
        let switched = move || {
            if let Some(store) = me.upgrade() {
                store.leave();
            }
        };
        let watcher = SentinelWatcher::begin(sentinels, self.master_tracker.clone(), self.budget.clone());
        self.tasks.borrow_mut().spawn_local(watcher.run(switched));
    }

    /// Notes which master `link` leads to. Returns true if the connection before led to another
    /// master.
    pub(super) fn follow(&self, link: &Link) -> bool {
        link.server().is_some_and(|server| self.master_tracker.connected(&server.endpoint))
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
        let until = Instant::now() + PATIENCE;
        // A sentinel may name other masters again and again. One task connects to all of them, with
        // a pause after each attempt.
        if self.reconnects_until.replace(Some(until)).is_some() {
            return;
        }
        let me = self.me.clone();
        self.spawn(async move {
            loop {
                let Some(store) = me.upgrade() else { return };
                let limit = TimeLimit { deadline: Instant::now() + ATTEMPT, timeout: ATTEMPT };
                let _ = store.link(limit).await;
                let has_link = matches!(&*store.state.borrow(), State::Connected(_));
                let is_late = store.reconnects_until.get().is_none_or(|until| until <= Instant::now());
                if has_link || is_late {
                    return store.reconnects_until.set(None);
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
        self.releases.borrow_mut().keep_all();
        let (me, listener) = (self.me.clone(), self.listener.get().cloned());
        self.spawn(async move {
            if let Some(store) = me.upgrade()
                && !store.release_again().await
            {
                store.repeat_releases();
            }
            if let Some(listener) = listener {
                listener(Notice::Moved);
            }
        });
    }

    /// Repeats the last releases in the background until the master has answered all of them.
    fn repeat_releases(&self) {
        if self.repeats.replace(true) {
            return;
        }
        let me = self.me.clone();
        self.spawn(async move {
            let mut pause = PAUSE;
            loop {
                let Some(store) = me.upgrade() else { return };
                if store.release_again().await {
                    return store.repeats.set(false);
                }
                drop(store);
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        });
    }

    /// Repeats the releases that the master has not answered yet. Returns false if the master did
    /// not answer some of them.
    async fn release_again(&self) -> bool {
        loop {
            let part = self.releases.borrow_mut().take(MOST_RELEASES, Instant::now());
            if part.is_empty() {
                return true;
            }
            let release = |Released { key, token, .. }: &Released| Request::Release {
                key: key.clone(),
                token: *token,
                used: None,
            };
            let batch: Vec<_> = part.iter().map(release).collect();
            let limit = TimeLimit { deadline: Instant::now() + ATTEMPT, timeout: ATTEMPT };
            let answers = self.run(&batch, limit, false).await.answers.into_iter().flatten();
            let failed = part.into_iter().zip(answers).filter(|(_, answer)| answer.is_err());
            let failed: Vec<Released> = failed.map(|(released, _)| released).collect();
            if !failed.is_empty() {
                self.releases.borrow_mut().put_back(failed);
                return false;
            }
        }
    }

    /// Sends a batch to the server. While a failover is under way, requests that begin or prolong a
    /// lease, or give it a fence, wait for its end, and so do later requests for the same tokens.
    /// All other requests are sent at once.
    pub(super) async fn run_when_settled(&self, batch: &[Request], limit: TimeLimit) -> Vec<Answer> {
        if !self.has_sentinels() {
            return self.run(batch, limit, false).await.answers.into_iter().flatten().collect();
        }
        let (now, later) =
            if self.master_tracker.is_unsettled() { order::split(batch) } else { (Vec::new(), Vec::new()) };
        if later.is_empty() {
            return self.run_and_check(batch, limit).await;
        }
        let part = |places: &[usize]| places.iter().map(|&place| batch[place].clone()).collect::<Vec<_>>();
        let (first, second) = (part(&now), part(&later));
        let at_once =
            async { if first.is_empty() { Vec::new() } else { self.run_and_check(&first, limit).await } };
        // The second part may be about the same tokens, so it has to come after the first one.
        let (first, is_settled) = futures_util::join!(at_once, self.master_tracker.settled(limit.deadline));
        // Replicas may still be connecting to the new master. With little time left, they would not
        // acknowledge the lease in time. If the request fails now, the engine repeats it with its
        // whole time-out.
        let left = limit.deadline.saturating_duration_since(Instant::now());
        let second = if is_settled && left >= limit.timeout / 3 {
            self.run_and_check(&second, limit).await
        } else {
            let error = StoreError { maybe_done: false, ..self.unsettled() };
            all_failed(second.len(), &error)
        };
        let mut answers: Vec<(usize, Answer)> =
            now.into_iter().zip(first).chain(later.into_iter().zip(second)).collect();
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Sends a batch to the server. If a failover began or ended meanwhile, turns each grant into
    /// an error: the new master may not know the lease or its fence. For the same reason, no grant
    /// counts before the sentinels have said whether a failover is under way. Remembers the
    /// releases.
    async fn run_and_check(&self, batch: &[Request], limit: TimeLimit) -> Vec<Answer> {
        let switches = self.master_tracker.switches();
        let mut answers: Vec<Answer> =
            self.run(batch, limit, false).await.answers.into_iter().flatten().collect();
        if answers.iter().any(is_grant) {
            self.master_tracker.surveyed(limit.deadline).await;
        }
        let switched = self.master_tracker.switches() != switches;
        let unsettled = switched || self.master_tracker.is_unsettled();
        let is_surveyed = self.master_tracker.is_surveyed();
        let now = Instant::now();
        let mut released_too_late = false;
        for (request, answer) in batch.iter().zip(&mut answers) {
            match (request, &*answer) {
                // Remember also a release that only gave up a place in the queue: the new master
                // may still have the waiter there.
                (Request::Release { key, token, .. } | Request::GiveBack { key, token, .. }, Ok(_)) => {
                    self.releases.borrow_mut().add(key.clone(), *token, now, unsettled);
                    released_too_late |= switched;
                }
                _ if unsettled && is_grant(answer) => *answer = Err(self.unsettled()),
                _ if !is_surveyed && is_grant(answer) => *answer = Err(self.unsurveyed()),
                _ => {}
            }
        }
        if released_too_late {
            self.releases.borrow_mut().keep_all();
            self.repeat_releases();
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

    /// Returns the error of a request that does not count because sentinels have not answered.
    fn unsurveyed(&self) -> StoreError {
        let message = format!(
            "{}: not all sentinels have said in time whether a failover is under way, so the lease does not count; check \
             that all of them answer, and try again",
            self.address
        );
        // The master has answered in time, so the kind must not count as silence of the master.
        StoreError::maybe_done(StoreErrorKind::Loading, message)
    }

    /// Returns the listener for the notices of a connection. While a failover is or may be under
    /// way, the listener removes the fence from a notice. Without the fence, a waiter that is
    /// handed a lease has to ask for it, and the answer shows whether the lease counts.
    pub(super) fn listener_of_link(&self, listener: &Listener) -> Listener {
        if !self.has_sentinels() {
            return listener.clone();
        }
        let (master_tracker, listener) = (self.master_tracker.clone(), listener.clone());
        Rc::new(move |notice| match notice {
            Notice::Granted { number, fence: Some(_) }
                if master_tracker.is_unsettled() || !master_tracker.is_surveyed() =>
            {
                listener(Notice::Granted { number, fence: None });
            }
            notice => listener(notice),
        })
    }

    /// Ends all tasks in the background.
    pub(super) fn stop_following(&self) {
        *self.tasks.borrow_mut() = JoinSet::new();
        self.repeats.set(false);
        self.reconnects_until.set(None);
        self.listens.set(false);
        self.master_tracker.survey(|survey| *survey = Survey::default());
    }
}
