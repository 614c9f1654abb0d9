//! The rules, one by one: a store that answers what the test says, and a clock that the test moves.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::outgoing::Link;
use super::{Batch, Core, Effects};
use crate::engine::command::{
    AcquireCommand, ClientSettings, Command, OpId, Outcome, Pulse, Settlement, Wait,
};
use crate::engine::stats::Stats;
use crate::lease::{Fence, Instant, LeaseState, LossReason, Phase, Token, Ttl};
use crate::store::{Absence, Answer, LeaseInfo, Reply, Request, StoreError, StoreErrorKind};

const ENV: u32 = 1;
const CLIENT: u32 = 7;
const STORE: u32 = 3;
const TTL: u32 = 9_000;

struct World {
    core: Core,
    now: Instant,
    pulse: Arc<Pulse>,
    stats: Arc<Stats>,
    next_slot: u32,
}

/// An acquire as its caller sees it.
struct Asked {
    op: OpId,
    state: Arc<LeaseState>,
}

impl World {
    fn new() -> Self {
        let pulse = Arc::new(Pulse::default());
        let stats = Arc::new(Stats::default());
        let mut world = World {
            core: Core::new(1),
            now: Instant::from_micros(1_000_000_000),
            pulse: pulse.clone(),
            stats: stats.clone(),
            next_slot: 0,
        };
        world.give(Command::OpenEnv { env: ENV, pulse });
        world.give(Command::OpenClient {
            client: CLIENT,
            store: STORE,
            settings: ClientSettings {
                env: ENV,
                name: "test".into(),
                max_stall: Duration::from_secs(60),
                store_timeout: Duration::from_secs(1),
                stats,
            },
        });
        world
    }

    fn give(&mut self, command: Command) {
        self.core.command(self.now, command);
    }

    fn op(&mut self) -> OpId {
        self.next_slot += 1;
        OpId { env: ENV, slot: self.next_slot }
    }

    fn acquire(&mut self, wait: Wait) -> Asked {
        self.acquire_with(wait, |_| {})
    }

    fn acquire_with(&mut self, wait: Wait, change: impl FnOnce(&mut AcquireCommand)) -> Asked {
        let (op, state) = (self.op(), Arc::new(LeaseState::default()));
        let mut command = AcquireCommand {
            op,
            client: CLIENT,
            key: "lock:k".into(),
            token: Token::random(),
            ttl: Ttl::from_millis(TTL).unwrap(),
            wait,
            max_hold: None,
            auto_renew: true,
            report: false,
            state: state.clone(),
        };
        change(&mut command);
        self.give(Command::Acquire(command));
        Asked { op, state }
    }

    /// An acquire that the store grants.
    fn hold(&mut self) -> Asked {
        let asked = self.acquire(Wait::Forever);
        let batch = self.only_batch();
        self.answer(batch, [Ok(Reply::Acquired { fence: Fence(5) })]);
        assert!(matches!(self.settled()[..], [Settlement { outcome: Outcome::Acquired(Fence(5)), .. }]));
        asked
    }

    fn batches(&mut self) -> Vec<Batch> {
        self.core.take_batches(self.now)
    }

    fn only_batch(&mut self) -> Batch {
        let mut batches = self.batches();
        assert_eq!(batches.len(), 1, "one batch is to be sent");
        batches.remove(0)
    }

    fn answer(&mut self, batch: Batch, answers: impl IntoIterator<Item = Answer>) {
        self.core.answered(self.now, batch.sent, answers.into_iter().collect());
    }

    fn settled(&mut self) -> Vec<Settlement> {
        self.core.take_effects().settled
    }

    fn outcome_of(&mut self, op: OpId) -> Outcome {
        let settled = self.settled();
        assert_eq!(settled.len(), 1, "{settled:?}");
        assert_eq!(settled[0].op, op);
        settled[0].outcome.clone()
    }

    fn pass(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.core.tick(self.now);
    }

    /// Goes to the next instant at which something may be due.
    fn step(&mut self) {
        self.now = self.core.next_wake().expect("something is due").max(self.now);
        self.core.tick(self.now);
    }

