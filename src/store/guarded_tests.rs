use std::future::Future;

use futures_util::future::join;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{advance, sleep};

use super::*;
use crate::lease::{Fence, Token, Ttl};
use crate::store::{Ask, StoreErrorKind};

const NAME: &str = "redis://somewhere";
const TIMEOUT: Duration = Duration::from_secs(1);

/// What a fake server does.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Answers,
    Refuses,
    Hangs,
    Loads,
    Grants,
    IsBusy,
    Panics,
}

/// A server that does what the test says, and remembers what it was asked.
struct Fake {
    mood: Cell<Mood>,
    asked: RefCell<Vec<Vec<Request>>>,
    closed: Cell<bool>,
}

impl Store for Fake {
    fn execute(
        self: Rc<Self>,
        batch: Vec<Request>,
        timeout: Duration,
    ) -> LocalBoxFuture<'static, Vec<Answer>> {
        async move {
            self.asked.borrow_mut().push(batch.clone());
            let end = Instant::now() + timeout;
            while self.mood.get() == Mood::Hangs && Instant::now() < end {
                sleep(Duration::from_millis(1)).await;
            }
            let answer = match self.mood.get() {
                Mood::Panics => panic!("on purpose"),
                Mood::Answers => Ok(Reply::Ready),
                Mood::Refuses => Err(StoreError::not_done(StoreErrorKind::Unreachable, "it is gone")),
                Mood::Hangs => Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "it hangs")),
                Mood::IsBusy => Ok(Reply::Busy { remaining: None }),
                Mood::Grants => Ok(Reply::Acquired { fence: Fence(1), waiting: 0 }),
                Mood::Loads => Err(StoreError::not_done(StoreErrorKind::Loading, "it loads")),
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

struct World {
    fake: Rc<Fake>,
    guarded: Rc<Guarded>,
    told: Rc<RefCell<Vec<Health>>>,
    available: Rc<RefCell<Vec<Availability>>>,
}

impl World {
    fn new(mood: Mood) -> Self {
        let fake =
            Rc::new(Fake { mood: Cell::new(mood), asked: RefCell::default(), closed: Cell::new(false) });
        let guarded = Guarded::new(fake.clone(), NAME, Limits::default());
        let told = Rc::new(RefCell::new(Vec::new()));
        let available = Rc::new(RefCell::new(Vec::new()));
        let (heard, said) = (told.clone(), available.clone());
        guarded.listen(Rc::new(move |notice| match notice {
            Notice::Breaker(health) => heard.borrow_mut().push((*health).clone()),
            Notice::Availability(availability) => said.borrow_mut().push(availability),
            other => panic!("{other:?}"),
        }));
        Self { fake, guarded, told, available }
    }

    async fn ask(&self, request: Request) -> Answer {
        self.guarded.clone().execute(vec![request], TIMEOUT).await.pop().unwrap()
    }

    /// Asks for a lock until that is refused without asking the server.
    async fn open(&self) {
        while self.guarded.state() == BreakerState::Closed {
            assert!(self.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn states(&self) -> Vec<BreakerState> {
        self.told.borrow().iter().map(|health| health.state).collect()
    }

    fn count(&self) -> usize {
        self.fake.asked.borrow().len()
    }

    fn is_probing(&self) -> bool {
        self.guarded.prober.borrow().is_some()
    }
}

fn ttl() -> Ttl {
    Ttl::from_millis(300).unwrap()
}

fn acquire() -> Request {
    Request::Acquire(Ask::new("k".into(), Token::random(), ttl(), "h".into()))
}

fn renew() -> Request {
    Request::Renew { key: "k".into(), token: Token::random(), ttl: ttl(), fences: 0 }
}

/// Runs a test in time that stands still until nothing else is left to do.
fn run(test: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(test);
}

#[test]
fn while_the_server_answers_everything_goes_through_and_nothing_is_told() {
    run(async {
        let world = World::new(Mood::Answers);
        for _ in 0..10 {
            assert!(world.ask(acquire()).await.is_ok());
        }
        world.fake.mood.set(Mood::Loads);
        for _ in 0..10 {
            assert_eq!(world.ask(renew()).await.unwrap_err().kind, StoreErrorKind::Loading);
        }
        assert_eq!(world.count(), 20, "who answers is there");
        assert!(world.states().is_empty() && !world.is_probing());
    });
}

#[test]
fn a_server_that_refuses_is_asked_no_more_and_whoever_asks_is_told_so_at_once() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        assert_eq!(world.count(), 3);
        let began = Instant::now();
        let error = world.ask(acquire()).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreachable, false));
        assert!(error.message.contains("it is gone") && error.message.contains("several times"), "{error}");
        assert_eq!((began.elapsed(), world.count()), (Duration::ZERO, 3));
        let health = world.guarded.health();
        assert_eq!((&*health.store, health.state, health.failures), (NAME, BreakerState::Open, 3));
        assert_eq!(health.reason, Some(StoreErrorKind::Unreachable));
    });
}

