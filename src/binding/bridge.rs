//! The class that the TypeScript layer calls. Each loaded copy of the package has one instance in
//! each JavaScript environment (the main thread or a worker thread). `lib/native/bridge.ts` says
//! what each call means there.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use napi::bindgen_prelude::*;
use napi_derive::napi;

use super::client_options::ClientOptions;
use super::ending;
use super::env_state::{EnvState, OpenClient};
use super::operations::{self, span};
use super::protocol::{OPERATION_LENGTH, Operation, RECORD_LENGTH};
use super::records;
use super::registration::Registration;
use crate::engine::clock;
use crate::engine::command::{ClientSettings, Command, Outcome, Settlement, Wait};
use crate::engine::driver::{Engine, Message};
use crate::engine::ids::{CohortId, OpId};
use crate::engine::stats::Stats;
use crate::lease::{Phase, Token};
use crate::store::breaker::Health;
use crate::store::names;
use crate::store::spec::StoreSpec;

/// Connects one JavaScript environment to the engine.
#[napi]
#[derive(Default)]
pub struct Bridge {
    /// The registration of the environment, between `open` and `close`.
    registration: Option<Registration>,
    /// Acquires that `submit` has not sent to the engine yet.
    held_back: Vec<Command>,
    open: EnvState,
    /// Settlements that were taken from the outbox, but not drained yet.
    taken: VecDeque<Settlement>,
    /// The texts of the records of the latest drain.
    texts: Vec<String>,
    /// How many calls of `hold` have no `unhold` yet.
    holds: u32,
}

#[napi]
impl Bridge {
    /// Returns a bridge that is closed.
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the environment with the engine, unless it is registered. The engine calls `wake`
    /// when there is something to drain.
    #[napi(catch_unwind)]
    pub fn open(&mut self, env: &Env, wake: Function<(), ()>) -> Result<()> {
        if self.registration.is_none() {
            let registration = Registration::new(env, wake)?;
            self.open.env = registration.env;
            self.registration = Some(registration);
            self.keep_alive(env);
        }
        Ok(())
    }

    /// Ends the registration. From then on, native code does not refer to JavaScript any more. Call
    /// it when no client is open and no operation is pending: it forgets what is still open.
    #[napi(catch_unwind)]
    pub fn close(&mut self, env: &Env) {
        let Some(registration) = self.registration.take() else { return };
        registration.end(env);
        self.open = EnvState::default();
        self.held_back.clear();
        self.taken.clear();
    }

    /// Returns true if `name` (a prefix and a key) is a side key. Then no lock can have this name.
    #[napi(catch_unwind)]
    pub fn is_side_key(&self, name: String) -> bool {
        names::is_side_key(&name)
    }

    /// Opens a client. Connects to nothing yet. Throws if the bridge is closed.
    #[napi(catch_unwind)]
    pub fn open_client(&mut self, mut options: ClientOptions) -> Result<u32> {
        static LAST_CLIENT: AtomicU32 = AtomicU32::new(0);
        let engine = self.engine().ok_or_else(|| Error::from_reason("the bridge is closed"))?;
        let access = options.access().map_err(Error::from_reason)?;
        let spec = StoreSpec::parse_all(&options.stores, &access).map_err(Error::from_reason)?;
        let client = LAST_CLIENT.fetch_add(1, Ordering::Relaxed) + 1;
        let stats = Arc::new(Stats::default());
        for server in spec.servers() {
            stats.servers.tell(Arc::new(Health::good(server.into(), clock::wall_us() / 1000)));
        }
        let name: Arc<str> = options.name.into();
        let settings = ClientSettings {
            env: self.open.env,
            name: name.clone(),
            max_stall: span(options.max_stall),
            store_timeout: span(options.store_timeout),
            hand_offs: options.hand_offs,
            stats: stats.clone(),
        };
        self.open.clients.insert(client, OpenClient { prefix: options.prefix, name, stats });
        engine.send(Message::OpenClient { client, spec, settings });
        let op = OpId { env: self.open.env, slot: options.watch };
        engine.send(Message::Commands(vec![Command::Watch { op, client }]));
        Ok(client)
    }

