use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A breaker and a clock that only the test moves.
struct World {
    breaker: Breaker,
    now: Instant,
}

impl World {
    fn new() -> Self {
        Self { breaker: Breaker::new(Limits::default()), now: Instant::now() }
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn fail(&mut self, kind: StoreErrorKind, began: Instant, timeout: Duration, probe: bool) -> bool {
        let error = StoreError::maybe_done(kind, "redis://somewhere is gone");
        self.breaker.failed(Failure { began, probe, error: &error }, timeout, self.now, 1.0)
    }

    /// Sends a request, which the network refuses after `ms`.
    fn refuse(&mut self, ms: u64) -> bool {
        let began = self.now;
        self.pass(ms);
        self.fail(StoreErrorKind::Unreachable, began, SECOND, false)
    }

    /// Sends a request, which gets no answer within its time-out of `ms`.
    fn time_out(&mut self, ms: u64) -> bool {
        let began = self.now;
        self.pass(ms);
        self.fail(StoreErrorKind::TimedOut, began, Duration::from_millis(ms), false)
    }

    /// Sends the next probe as soon as it is due, and lets it fail at once. Returns the pause
    /// before it.
    fn fail_next_probe(&mut self) -> Duration {
        let at = self.breaker.probe_at().expect("it is open");
        let pause = at - self.now;
        self.now = at;
        assert!(self.breaker.probe());
        assert_eq!(self.breaker.state(), BreakerState::HalfOpen);
        assert!(self.fail(StoreErrorKind::Unreachable, at, SECOND, true));
        assert_eq!(self.breaker.state(), BreakerState::Open);
        pause
    }

    fn open(&mut self) {
        while !self.refuse(1) {}
        assert_eq!(self.breaker.state(), BreakerState::Open);
    }
}

#[test]
fn three_failures_in_a_row_open_the_breaker_and_an_answer_resets_the_count() {
    let mut world = World::new();
    assert!(!world.refuse(1) && !world.refuse(1));
    assert!(!world.breaker.answered(), "it was closed before");
    assert_eq!(world.breaker.failures(), 0);
    assert!(!world.refuse(1) && !world.refuse(1));
    assert!(world.refuse(1));
    assert_eq!((world.breaker.state(), world.breaker.failures()), (BreakerState::Open, 3));
    assert_eq!(world.breaker.reason(), Some(StoreErrorKind::Unreachable));
}

#[test]
fn requests_that_fail_together_are_one_failure() {
    let mut world = World::new();
    let began = world.now;
    world.pass(5);
    for _ in 0..100 {
        assert!(!world.fail(StoreErrorKind::Unreachable, began, SECOND, false), "one connection broke");
        world.pass(1);
    }
    assert_eq!(world.breaker.failures(), 1);
}

#[test]
fn requests_that_always_overlap_open_the_breaker_too() {
    let mut world = World::new();
    let (start, time_out) = (world.now, Duration::from_millis(200));
    let opened = (0..100).find(|n| {
        let began = start + Duration::from_millis(10 * n);
        world.now = began + time_out;
        world.fail(StoreErrorKind::TimedOut, began, time_out, false)
    });
    assert_eq!(opened, Some(40), "three time-outs in a row open it, despite the requests sent between them");
}

#[test]
fn two_long_time_outs_in_a_row_open_the_breaker() {
    let mut world = World::new();
    assert!(!world.time_out(1000), "one time-out may be the fault of the connection");
    assert!(world.time_out(1000));
    let mut world = World::new();
    assert!(!world.time_out(200) && !world.time_out(200));
    assert!(world.time_out(200));
}

#[test]
fn time_outs_of_impatient_callers_do_not_open_the_breaker() {
    let mut world = World::new();
    for _ in 0..1000 {
        assert!(!world.time_out(99));
    }
    assert_eq!((world.breaker.state(), world.breaker.failures()), (BreakerState::Closed, 0));
    while !world.refuse(1) {}
    assert_eq!(world.breaker.state(), BreakerState::Open, "other failures count, even with a short time-out");
}

#[test]
fn probes_come_after_growing_pauses_of_half_a_second_at_most() {
    let mut world = World::new();
    world.open();
    let pauses: Vec<_> = (0..100).map(|_| world.fail_next_probe().as_millis()).collect();
    assert_eq!(pauses[..4], [200, 400, 500, 500]);
    assert!(pauses[4..].iter().all(|&pause| pause == 500));
}

#[test]
fn jitter_shortens_a_pause_to_half_at_most() {
    let mut world = World::new();
    let error = StoreError::not_done(StoreErrorKind::Unreachable, "gone");
    for _ in 0..3 {
        let failure = Failure { began: world.now, probe: false, error: &error };
        world.breaker.failed(failure, SECOND, world.now, 0.0);
        world.pass(1);
    }
    world.now -= Duration::from_millis(1);
    assert_eq!(world.breaker.probe_at(), Some(world.now + Duration::from_millis(100)));
}

#[test]
fn one_probe_is_sent_at_a_time_and_any_answer_closes_the_breaker() {
    let mut world = World::new();
    assert!(!world.breaker.probe(), "a closed breaker needs no probe");
    world.open();
    assert!(world.breaker.probe());
    assert!(!world.breaker.probe(), "a probe is under way");
    assert!(!world.refuse(1), "a failure of another request does not end the probe");
    assert_eq!(world.breaker.state(), BreakerState::HalfOpen);
    assert!(world.breaker.answered());
    assert_eq!((world.breaker.state(), world.breaker.reason()), (BreakerState::Closed, None));
    world.open();
    assert!(world.breaker.answered(), "an answer closes the breaker while no probe is under way, too");
}

#[test]
fn after_closing_the_breaker_begins_with_the_shortest_pause_again() {
    let mut world = World::new();
    world.open();
    (0..5).for_each(|_| assert!(world.fail_next_probe() > Duration::ZERO));
    assert!(world.breaker.probe() && world.breaker.answered());
    world.open();
    assert_eq!(world.fail_next_probe(), SHORTEST_PAUSE);
}

#[test]
fn a_probe_that_fails_after_an_answer_counts_as_one_failure() {
    let mut world = World::new();
    world.open();
    let began = world.now;
    assert!(world.breaker.probe() && world.breaker.answered());
    assert!(!world.fail(StoreErrorKind::TimedOut, began, SECOND, true));
    assert_eq!((world.breaker.state(), world.breaker.failures()), (BreakerState::Closed, 1));
}

#[test]
fn a_request_that_is_not_let_through_always_gets_the_same_error() {
    let mut world = World::new();
    world.open();
    world.pass(50);
    let error = world.breaker.refusal();
    assert_eq!((error.kind, error.maybe_done), (StoreErrorKind::Unreachable, false));
    for part in ["redis://somewhere is gone", "several times in a row"] {
        assert!(error.message.contains(part), "{}", error.message);
    }
    world.pass(50);
    world.breaker.probe();
    assert_eq!(world.breaker.refusal(), error);
}

impl World {
    /// Sends an acquire, which the server refuses at once.
    fn refuse_acquire(&mut self, kind: StoreErrorKind) -> bool {
        let began = self.now;
        self.pass(1);
        self.breaker.answered();
        let error = StoreError::not_done(kind, "redis://somewhere does not want to");
        self.breaker.refused(Kind::Exclusive, began, &error, self.now)
    }