#[test]
fn a_server_that_hangs_is_asked_twice_and_then_nobody_waits_for_it() {
    run(async {
        let world = World::new(Mood::Hangs);
        let began = Instant::now();
        world.open().await;
        assert!(began.elapsed() < Duration::from_millis(2100), "{:?}", began.elapsed());
        for _ in 0..100 {
            let began = Instant::now();
            assert_eq!(world.ask(acquire()).await.unwrap_err().kind, StoreErrorKind::TimedOut);
            assert!(began.elapsed() < Duration::from_millis(2), "also while a probe is under way");
            sleep(Duration::from_millis(50)).await;
        }
    });
}

#[test]
fn a_server_that_is_back_is_found_within_half_a_second_though_nobody_asks() {
    run(async {
        for outage in [10, 300, 900, 2_500, 7_777] {
            let world = World::new(Mood::Refuses);
            world.open().await;
            sleep(Duration::from_millis(outage)).await;
            world.fake.mood.set(Mood::Answers);
            let back = Instant::now();
            while world.guarded.state() != BreakerState::Closed {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(back.elapsed() <= Duration::from_millis(502), "{:?}", back.elapsed());
            assert!(world.ask(acquire()).await.is_ok());
            let states = world.states();
            assert_eq!(states[0], BreakerState::Open);
            assert_eq!(states[states.len() - 2..], [BreakerState::HalfOpen, BreakerState::Closed]);
            let between = &states[1..states.len() - 2];
            assert!(
                between.chunks(2).all(|two| two == [BreakerState::HalfOpen, BreakerState::Open]),
                "{states:?}"
            );
            let good = world.guarded.health();
            assert_eq!((good.failures, good.reason), (0, None));
            sleep(Duration::from_secs(1)).await;
            assert!(!world.is_probing(), "there is nothing to find out any more");
        }
    });
}

#[test]
fn a_server_that_hung_is_back_with_its_answer_to_the_probe() {
    run(async {
        let world = World::new(Mood::Hangs);
        world.open().await;
        sleep(Duration::from_millis(300)).await;
        assert_eq!(world.guarded.state(), BreakerState::HalfOpen);
        world.fake.mood.set(Mood::Answers);
        sleep(Duration::from_millis(2)).await;
        assert_eq!(world.guarded.state(), BreakerState::Closed);
    });
}

#[test]
fn a_server_that_nobody_needs_is_left_alone_and_the_next_who_asks_finds_it() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        sleep(IDLE + TIMEOUT).await;
        assert!(!world.is_probing());
        let count = world.count();
        assert!((20..60).contains(&count), "{count} probes in 10 s");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.count(), count);
        // Still gone: found out anew, without an unneeded pause.
        assert!(world.ask(acquire()).await.is_err());
        assert_eq!(world.count(), count + 1, "a probe, and not what was asked");
        sleep(IDLE + TIMEOUT).await;
        world.fake.mood.set(Mood::Answers);
        assert!(world.ask(acquire()).await.is_ok(), "it need not be asked twice");
        assert_eq!(world.guarded.state(), BreakerState::Closed);
    });
}

