//! A store behind a [circuit breaker](super::breaker): while its server is not there, requests fail
//! at once.
//!
//! **Probes find out that the server is back.** A task pings the server until [`IDLE`] has passed
//! since the last request. After that, the next request starts a ping, waits for its result, and is
//! then sent or refused. So the recovery does not depend on the pauses of callers, and a server
//! that no client needs gets no pings.
//!
//! **Renewals are let through**, because a lease could end during the pause before a probe. The
//! engine pauses between renewals itself, and no caller waits for them. A renewal in one batch with
//! other requests is refused with them, and causes a probe at once. The engine sends it again long
//! before its lease ends.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::breaker::{Breaker, BreakerState, Failure, Health, Kind, Limits, is_silence};
use super::diagnosis::Report;
use super::{Answer, Availability, Listener, Notice, Reply, Request, Store, StoreError};
use crate::engine::clock;

/// How long a server that is not there is still probed after the last request. If this is larger, a
/// server that no client needs gets pings for longer. If it is smaller, more requests have to wait
/// for a probe.
const IDLE: Duration = Duration::from_secs(10);
/// The shortest time-out of a probe, which may have to connect first. If this is smaller, a probe
/// of a slow server fails; if it is larger, a probe whose answer was lost delays the next one.
const SHORTEST_PROBE: Duration = Duration::from_millis(250);
/// The longest time-out of a probe, even if callers have longer ones. If this is larger, a probe
/// whose answer was lost hides for longer that the server is back. If it is smaller, a slow server
/// does not pass.
const LONGEST_PROBE: Duration = Duration::from_secs(2);

/// A store behind a breaker. It needs a local tokio runtime with time.
pub struct BreakerStore {
    store: Rc<dyn Store>,
    name: Arc<str>,
    breaker: RefCell<Breaker>,
    /// See [`Health::since`], and the state since then; open and half-open count as one.
    since: Cell<(u64, BreakerState)>,
    listener: OnceCell<Listener>,
    /// When a request last came while the breaker was not closed.
    asked: Cell<Instant>,
    /// The longest time-out of those requests. A probe uses it, too, so that it does not give up
    /// before they would.
    patience: Cell<Duration>,
    prober: RefCell<Option<AbortHandle>>,
    /// The task that closes the breaker when the server has not refused for a while.
    closing_task: RefCell<Option<AbortHandle>>,
    /// Makes the prober probe at once.
    probe_request: Rc<Notify>,
    /// Notified after each probe.
    probed: Rc<Notify>,
    closed: Cell<bool>,
    me: Weak<BreakerStore>,
}

/// What the breaker does with a batch.
enum Admission {
    LetThrough,
    /// The server was not probed for long: probe it, and decide then.
    Probe,
    Refused,
}