    /// Goes to the next instant at which there is something to send or to tell.
    fn pass_until_due(&mut self) {
        while self.core.effects.settled.is_empty() && !self.core.stores.values().any(Link::has_requests) {
            self.step();
        }
    }
}

fn busy() -> Answer {
    Ok(Reply::Busy { remaining: Some(Duration::from_secs(5)) })
}

fn timed_out() -> Answer {
    Err(StoreError::maybe_done(StoreErrorKind::TimedOut, "no answer"))
}

#[test]
fn a_granted_lease_is_held_until_its_deadline_counted_from_before_the_request() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.pass(1_000);
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1) })]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Acquired(Fence(1))));
    assert_eq!(
        asked.state.deadline().since(world.now),
        Duration::from_millis(TTL.into()) * 99 / 100 - Duration::from_millis(1_002)
    );
}

#[test]
fn an_answer_that_took_longer_than_the_ttl_grants_nothing() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Never);
    let batch = world.only_batch();
    world.pass(u64::from(TTL));
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1) })]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Failed(e) if e.kind == StoreErrorKind::TimedOut));
    assert!(!asked.state.is_held(world.now));
    assert!(
        matches!(world.only_batch().requests[..], [Request::Release { .. }]),
        "what it may have is given back"
    );
}

#[test]
fn a_lease_is_renewed_in_time_and_lives_on() {
    let mut world = World::new();
    let asked = world.hold();
    for _ in 0..10 {
        world.pass_until_due();
        world.pulse.beat(world.now);
        let batch = world.only_batch();
        assert!(matches!(batch.requests[..], [Request::Renew { .. }]));
        world.answer(batch, [Ok(Reply::Renewed)]);
    }
    assert!(asked.state.is_held(world.now));
    assert_eq!(world.stats.renewals.get(), 10);
    assert!(world.settled().is_empty(), "nobody asked to be told");
}

#[test]
fn a_failed_renewal_is_tried_again_until_the_deadline_and_then_the_lease_is_expired() {
    let mut world = World::new();
    let asked = world.hold();
    let mut attempts = 0;
    let lost = loop {
        world.pass_until_due();
        world.pulse.beat(world.now);
        for batch in world.batches() {
            if matches!(batch.requests[..], [Request::Renew { .. }]) {
                attempts += 1;
                assert!(asked.state.is_held(world.now));
            }
            world.answer(batch, [timed_out()]);
        }
        if let Some(last) = world.settled().pop() {
            break last;
        }
    };
    assert!(attempts > 3);
    assert!(matches!(lost.outcome, Outcome::Lost(LossReason::Expired)));
    assert_eq!(asked.state.phase(world.now), Phase::Lost(LossReason::Expired));
}

#[test]
fn a_store_that_does_not_answer_at_all_does_not_delay_the_loss() {
    let mut world = World::new();
    let asked = world.hold();
    world.pass_until_due();
    let renewal = world.only_batch();
    world.pass_until_due();
    assert!(matches!(world.outcome_of(asked.op), Outcome::Lost(LossReason::Expired)));
    world.answer(renewal, [Ok(Reply::Renewed)]);
    assert!(!asked.state.is_held(world.now), "a late answer revives nothing");
}

#[test]
fn a_missing_or_taken_key_is_a_loss_and_never_taken_again() {
    for (absence, reason) in [(Absence::Missing, LossReason::Missing), (Absence::Taken, LossReason::Taken)] {
        let mut world = World::new();
        let asked = world.hold();
        world.pass_until_due();
        let renewal = world.only_batch();
        world.answer(renewal, [Ok(Reply::NotHeld(absence))]);
        assert!(matches!(world.outcome_of(asked.op), Outcome::Lost(r) if r == reason));
        assert!(world.batches().is_empty());
    }
}

#[test]
fn a_thread_that_does_not_answer_for_max_stall_loses_its_lease_as_stalled() {
    let mut world = World::new();
    let asked = world.hold();
    let began = world.now;
    let lost = loop {
        world.pass_until_due();
        for batch in world.batches() {
            let answers: Vec<Answer> = batch.requests.iter().map(|_| Ok(Reply::Renewed)).collect();
            world.answer(batch, answers);
        }
        if let Some(settled) = world.settled().pop() {
            break settled.outcome;
        }
    };
    assert!(matches!(lost, Outcome::Lost(LossReason::Stalled)));
    assert!(!asked.state.is_held(world.now));
    let lived = world.now.since(began);
    assert!(lived > Duration::from_secs(60) && lived < Duration::from_secs(60 + 18), "{lived:?}");
}

