//! Tests detached leases over boots.

use uuid::Uuid;

use super::super::owner::Owner;
use super::tests::{TestDatabase, WALL, acquire, granted};
use super::*;
use crate::lease::Ttl;
use crate::store::Source;

const DAY: u64 = 24 * 60 * 60;

/// Returns the request that detaches a lease of the first fence.
pub fn detach(key: Key, token: Token, ttl: Ttl) -> Request {
    Request::Detach { key, token, ttl, fence: Fence(WALL), own_ttl: ttl }
}

/// A lease that was detached for `ttl` s before a reboot: at WALL, when the boot's clock showed an
/// hour.
pub struct Detached {
    database: TestDatabase,
    me: Owner,
    token: Token,
}

impl Detached {
    pub fn new(boot: Uuid, ttl: u64) -> Self {
        let database = TestDatabase::new();
        let (me, token) = (database.owner(), Token::random());
        let detached = Self { database, me, token };
        let ttl = Ttl::from_millis(ttl as u32 * 1000).unwrap();
        detached.ask(
            boot,
            3_600,
            0,
            Request::Acquire(AcquireRequest::new("k".into(), token, Ttl::MIN, "h".into())),
        );
        let reply = detached.ask(boot, 3_600, 0, detach("k".into(), token, ttl));
        assert_eq!(reply, Reply::Renewed { block: None });
        detached
    }

    /// Sends `request` while the boot's clock shows `shown` s, and the wall clock `wall` s after
    /// WALL.
    fn ask(&self, boot: Uuid, shown: u64, wall: i64, request: Request) -> Reply {
        let wall = WALL.saturating_add_signed(wall * 1_000_000);
        let (mut answers, _) =
            self.database.transaction_at(self.me.id(), boot, shown * 1000, wall, &[request]);
        answers.pop().unwrap().unwrap()
    }

    /// Returns for how many s the lease still lives; `None` if it has ended.
    pub fn left(&self, boot: Uuid, shown: u64, wall: i64) -> Option<u64> {
        match self.ask(boot, shown, wall, acquire("k", 10)) {
            Reply::Busy { remaining } => remaining.map(|left| left.as_secs()),
            Reply::Acquired { .. } => None,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_detached_lease_outlives_the_boot_and_lives_for_its_ttl_from_the_first_look_on() {
    let (before, after) = (Uuid::new_v4(), Uuid::new_v4());
    let lease = Detached::new(before, 600);
    assert_eq!(lease.left(before, 3_601, 1), Some(599), "in its own boot, only the rest of its ttl");
    assert_eq!(lease.left(after, 50, 200), Some(600));
    assert_eq!(lease.left(after, 649, 799), Some(1), "the ttl counts from that look on");
    assert_eq!(lease.left(after, 650, 800), None);
}

#[test]
fn a_detached_lease_can_be_adopted_after_a_reboot() {
    let lease = Detached::new(Uuid::new_v4(), 600);
    let (after, adopter, ttl) = (Uuid::new_v4(), Token::random(), Ttl::from_millis(10_000).unwrap());
    let token = lease.token;
    let adopt = Request::Adopt {
        key: "k".into(),
        token,
        adopter,
        ttl,
        holder: "i".into(),
        outlives_process: false,
        source: Source::Ticket { fence: Fence(1), with_ttl: false },
    };
    assert!(lease.ask(after, 5, 60, adopt).is_adopted());
    let release = Request::Release { key: "k".into(), token: adopter, used: None };
    assert_eq!(lease.ask(after, 6, 61, release), Reply::Released);
    assert_eq!(lease.database.rows(), 0);
}

#[test]
fn a_read_shows_a_lease_that_outlives_the_boot_and_only_a_write_starts_its_ttl() {
    let (lease, after) = (Detached::new(Uuid::new_v4(), 600), Uuid::new_v4());
    for shown in [10, 20] {
        let me = ThisStore {
            owner: lease.me.id(),
            boot: after,
            kernel: &lease.database.kernel,
            owners: &lease.database.owners,
        };
        let now = Instant::from_micros(shown * 1_000_000);
        let mut transaction = Transaction::new(&lease.database.connection, me, now, WALL, false).unwrap();
        let Reply::Inspected(Some(info)) = transaction.apply(&Request::Inspect { key: "k".into() }).unwrap()
        else {
            panic!("the lease is held")
        };
        assert_eq!(info.leases[0].remaining, Some(Duration::from_secs(600)));
        transaction.finish().unwrap();
    }
    lease.database.sweep(lease.me.id(), after, 30_000);
    assert_eq!(lease.left(after, 40, 40), Some(590), "the sweep looked at 30 s");
}

#[test]
fn a_machine_that_starts_every_hour_keeps_a_detached_lease_for_a_day_more() {
    let (lease, ttl) = (Detached::new(Uuid::new_v4(), 2 * DAY), 2 * DAY as i64);
    let end = ttl + DAY as i64;
    for hour in (1..).map(|hour| hour * 3_600).take_while(|wall| *wall < end) {
        let expected = ttl.min(end - hour);
        assert_eq!(lease.left(Uuid::new_v4(), 5, hour), Some(expected as u64), "after {hour} s");
    }
    assert_eq!(lease.left(Uuid::new_v4(), 5, end), None);
}

#[test]
fn a_wall_clock_that_is_wrong_by_hours_ends_nothing_early() {
    for wall in [-WALL.cast_signed() / 1_000_000, -400 * DAY as i64, -50_000, 0, 50_000, 86_000] {
        let lease = Detached::new(Uuid::new_v4(), 600);
        let left = lease.left(Uuid::new_v4(), 5, wall);
        assert_eq!(left, Some(600), "{wall} s ahead");
    }
}

#[test]
fn a_detached_lease_outlives_a_boot_that_has_no_id() {
    let nil = Uuid::nil();
    let lease = Detached::new(nil, 600);
    assert_eq!(lease.left(nil, 3_700, 100), Some(500));
    // More time is left than the ttl, so the clock began again.
    assert_eq!(lease.left(nil, 5, 200), Some(600));
    assert_eq!(lease.left(nil, 15, 210), Some(590));
    let late = Detached::new(nil, 600);
    assert_eq!(late.left(nil, 5, 600 + DAY as i64), None);
}

#[test]
fn a_renewed_lease_ends_with_its_boot_though_it_was_detached_once() {
    let (before, after) = (Uuid::new_v4(), Uuid::new_v4());
    let lease = Detached::new(before, 600);
    let (key, token, ttl) = ("k".into(), lease.token, Ttl::from_millis(600_000).unwrap());
    let renewed = lease.ask(before, 3_601, 1, Request::Renew { key, token, ttl, fences: 0 });
    assert_eq!(renewed, Reply::Renewed { block: None });
    let Detached { database, me, .. } = lease;
    drop(me);
    granted(&database.ask(database.owner().id(), after, 5_000, &acquire("k", 10)));
}