    /// Notes that the server accepted an exclusive acquire.
    fn accept_acquire(&mut self, granted: bool) -> bool {
        self.breaker.accepted(Kind::Exclusive, granted, self.now)
    }
}

#[test]
fn a_server_that_refuses_three_acquires_in_a_row_is_reported_and_still_gets_requests() {
    let mut world = World::new();
    assert!(!world.refuse_acquire(StoreErrorKind::Full) && !world.refuse_acquire(StoreErrorKind::Full));
    assert!(!world.accept_acquire(false), "an accepted acquire resets the count");
    assert!(!world.refuse_acquire(StoreErrorKind::Full) && !world.refuse_acquire(StoreErrorKind::Full));
    assert!(world.refuse_acquire(StoreErrorKind::Full));
    assert_eq!(world.breaker.state(), BreakerState::Refusing);
    assert!(world.breaker.state().lets_through() && world.breaker.probe_at().is_none());
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (3, Some(StoreErrorKind::Full)));
    // An answer does not end the refusals: the server may still carry out releases.
    assert!(!world.refuse_acquire(StoreErrorKind::Full) && !world.breaker.answered());
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (4, Some(StoreErrorKind::Full)));
    assert!(world.refuse_acquire(StoreErrorKind::Denied), "the server refuses for another reason");
    assert!(!world.refuse_acquire(StoreErrorKind::Denied));
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (6, Some(StoreErrorKind::Denied)));
    world.pass(1_000);
    assert!(world.accept_acquire(false));
    assert_eq!((world.breaker.state(), world.breaker.failures()), (BreakerState::Closed, 0));
    assert!(!world.accept_acquire(false));
}