#[test]
fn a_thread_that_answers_again_before_its_lease_ran_out_keeps_it() {
    let mut world = World::new();
    let asked = world.hold();
    while asked.state.phase(world.now) != Phase::Stalled {
        world.step();
        for batch in world.batches() {
            world.answer(batch, [Ok(Reply::Renewed)]);
        }
    }
    world.pulse.beat(world.now);
    world.pass_until_due();
    let renewal = world.only_batch();
    world.answer(renewal, [Ok(Reply::Renewed)]);
    assert_eq!(asked.state.phase(world.now), Phase::Held);
}

#[test]
fn max_hold_ends_the_lease_however_often_it_is_renewed_and_gives_it_back() {
    let mut world = World::new();
    let asked = world.acquire_with(Wait::Forever, |c| c.max_hold = Some(Duration::from_secs(20)));
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1) })]);
    world.settled();
    let began = world.now;
    let lost = loop {
        world.pass_until_due();
        world.pulse.beat(world.now);
        if let Some(settled) = world.settled().pop() {
            break settled.outcome;
        }
        for batch in world.batches() {
            world.answer(batch, [Ok(Reply::Renewed)]);
        }
    };
    assert!(matches!(lost, Outcome::Lost(LossReason::Expired)));
    assert_eq!(world.now.since(began), Duration::from_secs(20));
    assert!(matches!(world.only_batch().requests[..], [Request::Release { .. }]));
    assert!(!asked.state.is_held(world.now));
}

#[test]
fn waiting_ends_with_a_time_out_and_leaves_nothing_behind() {
    let mut world = World::new();
    let asked = world.acquire(Wait::For(Duration::from_millis(100)));
    let began = world.now;
    let outcome = loop {
        for batch in world.batches() {
            world.answer(batch, [busy()]);
        }
        world.pass_until_due();
        if let Some(settled) = world.settled().pop() {
            break settled;
        }
    };
    assert!(matches!(outcome.outcome, Outcome::TimedOut));
    assert_eq!(outcome.op, asked.op);
    assert_eq!(world.now.since(began), Duration::from_millis(100));
    assert!(world.core.waiters.is_empty() && world.core.lines.is_empty() && world.core.cleanups.is_empty());
}

#[test]
fn an_unreachable_store_is_another_failure_than_a_held_lock() {
    let mut world = World::new();
    let asked = world.acquire(Wait::For(Duration::from_millis(100)));
    let outcome = loop {
        for batch in world.batches() {
            world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"))]);
        }
        world.pass_until_due();
        if let Some(settled) = world.settled().pop() {
            break settled;
        }
    };
    assert_eq!(outcome.op, asked.op);
    assert!(matches!(outcome.outcome, Outcome::Failed(e) if e.kind == StoreErrorKind::Unreachable));
    assert!(world.batches().is_empty(), "it was certainly not done, so there is nothing to give back");
}

#[test]
fn a_wrong_password_is_told_at_once() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.answer(batch, [Err(StoreError::not_done(StoreErrorKind::Denied, "wrong password"))]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Failed(e) if e.kind == StoreErrorKind::Denied));
}

#[test]
fn an_acquire_that_is_cancelled_in_mid_flight_is_given_back_when_its_answer_comes() {
    for (answer, given_back) in
        [(Ok(Reply::Acquired { fence: Fence(1) }), true), (timed_out(), true), (busy(), false)]
    {
        let mut world = World::new();
        let asked = world.acquire(Wait::Forever);
        let batch = world.only_batch();
        world.give(Command::Cancel { op: asked.op });
        assert!(matches!(world.outcome_of(asked.op), Outcome::Cancelled));
        world.answer(batch, [answer]);
        let releases = world.batches();
        assert_eq!(releases.len(), usize::from(given_back));
        assert!(releases.iter().all(|b| matches!(b.requests[..], [Request::Release { .. }])));
        assert!(!asked.state.is_held(world.now));
    }
}

