#[path = "breaker_store_tests/world.rs"]
mod world;

use futures_util::future::join;
use tokio::time::{advance, sleep};

use self::world::{FakeServer, NAME, ServerBehavior, TIMEOUT, World, acquire, renew, run, ttl};
use super::*;
use crate::store::{AcquireRequest, StoreErrorKind};

#[test]
fn while_the_server_answers_all_requests_pass_and_no_notice_is_sent() {
    run(async {
        let world = World::new(ServerBehavior::Answers);
        for _ in 0..10 {
            assert!(world.ask(acquire()).await.is_ok());
        }
        world.fake.behavior.set(ServerBehavior::Loads);
        for _ in 0..10 {
            assert_eq!(world.ask(renew()).await.unwrap_err().kind, StoreErrorKind::Loading);
        }
        assert_eq!(world.count(), 20, "a server that answers is there");
        assert!(world.states().is_empty() && !world.is_probing());
    });
}

#[test]
fn an_unreachable_server_gets_no_more_requests_and_callers_fail_at_once() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        assert_eq!(world.count(), 3);
        let began = Instant::now();
        let error = world.ask(acquire()).await.unwrap_err();
        assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreachable, false));
        assert!(error.message.contains("it is gone") && error.message.contains("several times"), "{error}");
        assert_eq!((began.elapsed(), world.count()), (Duration::ZERO, 3));
        let health = world.breaker_store.health();
        assert_eq!((&*health.store, health.state, health.failures), (NAME, BreakerState::Open, 3));
        assert_eq!(health.reason, Some(StoreErrorKind::Unreachable));
    });
}

#[test]
fn a_server_that_hangs_gets_two_requests_and_then_callers_do_not_wait() {
    run(async {
        let world = World::new(ServerBehavior::Hangs);
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
fn a_server_that_is_back_is_found_within_half_a_second_without_requests() {
    run(async {
        for outage in [10, 300, 900, 2_500, 7_777] {
            let world = World::new(ServerBehavior::Refuses);
            world.open().await;
            sleep(Duration::from_millis(outage)).await;
            world.fake.behavior.set(ServerBehavior::Answers);
            let back = Instant::now();
            while world.breaker_store.state() != BreakerState::Closed {
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
            let good = world.breaker_store.health();
            assert_eq!((good.failures, good.reason), (0, None));
            sleep(Duration::from_secs(1)).await;
            assert!(!world.is_probing(), "a closed breaker needs no probes");
        }
    });
}

#[test]
fn the_answer_to_a_probe_closes_the_breaker_of_a_server_that_hung() {
    run(async {
        let world = World::new(ServerBehavior::Hangs);
        world.open().await;
        sleep(Duration::from_millis(300)).await;
        assert_eq!(world.breaker_store.state(), BreakerState::HalfOpen);
        world.fake.behavior.set(ServerBehavior::Answers);
        sleep(Duration::from_millis(2)).await;
        assert_eq!(world.breaker_store.state(), BreakerState::Closed);
    });
}

#[test]
fn a_server_that_no_client_needs_is_not_probed_until_the_next_request() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        sleep(IDLE + TIMEOUT).await;
        assert!(!world.is_probing());
        let count = world.count();
        assert!((20..60).contains(&count), "{count} probes in 10 s");
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(world.count(), count);
        // The server is still away. The next request causes a probe without a pause.
        assert!(world.ask(acquire()).await.is_err());
        assert_eq!(world.count(), count + 1, "the server got a probe and not the request");
        sleep(IDLE + TIMEOUT).await;
        world.fake.behavior.set(ServerBehavior::Answers);
        assert!(world.ask(acquire()).await.is_ok(), "the first request finds that the server is back");
        assert_eq!(world.breaker_store.state(), BreakerState::Closed);
    });
}

#[test]
fn a_request_that_waits_for_a_probe_is_answered_within_its_own_time_out() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        sleep(IDLE + TIMEOUT).await;
        world.fake.behavior.set(ServerBehavior::Hangs);
        let began = Instant::now();
        let answers = world.breaker_store.clone().execute(vec![acquire()], Duration::from_millis(100)).await;
        assert!(answers[0].is_err());
        assert!(began.elapsed() <= Duration::from_millis(102), "{:?}", began.elapsed());
    });
}