    /// Begins, changes and ends operations: the first `count` of `operations`, in order. Each
    /// operation has [`OPERATION_LENGTH`] numbers. `texts` has the texts of the operations (see
    /// [`Operation`]) in the same order, and a NUL after each text.
    ///
    /// All operations until the next microtask of JavaScript cross together, because a crossing
    /// costs as much as what it carries.
    ///
    /// Returns true if this call handed a lease on. Then there are records to drain at once. Such a
    /// call may hold back acquires that will wait for the same lock, until the next call that hands
    /// no lease on. They are not urgent, and waking the engine for each of them would cost more
    /// than the hand-off.
    ///
    /// Throws if this version does not know an operation. It has then carried out the operations
    /// before that one, but not those after it: an unknown operation may have any number of texts.
    ///
    /// If the bridge is closed, does nothing: then all operations are about leases that have ended.
    #[napi(catch_unwind)]
    pub fn submit(
        &mut self,
        env: &Env,
        operations: Float64ArraySlice,
        count: u32,
        texts: String,
    ) -> Result<bool> {
        let Some(engine) = self.engine() else { return Ok(false) };
        let mut texts = texts.split('\0');
        let mut commands = take(&mut self.held_back);
        let mut cohorts = Vec::new();
        let mut result = Ok(());
        let (operations, _) = operations.as_chunks::<{ OPERATION_LENGTH }>();
        let operations = &operations[..operations.len().min(count as usize)];
        let only_hand_offs = operations.iter().all(operations::is_acquire_or_release);
        for operation in operations {
            let Some(kind) = operations::kind(operation) else {
                result = Err(unknown_operation(operation));
                break;
            };
            let may_hand_on = only_hand_offs && kind == Operation::Release;
            if let Some(cohort) = may_hand_on.then(|| self.hand_on(operation)).flatten() {
                cohorts.push(cohort);
            } else if let Some(command) = operations::command(&mut self.open, kind, operation, &mut texts) {
                commands.push(command);
            }
        }
        let may_be_held_back = |command: &Command| match command {
            Command::Acquire(asked) => {
                asked.wait != Wait::Never
                    && cohorts.iter().any(|cohort| cohort.0 == asked.client && cohort.1 == asked.key)
            }
            _ => false,
        };
        if !cohorts.is_empty() && commands.iter().all(may_be_held_back) {
            self.held_back = commands;
        } else if !commands.is_empty() {
            engine.send(Message::Commands(commands));
        }
        if !only_hand_offs && let Some(registration) = &self.registration {
            registration.thread_hand_offs.stop();
        }
        self.keep_alive(env);
        result.map(|()| !cohorts.is_empty())
    }

    /// Hands the lease of a release on to the next waiter, if the engine has left that to this
    /// thread. Returns the waiters' cohort.
    fn hand_on(&mut self, release: &[f64; OPERATION_LENGTH]) -> Option<CohortId> {
        let from = OpId { env: self.open.env, slot: release[1] as u32 };
        let (state, _) = self.open.slots.lease(from.slot)?;
        let registration = self.registration.as_ref()?;
        let handed = registration.thread_hand_offs.hand_on(from, state, clock::now())?;
        self.open.slots.wait(from.slot, false);
        // Keep the order: drain what the engine has delivered before these settlements.
        self.taken.extend(registration.outbox.take());
        self.taken.push_back(Settlement { op: from, outcome: Outcome::Released(true) });
        let outcome = Outcome::Acquired(handed.fence, handed.token);
        self.taken.push_back(Settlement { op: handed.to, outcome });
        Some(handed.cohort)
    }

    /// Returns whether the lease is held now.
    #[napi(catch_unwind)]
    pub fn is_held(&self, slot: u32) -> bool {
        self.open.slots.lease(slot).is_some_and(|(lease, _)| lease.notice(clock::now()).is_held())
    }

    /// Returns for how many ms the lease lives without renewal; 0 if it is not held.
    #[napi(catch_unwind)]
    pub fn remaining(&self, slot: u32) -> f64 {
        let now = clock::now();
        match self.open.slots.lease(slot) {
            Some((lease, _)) if lease.notice(now).is_held() => {
                lease.deadline().since(now).as_micros() as f64 / 1e3
            }
            _ => 0.0,
        }
    }

    /// Returns the number of the lease's phase.
    #[napi(catch_unwind)]
    pub fn phase(&self, slot: u32) -> f64 {
        let phase =
            self.open.slots.lease(slot).map_or(Phase::Released, |(lease, _)| lease.notice(clock::now()));
        records::phase_number(phase)
    }

    /// Returns what is known of the loss of the lease, as JSON; `None` if that is nothing.
    #[napi(catch_unwind)]
    pub fn loss(&self, slot: u32) -> Option<String> {
        self.open.slots.lease(slot).and_then(|(lease, _)| records::describe_loss(lease))
    }

