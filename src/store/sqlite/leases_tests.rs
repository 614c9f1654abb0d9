//! The rules on rows at chosen instants, boots and owners.

use super::super::super::Ask;
use super::super::kernel::Kernel;
use super::super::owner::Owner;
use super::super::owners;
use super::super::schema;
use super::*;
use crate::lease::Ttl;
use crate::store::Source;

pub const WALL: u64 = 1_700_000_000_000_000;

/// A lock file in memory, with a real directory for the owners' files.
pub struct Ledger {
    pub connection: Connection,
    pub kernel: Kernel,
    pub owners: std::path::PathBuf,
}

impl Ledger {
    pub fn new() -> Self {
        let owners = std::env::temp_dir().join(format!("leasehold-owners-{}", Uuid::new_v4()));
        std::fs::create_dir(&owners).unwrap();
        let connection = Connection::open_in_memory().unwrap();
        schema::prepare(&connection).unwrap();
        Self { connection, kernel: Kernel::named(Uuid::nil(), false), owners }
    }

    pub fn owner(&self) -> Owner {
        Owner::create(&self.owners, &self.owners.metadata().unwrap()).unwrap()
    }

    /// One transaction of one request.
    pub fn ask(&self, owner: Uuid, boot: Uuid, ms: u64, request: &Request) -> Reply {
        let (mut answers, _) = self.turn(owner, boot, ms, std::slice::from_ref(request));
        answers.pop().unwrap().unwrap()
    }

    /// One transaction. Returns the answers, and the numbers of those who were handed leases.
    pub fn turn(&self, owner: Uuid, boot: Uuid, ms: u64, batch: &[Request]) -> (Vec<Answer>, Vec<u64>) {
        self.turn_at(owner, boot, ms, WALL, batch)
    }

    /// Runs a turn while the wall clock shows `wall` µs.
    pub fn turn_at(
        &self,
        owner: Uuid,
        boot: Uuid,
        ms: u64,
        wall: u64,
        batch: &[Request],
    ) -> (Vec<Answer>, Vec<u64>) {
        let me = Me { owner, boot, kernel: &self.kernel, owners: &self.owners };
        let mut turn = Turn::new(&self.connection, me, Instant::from_micros(ms * 1000), wall, true).unwrap();
        let answers = turn.batch(batch).unwrap();
        let Aftermath { handed, graves } = turn.finish().unwrap();
        for (id, handle) in graves {
            owners::bury(&self.owners, id, handle);
        }
        (answers, handed.into_iter().map(|handed| handed.number).collect())
    }

    pub fn rows(&self) -> i64 {
        let rows = "SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM waiters)";
        self.connection.query_row(rows, [], |row| row.get(0)).unwrap()
    }

    pub fn sweep(&self, owner: Uuid, boot: Uuid, ms: u64) {
        let me = Me { owner, boot, kernel: &self.kernel, owners: &self.owners };
        let mut turn = Turn::new(&self.connection, me, Instant::from_micros(ms * 1000), WALL, true).unwrap();
        let mut after = Cursor::default();
        loop {
            after = turn.sweep(&after).unwrap();
            if after == Cursor::default() {
                break;
            }
        }
        turn.finish().unwrap();
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.owners);
    }
}

pub fn acquire(key: &str, ttl: u32) -> Request {
    let ttl = Ttl::from_millis(ttl).unwrap();
    Request::Acquire(Ask::new(key.into(), Token::random(), ttl, "h".into()))
}

pub fn granted(reply: &Reply) -> Fence {
    match reply {
        Reply::Acquired { fence, .. } => *fence,
        other => panic!("expected a lease, got {other:?}"),
    }
}

pub fn busy(reply: &Reply) -> u64 {
    match reply {
        Reply::Busy { remaining: Some(left) } => left.as_micros() as u64,
        other => panic!("expected busy, got {other:?}"),
    }
}