#[test]
fn a_renewal_passes_and_its_answer_closes_the_breaker() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        assert!(world.ask(renew()).await.is_err());
        world.fake.behavior.set(ServerBehavior::Answers);
        assert!(world.ask(renew()).await.is_ok(), "renewals do not wait for a probe");
        assert_eq!(world.breaker_store.state(), BreakerState::Closed);
        assert!(world.ask(acquire()).await.is_ok());
    });
}

#[test]
fn a_renewal_in_a_batch_with_other_requests_causes_a_probe_at_once() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        world.fake.behavior.set(ServerBehavior::Answers);
        let answers = world.breaker_store.clone().execute(vec![renew(), acquire()], TIMEOUT).await;
        assert!(answers.iter().all(Result::is_err));
        tokio::task::yield_now().await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(world.breaker_store.state(), BreakerState::Closed);
    });
}

#[test]
fn a_broken_connection_of_many_batches_does_not_open_the_breaker() {
    run(async {
        let world = World::new(ServerBehavior::Hangs);
        let batch = || world.breaker_store.clone().execute(vec![acquire()], TIMEOUT);
        let cut = async {
            sleep(Duration::from_millis(5)).await;
            world.fake.behavior.set(ServerBehavior::Refuses);
        };
        let many = futures_util::future::join_all((0..50).map(|_| batch()));
        join(many, cut).await;
        world.fake.behavior.set(ServerBehavior::Answers);
        assert!(world.ask(acquire()).await.is_ok());
        assert!(world.states().is_empty());
    });
}

#[test]
fn a_diagnosis_passes_or_reports_why_it_does_not() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        let count = world.count();
        assert!(
            world.ask(Request::Diagnose { ttl: ttl(), key: None }).await.is_err(),
            "the answer is the store's own error"
        );
        assert_eq!(world.count(), count + 1);
        let batch = vec![acquire(), Request::Diagnose { ttl: ttl(), key: None }];
        let answers = world.breaker_store.clone().execute(batch, TIMEOUT).await;
        let Ok(Reply::Diagnosed(reports)) = &answers[1] else { panic!("{answers:?}") };
        assert_eq!((&*reports[0].store, reports[0].findings[0].code), (NAME, "unreachable"));
    });
}

#[test]
fn a_store_that_panics_at_a_probe_gets_requests_again() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        world.fake.behavior.set(ServerBehavior::Panics);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.breaker_store.state(), BreakerState::Closed);
        world.fake.behavior.set(ServerBehavior::Answers);
        assert!(world.ask(acquire()).await.is_ok());
    });
}

#[test]
fn a_probe_times_out_although_callers_have_longer_time_outs() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        world.fake.behavior.set(ServerBehavior::Hangs);
        let minute = Duration::from_secs(60);
        world.breaker_store.clone().execute(vec![acquire()], minute).await;
        sleep(Duration::from_millis(201)).await;
        assert_eq!(world.breaker_store.state(), BreakerState::HalfOpen);
        sleep(LONGEST_PROBE).await;
        assert_eq!(world.breaker_store.state(), BreakerState::Open);
    });
}

#[test]
fn a_closed_or_dropped_store_sends_no_probes() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        world.breaker_store.clone().close().await;
        assert!(world.fake.closed.get());
        let count = world.count();
        advance(Duration::from_secs(5)).await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(world.count(), count);

        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        let World { fake, breaker_store, .. } = world;
        drop(breaker_store);
        let count = fake.asked.borrow().len();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(fake.asked.borrow().len(), count);
        assert_eq!(Rc::strong_count(&fake), 1, "no task holds the server");
    });
}