#[test]
fn who_waits_for_a_probe_is_answered_in_its_own_time() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        sleep(IDLE + TIMEOUT).await;
        world.fake.mood.set(Mood::Hangs);
        let began = Instant::now();
        let hasty = world.guarded.clone().execute(vec![acquire()], Duration::from_millis(100)).await;
        assert!(hasty[0].is_err());
        assert!(began.elapsed() <= Duration::from_millis(102), "{:?}", began.elapsed());
    });
}

#[test]
fn a_renewal_goes_through_and_its_answer_closes() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        assert!(world.ask(renew()).await.is_err());
        world.fake.mood.set(Mood::Answers);
        assert!(world.ask(renew()).await.is_ok(), "no pause stands between a lease and its server");
        assert_eq!(world.guarded.state(), BreakerState::Closed);
        assert!(world.ask(acquire()).await.is_ok());
    });
}

#[test]
fn a_renewal_among_other_requests_has_the_server_probed_at_once() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        world.fake.mood.set(Mood::Answers);
        let answers = world.guarded.clone().execute(vec![renew(), acquire()], TIMEOUT).await;
        assert!(answers.iter().all(Result::is_err));
        tokio::task::yield_now().await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(world.guarded.state(), BreakerState::Closed);
    });
}

#[test]
fn a_connection_that_breaks_under_many_batches_makes_nobody_else_fail() {
    run(async {
        let world = World::new(Mood::Hangs);
        let batch = || world.guarded.clone().execute(vec![acquire()], TIMEOUT);
        let cut = async {
            sleep(Duration::from_millis(5)).await;
            world.fake.mood.set(Mood::Refuses);
        };
        let many = futures_util::future::join_all((0..50).map(|_| batch()));
        join(many, cut).await;
        world.fake.mood.set(Mood::Answers);
        assert!(world.ask(acquire()).await.is_ok());
        assert!(world.states().is_empty());
    });
}

#[test]
fn to_diagnose_goes_through_or_is_told_what_stands_against_it() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        let count = world.count();
        assert!(
            world.ask(Request::Diagnose { ttl: ttl(), key: None }).await.is_err(),
            "as the store says it"
        );
        assert_eq!(world.count(), count + 1);
        let batch = vec![acquire(), Request::Diagnose { ttl: ttl(), key: None }];
        let answers = world.guarded.clone().execute(batch, TIMEOUT).await;
        let Ok(Reply::Diagnosed(reports)) = &answers[1] else { panic!("{answers:?}") };
        assert_eq!((&*reports[0].store, reports[0].findings[0].code), (NAME, "unreachable"));
    });
}

#[test]
fn a_store_that_panics_when_probed_is_asked_again() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        world.fake.mood.set(Mood::Panics);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.guarded.state(), BreakerState::Closed);
        world.fake.mood.set(Mood::Answers);
        assert!(world.ask(acquire()).await.is_ok());
    });
}

#[test]
fn a_probe_gives_up_in_time_however_patient_those_are_who_ask() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        world.fake.mood.set(Mood::Hangs);
        let minute = Duration::from_secs(60);
        world.guarded.clone().execute(vec![acquire()], minute).await;
        sleep(Duration::from_millis(201)).await;
        assert_eq!(world.guarded.state(), BreakerState::HalfOpen);
        sleep(LONGEST_PROBE).await;
        assert_eq!(world.guarded.state(), BreakerState::Open);
    });
}

#[test]
fn what_is_closed_or_dropped_probes_no_more() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        world.guarded.clone().close().await;
        assert!(world.fake.closed.get());
        let count = world.count();
        advance(Duration::from_secs(5)).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(world.count(), count);

        let world = World::new(Mood::Refuses);
        world.open().await;
        let World { fake, guarded, .. } = world;
        drop(guarded);
        let count = fake.asked.borrow().len();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(fake.asked.borrow().len(), count);
        assert_eq!(Rc::strong_count(&fake), 1, "nothing is left behind");
    });
}