    /// Returns the lease's token.
    #[napi(catch_unwind)]
    pub fn token(&self, slot: u32) -> Option<String> {
        self.open.slots.lease(slot).map(|(_, token)| token.to_string())
    }

    /// Tells the engine that the caller of a detachment has its ticket. Until then, the end of the
    /// environment releases the lease. Does not wait for the next batch of operations, so the
    /// engine hears of the ticket before it hears of that end.
    #[napi(catch_unwind)]
    pub fn see_ticket(&self, token: String) {
        let (Some(engine), Some(token)) = (self.engine(), Token::parse(&token)) else { return };
        engine.send(Message::Commands(vec![Command::SeeTicket { env: self.open.env, token }]));
    }

    /// Returns the client's counters as JSON.
    #[napi(catch_unwind)]
    pub fn stats(&self, client: u32) -> Option<String> {
        let stats = &self.open.clients.get(&client)?.stats;
        Some(records::describe_stats(stats))
    }

    /// Writes records of settlements into `into`, as many as fit. Returns how many. If more would
    /// fit, those were all.
    #[napi(catch_unwind)]
    pub fn drain(&mut self, env: &Env, mut into: Float64ArraySlice) -> u32 {
        self.texts.clear();
        let Some(registration) = &self.registration else { return 0 };
        registration.pulse.beat(clock::now());
        // Always empty the outbox: until then, it does not wake this thread again. A hand-off may
        // have put other settlements into `taken` meanwhile.
        match registration.outbox.take() {
            settled if self.taken.is_empty() => self.taken = settled.into(),
            settled => self.taken.extend(settled),
        }
        // SAFETY: JavaScript handed this array in for this call alone, and nothing else runs on its
        // thread meanwhile.
        let into = unsafe { into.as_mut() };
        let mut written = 0;
        let (places, _) = into.as_chunks_mut::<{ RECORD_LENGTH }>();
        for place in places {
            let record = loop {
                let Some(settlement) = self.taken.pop_front() else { break None };
                let record = records::encode(settlement, &mut self.open.slots, &mut self.texts);
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

    /// Returns a text of the records of the latest drain.
    #[napi(catch_unwind)]
    pub fn text(&self, index: u32) -> Option<&str> {
        self.texts.get(index as usize).map(String::as_str)
    }

    /// Keeps the process alive until `unhold` was called as often as `hold`.
    #[napi(catch_unwind)]
    pub fn hold(&mut self, env: &Env) {
        self.holds = self.holds.saturating_add(1);
        self.keep_alive(env);
    }

    /// Ends the effect of one call of `hold`.
    #[napi(catch_unwind)]
    pub fn unhold(&mut self, env: &Env) {
        self.holds = self.holds.saturating_sub(1);
        self.keep_alive(env);
    }

    /// Registers the leases of this environment for release at the end of the process. If the
    /// system does not support that, returns false; then call `release_all`.
    #[napi(catch_unwind)]
    pub fn release_at_end(&self) -> bool {
        let registration = self.registration.as_ref();
        registration.is_some_and(|known| ending::end_with_process(known.env, &known.outbox))
    }

    /// Tells the engine that JavaScript has ended, but work that it has begun may go on. From then
    /// on, no acquire is granted, `max_stall` does not apply, and the leases are renewed until they
    /// are released.
    #[napi(catch_unwind)]
    pub fn excuse(&self) {
        if let Some(engine) = self.engine() {
            engine.send(Message::Commands(vec![Command::ExcuseEnv { env: self.open.env }]));
        }
    }

    /// Ends all operations of this environment, and blocks until its leases are released, for at
    /// most about `timeout` ms. Call it in the `'exit'` event of the process.
    #[napi(catch_unwind)]
    pub fn release_all(&self, timeout: f64) {
        if let Some(engine) = self.engine() {
            ending::end(engine, self.open.env, span(timeout));
        }
    }

    /// Returns the engine, unless the bridge is closed.
    fn engine(&self) -> Option<&'static Engine> {
        self.registration.as_ref().map(|registration| registration.engine)
    }

    /// Keeps the process alive while a promise is pending or a `hold` lasts, and no longer.
    fn keep_alive(&mut self, env: &Env) {
        let wanted = self.open.slots.pending > 0 || self.holds > 0;
        if let Some(registration) = &mut self.registration {
            registration.keep_alive(env, wanted);
        }
    }
}

fn unknown_operation(operation: &[f64; OPERATION_LENGTH]) -> Error {
    let code = operation[0];
    Error::from_reason(format!(
        "the addon does not know operation {code}: JavaScript and the addon are of different versions"
    ))
}