#[test]
fn a_server_at_the_edge_of_its_memory_is_reported_once() {
    run(async {
        let world = World::new(ServerBehavior::Loads);
        for round in 0..1_000 {
            world.fake.behavior.set(if round % 10 < 7 {
                ServerBehavior::Loads
            } else {
                ServerBehavior::Grants
            });
            let _ = world.ask(acquire()).await;
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(world.states(), [BreakerState::Refusing]);
        let FakeServer { behavior, .. } = &*world.fake;
        behavior.set(ServerBehavior::Grants);
        assert!(world.ask(acquire()).await.is_ok());
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(world.states(), [BreakerState::Refusing, BreakerState::Closed]);
    });
}

#[test]
fn a_repair_does_not_show_that_a_full_server_is_usable_again() {
    run(async {
        let world = World::new(ServerBehavior::Loads);
        let Request::Acquire(ask) = acquire() else { unreachable!("acquire() returns an acquire") };
        let repair = Request::Acquire(AcquireRequest { repairs: true, ..ask });
        while world.states().is_empty() {
            assert!(world.count() < 100, "the refusals count although repairs are granted between them");
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
            // The server may grant a lease that it knows although it has no room for another one.
            world.fake.behavior.set(ServerBehavior::Grants);
            assert!(world.ask(repair.clone()).await.is_ok());
            world.fake.behavior.set(ServerBehavior::Loads);
        }
        assert_eq!(world.states(), [BreakerState::Refusing]);
        world.fake.behavior.set(ServerBehavior::Grants);
        assert!(world.ask(repair).await.is_ok());
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(world.states(), [BreakerState::Refusing]);
    });
}

#[test]
fn a_server_that_refuses_acquires_is_reported_and_still_gets_requests() {
    run(async {
        let world = World::new(ServerBehavior::Loads);
        for count in 1..=5 {
            let error = world.ask(acquire()).await.unwrap_err();
            assert_eq!((error.kind, &*error.message), (StoreErrorKind::Loading, "it loads"));
            assert_eq!(world.count(), count);
            sleep(Duration::from_millis(1)).await;
        }
        // Neither a request that is no acquire nor an answer that needs no write changes the state.
        world.fake.behavior.set(ServerBehavior::Answers);
        assert!(world.ask(renew()).await.is_ok());
        world.fake.behavior.set(ServerBehavior::IsBusy);
        assert!(world.ask(acquire()).await.is_ok());
        assert_eq!(world.states(), [BreakerState::Refusing]);
        let health = world.breaker_store.health();
        assert_eq!((health.state, health.reason), (BreakerState::Refusing, Some(StoreErrorKind::Loading)));
        assert!(!world.is_probing());
        world.fake.behavior.set(ServerBehavior::Grants);
        assert!(world.ask(acquire()).await.is_ok());
        assert_eq!(world.states(), [BreakerState::Refusing], "the server may refuse the next acquire");
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(
            world.states(),
            [BreakerState::Refusing, BreakerState::Closed],
            "the breaker closes without a request"
        );
        assert!(world.breaker_store.closing_task.borrow().is_none());
        // The server goes away while it refuses.
        world.fake.behavior.set(ServerBehavior::Loads);
        while world.breaker_store.state() == BreakerState::Closed {
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        world.fake.behavior.set(ServerBehavior::Refuses);
        while world.breaker_store.state() == BreakerState::Refusing {
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(world.states()[2..], [BreakerState::Refusing, BreakerState::Open]);
        assert!(world.is_probing());
    });
}

#[test]
fn a_change_of_availability_is_reported_once() {
    run(async {
        let world = World::new(ServerBehavior::Refuses);
        world.open().await;
        let error = world.ask(acquire()).await.unwrap_err();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(*world.available.borrow(), [Availability::Away(error)], "failed probes are not reported");
        world.fake.behavior.set(ServerBehavior::Answers);
        sleep(Duration::from_secs(1)).await;
        world.fake.behavior.set(ServerBehavior::Loads);
        for _ in 0..3 {
            assert!(world.ask(acquire()).await.is_err());
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(world.available.borrow()[1..], [Availability::Usable, Availability::Refusing]);
        world.fake.behavior.set(ServerBehavior::Grants);
        assert!(world.ask(acquire()).await.is_ok());
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(world.available.borrow()[3..], [Availability::Usable]);
    });
}

#[test]
fn a_batch_is_divided_as_the_store_behind_the_breaker_says() {
    run(async {
        let world = World::new(ServerBehavior::Answers);
        assert_eq!(world.breaker_store.parts(&[acquire(), renew()]), Some(vec![0, 1]));
        assert_eq!(world.breaker_store.parts(&[acquire()]), None);
    });
}
