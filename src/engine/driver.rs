//! The engine's thread: hands the rules their events and the time, and does what they want done.

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
use tokio::runtime::{LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use super::clock;
use super::command::{ClientId, ClientSettings, Command, EnvId, Pulse, Settlement, StoreId};
use super::core::{Batch, Core, Effects, Sent, describe_panic};
use super::relay::Relay;
use crate::lease::Instant;
use crate::store::spec::StoreSpec;
use crate::store::{Answer, Notice, Store, StoreError, StoreErrorKind, all_failed};

/// The most messages that are taken in before what they ask for is sent.
const MOST_MESSAGES: usize = 1024;

/// The longest sleep while anything is due. The timer stands still while the machine is suspended; a holder shall
/// hear of its loss soon after that.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Where an environment takes its settlements from. Called on the engine's thread.
pub trait Outbox: Send + Sync {
    /// Puts settlements in, in order.
    fn deliver(&self, settled: Vec<Settlement>);
    /// Wakes the environment's thread, so that it takes them out, and its [`Pulse`] beats.
    fn wake(&self);
    /// Wakes the environment's thread, even if it was woken before and has not taken the
    /// settlements out. After the end of its JavaScript, no code takes them out any more, but its
    /// [`Pulse`] still beats.
    fn ping(&self);
}

/// What the engine's thread is sent.
pub enum Message {
    /// A JavaScript environment is there.
    OpenEnv {
        /// Its number.
        env: EnvId,
        /// Where it says that it lives.
        pulse: Arc<Pulse>,
        /// Where it is left hand-offs.
        relay: Arc<Relay>,
        /// Where it takes its settlements from.
        outbox: Arc<dyn Outbox>,
    },
    /// A client is there; its store is opened unless another client has it open.
    OpenClient {
        /// Its number.
        client: ClientId,
        /// Its store.
        spec: StoreSpec,
        /// What it was opened with.
        settings: ClientSettings,
    },
    /// Anything else, in order.
    Commands(Vec<Command>),
}

/// A handle to the engine's thread.
pub struct Engine {
    messages: UnboundedSender<Message>,
}

impl Engine {
    /// The engine of this process, started at the first call.
    ///
    /// # Errors
    /// When the thread or its runtime can't be had; the next call tries again.
    pub fn of_this_process() -> io::Result<&'static Engine> {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        if let Some(engine) = ENGINE.get() {
            return Ok(engine);
        }
        let started = Engine::start(StoreSpec::open)?;
        Ok(ENGINE.get_or_init(|| started))
    }

    /// Starts an engine that opens stores with `open`. It ends when its last handle is dropped.
    ///
    /// # Errors
    /// When the thread or its runtime can't be had.
    pub fn start(open: fn(&StoreSpec) -> Rc<dyn Store>) -> io::Result<Engine> {
        let (messages, inbox) = unbounded_channel();
        let (tell, told) = sync_channel(1);
        let thread = std::thread::Builder::new().name("leasehold-engine".into());
        thread.spawn(move || match local_runtime() {
            Err(error) => drop(tell.send(Err(error))),
            Ok(runtime) => {
                drop(tell.send(Ok(())));
                runtime.block_on(async move {
                    // A task of its own: what wakes the future that is blocked on goes through the system even on
                    // the same thread, with a write and a wait that ends at once, and every answer does.
                    drop(spawn_local(Driver::new(open).run(inbox)).await);
                });
            }
        })?;
        told.recv().map_err(io::Error::other)??;
        Ok(Engine { messages })
    }

    /// Sends a message. An engine that is gone takes nothing, which is all that is left to do at a process's end.
    pub fn send(&self, message: Message) {
        let _ = self.messages.send(message);
    }
}

/// After how many tasks the runtime looks at its sockets and timers, while tasks are ready. If this
/// is larger, a server that sends without end delays the renewals at other stores: at tokio's
/// default of 61, clients on one core lost leases of 1.5 s in 6 of 6 runs while another server sent
/// notices without end. If it is smaller, the runtime asks the system more often.
const EVENT_INTERVAL: u32 = 3;

/// A runtime for this thread, from which it can't be moved.
fn local_runtime() -> io::Result<LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build_local(LocalOptions::default())
}

type Answered = LocalBoxFuture<'static, Option<(Sent, Vec<Answer>)>>;

struct Driver {
    core: Core,
    open: fn(&StoreSpec) -> Rc<dyn Store>,
    stores: FxHashMap<StoreId, Rc<dyn Store>>,
    /// The open store of each specification, by the specification's identity. Keeps the
    /// specification that opened the store: other clients find a lock file only while a
    /// specification refers to it.
    names: FxHashMap<String, (StoreId, StoreSpec)>,
    last_store: StoreId,
    /// Where stores put what they say by themselves.
    notices: UnboundedSender<(StoreId, Notice)>,
    noticed: UnboundedReceiver<(StoreId, Notice)>,
    outboxes: FxHashMap<EnvId, Arc<dyn Outbox>>,
    /// Calls to stores that are not answered yet.
    calls: FuturesUnordered<Answered>,
}

