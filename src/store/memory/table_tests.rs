//! Tests of the locks in memory.

use super::*;
use crate::lease::{Token, Ttl};
use crate::store::{AcquireRequest, Place};

const WALL: u64 = 1_700_000_000_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_micros(ms * 1000)
}

fn acquire(table: &mut LeaseTable, key: &str, token: Token, ttl_ms: u32, now_ms: u64) -> Reply {
    let ttl = Ttl::from_millis(ttl_ms).unwrap();
    table
        .apply(Request::Acquire(AcquireRequest::new(key.into(), token, ttl, "h".into())), at(now_ms), WALL)
        .unwrap()
}

#[test]
fn a_broken_lock_may_be_repaired_after_a_while_and_the_break_is_forgotten() {
    let mut table = LeaseTable::default();
    let ask = AcquireRequest::new("k".into(), Token::random(), Ttl::MIN, "h".into());
    let repair = || Request::Acquire(AcquireRequest { repairs: true, ..ask.clone() });
    let break_it = Request::Break { key: "k".into(), bars_repairs: true };
    assert_eq!(table.apply(break_it, at(0), WALL), Ok(Reply::NotHeld(Absence::Missing)));
    let end = at(0) + BROKEN_LIFE;
    let almost = Instant::from_micros(end.as_micros() - 1);
    let refused = table.apply(repair(), almost, WALL);
    assert_eq!(refused, Ok(Reply::Busy { remaining: Some(Duration::ZERO) }));
    assert!(matches!(table.apply(repair(), end, WALL), Ok(Reply::Acquired { .. })));
    table.apply(Request::Ping, end + Duration::from_secs(10), WALL).unwrap();
    assert!(table.is_empty());
}

#[test]
fn a_lease_ends_at_the_exact_microsecond() {
    let (a, b) = (Token::random(), Token::random());
    let mut table = LeaseTable::default();
    let ttl = Ttl::from_millis(10).unwrap();
    let acquire_by = |token| Request::Acquire(AcquireRequest::new("k".into(), token, ttl, "h".into()));
    table.apply(acquire_by(a), Instant::from_micros(5), WALL).unwrap();
    let last = table.apply(acquire_by(b), Instant::from_micros(10_004), WALL).unwrap();
    assert_eq!(last, Reply::Busy { remaining: Some(Duration::from_micros(1)) });
    let next = table.apply(acquire_by(b), Instant::from_micros(10_005), WALL).unwrap();
    assert_eq!(next, Reply::Acquired { fence: Fence(WALL + 1), waiting: 0 });
}