#[test]
fn acquires_that_are_refused_together_are_one_refusal() {
    let mut world = World::new();
    let began = world.now;
    let error = StoreError::not_done(StoreErrorKind::Full, "it is full");
    for _ in 0..10 {
        world.pass(1);
        assert!(!world.breaker.refused(Kind::Exclusive, began, &error, world.now));
    }
}

#[test]
fn a_refusing_server_may_go_away_and_the_count_starts_again_when_it_is_back() {
    let mut world = World::new();
    while !world.refuse_acquire(StoreErrorKind::Full) {}
    // The server answers between two requests that get no answer.
    assert!(!world.refuse(1) && !world.breaker.answered());
    assert_eq!(world.breaker.state(), BreakerState::Refusing);
    while !world.refuse(1) {}
    assert_eq!(world.breaker.state(), BreakerState::Open);
    assert_eq!(world.breaker.reason(), Some(StoreErrorKind::Unreachable));
    assert!(world.breaker.answered());
    assert_eq!(world.breaker.state(), BreakerState::Closed);
    assert!(!world.refuse_acquire(StoreErrorKind::Full));
}

#[test]
fn refusals_for_lack_of_replicas_end_with_a_grant() {
    let mut world = World::new();
    while !world.refuse_acquire(StoreErrorKind::Unreplicated) {
        assert!(!world.accept_acquire(false), "a place in the queue is no grant");
    }
    assert!(!world.accept_acquire(false));
    // Acquires that wait for replicas block those behind them, which then time out.
    assert!(!world.refuse_acquire(StoreErrorKind::TimedOut));
    assert_eq!(world.breaker.state(), BreakerState::Refusing);
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (4, Some(StoreErrorKind::Unreplicated)));
    world.pass(1_000);
    assert!(world.accept_acquire(true));
    assert_eq!(world.breaker.state(), BreakerState::Closed);
}

#[test]
fn a_server_that_also_refuses_is_usable_after_a_second_without_refusals() {
    let mut world = World::new();
    while !world.refuse_acquire(StoreErrorKind::Full) {}
    for _ in 0..100 {
        world.pass(900);
        assert!(!world.accept_acquire(true) && world.breaker.stable_at().is_some());
        assert!(!world.refuse_acquire(StoreErrorKind::Full));
        assert_eq!((world.breaker.state(), world.breaker.stable_at()), (BreakerState::Refusing, None));
    }
    assert!(!world.accept_acquire(true));
    assert_eq!(world.breaker.stable_at(), Some(world.now + SECOND));
    world.pass(999);
    assert!(!world.breaker.become_stable(world.now));
    world.pass(1);
    assert!(world.breaker.become_stable(world.now));
    assert_eq!((world.breaker.state(), world.breaker.reason()), (BreakerState::Closed, None));
}

#[test]
fn only_an_accepted_acquire_of_the_refused_kind_shows_that_the_server_is_usable() {
    let mut world = World::new();
    for _ in 0..2 {
        assert!(!world.refuse_acquire(StoreErrorKind::Full));
        world.breaker.accepted(Kind::Shared, true, world.now);
    }
    assert!(world.refuse_acquire(StoreErrorKind::Full), "shared leases granted between them change nothing");
    world.pass(10_000);
    assert!(!world.breaker.accepted(Kind::Shared, true, world.now));
    assert_eq!((world.breaker.state(), world.breaker.stable_at()), (BreakerState::Refusing, None));
    assert!(world.accept_acquire(true));
}
