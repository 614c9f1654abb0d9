//! What the TypeScript layer calls. One instance per JavaScript environment, which is the main thread or a worker
//! thread. `lib/native.ts` says what each call means to it.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use napi::bindgen_prelude::*;
use napi::sys;
use napi_derive::napi;
use rustc_hash::FxHashMap;

use super::ending::{self, PATIENCE};
use super::operations::{self, span};
use super::outbox::EnvOutbox;
use super::records;
use super::slots::Slots;
use crate::engine::clock;
use crate::engine::command::{
    ClientId, ClientSettings, Command, EnvId, LineId, OpId, Outcome, Pulse, Settlement, Wait,
};
use crate::engine::driver::{Engine, Message};
use crate::engine::relay::Relay;
use crate::engine::stats::Stats;
use crate::lease::Phase;
use crate::store::breaker::Health;
use crate::store::names;
use crate::store::spec::StoreSpec;
use crate::store::{Access, Tls, TlsTexts};

/// What `openClient` takes, checked by TypeScript but for the store's URL.
#[napi(object)]
pub struct ClientOptions {
    /// The store's URL, or those of the nodes of a quorum.
    pub stores: Vec<String>,
    /// The user, if the URL names none.
    pub username: Option<String>,
    /// The password, if the URL has none.
    pub password: Option<String>,
    /// For a store that is reached over TLS.
    pub tls: Option<TlsOptions>,
    /// Who we are at sentinels.
    pub sentinel_username: Option<String>,
    /// The password for that.
    pub sentinel_password: Option<String>,
    /// How many replicas must have a lease before it counts.
    pub min_replicas: u32,
    /// What stands before each key at the store.
    pub prefix: String,
    /// Shown to everyone who inspects a lock.
    pub name: String,
    /// In ms, `Infinity` allowed.
    pub max_stall: f64,
    /// In ms.
    pub store_timeout: f64,
    /// How often in a row a lease is handed on within the process while others wait elsewhere.
    pub hand_offs: u32,
    /// The slot that is told how the store's servers are, until the client is closed.
    pub watch: u32,
}

/// Whom to trust, and who we are: PEM.
#[napi(object)]
pub struct TlsOptions {
    /// Authorities to trust instead of the system's.
    pub ca: Vec<String>,
    /// Our own certificate.
    pub cert: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// The name that the server's certificate must be made for.
    pub servername: Option<String>,
}

impl ClientOptions {
    fn access(&mut self) -> std::result::Result<Access, String> {
        let tls = self.tls.take().map(|TlsOptions { ca, cert, key, servername }| {
            Tls::parse(&TlsTexts { ca, cert, key, servername })
        });
        Ok(Access {
            username: self.username.take(),
            password: self.password.take(),
            tls: tls.transpose()?,
            sentinel_username: self.sentinel_username.take(),
            sentinel_password: self.sentinel_password.take(),
            min_replicas: self.min_replicas,
        })
    }
}

pub(super) struct ClientHandle {
    pub(super) prefix: String,
    pub(super) name: Arc<str>,
    stats: Arc<Stats>,
}

/// One JavaScript environment's way to the engine.
#[napi]
pub struct Bridge {
    pub(super) env: EnvId,
    engine: &'static Engine,
    outbox: Arc<EnvOutbox>,
    pulse: Arc<Pulse>,
    relay: Arc<Relay>,
    /// Acquires that are not under way to the engine yet; see `submit`.
    held_back: Vec<Command>,
    pub(super) slots: Slots,
    pub(super) clients: FxHashMap<ClientId, ClientHandle>,
    /// Taken from the outbox, not yet drained.
    taken: VecDeque<Settlement>,
    /// What the records of the latest drain have to say in words.
    texts: Vec<String>,
    /// Room to put keys together.
    pub(super) key: String,
    /// Running workers, which keep the process alive.
    holds: u32,
    /// Whether the process is being kept alive.
    keeping_alive: bool,
}

#[napi]
impl Bridge {
    /// Begins an environment. `wake` is called when there is something to drain.
    #[napi(constructor, catch_unwind)]
    pub fn new(env: &Env, wake: Function<(), ()>) -> Result<Self> {
        static LAST_ENV: AtomicU32 = AtomicU32::new(0);
        let engine = Engine::of_this_process().map_err(|error| {
            Error::from_reason(format!("the engine's thread could not be started: {error}"))
        })?;
        let id = LAST_ENV.fetch_add(1, Ordering::Relaxed) + 1;
        let pulse = Arc::new(Pulse::default());
        let beating = pulse.clone();
        let wake =
            wake.build_threadsafe_function::<()>().callee_handled::<false>().weak::<true>().build_callback(
                move |_| {
                    // A worker thread that another thread ends runs no more JavaScript, but its
                    // event loop waits for the work in Node's thread pool, and calls this.
                    beating.beat(clock::now());
                    Ok(())
                },
            )?;
        let outbox = Arc::new(EnvOutbox::new(wake));
        let relay = Arc::new(Relay::default());
        engine.send(Message::OpenEnv {
            env: id,
            pulse: pulse.clone(),
            relay: relay.clone(),
            outbox: outbox.clone(),
        });
        // The last chance of a worker thread, whose 'exit' event does not come when it is terminated. Added after
        // the wake function was made, and therefore run before that is finalised.
        env.add_env_cleanup_hook((id, outbox.clone()), move |(env, outbox)| {
            outbox.close();
            ending::end(engine, env, PATIENCE);
        })?;
        Ok(Self {
            env: id,
            engine,
            outbox,
            pulse,
            relay,
            held_back: Vec::new(),
            slots: Slots::default(),
            clients: FxHashMap::default(),
            taken: VecDeque::new(),
            texts: Vec::new(),
            key: String::new(),
            holds: 0,
            keeping_alive: false,
        })
    }

