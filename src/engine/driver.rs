//! Runs the engine's thread: passes events and the time to the rules, and carries out their
//! effects.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, future};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use super::clock;
use super::command::{ClientSettings, Command, Settlement};
use super::core::{Batch, Core, Effects, Sent, describe_panic};
use super::ids::{ClientId, EnvId, StoreId};
use super::pulse::Pulse;
use super::runtime::local_runtime;
use super::thread_hand_offs::ThreadHandOffs;
use crate::lease::Instant;
use crate::store::spec::StoreSpec;
use crate::store::{Answer, Notice, Store, StoreError, StoreErrorKind, all_failed};

/// The most messages that the driver takes before it sends the requests for them. If this is
/// larger, the first requests of a burst are sent later. If it is smaller, a burst takes more
/// batches.
const MOST_MESSAGES: usize = 1024;

/// The longest sleep while a wake is scheduled. The timer stands still while the machine is
/// suspended. If this is larger, a holder hears later of a loss during the suspension. If it is
/// smaller, an idle engine wakes more often.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Holds the settlements of an environment until its thread takes them out. The engine's thread
/// calls the methods.
pub trait Outbox: Send + Sync {
    /// Adds settlements, in order.
    fn deliver(&self, settled: Vec<Settlement>);
    /// Wakes the environment's thread, so that it takes the settlements out and its [`Pulse`]
    /// beats.
    fn wake(&self);
    /// Wakes the environment's thread, even if it has not taken the settlements out since an
    /// earlier wake. After the end of its JavaScript, no code takes them out any more, but its
    /// [`Pulse`] still beats.
    fn ping(&self);
}

/// A message to the engine's thread.
pub enum Message {
    /// Registers a JavaScript environment.
    OpenEnv {
        /// Its number.
        env: EnvId,
        /// Holds the last sign of life of its thread.
        pulse: Arc<Pulse>,
        /// Holds the hand-offs that the engine leaves to its thread.
        thread_hand_offs: Arc<ThreadHandOffs>,
        /// Gets its settlements.
        outbox: Arc<dyn Outbox>,
    },
    /// Registers a client. Opens its store, unless another client has it open.
    OpenClient {
        /// Its number.
        client: ClientId,
        /// Its store.
        spec: StoreSpec,
        /// Its settings.
        settings: ClientSettings,
    },
    /// Passes on other commands, in order.
    Commands(Vec<Command>),
}

/// A handle to the engine's thread.
pub struct Engine {
    messages: UnboundedSender<Message>,
}