impl Driver {
    fn new(open: fn(&StoreSpec) -> Rc<dyn Store>) -> Self {
        let (notices, noticed) = unbounded_channel();
        Self {
            core: Core::new(RandomState::new().hash_one(0)),
            open,
            stores: FxHashMap::default(),
            names: FxHashMap::default(),
            last_store: 0,
            notices,
            noticed,
            outboxes: FxHashMap::default(),
            calls: FuturesUnordered::new(),
        }
    }

    async fn run(mut self, mut inbox: UnboundedReceiver<Message>) {
        let mut messages = Vec::with_capacity(MOST_MESSAGES);
        loop {
            let sleep = self.settle_down();
            tokio::select! {
                biased;
                count = inbox.recv_many(&mut messages, MOST_MESSAGES) => {
                    if count == 0 {
                        return;
                    }
                }
                Some(answered) = self.calls.next(), if !self.calls.is_empty() => self.take_answer(answered),
                Some((store, notice)) = self.noticed.recv() => {
                    self.core.noticed(clock::now(), store, notice);
                }
                () = sleep => {}
            }
            while let Ok((store, notice)) = self.noticed.try_recv() {
                self.core.noticed(clock::now(), store, notice);
            }
            while let Some(Some(answered)) = self.calls.next().now_or_never() {
                self.take_answer(answered);
            }
            let now = clock::now();
            for message in messages.drain(..) {
                self.take_message(now, message);
            }
        }
    }

    /// Does all that is due and wanted. Returns the sleep until there is more.
    fn settle_down(&mut self) -> impl Future<Output = ()> + use<> {
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
            Message::OpenEnv { env, pulse, relay, outbox } => {
                self.outboxes.insert(env, outbox);
                Command::OpenEnv { env, pulse, relay }
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
            // Nobody is there any more to be told.
            self.outboxes.remove(&env);
        }
    }

    fn store_of(&mut self, spec: &StoreSpec) -> StoreId {
        let name = spec.identity();
        if let Some((store, _)) = self.names.get(&name) {
            return *store;
        }
        self.last_store += 1;
        let (id, store, notices) = (self.last_store, (self.open)(spec), self.notices.clone());
        // The engine has ended if nobody takes it; then nobody waits.
        store.listen(Rc::new(move |notice| {
            let _ = notices.send((id, notice));
        }));
        self.stores.insert(id, store);
        self.names.insert(name, (id, spec.clone()));
        self.last_store
    }

    fn take_answer(&mut self, answered: Option<(Sent, Vec<Answer>)>) {
        if let Some((sent, answers)) = answered {
            self.core.answered(clock::now(), sent, answers);
        }
    }

    /// Sends a batch. A store that panics fails the batch, not the engine.
    fn call(&mut self, batch: Batch) {
        let Batch { sent, timeout, requests } = batch;
        let count = requests.len();
        let store = self.stores.get(&sent.store).cloned();
        self.calls.push(Box::pin(async move {
            let Some(store) = store else {
                let gone = StoreError::not_done(StoreErrorKind::Internal, "the store is closed");
                return Some((sent, all_failed(count, &gone)));
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
            Some((sent, answers))
        }));
    }

    fn apply(&mut self, effects: Effects) {
        let mut awake = Vec::new();
        self.deliver(effects.settled, &mut awake);
        self.core.relay(clock::now());
        for env in effects.pings {
            if let Some(outbox) = self.outboxes.get(&env) {
                outbox.ping();
            }
        }
        for env in awake {
            if let Some(outbox) = self.outboxes.get(&env) {
                outbox.wake();
            }
        }
        for thread in effects.unblocked {
            // It may have stopped waiting; then there is nothing to tell.
            let _ = thread.send(());
        }
        for id in effects.unused {
            // A client that was opened since then has taken it over.
            if self.core.is_used(id) {
                continue;
            }
            self.names.retain(|_, (store, _)| *store != id);
            if let Some(store) = self.stores.remove(&id) {
                self.calls.push(Box::pin(async move {
                    let _ = AssertUnwindSafe(store.close()).catch_unwind().await;
                    None
                }));
            }
        }
    }

    /// Hands settlements to their environments, which are then to be woken; nearly always all of them are of one.
    fn deliver(&mut self, mut settled: Vec<Settlement>, to: &mut Vec<EnvId>) {
        while let Some(env) = settled.first().map(|first| first.op.env) {
            let (of_env, others) = if settled.iter().all(|s| s.op.env == env) {
                (settled, Vec::new())
            } else {
                settled.into_iter().partition(|s| s.op.env == env)
            };
            if let Some(outbox) = self.outboxes.get(&env) {
                outbox.deliver(of_env);
                to.push(env);
            }
            settled = others;
        }
    }
}