fn fence(reply: Reply) -> u64 {
    match reply {
        Reply::Acquired { fence, .. } => fence.0,
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn fences_grow_while_the_wall_clock_stands_still_or_goes_back() {
    let mut table = LeaseTable::default();
    let mut last = 0;
    for (i, wall) in [WALL, WALL, WALL - 1_000_000, 0, WALL + 9].into_iter().enumerate() {
        let ttl = Ttl::from_millis(10).unwrap();
        let request = Request::Acquire(AcquireRequest::new("k".into(), Token::random(), ttl, "h".into()));
        let fence = fence(table.apply(request, at(i as u64 * 10), wall).unwrap());
        assert!(fence > last, "{fence:?} after {last:?}");
        last = fence;
    }
    assert_eq!(last, WALL + 9);
}

#[test]
fn a_reservation_for_one_key_does_not_move_the_fences_of_others() {
    let (mut table, ttl) = (LeaseTable::default(), Ttl::from_millis(10).unwrap());
    for i in 0..1_000 {
        let ask = AcquireRequest::new(format!("k{i}").into(), Token::random(), ttl, "h".into());
        let request = Request::Acquire(AcquireRequest { fences: 64, ..ask });
        assert_eq!(fence(table.apply(request, at(0), WALL).unwrap()), WALL);
    }
}

#[test]
fn fences_grow_beyond_those_of_a_removed_lease() {
    let (mut table, ttl) = (LeaseTable::default(), Ttl::from_millis(10).unwrap());
    let ask = AcquireRequest::new("k".into(), Token::random(), ttl, "h".into());
    table.apply(Request::Acquire(AcquireRequest { fences: 64, ..ask }), at(0), WALL).unwrap();
    table.apply(Request::Ping, at(1_000), WALL).unwrap();
    assert!(table.is_empty());
    assert_eq!(fence(acquire(&mut table, "k", Token::random(), 10, 1_000)), WALL + 64);
}

/// Breaks a lock with a waiter every 40 µs, for one second. Before each break, `others` leases
/// of another lock end. Returns how many µs the last fence was ahead of the wall clock, the
/// number of breaks, and the total time that the breaks had to wait.
fn storm(table: &mut LeaseTable, others: u32) -> (i64, u32, Duration) {
    let (mut now, mut breaks, mut waited, mut last) = (at(10_000), 0, Duration::ZERO, Fence::NONE);
    let wall = |now: Instant| WALL + now.as_micros();
    let (end, ttl) = (now + Duration::from_secs(1), Ttl::from_millis(10_000).unwrap());
    let ask = || AcquireRequest::new("k".into(), Token::random(), ttl, "h".into());
    table.apply(Request::Acquire(ask()), now, wall(now)).unwrap();
    while now < end {
        let waiter = AcquireRequest { place: Some(Place { number: 1 }), ..ask() };
        table.apply(Request::Acquire(waiter), now, wall(now)).unwrap();
        for _ in 0..others {
            let token = Token::random();
            let ask = AcquireRequest::new("other".into(), token, ttl, "h".into());
            table.apply(Request::Acquire(ask), now, wall(now)).unwrap();
            let release = Request::Release { key: "other".into(), token, used: None };
            table.apply(release, now, wall(now)).unwrap();
        }
        let request = Request::Break { key: "k".into(), bars_repairs: false };
        while let Some(delay) = table.delay(&request, now) {
            (now, waited) = (now + delay, waited + delay);
        }
        table.apply(request, now, wall(now)).unwrap();
        let notices = table.take_notices();
        let [Notice::Granted { fence: Some(fence), .. }] = notices[..] else { panic!("{notices:?}") };
        assert!(fence > last);
        (now, breaks, last) = (now + Duration::from_micros(40), breaks + 1, fence);
    }
    (last.0.cast_signed() - wall(now).cast_signed(), breaks, waited)
}

#[test]
fn repeated_breaks_of_a_lock_with_waiters_do_not_put_fences_ahead_of_the_clock() {
    // The fences of other leases count, too.
    for (others, least) in [(0, 10_000), (4, 5_000)] {
        let mut table = LeaseTable::default();
        let (ahead, breaks, _) = storm(&mut table, others);
        assert!(ahead < 1_000, "{ahead} µs ahead after {breaks} breaks, {others} others before each");
        assert!(breaks > least, "{breaks}");
    }
}

#[test]
fn breaks_wait_no_longer_than_usual_after_the_wall_clock_was_set_back() {
    let mut table = LeaseTable::default();
    let (_, breaks, waited) = storm(&mut table, 0);
    let mut table = LeaseTable { floor: Fence(WALL + 3_600_000_000), ..LeaseTable::default() };
    let (ahead, late_breaks, late_waited) = storm(&mut table, 0);
    assert!(ahead > 3_500_000_000, "{ahead}");
    assert!(late_breaks + 100 > breaks, "{late_breaks} breaks, {breaks} before");
    assert!(late_waited < waited + Duration::from_millis(10), "{late_waited:?}, {waited:?} before");
}

#[test]
fn expired_leases_are_forgotten_without_requests_for_them() {
    let mut table = LeaseTable::default();
    for i in 0..500 {
        acquire(&mut table, &format!("k{i}"), Token::random(), 10, 0);
    }
    assert_eq!(table.len(), 500);
    table.apply(Request::Ping, at(1_000), WALL).unwrap();
    assert!(table.is_empty());
}

#[test]
fn the_size_of_the_table_is_proportional_to_its_valid_leases() {
    let mut table = LeaseTable::default();
    // 100 000 leases of 10 ms each, 100 of them valid at a time. All within the interval between
    // two sweeps.
    for i in 0..100_000u64 {
        let now = Instant::from_micros(i * 100);
        let ttl = Ttl::from_millis(10).unwrap();
        let key = format!("k{i}").into();
        let request = Request::Acquire(AcquireRequest::new(key, Token::random(), ttl, "h".into()));
        table.apply(request, now, WALL).unwrap();
        assert!(table.len() <= 100 + SWEEP_AFTER, "{} after {i}", table.len());
    }
}

#[test]
fn each_table_hashes_a_key_in_its_own_way() {
    // Otherwise, a user who chooses keys could make all of them collide.
    let hash = || std::hash::BuildHasher::hash_one(LeaseTable::default().locks.hasher(), "key");
    assert_ne!(hash(), hash());
}
