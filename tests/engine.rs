//! Tests the engine's thread with stores that misbehave. The tests see what JavaScript would see.

use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use leasehold::engine::command::{AcquireCommand, ClientSettings, Command, Outcome, Settlement, Wait};
use leasehold::engine::driver::{Engine, Message, Outbox};
use leasehold::engine::ids::OpId;
use leasehold::engine::known_lease::KnownLease;
use leasehold::engine::pulse::Pulse;
use leasehold::engine::stats::Stats;
use leasehold::engine::thread_hand_offs::ThreadHandOffs;
use leasehold::lease::{Mode, Token, Ttl};
use leasehold::store::memory::MemoryStore;
use leasehold::store::spec::StoreSpec;
use leasehold::store::{Access, Answer, Listener, Request, Store, StoreError, StoreErrorKind, all_failed};

const ENV: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(10);

/// Fails in the way that the key of the first request names. Handles other requests like the store
/// in memory.
struct FaultyStore(Rc<dyn Store>);

impl Store for FaultyStore {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        match &batch[0] {
            Request::Acquire(ask) if &*ask.key == "panics at once" => panic!("at once"),
            Request::Acquire(ask) if &*ask.key == "panics later" => async { panic!("later") }.boxed_local(),
            Request::Acquire(ask) if &*ask.key == "hangs" => {
                let count = batch.len();
                async move {
                    tokio::time::sleep(timeout).await;
                    let error = StoreError::maybe_done(StoreErrorKind::TimedOut, "it hung");
                    all_failed(count, &error)
                }
                .boxed_local()
            }
            Request::Acquire(ask) if &*ask.key == "answers too little" => async { vec![] }.boxed_local(),
            _ => self.0.clone().execute(batch, timeout),
        }
    }

    /// Puts requests that hang into a part of their own.
    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        let hangs = |request: &Request| matches!(request, Request::Acquire(ask) if &*ask.key == "hangs");
        Some(batch.iter().map(|request| hangs(request).into()).collect())
    }

    fn listen(&self, listener: Listener) {
        self.0.listen(listener);
    }

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        async { panic!("on closing") }.boxed_local()
    }
}

struct Collected {
    settled: Mutex<Sender<Settlement>>,
}

impl Outbox for Collected {
    fn deliver(&self, settled: Vec<Settlement>) {
        let sender = self.settled.lock().unwrap();
        settled.into_iter().for_each(|settlement| sender.send(settlement).unwrap());
    }

    fn wake(&self) {}

    fn ping(&self) {}
}

struct Environment {
    engine: Engine,
    settled: Receiver<Settlement>,
    slots: u32,
}

impl Environment {
    fn begin() -> Self {
        let engine = Engine::start(|_| Rc::new(FaultyStore(MemoryStore::new()))).unwrap();
        let (sender, settled) = channel();
        let outbox = Arc::new(Collected { settled: Mutex::new(sender) });
        engine.send(Message::OpenEnv {
            env: ENV,
            pulse: Arc::new(Pulse::default()),
            thread_hand_offs: Arc::new(ThreadHandOffs::default()),
            outbox,
        });
        Self { engine, settled, slots: 0 }
    }

    fn open_client(&self, client: u32) {
        let settings = ClientSettings {
            env: ENV,
            name: "test".into(),
            max_stall: Duration::from_secs(60),
            store_timeout: Duration::from_secs(1),
            hand_offs: 32,
            stats: Arc::new(Stats::default()),
        };
        let spec = StoreSpec::parse("memory:x", &Access::default()).unwrap();
        self.engine.send(Message::OpenClient { client, spec, settings });
    }

    fn acquire(&mut self, key: &str) -> Outcome {
        let (op, command) = self.acquiring(key);
        self.send(command);
        self.next(op)
    }

    fn acquiring(&mut self, key: &str) -> (OpId, Command) {
        self.slots += 1;
        let op = OpId { env: ENV, slot: self.slots };
        let command = Command::Acquire(AcquireCommand {
            op,
            client: 1,
            key: key.into(),
            token: Token::random(),
            mode: Mode::Exclusive,
            ttl: Ttl::from_millis(60_000).unwrap(),
            wait: Wait::Never,
            max_hold: None,
            auto_renew: true,
            report: false,
            section: false,
            fail_fast: false,
            outlives_process: false,
            holder: None,
            state: Arc::new(KnownLease::default()),
        });
        (op, command)
    }

    fn send(&self, command: Command) {
        self.engine.send(Message::Commands(vec![command]));
    }

    fn next(&self, op: OpId) -> Outcome {
        let settlement = self.settled.recv_timeout(PATIENCE).expect("the engine answers");
        assert_eq!(settlement.op, op);
        settlement.outcome
    }
}

#[test]
fn a_store_that_panics_fails_its_batch_and_the_engine_goes_on() {
    let mut environment = Environment::begin();
    environment.open_client(1);
    for (key, said) in [
        ("panics at once", "at once"),
        ("panics later", "later"),
        ("answers too little", "did not answer every request"),
    ] {
        match environment.acquire(key) {
            Outcome::Failed(error) => {
                assert_eq!(error.kind, StoreErrorKind::Internal, "{key}");
                assert!(error.message.contains(said), "{key}: {error}");
            }
            other => panic!("{key}: {other:?}"),
        }
        assert!(matches!(environment.acquire(&format!("after {key}")), Outcome::Acquired(..)));
    }
}

#[test]
fn a_store_that_panics_at_its_close_is_opened_again() {
    let mut environment = Environment::begin();
    for round in 1..=3 {
        environment.open_client(1);
        // The store in memory forgets its locks with its last client, so the key is free each time.
        assert!(matches!(environment.acquire("k"), Outcome::Acquired(..)), "round {round}");
        environment.slots += 1;
        let op = OpId { env: ENV, slot: environment.slots };
        environment.send(Command::CloseClient { client: 1, op, patience: PATIENCE });
        let lease = OpId { env: ENV, slot: environment.slots - 1 };
        assert!(matches!(environment.next(lease), Outcome::Lost(_)));
        assert!(matches!(environment.next(op), Outcome::Done));
    }
}

#[test]
fn a_part_of_a_store_that_hangs_does_not_delay_the_others() {
    let mut environment = Environment::begin();
    environment.open_client(1);
    let commands: Vec<_> = ["a", "hangs", "b", "c"].map(|key| environment.acquiring(key)).into();
    let ops: Vec<OpId> = commands.iter().map(|(op, _)| *op).collect();
    let start = std::time::Instant::now();
    environment.engine.send(Message::Commands(commands.into_iter().map(|(_, command)| command).collect()));
    let mut others = vec![ops[0], ops[2], ops[3]];
    while !others.is_empty() {
        let settlement = environment.settled.recv_timeout(PATIENCE).expect("the engine answers");
        assert!(matches!(settlement.outcome, Outcome::Acquired(..)), "{:?}", settlement.op);
        others.retain(|op| *op != settlement.op);
    }
    assert!(start.elapsed() < Duration::from_millis(900), "{:?}", start.elapsed());
    assert!(
        matches!(environment.next(ops[1]), Outcome::Failed(error) if error.kind == StoreErrorKind::TimedOut)
    );
}