#[test]
fn a_grant_that_crosses_its_cancellation_is_given_back() {
    let mut world = World::new();
    let asked = world.hold();
    world.give(Command::Cancel { op: asked.op });
    assert!(matches!(world.outcome_of(asked.op), Outcome::Cancelled));
    assert!(matches!(world.only_batch().requests[..], [Request::Release { .. }]));
    assert!(!asked.state.is_held(world.now));
}

#[test]
fn what_may_have_been_granted_is_released_until_the_store_has_said_so() {
    let mut world = World::new();
    let asked = world.acquire(Wait::Never);
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    assert!(matches!(world.outcome_of(asked.op), Outcome::Failed(_)));
    for _ in 0..3 {
        let release = world.only_batch();
        assert!(matches!(release.requests[..], [Request::Release { .. }]));
        world.answer(release, [timed_out()]);
        world.pass_until_due();
    }
    let release = world.only_batch();
    world.answer(release, [Ok(Reply::Released)]);
    assert!(world.core.cleanups.is_empty());
}

#[test]
fn nothing_is_released_for_longer_than_the_lease_can_live() {
    let mut world = World::new();
    world.acquire(Wait::Never);
    let batch = world.only_batch();
    world.answer(batch, [timed_out()]);
    let began = world.now;
    while !world.core.cleanups.is_empty() {
        for batch in world.batches() {
            world.answer(batch, [timed_out()]);
        }
        if world.core.next_wake().is_some() {
            world.step();
        }
    }
    assert!(world.now.since(began) <= Duration::from_millis(TTL.into()));
}

#[test]
fn only_the_first_waiter_looks_at_the_store_and_order_is_that_of_arrival() {
    let mut world = World::new();
    let holder = world.hold();
    let waiters: Vec<Asked> = (0..20).map(|_| world.acquire(Wait::Forever)).collect();
    let looks = world.only_batch();
    let count = looks.requests.len();
    world.answer(looks, (0..count).map(|_| busy()));
    for _ in 0..50 {
        world.pass(5);
        for batch in world.batches() {
            assert_eq!(batch.requests.len(), 1, "one waiter looks for all");
            world.answer(batch, [busy()]);
        }
    }
    let mut holding = holder;
    for (turn, next) in waiters.into_iter().enumerate() {
        assert!(holding.state.release(world.now));
        world.give(Command::Release { op: holding.op });
        let batch = world.only_batch();
        assert!(
            matches!(batch.requests[..], [Request::Release { .. }, Request::Acquire { .. }]),
            "turn {turn}"
        );
        world.answer(batch, [Ok(Reply::Released), Ok(Reply::Acquired { fence: Fence(turn as u64) })]);
        let settled = world.settled();
        assert!(
            settled.iter().any(|s| s.op == next.op && matches!(s.outcome, Outcome::Acquired(_))),
            "turn {turn}"
        );
        holding = next;
    }
}

#[test]
fn closing_ends_waiters_and_leases_and_waits_for_the_releases() {
    let mut world = World::new();
    let held = world.hold();
    let waiter = world.acquire(Wait::Forever);
    let batch = world.only_batch();
    world.answer(batch, [busy()]);
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
    let Effects { settled, unused, .. } = world.core.take_effects();
    assert!(unused.is_empty(), "the store is needed until the lease is released there");
    assert!(settled.iter().any(|s| s.op == waiter.op && matches!(s.outcome, Outcome::Closed)));
    assert!(
        settled.iter().any(|s| s.op == held.op && matches!(s.outcome, Outcome::Lost(LossReason::Closed)))
    );
    assert_eq!(settled.len(), 2);
    let release = world.only_batch();
    world.answer(release, [Ok(Reply::Released)]);
    let effects = world.core.take_effects();
    assert!(matches!(effects.settled[..], [Settlement { outcome: Outcome::Done, .. }]));
    assert_eq!(effects.unused, [STORE], "the store is closed with its last client");
}