impl BreakerStore {
    /// Puts a breaker around `store`. `name` is the server's URL without a password; health reports
    /// show it.
    pub fn new(store: Rc<dyn Store>, name: impl Into<Arc<str>>, limits: Limits) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            store,
            name: name.into(),
            breaker: RefCell::new(Breaker::new(limits)),
            since: Cell::new((wall_ms(), BreakerState::Closed)),
            listener: OnceCell::new(),
            asked: Cell::new(Instant::now()),
            patience: Cell::new(SHORTEST_PROBE),
            prober: RefCell::default(),
            closing_task: RefCell::default(),
            probe_request: Rc::default(),
            probed: Rc::default(),
            closed: Cell::new(false),
            me: me.clone(),
        })
    }

    /// Returns the health of the server.
    pub fn health(&self) -> Health {
        let breaker = self.breaker.borrow();
        let (store, state) = (self.name.clone(), breaker.state());
        let reason = if state == BreakerState::Closed { None } else { breaker.reason() };
        Health { store, state, failures: breaker.failures(), since: self.since.get().0, reason }
    }

    fn state(&self) -> BreakerState {
        self.breaker.borrow().state()
    }

    fn admit(&self, batch: &[Request], timeout: Duration) -> Admission {
        if self.state().lets_through() {
            return Admission::LetThrough;
        }
        let idle = self.asked.replace(Instant::now()).elapsed() >= IDLE;
        self.patience.set(self.patience.get().max(timeout.min(LONGEST_PROBE)));
        if batch.iter().all(|request| matches!(request, Request::Renew { .. } | Request::Diagnose { .. })) {
            return Admission::LetThrough;
        }
        if self.state() == BreakerState::Open
            && batch.iter().any(|request| matches!(request, Request::Renew { .. }))
        {
            self.probe_request.notify_one();
        }
        if idle || self.prober.borrow().is_none() { Admission::Probe } else { Admission::Refused }
    }

    /// Probes and waits for the result, but not beyond `deadline`.
    async fn probe_by(&self, deadline: Instant) {
        let probed = self.probed.clone();
        let notified = probed.notified();
        self.probe_request.notify_one();
        self.keep_probing();
        let _ = timeout_at(deadline, notified).await;
    }

    async fn run(&self, batch: Vec<Request>, began: Instant, timeout: Duration) -> Vec<Answer> {
        let acquires = batch.iter().any(|request| matches!(request, Request::Acquire(_)));
        let kinds: Vec<_> = if acquires { batch.iter().map(kind_of).collect() } else { Vec::new() };
        let answers = self.store.clone().execute(batch, timeout).await;
        self.judge(&answers, began, timeout, false);
        if acquires {
            for kind in Kind::ALL {
                let is_its = |(of, _): &(&Option<Kind>, _)| **of == Some(kind);
                let answers: Vec<&Answer> =
                    kinds.iter().zip(&answers).filter(is_its).map(|(_, answer)| answer).collect();
                self.judge_acquires(kind, &answers, began);
            }
        }
        answers
    }

    /// Passes the answers to the acquires of one kind in a batch on to the breaker.
    fn judge_acquires(&self, kind: Kind, answers: &[&Answer], began: Instant) {
        let (refuses, now) = (self.state() == BreakerState::Refusing, Instant::now());
        let is_accepted = |answer: &&&Answer| match answer {
            Ok(Reply::Acquired { .. } | Reply::Queued { .. }) => true,
            // The reply that another client has the lock needs no write. So it does not show that a
            // full server is usable again.
            Ok(Reply::Busy { .. }) => self.state() == BreakerState::Closed,
            _ => false,
        };
        let accepted = answers.iter().any(|answer| is_accepted(&answer));
        let mut changed = false;
        if refuses || !accepted {
            let mut breaker = self.breaker.borrow_mut();
            // All refusals of a batch are one wave, so stop at the first one that changes
            // something.
            let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
            changed |= errors.any(|error| breaker.refused(kind, began, error, now));
        }
        if accepted {
            let granted = answers.iter().any(|answer| matches!(answer, Ok(Reply::Acquired { .. })));
            changed |= self.breaker.borrow_mut().accepted(kind, granted, now);
        }
        self.state_changed(changed);
        self.close_when_stable();
    }

    /// Passes the answers of the store on to the breaker.
    fn judge(&self, answers: &[Answer], began: Instant, timeout: Duration, probe: bool) {
        let mut silence = None;
        for answer in answers {
            match answer {
                Err(error) if is_silence(error) => silence = Some(error),
                // The report says that the server did not answer.
                Ok(Reply::Diagnosed(reports)) if reports.iter().any(Report::is_silence) => {}
                _ => {
                    let changed = self.breaker.borrow_mut().answered();
                    return self.state_changed(changed);
                }
            }
        }
        if let Some(error) = silence {
            let (failure, jitter) = (Failure { began, probe, error }, fastrand::f64());
            let changed = self.breaker.borrow_mut().failed(failure, timeout, Instant::now(), jitter);
            self.state_changed(changed);
        }
    }

    /// If `changed`, acts on the change of the state and notifies the listener.
    fn state_changed(&self, changed: bool) {
        if !changed {
            return;
        }
        let state = match self.state() {
            BreakerState::HalfOpen => BreakerState::Open,
            state => state,
        };
        if state != self.since.get().1 {
            self.since.set((wall_ms(), state));
            self.notify(Notice::Availability(self.availability()));
            if state.lets_through() {
                self.patience.set(SHORTEST_PROBE);
                self.probed.notify_waiters();
            } else {
                self.asked.set(Instant::now());
                self.keep_probing();
            }
        }
        self.notify(Notice::Breaker(Arc::new(self.health())));
    }

    fn notify(&self, notice: Notice) {
        if let Some(listener) = self.listener.get() {
            listener(notice);
        }
    }

    fn availability(&self) -> Availability {
        match self.state() {
            BreakerState::Closed => Availability::Usable,
            BreakerState::Refusing => Availability::Refusing,
            BreakerState::Open | BreakerState::HalfOpen => {
                Availability::Away(self.breaker.borrow().refusal())
            }
        }
    }

    /// Starts the prober unless there is one.
    fn keep_probing(&self) {
        let mut prober = self.prober.borrow_mut();
        if prober.is_none() && !self.closed.get() {
            *prober = Some(spawn_local(probe(self.me.clone(), self.probe_request.clone())).abort_handle());
        }
    }

    /// Starts the task that closes the breaker, unless it runs or there is nothing to close.
    fn close_when_stable(&self) {
        let is_near = self.breaker.borrow().stable_at().is_some();
        let mut closing_task = self.closing_task.borrow_mut();
        if is_near && closing_task.is_none() && !self.closed.get() {
            *closing_task = Some(spawn_local(become_stable(self.me.clone())).abort_handle());
        }
    }

    fn stop(&self) {
        for task in [&self.prober, &self.closing_task].into_iter().filter_map(RefCell::take) {
            task.abort();
        }
    }

    async fn probe_now(&self) {
        let changed = self.breaker.borrow_mut().probe();
        if !changed {
            return;
        }
        self.state_changed(true);
        let (began, timeout) = (Instant::now(), self.patience.get());
        let store = self.store.clone();
        let ping =
            AssertUnwindSafe(async move { store.execute(vec![Request::Ping], timeout).await }).catch_unwind();
        // A store that panics is there: let requests through, so that their callers get its error.
        let answers = ping.await.unwrap_or_else(|_| vec![Ok(Reply::Ready)]);
        self.judge(&answers, began, timeout, true);
        self.probed.notify_waiters();
    }

    /// Returns answers that say why the requests are not let through.
    fn refuse(&self, batch: &[Request]) -> Vec<Answer> {
        let error = self.breaker.borrow().refusal();
        batch.iter().map(|request| self.refuse_one(request, &error)).collect()
    }

    fn refuse_one(&self, request: &Request, error: &StoreError) -> Answer {
        match request {
            Request::Diagnose { .. } => {
                Ok(Reply::Diagnosed(vec![Report::unusable(self.name.clone(), error)]))
            }
            _ => Err(error.clone()),
        }
    }
}