#[test]
fn a_server_at_the_edge_of_its_memory_is_told_once() {
    run(async {
        let world = World::new(Mood::Loads);
        for round in 0..1_000 {
            world.fake.mood.set(if round % 10 < 7 { Mood::Loads } else { Mood::Grants });
            let _ = world.ask(acquire()).await;
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(world.states(), [BreakerState::Refusing]);
        let Fake { mood, .. } = &*world.fake;
        mood.set(Mood::Grants);
        assert!(world.ask(acquire()).await.is_ok());
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(world.states(), [BreakerState::Refusing, BreakerState::Closed]);
    });
}

#[test]
fn a_repair_does_not_show_that_a_full_server_is_usable_again() {
    run(async {
        let world = World::new(Mood::Loads);
        let Request::Acquire(ask) = acquire() else { unreachable!("it is an acquire") };
        let repair = Request::Acquire(Ask { repairs: true, ..ask });
        while world.states().is_empty() {
            assert!(world.count() < 100, "the refusals count, whatever repairs there are in between");
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
            // The server may grant a lease that it knows without room for another one.
            world.fake.mood.set(Mood::Grants);
            assert!(world.ask(repair.clone()).await.is_ok());
            world.fake.mood.set(Mood::Loads);
        }
        assert_eq!(world.states(), [BreakerState::Refusing]);
        world.fake.mood.set(Mood::Grants);
        assert!(world.ask(repair).await.is_ok());
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(world.states(), [BreakerState::Refusing]);
    });
}

#[test]
fn a_server_that_answers_and_can_not_be_used_is_told_and_asked_all_the_same() {
    run(async {
        let world = World::new(Mood::Loads);
        for count in 1..=5 {
            let told = world.ask(acquire()).await.unwrap_err();
            assert_eq!((told.kind, &*told.message), (StoreErrorKind::Loading, "it loads"));
            assert_eq!(world.count(), count);
            sleep(Duration::from_millis(1)).await;
        }
        // What is no acquire changes nothing, nor what takes no writing.
        world.fake.mood.set(Mood::Answers);
        assert!(world.ask(renew()).await.is_ok());
        world.fake.mood.set(Mood::IsBusy);
        assert!(world.ask(acquire()).await.is_ok());
        assert_eq!(world.states(), [BreakerState::Refusing]);
        let health = world.guarded.health();
        assert_eq!((health.state, health.reason), (BreakerState::Refusing, Some(StoreErrorKind::Loading)));
        assert!(!world.is_probing());
        world.fake.mood.set(Mood::Grants);
        assert!(world.ask(acquire()).await.is_ok());
        assert_eq!(world.states(), [BreakerState::Refusing], "it may refuse the next one");
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(world.states(), [BreakerState::Refusing, BreakerState::Closed], "without a request");
        assert!(world.guarded.closer.borrow().is_none());
        // It goes while it refuses.
        world.fake.mood.set(Mood::Loads);
        while world.guarded.state() == BreakerState::Closed {
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        world.fake.mood.set(Mood::Refuses);
        while world.guarded.state() == BreakerState::Refusing {
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(world.states()[2..], [BreakerState::Refusing, BreakerState::Open]);
        assert!(world.is_probing());
    });
}

#[test]
fn a_store_tells_once_that_it_is_away_with_the_error_of_refused_requests_and_once_that_it_is_usable() {
    run(async {
        let world = World::new(Mood::Refuses);
        world.open().await;
        let error = world.ask(acquire()).await.unwrap_err();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(*world.available.borrow(), [Availability::Away(error)], "probes change nothing");
        world.fake.mood.set(Mood::Answers);
        sleep(Duration::from_secs(1)).await;
        world.fake.mood.set(Mood::Loads);
        for _ in 0..3 {
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(world.available.borrow()[1..], [Availability::Usable, Availability::Refusing]);
        world.fake.mood.set(Mood::Grants);
        assert!(world.ask(acquire()).await.is_ok());
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(world.available.borrow()[3..], [Availability::Usable]);
    });
}

#[test]
fn a_batch_is_divided_as_the_store_behind_the_breaker_says() {
    run(async {
        let world = World::new(Mood::Answers);
        assert_eq!(world.guarded.parts(&[acquire(), renew()]), Some(vec![0, 1]));
        assert_eq!(world.guarded.parts(&[acquire()]), None);
    });
}