#[test]
fn a_lease_ends_by_the_boot_clock_to_the_microsecond_whatever_the_wall_clock_shows() {
    let ledger = Ledger::new();
    let (a, b, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    let at = |owner: &Owner, us, wall| {
        let me = Me { owner: owner.id(), boot, kernel: &ledger.kernel, owners: &ledger.owners };
        let mut turn = Turn::new(&ledger.connection, me, Instant::from_micros(us), wall, true).unwrap();
        let reply = turn.apply(&acquire("k", 10)).unwrap();
        turn.finish().unwrap();
        reply
    };
    let first = granted(&at(&a, 5, WALL));
    // A wall clock that jumps by a year, or back to 1970, frees nothing early and holds nothing longer.
    assert_eq!(busy(&at(&b, 10_004, WALL + 31_536_000_000_000)), 1);
    assert_eq!(busy(&at(&b, 10_004, 0)), 1);
    assert!(granted(&at(&b, 10_005, 0)) > first);
}

#[test]
fn every_lease_of_an_earlier_boot_is_free_and_fences_grow_on() {
    let ledger = Ledger::new();
    let (before, after) = (Uuid::new_v4(), Uuid::new_v4());
    let owner = ledger.owner();
    let id = owner.id();
    let first = granted(&ledger.ask(id, before, 1_000_000, &acquire("k", 1_000_000)));
    let second = granted(&ledger.ask(id, before, 1_000_000, &acquire("other", 1_000_000)));
    drop(owner);
    // The machine starts again: its clock too. The files are there, but nobody has them locked.
    let me = ledger.owner();
    assert_eq!(ledger.ask(me.id(), after, 1, &Request::Inspect { key: "k".into() }), Reply::Inspected(None));
    assert!(granted(&ledger.ask(me.id(), after, 1, &acquire("k", 1_000))) > first);
    assert_eq!(ledger.rows(), 1, "the dead owner's other lease went too");
    assert!(granted(&ledger.ask(me.id(), after, 1, &acquire("other", 1_000))) > second);
}

#[test]
fn a_lease_of_an_earlier_boot_is_free_and_swept_though_its_owners_file_is_gone() {
    let ledger = Ledger::new();
    let (before, after, me) = (Uuid::new_v4(), Uuid::new_v4(), ledger.owner());
    for key in ["a", "b"] {
        granted(&ledger.ask(Uuid::new_v4(), before, 1_000_000, &acquire(key, 1_000_000)));
    }
    granted(&ledger.ask(me.id(), after, 1, &acquire("a", 1_000)));
    assert_eq!(ledger.rows(), 2);
    ledger.sweep(me.id(), after, 2);
    assert_eq!(ledger.rows(), 1);
}

#[test]
fn what_looks_like_another_boot_is_believed_while_its_owner_lives() {
    let ledger = Ledger::new();
    let (theirs, mine) = (ledger.owner(), ledger.owner());
    let (here, there) = (Uuid::new_v4(), Uuid::new_v4());
    granted(&ledger.ask(theirs.id(), there, 50_000, &acquire("k", 1_000)));
    assert_eq!(busy(&ledger.ask(mine.id(), here, 1, &acquire("k", 1_000))), 1_000_000);
    ledger.sweep(mine.id(), here, 1);
    assert_eq!(ledger.rows(), 1);
    drop(theirs);
    granted(&ledger.ask(mine.id(), here, 1, &acquire("k", 1_000)));
}

#[test]
fn where_boots_have_no_names_a_lease_cannot_outlive_its_ttl_by_a_reboot() {
    let ledger = Ledger::new();
    let (nil, me) = (Uuid::nil(), ledger.owner());
    granted(&ledger.ask(Uuid::new_v4(), nil, 1_000_000, &acquire("k", 1_000)));
    assert_eq!(busy(&ledger.ask(me.id(), nil, 1_000_500, &acquire("k", 1_000))), 500_000);
    // More time is left than the ttl, so the clock began anew.
    granted(&ledger.ask(me.id(), nil, 5, &acquire("k", 1_000)));
}

#[test]
fn where_boots_have_no_names_a_lease_that_was_detached_for_longer_than_its_heir_wants_is_none_of_an_earlier_one()
 {
    let ledger = Ledger::new();
    let (nil, me) = (Uuid::nil(), ledger.owner());
    let (key, token, heir) = (Key::from("k"), Token::random(), Token::random());
    let ttl = |ms| Ttl::from_millis(ms).unwrap();
    let ask = |ms, request| ledger.ask(me.id(), nil, ms, &request);
    granted(&ask(0, Request::Acquire(Ask::new(key.clone(), token, ttl(1_000), "h".into()))));
    ask(1, detach(key.clone(), token, ttl(60_000)));
    let adopt = Request::Adopt {
        key: key.clone(),
        token,
        heir,
        ttl: ttl(1_000),
        holder: "i".into(),
        outlives_process: false,
        // The lease keeps the end of its ticket, as with the adoptions of older versions.
        source: Source::Quorum(Fence(1)),
    };
    assert!(ask(2, adopt).is_adopted());
    ledger.sweep(me.id(), nil, 3);
    let renewed = ask(3, Request::Renew { key, token: heir, ttl: ttl(1_000), fences: 0 });
    assert_eq!(renewed, Reply::Renewed { block: None });
    assert_eq!(busy(&ask(4, acquire("k", 1_000))), 59_997_000);
}

#[test]
fn a_dead_owners_leases_are_free_at_once_and_a_missing_owner_is_believed() {
    let ledger = Ledger::new();
    let (dying, tidied, me) = (ledger.owner(), ledger.owner(), ledger.owner());
    let boot = Uuid::new_v4();
    for i in 0..300 {
        granted(&ledger.ask(dying.id(), boot, 0, &acquire(&format!("d{i}"), 60_000)));
    }
    granted(&ledger.ask(tidied.id(), boot, 0, &acquire("t", 60_000)));
    assert_eq!(busy(&ledger.ask(me.id(), boot, 1, &acquire("d7", 1_000))), 59_999_000);

    drop(dying);
    granted(&ledger.ask(me.id(), boot, 1, &acquire("d7", 1_000)));
    assert_eq!(ledger.rows(), 2, "all its leases are freed together");
    assert_eq!(std::fs::read_dir(&ledger.owners).unwrap().count(), 2, "and its file is gone");

    std::fs::remove_file(ledger.owners.join(tidied.id().to_string())).unwrap();
    drop(tidied);
    assert_eq!(busy(&ledger.ask(me.id(), boot, 59_999, &acquire("t", 1_000))), 1_000);
    granted(&ledger.ask(me.id(), boot, 60_000, &acquire("t", 1_000)));
}

#[test]
fn a_turn_that_may_not_write_tells_the_truth_and_changes_nothing() {
    let ledger = Ledger::new();
    let (dying, me, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    granted(&ledger.ask(dying.id(), boot, 0, &acquire("k", 60_000)));
    drop(dying);
    let reader = Me { owner: me.id(), boot, kernel: &ledger.kernel, owners: &ledger.owners };
    let mut turn = Turn::new(&ledger.connection, reader, Instant::from_micros(1), WALL, false).unwrap();
    assert_eq!(turn.apply(&Request::Inspect { key: "k".into() }).unwrap(), Reply::Inspected(None));
    assert!(turn.finish().unwrap().graves.is_empty());
    assert_eq!(ledger.rows(), 1);
}

#[test]
fn the_sweep_goes_through_all_leases_and_takes_only_those_that_ran_out() {
    let ledger = Ledger::new();
    let (me, boot) = (ledger.owner(), Uuid::new_v4());
    for i in 0..1_000 {
        let ttl = if i % 10 == 0 { 60_000 } else { 10 };
        granted(&ledger.ask(me.id(), boot, 0, &acquire(&format!("k{i}"), ttl)));
    }
    ledger.sweep(me.id(), boot, 9);
    assert_eq!(ledger.rows(), 1_000);
    ledger.sweep(me.id(), boot, 10);
    assert_eq!(ledger.rows(), 100);
}

#[test]
fn an_owner_whose_file_was_lost_hands_its_lease_to_the_new_one_with_the_next_renewal() {
    let ledger = Ledger::new();
    let (old, new, boot) = (ledger.owner(), ledger.owner(), Uuid::new_v4());
    let (token, ttl) = (Token::random(), Ttl::from_millis(60_000).unwrap());
    let acquire_it = Request::Acquire(Ask::new("k".into(), token, ttl, "h".into()));
    granted(&ledger.ask(old.id(), boot, 0, &acquire_it));
    assert_eq!(
        ledger.ask(new.id(), boot, 1, &Request::Renew { key: "k".into(), token, ttl, fences: 0 }),
        Reply::Renewed { block: None }
    );
    drop(new);
    let other = ledger.owner();
    granted(&ledger.ask(other.id(), boot, 2, &acquire("k", 10)));
}

fn acquire_block(key: &str, token: Token) -> Request {
    let ask = Ask::new(key.into(), token, Ttl::from_millis(60_000).unwrap(), "h".into());
    Request::Acquire(Ask { fences: 64, ..ask })
}

#[test]
fn fences_of_one_key_do_not_move_those_of_another_and_unused_ones_are_given_back() {
    let (ledger, boot) = (Ledger::new(), Uuid::new_v4());
    let me = ledger.owner();
    let ask = |request| ledger.ask(me.id(), boot, 0, &request);
    for i in 0..100 {
        let token = Token::random();
        let first = granted(&ask(acquire_block(&format!("k{i}"), token)));
        assert_eq!(first, Fence(WALL), "the others are still held");
    }
    let token = Token::random();
    let first = granted(&ask(acquire_block("k", token)));
    let used = Some(Fence(first.0 + 5));
    assert_eq!(ask(Request::Release { key: "k".into(), token, used }), Reply::Released);
    assert_eq!(granted(&ask(acquire("k", 1_000))), Fence(WALL + 6));
}

/// Each way deletes the rows of a lease.
#[test]
fn fences_grow_past_those_of_a_lease_however_its_row_is_deleted() {
    type Go = fn(&Ledger, Owner, Owner, Uuid);
    let ways: [(&str, Go); 6] = [
        ("its process is gone, and a client asks", |_, dying, _, _| drop(dying)),
        ("its process is gone, and a client asks for another lock", |ledger, dying, me, boot| {
            drop(dying);
            ledger.ask(me.id(), boot, 2, &acquire("bait", 10));
        }),
        ("its store ends", |ledger, ending, _, boot| {
            let me = Me { owner: ending.id(), boot, kernel: &ledger.kernel, owners: &ledger.owners };
            let mut turn =
                Turn::new(&ledger.connection, me, Instant::from_micros(2_000), WALL, true).unwrap();
            turn.retire();
            turn.finish().unwrap();
        }),
        ("the lease ran out, and a sweep deletes it", |ledger, _owner, me, boot| {
            ledger.sweep(me.id(), boot, 60_000)
        }),
        ("the lease ran out, and a read looked first", |ledger, _owner, me, boot| {
            let me = Me { owner: me.id(), boot, kernel: &ledger.kernel, owners: &ledger.owners };
            let now = Instant::from_micros(60_000_000);
            let mut turn = Turn::new(&ledger.connection, me, now, WALL, false).unwrap();
            turn.apply(&Request::Inspect { key: "k".into() }).unwrap();
            turn.finish().unwrap();
        }),
        ("the lease is broken", |ledger, _owner, me, boot| {
            ledger.ask(me.id(), boot, 2, &Request::Break { key: "k".into(), bars_repairs: false });
        }),
    ];
    for (how, go) in ways {
        let (ledger, boot) = (Ledger::new(), Uuid::new_v4());
        let (owner, other, me) = (ledger.owner(), ledger.owner(), ledger.owner());
        granted(&ledger.ask(owner.id(), boot, 0, &acquire_block("k", Token::random())));
        granted(&ledger.ask(owner.id(), boot, 1, &acquire_block("bait", Token::random())));
        go(&ledger, owner, other, boot);
        let next = granted(&ledger.ask(me.id(), boot, 60_001, &acquire("k", 10)));
        assert_eq!(next, Fence(WALL + 64), "{how}");
    }
}

const DAY: u64 = 24 * 60 * 60;

/// Returns the request that detaches a lease of the first fence.
pub fn detach(key: Key, token: Token, ttl: Ttl) -> Request {
    Request::Detach { key, token, ttl, fence: Fence(WALL), own_ttl: ttl }
}

/// A lease that was detached for `ttl` s before a reboot: at WALL, when the boot's clock showed an
/// hour.
pub struct Detached {
    ledger: Ledger,
    me: Owner,
    token: Token,
}

impl Detached {
    pub fn new(boot: Uuid, ttl: u64) -> Self {
        let ledger = Ledger::new();
        let (me, token) = (ledger.owner(), Token::random());
        let detached = Self { ledger, me, token };
        let ttl = Ttl::from_millis(ttl as u32 * 1000).unwrap();
        detached.ask(boot, 3_600, 0, Request::Acquire(Ask::new("k".into(), token, Ttl::MIN, "h".into())));
        let reply = detached.ask(boot, 3_600, 0, detach("k".into(), token, ttl));
        assert_eq!(reply, Reply::Renewed { block: None });
        detached
    }

    /// Asks while the boot's clock shows `shown` s, and the wall clock `wall` s after WALL.
    fn ask(&self, boot: Uuid, shown: u64, wall: i64, request: Request) -> Reply {
        let wall = WALL.saturating_add_signed(wall * 1_000_000);
        let (mut answers, _) = self.ledger.turn_at(self.me.id(), boot, shown * 1000, wall, &[request]);
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
    let (after, heir, ttl) = (Uuid::new_v4(), Token::random(), Ttl::from_millis(10_000).unwrap());
    let token = lease.token;
    let adopt = Request::Adopt {
        key: "k".into(),
        token,
        heir,
        ttl,
        holder: "i".into(),
        outlives_process: false,
        source: Source::Ticket { fence: Fence(1), with_ttl: false },
    };
    assert!(lease.ask(after, 5, 60, adopt).is_adopted());
    let release = Request::Release { key: "k".into(), token: heir, used: None };
    assert_eq!(lease.ask(after, 6, 61, release), Reply::Released);
    assert_eq!(lease.ledger.rows(), 0);
}

#[test]
fn a_read_shows_a_lease_that_outlives_the_boot_and_only_a_write_starts_its_ttl() {
    let (lease, after) = (Detached::new(Uuid::new_v4(), 600), Uuid::new_v4());
    for shown in [10, 20] {
        let me = Me {
            owner: lease.me.id(),
            boot: after,
            kernel: &lease.ledger.kernel,
            owners: &lease.ledger.owners,
        };
        let now = Instant::from_micros(shown * 1_000_000);
        let mut turn = Turn::new(&lease.ledger.connection, me, now, WALL, false).unwrap();
        let Reply::Inspected(Some(info)) = turn.apply(&Request::Inspect { key: "k".into() }).unwrap() else {
            panic!("the lease is held")
        };
        assert_eq!(info.leases[0].remaining, Some(Duration::from_secs(600)));
        turn.finish().unwrap();
    }
    lease.ledger.sweep(lease.me.id(), after, 30_000);
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
    // More time is left than the ttl, so the clock began anew.
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
    let Detached { ledger, me, .. } = lease;
    drop(me);
    granted(&ledger.ask(ledger.owner().id(), after, 5_000, &acquire("k", 10)));
}