#[test]
fn closing_does_not_wait_longer_than_its_patience() {
    let mut world = World::new();
    world.hold();
    let op = world.op();
    world.give(Command::CloseClient { client: CLIENT, op, patience: Duration::from_millis(500) });
    world.settled();
    let _never_answered = world.only_batch();
    world.pass(500);
    assert!(matches!(world.outcome_of(op), Outcome::Done));
}

#[test]
fn the_end_of_a_process_waits_for_releases_that_its_code_has_just_asked_for() {
    let mut world = World::new();
    let held = world.hold();
    assert!(held.state.release(world.now));
    world.give(Command::Release { op: held.op });
    let (done, _ended) = sync_channel(1);
    world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_millis(500) });
    assert!(world.core.take_effects().unblocked.is_empty());
    let release = world.only_batch();
    world.answer(release, [Ok(Reply::Released)]);
    assert_eq!(world.core.take_effects().unblocked.len(), 1);
}

#[test]
fn an_explicit_renewal_brings_the_new_ttl_and_its_failure_does_not_end_the_lease() {
    let mut world = World::new();
    let held = world.hold();
    world.give(Command::Renew { op: held.op, ttl: Ttl::from_millis(60_000) });
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Renewed)]);
    assert!(matches!(world.outcome_of(held.op), Outcome::Renewed));
    assert!(held.state.deadline().since(world.now) > Duration::from_secs(59));
    world.give(Command::Renew { op: held.op, ttl: None });
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Renew { ttl, .. }] if ttl.as_millis() == 60_000));
    world.answer(batch, [timed_out()]);
    assert!(matches!(world.outcome_of(held.op), Outcome::RenewFailed(_)));
    assert!(held.state.is_held(world.now));
}

#[test]
fn a_panic_fails_one_operation_and_nothing_else() {
    let mut world = World::new();
    let held = world.hold();
    let op = world.op();
    world.core.guarded(Some(op), |_| panic!("boom"));
    assert!(
        matches!(world.outcome_of(op), Outcome::Failed(e) if e.kind == StoreErrorKind::Internal && e.message.contains("boom"))
    );
    assert!(held.state.is_held(world.now));
    world.core.guarded(Some(held.op), |_| panic!("boom"));
    world.settled();
    world.pass_until_due();
    let renewal = world.only_batch();
    assert!(matches!(renewal.requests[..], [Request::Renew { .. }]), "the lease is looked at again");
}

#[test]
fn a_renewal_for_a_shorter_ttl_shortens_nothing_and_is_the_ttl_from_then_on() {
    let mut world = World::new();
    let held = world.hold();
    let deadline = held.state.deadline();
    world.give(Command::Renew { op: held.op, ttl: Ttl::from_millis(100) });
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Renewed)]);
    assert!(matches!(world.outcome_of(held.op), Outcome::Renewed));
    assert_eq!(held.state.deadline(), deadline);
    world.pass_until_due();
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Renew { ttl, .. }] if ttl.as_millis() == 100));
}

#[test]
fn an_end_waits_for_an_acquire_on_its_way_and_for_giving_back_what_it_got() {
    for answer in [Ok(Reply::Acquired { fence: Fence(1) }), timed_out()] {
        let mut world = World::new();
        world.acquire(Wait::Forever);
        let look = world.only_batch();
        let (done, _ended) = sync_channel(1);
        world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_millis(500) });
        assert!(world.core.take_effects().unblocked.is_empty());
        world.answer(look, [answer]);
        assert!(world.core.take_effects().unblocked.is_empty());
        let release = world.only_batch();
        world.answer(release, [Ok(Reply::Released)]);
        assert_eq!(world.core.take_effects().unblocked.len(), 1);
    }
}

#[test]
fn an_end_does_not_hand_the_lock_to_a_waiter_that_ends_too() {
    let mut world = World::new();
    world.hold();
    world.acquire(Wait::Forever);
    let look = world.only_batch();
    world.answer(look, [busy()]);
    let (done, _ended) = sync_channel(1);
    world.give(Command::CloseEnv { env: ENV, done, patience: Duration::from_millis(500) });
    let batch = world.only_batch();
    assert!(matches!(batch.requests[..], [Request::Release { .. }]), "{batch:?}");
}