impl Engine {
    /// Returns the engine of this process. The first call starts it.
    ///
    /// # Errors
    /// If the thread or its runtime can't be created. The next call tries again.
    pub fn of_this_process() -> io::Result<&'static Engine> {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        if let Some(engine) = ENGINE.get() {
            return Ok(engine);
        }
        let started = Engine::start(StoreSpec::open)?;
        Ok(ENGINE.get_or_init(|| started))
    }

    /// Starts an engine that opens stores with `open`. The engine ends when its handle is dropped.
    ///
    /// # Errors
    /// If the thread or its runtime can't be created.
    pub fn start(open: fn(&StoreSpec) -> Rc<dyn Store>) -> io::Result<Engine> {
        let (messages, inbox) = unbounded_channel();
        let (report, started) = sync_channel(1);
        let thread = std::thread::Builder::new().name("leasehold-engine".into());
        thread.spawn(move || match local_runtime() {
            Err(error) => drop(report.send(Err(error))),
            Ok(runtime) => {
                drop(report.send(Ok(())));
                runtime.block_on(async move {
                    // Run the driver in a task of its own. To wake the future in `block_on`, even
                    // this thread needs two system calls: a write, and a wait that ends at once.
                    // Every answer wakes the driver.
                    drop(spawn_local(Driver::new(open).run(inbox)).await);
                });
            }
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(Engine { messages })
    }

    /// Sends a message. If the engine is gone, as at the end of the process, drops the message.
    pub fn send(&self, message: Message) {
        let _ = self.messages.send(message);
    }
}

/// What a store has done.
enum Done {
    Answered(Sent, Vec<Answer>),
    /// The unused store has carried out what it still had to do.
    Finished(StoreId),
    Closed,
}

struct Driver {
    core: Core,
    open: fn(&StoreSpec) -> Rc<dyn Store>,
    stores: FxHashMap<StoreId, Rc<dyn Store>>,
    /// The open store of each specification, by the specification's identity. Keeps the
    /// specification that opened the store: other clients find a lock file only while a
    /// specification refers to it.
    by_identity: HashMap<String, (StoreId, StoreSpec)>,
    last_store: StoreId,
    /// The stores send their notices here.
    notices: UnboundedSender<(StoreId, Notice)>,
    noticed: UnboundedReceiver<(StoreId, Notice)>,
    outboxes: FxHashMap<EnvId, Arc<dyn Outbox>>,
    /// The unused stores that still have something to carry out.
    finishing: HashSet<StoreId>,
    /// Calls to stores that are not answered yet.
    calls: FuturesUnordered<LocalBoxFuture<'static, Done>>,
}

impl Driver {
    fn new(open: fn(&StoreSpec) -> Rc<dyn Store>) -> Self {
        let (notices, noticed) = unbounded_channel();
        Self {
            core: Core::new(RandomState::new().hash_one(0)),
            open,
            stores: FxHashMap::default(),
            by_identity: HashMap::new(),
            last_store: 0,
            notices,
            noticed,
            outboxes: FxHashMap::default(),
            finishing: HashSet::new(),
            calls: FuturesUnordered::new(),
        }
    }

    async fn run(mut self, mut inbox: UnboundedReceiver<Message>) {
        let mut messages = Vec::with_capacity(MOST_MESSAGES);
        loop {
            let sleep = self.do_what_is_due();
            tokio::select! {
                biased;
                count = inbox.recv_many(&mut messages, MOST_MESSAGES) => {
                    if count == 0 {
                        return;
                    }
                }
                Some(done) = self.calls.next(), if !self.calls.is_empty() => self.take_done(done),
                Some((store, notice)) = self.noticed.recv() => {
                    self.core.noticed(clock::now(), store, notice);
                }
                () = sleep => {}
            }
            while let Ok((store, notice)) = self.noticed.try_recv() {
                self.core.noticed(clock::now(), store, notice);
            }
            while let Some(Some(done)) = self.calls.next().now_or_never() {
                self.take_done(done);
            }
            let now = clock::now();
            for message in messages.drain(..) {
                self.take_message(now, message);
            }
        }
    }

    /// Does what is due, carries out the effects and sends the batches. Returns the sleep until
    /// more is due.
    fn do_what_is_due(&mut self) -> impl Future<Output = ()> + use<> {
        self.core.tick(clock::now());
        let effects = self.core.take_effects();
        self.apply(effects);
        let now = clock::now();
        for batch in self.core.take_batches(now) {
            let store = self.stores.get(&batch.sent.store);
            match store.and_then(|store| store.parts(&batch.requests)) {
                None => self.call(batch),
                Some(parts) => {
                    for batch in self.core.split(batch, &parts) {
                        self.call(batch);
                    }
                }
            }
        }
        match self.core.next_wake() {
            None => future::Either::Left(future::pending()),
            Some(at) => future::Either::Right(tokio::time::sleep(at.since(now).min(LONGEST_SLEEP))),
        }
    }

    fn take_message(&mut self, now: Instant, message: Message) {
        let command = match message {
            Message::Commands(commands) => {
                return commands.into_iter().for_each(|command| self.take_command(now, command));
            }
            Message::OpenEnv { env, pulse, thread_hand_offs, outbox } => {
                self.outboxes.insert(env, outbox);
                Command::OpenEnv { env, pulse, thread_hand_offs }
            }
            Message::OpenClient { client, spec, settings } => {
                Command::OpenClient { client, store: self.store_of(&spec), batch: spec.batch(), settings }
            }
        };
        self.take_command(now, command);
    }

    fn take_command(&mut self, now: Instant, command: Command) {
        let ends = if let Command::CloseEnv { env, .. } = &command { Some(*env) } else { None };
        self.core.command(now, command);
        if let Some(env) = ends {
            // No code takes the settlements out any more.
            self.outboxes.remove(&env);
        }
    }

    fn store_of(&mut self, spec: &StoreSpec) -> StoreId {
        let identity = spec.identity();
        if let Some((store, _)) = self.by_identity.get(&identity) {
            return *store;
        }
        self.last_store += 1;
        let (id, store, notices) = (self.last_store, (self.open)(spec), self.notices.clone());
        // If this fails, the engine has ended, so no waiter needs the notice.
        store.listen(Rc::new(move |notice| {
            let _ = notices.send((id, notice));
        }));
        self.stores.insert(id, store);
        self.by_identity.insert(identity, (id, spec.clone()));
        self.last_store
    }

    fn take_done(&mut self, done: Done) {
        match done {
            Done::Answered(sent, answers) => self.core.answered(clock::now(), sent, answers),
            Done::Finished(id) => {
                self.finishing.remove(&id);
                // Meanwhile, a client may have used the store and left new work to it.
                self.finish(id);
            }
            Done::Closed => {}
        }
    }

    /// Sends a batch. If the store panics, the batch fails and the engine goes on.
    fn call(&mut self, batch: Batch) {
        let Batch { sent, timeout, requests } = batch;
        let count = requests.len();
        let store = self.stores.get(&sent.store).cloned();
        self.calls.push(Box::pin(async move {
            let Some(store) = store else {
                let gone = StoreError::not_done(StoreErrorKind::Internal, "the store is closed");
                return Done::Answered(sent, all_failed(count, &gone));
            };
            let answers =
                AssertUnwindSafe(async move { store.execute(requests, timeout).await }).catch_unwind();
            let failed =
                |message| all_failed(count, &StoreError::maybe_done(StoreErrorKind::Internal, message));
            let answers = match answers.await {
                Ok(answers) if answers.len() == count => answers,
                Ok(_) => failed("the store did not answer every request".to_string()),
                Err(panic) => failed(describe_panic(&*panic)),
            };
            Done::Answered(sent, answers)
        }));
    }

    fn apply(&mut self, effects: Effects) {
        let mut to_wake = Vec::new();
        self.deliver(effects.settled, &mut to_wake);
        self.core.offer_hand_offs(clock::now());
        for env in effects.pings {
            if let Some(outbox) = self.outboxes.get(&env) {
                outbox.ping();
            }
        }
        for env in to_wake {
            if let Some(outbox) = self.outboxes.get(&env) {
                outbox.wake();
            }
        }
        for thread in effects.unblocked {
            // This fails if the thread has stopped waiting.
            let _ = thread.send(());
        }
        effects.unused.into_iter().for_each(|id| self.finish(id));
    }

    /// Closes a store when it has carried out what it still has to do.
    fn finish(&mut self, id: StoreId) {
        // A client that was opened since then uses the store.
        if self.core.is_used(id) || self.finishing.contains(&id) {
            return;
        }
        match self.stores.get(&id).and_then(|store| store.clone().finish()) {
            None => self.close(id),
            Some(finished) => {
                self.finishing.insert(id);
                self.calls.push(Box::pin(async move {
                    let _ = AssertUnwindSafe(finished).catch_unwind().await;
                    Done::Finished(id)
                }));
            }
        }
    }

    fn close(&mut self, id: StoreId) {
        self.core.forget_store(id);
        self.by_identity.retain(|_, (store, _)| *store != id);
        if let Some(store) = self.stores.remove(&id) {
            self.calls.push(Box::pin(async move {
                let _ = AssertUnwindSafe(store.close()).catch_unwind().await;
                Done::Closed
            }));
        }
    }

    /// Delivers settlements to the outboxes of their environments, and adds these to `to_wake`.
    /// Nearly always, all settlements are of one environment.
    fn deliver(&mut self, mut settled: Vec<Settlement>, to_wake: &mut Vec<EnvId>) {
        while let Some(env) = settled.first().map(|first| first.op.env) {
            let (of_env, others) = if settled.iter().all(|s| s.op.env == env) {
                (settled, Vec::new())
            } else {
                settled.into_iter().partition(|s| s.op.env == env)
            };
            if let Some(outbox) = self.outboxes.get(&env) {
                outbox.deliver(of_env);
                to_wake.push(env);
            }
            settled = others;
        }
    }
}
