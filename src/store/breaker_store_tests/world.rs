//! A fake server, and a store with a breaker in front of it.

use std::future::Future;

use tokio::runtime::{Builder, LocalOptions};
use tokio::time::sleep;

use super::super::*;
use crate::lease::{Fence, Token, Ttl};
use crate::store::{AcquireRequest, StoreErrorKind};

pub const NAME: &str = "redis://somewhere";
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// What a fake server does.
#[derive(Clone, Copy, PartialEq)]
pub enum ServerBehavior {
    Answers,
    Refuses,
    Hangs,
    Loads,
    Grants,
    IsBusy,
    Panics,
}

/// A server that does what the test says, and remembers what it was asked.
pub struct FakeServer {
    pub behavior: Cell<ServerBehavior>,
    pub asked: RefCell<Vec<Vec<Request>>>,
    pub closed: Cell<bool>,
}

impl Store for FakeServer {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            self.asked.borrow_mut().push(batch.clone());
            let end = Instant::now() + timeout;
            while self.behavior.get() == ServerBehavior::Hangs && Instant::now() < end {
                sleep(Duration::from_millis(1)).await;
            }
            let answer = match self.behavior.get() {
                ServerBehavior::Panics => panic!("on purpose"),
                ServerBehavior::Answers => Ok(Reply::Ready),
                ServerBehavior::Refuses => {
                    Err(StoreError::not_done(StoreErrorKind::Unreachable, "it is gone"))
                }
                ServerBehavior::Hangs => Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "it hangs")),
                ServerBehavior::IsBusy => Ok(Reply::Busy { remaining: None }),
                ServerBehavior::Grants => Ok(Reply::Acquired { fence: Fence(1), waiting: 0 }),
                ServerBehavior::Loads => Err(StoreError::not_done(StoreErrorKind::Loading, "it loads")),
            };
            batch.iter().map(|_| answer.clone()).collect()
        }
        .boxed_local()
    }

    fn parts(&self, batch: &[Request]) -> Option<Vec<u32>> {
        (batch.len() > 1).then(|| (0..).take(batch.len()).collect())
    }

    fn listen(&self, _: Listener) {}

    fn close(self: Rc<Self>) -> LocalBoxFuture<'static, ()> {
        self.closed.set(true);
        async {}.boxed_local()
    }
}

pub struct World {
    pub fake: Rc<FakeServer>,
    pub breaker_store: Rc<BreakerStore>,
    pub told: Rc<RefCell<Vec<Health>>>,
    pub available: Rc<RefCell<Vec<Availability>>>,
}

impl World {
    pub fn new(behavior: ServerBehavior) -> Self {
        let fake = Rc::new(FakeServer {
            behavior: Cell::new(behavior),
            asked: RefCell::default(),
            closed: Cell::new(false),
        });
        let breaker_store = BreakerStore::new(fake.clone(), NAME, Limits::default());
        let told = Rc::new(RefCell::new(Vec::new()));
        let available = Rc::new(RefCell::new(Vec::new()));
        let (heard, said) = (told.clone(), available.clone());
        breaker_store.listen(Rc::new(move |notice| match notice {
            Notice::Breaker(health) => heard.borrow_mut().push((*health).clone()),
            Notice::Availability(availability) => said.borrow_mut().push(availability),
            other => panic!("{other:?}"),
        }));
        Self { fake, breaker_store, told, available }
    }

    pub async fn ask(&self, request: Request) -> Answer {
        self.breaker_store.clone().execute(vec![request], TIMEOUT).await.pop().unwrap()
    }

    /// Sends acquires until the breaker opens.
    pub async fn open(&self) {
        while self.breaker_store.state() == BreakerState::Closed {
            assert!(self.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn states(&self) -> Vec<BreakerState> {
        self.told.borrow().iter().map(|health| health.state).collect()
    }

    pub fn count(&self) -> usize {
        self.fake.asked.borrow().len()
    }

    pub fn is_probing(&self) -> bool {
        self.breaker_store.prober.borrow().is_some()
    }
}

pub fn ttl() -> Ttl {
    Ttl::from_millis(300).unwrap()
}

pub fn acquire() -> Request {
    Request::Acquire(AcquireRequest::new("k".into(), Token::random(), ttl(), "h".into()))
}

pub fn renew() -> Request {
    Request::Renew { key: "k".into(), token: Token::random(), ttl: ttl(), fences: 0 }
}

/// Runs a test in paused time, which advances only when no task has anything else to do.
pub fn run(test: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(test);
}