    /// Returns true if `name` (a prefix and a key) is a side key. Then no lock can have this name.
    #[napi(catch_unwind)]
    pub fn is_side_key(&self, name: String) -> bool {
        names::is_side_key(&name)
    }

    /// Opens a client. Connects to nothing yet.
    #[napi(catch_unwind)]
    pub fn open_client(&mut self, mut options: ClientOptions) -> Result<u32> {
        static LAST_CLIENT: AtomicU32 = AtomicU32::new(0);
        let access = options.access().map_err(Error::from_reason)?;
        let spec = StoreSpec::parse_all(&options.stores, &access).map_err(Error::from_reason)?;
        let client = LAST_CLIENT.fetch_add(1, Ordering::Relaxed) + 1;
        let stats = Arc::new(Stats::default());
        for server in spec.servers() {
            stats.servers.tell(Arc::new(Health::good(server.into(), clock::wall_us() / 1000)));
        }
        let name: Arc<str> = options.name.into();
        let settings = ClientSettings {
            env: self.env,
            name: name.clone(),
            max_stall: span(options.max_stall),
            store_timeout: span(options.store_timeout),
            hand_offs: options.hand_offs,
            stats: stats.clone(),
        };
        self.clients.insert(client, ClientHandle { prefix: options.prefix, name, stats });
        self.engine.send(Message::OpenClient { client, spec, settings });
        let op = OpId { env: self.env, slot: options.watch };
        self.engine.send(Message::Commands(vec![Command::Watch { op, client }]));
        Ok(client)
    }

    /// Begins, changes and ends operations: the first `count` of `operations`, in order, each [`operations::LENGTH`] numbers.
    /// `keys` has the keys of those that need one, and the traces of those that say so, in their order, each with a NUL behind it.
    ///
    /// One crossing for all that JavaScript asked for in one go; a crossing costs as much as what it carries.
    ///
    /// Says whether a lease was handed on by that: then there is something to drain at once, and acquires that will wait
    /// for that very lock may have been held back until the next call that hands nothing on. They are not urgent, for
    /// whoever has the lease now goes first; and to wake the engine for each of them would cost more than the hand-off.
    #[napi(catch_unwind)]
    pub fn submit(&mut self, env: &Env, operations: Float64ArraySlice, count: u32, keys: String) -> bool {
        let mut keys = keys.split('\0');
        let mut commands = take(&mut self.held_back);
        let mut lines = Vec::new();
        let (operations, _) = operations.as_chunks::<{ operations::LENGTH }>();
        let operations = &operations[..operations.len().min(count as usize)];
        let only_relayed = operations.iter().all(operations::is_acquire_or_release);
        for operation in operations {
            let relayed = only_relayed && operations::is_release(operation);
            if let Some(line) = relayed.then(|| self.hand_on(operation)).flatten() {
                lines.push(line);
            } else if let Some(command) = self.command(operation, &mut keys) {
                commands.push(command);
            }
        }
        let behind = |command: &Command| match command {
            Command::Acquire(asked) => {
                asked.wait != Wait::Never
                    && lines.iter().any(|line| line.0 == asked.client && line.1 == asked.key)
            }
            _ => false,
        };
        if !lines.is_empty() && commands.iter().all(behind) {
            self.held_back = commands;
        } else if !commands.is_empty() {
            self.engine.send(Message::Commands(commands));
        }
        if !only_relayed {
            self.relay.stop();
        }
        self.keep_alive(env);
        !lines.is_empty()
    }

    /// Hands the lease of a release on to whoever is next, if the engine has left that to this thread. In which line.
    fn hand_on(&mut self, release: &[f64; operations::LENGTH]) -> Option<LineId> {
        let from = OpId { env: self.env, slot: release[1] as u32 };
        let (state, _) = self.slots.lease(from.slot)?;
        let handed = self.relay.hand_on(from, state, clock::now())?;
        self.slots.wait(from.slot, false);
        // Behind what the engine has told before.
        self.taken.extend(self.outbox.take());
        self.taken.push_back(Settlement { op: from, outcome: Outcome::Released(true) });
        let outcome = Outcome::Acquired(handed.fence, handed.token);
        self.taken.push_back(Settlement { op: handed.to, outcome });
        Some(handed.line)
    }

