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

    /// A request is refused by the network `ms` after it was sent.
    fn refuse(&mut self, ms: u64) -> bool {
        let began = self.now;
        self.pass(ms);
        self.fail(StoreErrorKind::Unreachable, began, SECOND, false)
    }

    /// A request gets no answer in `ms`, which was its time-out.
    fn time_out(&mut self, ms: u64) -> bool {
        let began = self.now;
        self.pass(ms);
        self.fail(StoreErrorKind::TimedOut, began, Duration::from_millis(ms), false)
    }

    /// The next probe fails at once, as soon as it is due. Returns the pause before it.
    fn probe_in_vain(&mut self) -> Duration {
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
fn three_failures_in_a_row_open_it_and_an_answer_between_them_counts_anew() {
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
fn requests_that_overlap_without_end_open_it_nevertheless() {
    let mut world = World::new();
    let (start, time_out) = (world.now, Duration::from_millis(200));
    let opened = (0..100).find(|n| {
        let began = start + Duration::from_millis(10 * n);
        world.now = began + time_out;
        world.fail(StoreErrorKind::TimedOut, began, time_out, false)
    });
    assert_eq!(opened, Some(40), "three time-outs after each other, whatever was sent between them");
}

#[test]
fn two_time_outs_after_each_other_open_it_when_they_took_long() {
    let mut world = World::new();
    assert!(!world.time_out(1000), "that may have been the connection's fault");
    assert!(world.time_out(1000));
    let mut world = World::new();
    assert!(!world.time_out(200) && !world.time_out(200));
    assert!(world.time_out(200));
}

#[test]
fn the_hasty_open_nothing() {
    let mut world = World::new();
    for _ in 0..1000 {
        assert!(!world.time_out(99));
    }
    assert_eq!((world.breaker.state(), world.breaker.failures()), (BreakerState::Closed, 0));
    while !world.refuse(1) {}
    assert_eq!(world.breaker.state(), BreakerState::Open, "but that nobody listens they may well say");
}

#[test]
fn probes_come_after_growing_pauses_of_half_a_second_at_most() {
    let mut world = World::new();
    world.open();
    let pauses: Vec<_> = (0..100).map(|_| world.probe_in_vain().as_millis()).collect();
    assert_eq!(pauses[..4], [200, 400, 500, 500]);
    assert!(pauses[4..].iter().all(|&pause| pause == 500));
}

#[test]
fn jitter_shortens_a_pause_to_half_of_it() {
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
fn there_is_one_probe_at_a_time_and_any_answer_closes() {
    let mut world = World::new();
    assert!(!world.breaker.probe(), "there is nothing to probe");
    world.open();
    assert!(world.breaker.probe());
    assert!(!world.breaker.probe(), "one is under way");
    assert!(!world.refuse(1), "what was let through for another reason decides nothing by failing");
    assert_eq!(world.breaker.state(), BreakerState::HalfOpen);
    assert!(world.breaker.answered());
    assert_eq!((world.breaker.state(), world.breaker.reason()), (BreakerState::Closed, None));
    world.open();
    assert!(world.breaker.answered(), "also while no probe is under way");
}

#[test]
fn after_it_has_closed_it_begins_with_the_shortest_pause_again() {
    let mut world = World::new();
    world.open();
    (0..5).for_each(|_| assert!(world.probe_in_vain() > Duration::ZERO));
    assert!(world.breaker.probe() && world.breaker.answered());
    world.open();
    assert_eq!(world.probe_in_vain(), SHORTEST_PAUSE);
}

#[test]
fn a_probe_that_fails_after_an_answer_came_is_one_failure_like_others() {
    let mut world = World::new();
    world.open();
    let began = world.now;
    assert!(world.breaker.probe() && world.breaker.answered());
    assert!(!world.fail(StoreErrorKind::TimedOut, began, SECOND, true));
    assert_eq!((world.breaker.state(), world.breaker.failures()), (BreakerState::Closed, 1));
}

#[test]
fn what_is_refused_was_not_done_and_is_told_why_in_the_same_words_each_time() {
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
    /// An acquire is refused by the server, at once.
    fn turn_down(&mut self, kind: StoreErrorKind) -> bool {
        let began = self.now;
        self.pass(1);
        self.breaker.answered();
        let error = StoreError::not_done(kind, "redis://somewhere does not want to");
        self.breaker.refused(Kind::Exclusive, began, &error, self.now)
    }

    /// An exclusive acquire is taken in.
    fn take_in(&mut self, granted: bool) -> bool {
        self.breaker.accepted(Kind::Exclusive, granted, self.now)
    }
}

#[test]
fn a_server_that_refuses_three_acquires_in_a_row_is_told_and_goes_on_being_asked() {
    let mut world = World::new();
    assert!(!world.turn_down(StoreErrorKind::Full) && !world.turn_down(StoreErrorKind::Full));
    assert!(!world.take_in(false), "one that it takes in counts anew");
    assert!(!world.turn_down(StoreErrorKind::Full) && !world.turn_down(StoreErrorKind::Full));
    assert!(world.turn_down(StoreErrorKind::Full));
    assert_eq!(world.breaker.state(), BreakerState::Refusing);
    assert!(world.breaker.state().lets_through() && world.breaker.probe_at().is_none());
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (3, Some(StoreErrorKind::Full)));
    // It may well release what it has.
    assert!(!world.turn_down(StoreErrorKind::Full) && !world.breaker.answered());
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (4, Some(StoreErrorKind::Full)));
    assert!(world.turn_down(StoreErrorKind::Denied), "it refuses for another reason");
    assert!(!world.turn_down(StoreErrorKind::Denied));
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (6, Some(StoreErrorKind::Denied)));
    world.pass(1_000);
    assert!(world.take_in(false));
    assert_eq!((world.breaker.state(), world.breaker.failures()), (BreakerState::Closed, 0));
    assert!(!world.take_in(false));
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
fn a_server_that_refuses_may_go_and_begins_anew_when_it_is_back() {
    let mut world = World::new();
    while !world.turn_down(StoreErrorKind::Full) {}
    // An answer between two that got none.
    assert!(!world.refuse(1) && !world.breaker.answered());
    assert_eq!(world.breaker.state(), BreakerState::Refusing);
    while !world.refuse(1) {}
    assert_eq!(world.breaker.state(), BreakerState::Open);
    assert_eq!(world.breaker.reason(), Some(StoreErrorKind::Unreachable));
    assert!(world.breaker.answered());
    assert_eq!(world.breaker.state(), BreakerState::Closed);
    assert!(!world.turn_down(StoreErrorKind::Full));
}

#[test]
fn of_replicas_only_a_grant_says_anything() {
    let mut world = World::new();
    while !world.turn_down(StoreErrorKind::Unreplicated) {
        assert!(!world.take_in(false), "it has a place in the queue");
    }
    assert!(!world.take_in(false));
    // Those behind the ones that wait for replicas get no answer in time.
    assert!(!world.turn_down(StoreErrorKind::TimedOut));
    assert_eq!(world.breaker.state(), BreakerState::Refusing);
    assert_eq!((world.breaker.failures(), world.breaker.reason()), (4, Some(StoreErrorKind::Unreplicated)));
    world.pass(1_000);
    assert!(world.take_in(true));
    assert_eq!(world.breaker.state(), BreakerState::Closed);
}

#[test]
fn a_server_that_grants_some_and_refuses_others_refuses_until_it_has_granted_for_a_second() {
    let mut world = World::new();
    while !world.turn_down(StoreErrorKind::Full) {}
    for _ in 0..100 {
        world.pass(900);
        assert!(!world.take_in(true) && world.breaker.calm_at().is_some());
        assert!(!world.turn_down(StoreErrorKind::Full));
        assert_eq!((world.breaker.state(), world.breaker.calm_at()), (BreakerState::Refusing, None));
    }
    assert!(!world.take_in(true));
    assert_eq!(world.breaker.calm_at(), Some(world.now + SECOND));
    world.pass(999);
    assert!(!world.breaker.calm_down(world.now));
    world.pass(1);
    assert!(world.breaker.calm_down(world.now));
    assert_eq!((world.breaker.state(), world.breaker.reason()), (BreakerState::Closed, None));
}

#[test]
fn only_an_acquire_of_the_kind_that_was_refused_shows_that_the_server_can_be_used() {
    let mut world = World::new();
    for _ in 0..2 {
        assert!(!world.turn_down(StoreErrorKind::Full));
        world.breaker.accepted(Kind::Shared, true, world.now);
    }
    assert!(world.turn_down(StoreErrorKind::Full), "shared ones between them change nothing");
    world.pass(10_000);
    assert!(!world.breaker.accepted(Kind::Shared, true, world.now));
    assert_eq!((world.breaker.state(), world.breaker.calm_at()), (BreakerState::Refusing, None));
    assert!(world.take_in(true));
}