/// Probes the server of `breaker_store` whenever a probe is due or `probe_request` is notified.
/// Ends when the server answers or has had no requests for [`IDLE`].
async fn probe(breaker_store: Weak<BreakerStore>, probe_request: Rc<Notify>) {
    loop {
        let at = breaker_store.upgrade().and_then(|breaker_store| breaker_store.breaker.borrow().probe_at());
        let Some(at) = at else { break };
        tokio::select! {
            // Take the notification first: if it were left over, it would hurry a later probe.
            biased;
            () = probe_request.notified() => {}
            () = sleep_until(at) => {}
        }
        let Some(breaker_store) = breaker_store.upgrade() else { return };
        if breaker_store.asked.get().elapsed() >= IDLE {
            break;
        }
        breaker_store.probe_now().await;
    }
    if let Some(breaker_store) = breaker_store.upgrade() {
        breaker_store.prober.take();
    }
}

/// Closes the breaker of `breaker_store` as soon as its server has not refused for a while.
async fn become_stable(breaker_store: Weak<BreakerStore>) {
    loop {
        let at = breaker_store.upgrade().and_then(|breaker_store| breaker_store.breaker.borrow().stable_at());
        let Some(at) = at else { break };
        sleep_until(at).await;
        let Some(breaker_store) = breaker_store.upgrade() else { return };
        let changed = breaker_store.breaker.borrow_mut().become_stable(Instant::now());
        breaker_store.state_changed(changed);
    }
    if let Some(breaker_store) = breaker_store.upgrade() {
        breaker_store.closing_task.take();
    }
}

/// Returns the kind of lease that a request asks for; `None` if it is not an acquire. A repair is
/// not one: a full server still grants a lease that it knows, so this grant does not show that the
/// server is usable.
fn kind_of(request: &Request) -> Option<Kind> {
    match request {
        Request::Acquire(acquire) if !acquire.repairs => Some(acquire.mode.into()),
        _ => None,
    }
}

fn wall_ms() -> u64 {
    clock::wall_us() / 1000
}

impl Store for BreakerStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            let began = Instant::now();
            match self.admit(&batch, timeout) {
                Admission::LetThrough => return self.run(batch, began, timeout).await,
                Admission::Probe => self.probe_by(began + timeout).await,
                Admission::Refused => {}
            }
            if self.state().lets_through() {
                let now = Instant::now();
                let left = (began + timeout).saturating_duration_since(now);
                return self.run(batch, now, left).await;
            }
            self.refuse(&batch)
        }
        .boxed_local()
    }

    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        self.store.parts(batch)
    }

    fn listen(&self, listener: Listener) {
        let _ = self.listener.set(listener.clone());
        self.store.listen(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        self.closed.set(true);
        self.stop();
        self.store.clone().close()
    }
}

impl Drop for BreakerStore {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
#[path = "breaker_store_tests.rs"]
mod tests;