#[test]
fn a_waiter_that_never_got_to_look_is_told_of_the_outage_all_the_same() {
    let mut world = World::new();
    world.acquire(Wait::Forever);
    let unreachable = || Err(StoreError::not_done(StoreErrorKind::Unreachable, "refused"));
    let batch = world.only_batch();
    world.answer(batch, [unreachable()]);
    let behind = world.acquire(Wait::For(Duration::from_millis(200)));
    let outcome = loop {
        world.step();
        for batch in world.batches() {
            world.answer(batch, [unreachable()]);
        }
        if let Some(settled) = world.settled().pop() {
            break settled;
        }
    };
    assert_eq!(outcome.op, behind.op);
    assert!(matches!(outcome.outcome, Outcome::Failed(e) if e.kind == StoreErrorKind::Unreachable));
}

#[test]
fn a_release_that_may_have_overtaken_its_acquire_is_repeated() {
    let mut world = World::new();
    world.acquire(Wait::Never);
    let look = world.only_batch();
    world.answer(look, [timed_out()]);
    for _ in 0..3 {
        let release = world.only_batch();
        assert!(matches!(release.requests[..], [Request::Release { .. }]));
        world.answer(release, [Ok(Reply::NotHeld(Absence::Missing))]);
        world.settled();
        if world.core.next_wake().is_some() {
            world.step();
        }
    }
    assert!(world.batches().is_empty() && world.core.cleanups.is_empty());
}

#[test]
fn an_impatient_client_does_not_make_others_fail() {
    let mut world = World::new();
    let settings = ClientSettings {
        env: ENV,
        name: "impatient".into(),
        max_stall: Duration::from_secs(60),
        store_timeout: Duration::from_millis(10),
        stats: world.stats.clone(),
    };
    world.give(Command::OpenClient { client: CLIENT + 1, store: STORE, settings });
    world.acquire(Wait::Forever);
    world.acquire_with(Wait::Forever, |c| c.client = CLIENT + 1);
    let timeouts: Vec<Duration> = world.batches().iter().map(|batch| batch.timeout).collect();
    assert_eq!(timeouts, [Duration::from_secs(1), Duration::from_millis(10)]);
}

#[test]
fn a_thread_that_hangs_is_noticed_also_when_renewals_are_rare() {
    let mut world = World::new();
    let asked = world.acquire_with(Wait::Forever, |c| c.ttl = Ttl::from_millis(600_000).unwrap());
    let batch = world.only_batch();
    world.answer(batch, [Ok(Reply::Acquired { fence: Fence(1) })]);
    world.settled();
    // It answers nothing from here on.
    while asked.state.phase(world.now) == Phase::Held {
        world.step();
        assert!(world.batches().is_empty(), "a renewal for a thread that hangs");
    }
    assert_eq!(asked.state.phase(world.now), Phase::Stalled);
}

#[test]
fn inspecting_tells_how_many_wait_here() {
    let mut world = World::new();
    world.hold();
    for _ in 0..3 {
        world.acquire(Wait::Forever);
    }
    let looks = world.only_batch();
    let count = looks.requests.len();
    world.answer(looks, (0..count).map(|_| busy()));
    let op = world.op();
    world.give(Command::Inspect { op, client: CLIENT, key: "lock:k".into() });
    let batch = world.only_batch();
    let info = LeaseInfo { holder: None, fence: None, remaining: None };
    world.answer(batch, [Ok(Reply::Inspected(Some(info)))]);
    assert!(matches!(world.outcome_of(op), Outcome::Inspected(told) if told.1 == 3));
}

#[test]
fn a_hundred_thousand_leases_come_and_go_without_leaving_a_trace() {
    let mut world = World::new();
    for _ in 0..100_000 {
        let held = world.hold();
        held.state.release(world.now);
        world.give(Command::Release { op: held.op });
        let batch = world.only_batch();
        world.answer(batch, [Ok(Reply::Released)]);
        world.settled();
        world.core.tick(world.now);
    }
    assert!(world.core.tenures.is_empty() && world.core.waiters.is_empty() && world.core.lines.is_empty());
    assert_eq!(
        (world.stats.held.get(), world.stats.waiting.get(), world.stats.acquired.get()),
        (0, 0, 100_000)
    );
}