    /// Whether the lease is held at this very moment.
    #[napi(catch_unwind)]
    pub fn is_held(&self, slot: u32) -> bool {
        self.slots.lease(slot).is_some_and(|(state, _)| state.is_held(clock::now()))
    }

    /// How many ms the lease is still good for without renewal; 0 if it is not held.
    #[napi(catch_unwind)]
    pub fn remaining(&self, slot: u32) -> f64 {
        let now = clock::now();
        match self.slots.lease(slot) {
            Some((state, _)) if state.is_held(now) => state.deadline().since(now).as_micros() as f64 / 1e3,
            _ => 0.0,
        }
    }

    /// Where the lease is in its life.
    #[napi(catch_unwind)]
    pub fn phase(&self, slot: u32) -> f64 {
        let phase = self.slots.lease(slot).map_or(Phase::Released, |(state, _)| state.phase(clock::now()));
        records::phase_number(phase)
    }

    /// How the lease's last renewal failed, as JSON; nothing if it did not.
    #[napi(catch_unwind)]
    pub fn failure(&self, slot: u32) -> Option<String> {
        self.slots.lease(slot).and_then(|(lease, _)| records::describe_failure(lease))
    }

    /// The lease's token.
    #[napi(catch_unwind)]
    pub fn token(&self, slot: u32) -> Option<String> {
        self.slots.lease(slot).map(|(_, token)| token.to_string())
    }

    /// The client's counters, as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self, client: u32) -> Option<String> {
        let stats = &self.clients.get(&client)?.stats;
        Some(records::describe_stats(stats))
    }

    /// Writes what was settled into `into`, as many whole records as fit, and says how many; fewer than fit if
    /// that was all.
    #[napi(catch_unwind)]
    pub fn drain(&mut self, env: &Env, mut into: Float64ArraySlice) -> u32 {
        self.pulse.beat(clock::now());
        self.texts.clear();
        if self.taken.is_empty() {
            self.taken = self.outbox.take().into();
        }
        // SAFETY: JavaScript handed this array in for this call alone, and nothing else runs on its thread meanwhile.
        let into = unsafe { into.as_mut() };
        let mut written = 0;
        let (places, _) = into.as_chunks_mut::<{ records::LENGTH }>();
        for place in places {
            let record = loop {
                let Some(settlement) = self.taken.pop_front() else { break None };
                let record = records::encode(settlement, &mut self.slots, &mut self.texts);
                if record.is_some() {
                    break record;
                }
            };
            let Some(record) = record else { break };
            *place = record;
            written += 1;
        }
        self.keep_alive(env);
        written
    }

    /// What a record of the latest drain has to say in words.
    #[napi(catch_unwind)]
    pub fn text(&self, index: u32) -> Option<&str> {
        self.texts.get(index as usize).map(String::as_str)
    }

    /// Something runs that keeps the process alive, until `unhold` was called as often.
    #[napi(catch_unwind)]
    pub fn hold(&mut self, env: &Env) {
        self.holds = self.holds.saturating_add(1);
        self.keep_alive(env);
    }

    /// The end of what `hold` began.
    #[napi(catch_unwind)]
    pub fn unhold(&mut self, env: &Env) {
        self.holds = self.holds.saturating_sub(1);
        self.keep_alive(env);
    }

    /// Registers the leases of this environment for release at the end of the process. If the
    /// system does not support that, returns false; then call `release_all`.
    #[napi(catch_unwind)]
    pub fn release_at_end(&self) -> bool {
        ending::end_with_process(self.env, &self.outbox)
    }

    /// Tells the engine that JavaScript has ended, but work that it has begun may go on. From then
    /// on no acquire is granted, `max_stall` does not apply, and the leases are renewed until they
    /// are released.
    #[napi(catch_unwind)]
    pub fn excuse(&self) {
        self.engine.send(Message::Commands(vec![Command::ExcuseEnv { env: self.env }]));
    }

    /// Ends all operations of this environment, and blocks until its leases are released, for at
    /// most about `timeout` ms. Call it in the `'exit'` event of the process.
    #[napi(catch_unwind)]
    pub fn release_all(&self, timeout: f64) {
        ending::end(self.engine, self.env, span(timeout));
    }

    /// Keeps the process alive while a promise is pending or a worker runs, and not a moment longer.
    fn keep_alive(&mut self, env: &Env) {
        let wanted = self.slots.pending > 0 || self.holds > 0;
        if wanted == self.keeping_alive {
            return;
        }
        self.keeping_alive = wanted;
        // SAFETY: on the environment's own thread, with a function that lives until the environment's end.
        unsafe {
            if wanted {
                sys::napi_ref_threadsafe_function(env.raw(), self.outbox.raw_wake());
            } else {
                sys::napi_unref_threadsafe_function(env.raw(), self.outbox.raw_wake());
            }
        }
    }
}
