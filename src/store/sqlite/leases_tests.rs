//! Tests the rules on rows at chosen instants, boots and owners.

use super::super::super::AcquireRequest;
use super::super::kernel::Kernel;
use super::super::owner::Owner;
use super::super::owners;
use super::super::schema;
use super::detached_tests::detach;
use super::*;
use crate::lease::Ttl;
use crate::store::Source;

pub const WALL: u64 = 1_700_000_000_000_000;

/// A lock file in memory, with a real directory for the owners' files.
pub struct TestDatabase {
    pub connection: Connection,
    pub kernel: Kernel,
    pub owners: std::path::PathBuf,
}

impl TestDatabase {
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

    /// Runs a transaction of one request. Returns the reply.
    pub fn ask(&self, owner: Uuid, boot: Uuid, ms: u64, request: &Request) -> Reply {
        let (mut answers, _) = self.transaction(owner, boot, ms, std::slice::from_ref(request));
        answers.pop().unwrap().unwrap()
    }

    /// Runs a transaction. Returns the answers, and the numbers of the waiters that were handed
    /// leases.
    pub fn transaction(
        &self,
        owner: Uuid,
        boot: Uuid,
        ms: u64,
        batch: &[Request],
    ) -> (Vec<Answer>, Vec<u64>) {
        self.transaction_at(owner, boot, ms, WALL, batch)
    }

    /// Runs a transaction while the wall clock shows `wall` µs.
    pub fn transaction_at(
        &self,
        owner: Uuid,
        boot: Uuid,
        ms: u64,
        wall: u64,
        batch: &[Request],
    ) -> (Vec<Answer>, Vec<u64>) {
        let me = ThisStore { owner, boot, kernel: &self.kernel, owners: &self.owners };
        let mut transaction =
            Transaction::new(&self.connection, me, Instant::from_micros(ms * 1000), wall, true).unwrap();
        let answers = transaction.batch(batch).unwrap();
        let AfterCommit { handed, dead_owner_files } = transaction.finish().unwrap();
        for (id, handle) in dead_owner_files {
            owners::remove_dead_owner(&self.owners, id, handle);
        }
        (answers, handed.into_iter().map(|handed| handed.number).collect())
    }

    pub fn rows(&self) -> i64 {
        let rows = "SELECT (SELECT count(*) FROM leases) + (SELECT count(*) FROM waiters)";
        self.connection.query_row(rows, [], |row| row.get(0)).unwrap()
    }

    pub fn sweep(&self, owner: Uuid, boot: Uuid, ms: u64) {
        let me = ThisStore { owner, boot, kernel: &self.kernel, owners: &self.owners };
        let mut transaction =
            Transaction::new(&self.connection, me, Instant::from_micros(ms * 1000), WALL, true).unwrap();
        let mut after = Cursor::default();
        loop {
            after = transaction.sweep(&after).unwrap();
            if after == Cursor::default() {
                break;
            }
        }
        transaction.finish().unwrap();
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.owners);
    }
}

pub fn acquire(key: &str, ttl: u32) -> Request {
    let ttl = Ttl::from_millis(ttl).unwrap();
    Request::Acquire(AcquireRequest::new(key.into(), Token::random(), ttl, "h".into()))
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
    let database = TestDatabase::new();
    let (a, b, boot) = (database.owner(), database.owner(), Uuid::new_v4());
    let at = |owner: &Owner, us, wall| {
        let me = ThisStore { owner: owner.id(), boot, kernel: &database.kernel, owners: &database.owners };
        let mut transaction =
            Transaction::new(&database.connection, me, Instant::from_micros(us), wall, true).unwrap();
        let reply = transaction.apply(&acquire("k", 10)).unwrap();
        transaction.finish().unwrap();
        reply
    };
    let first = granted(&at(&a, 5, WALL));
    // A wall clock that jumps by a year, or back to 1970, frees nothing early and holds nothing
    // longer.
    assert_eq!(busy(&at(&b, 10_004, WALL + 31_536_000_000_000)), 1);
    assert_eq!(busy(&at(&b, 10_004, 0)), 1);
    assert!(granted(&at(&b, 10_005, 0)) > first);
}

#[test]
fn every_lease_of_an_earlier_boot_is_free_and_fences_grow_on() {
    let database = TestDatabase::new();
    let (before, after) = (Uuid::new_v4(), Uuid::new_v4());
    let owner = database.owner();
    let id = owner.id();
    let first = granted(&database.ask(id, before, 1_000_000, &acquire("k", 1_000_000)));
    let second = granted(&database.ask(id, before, 1_000_000, &acquire("other", 1_000_000)));
    drop(owner);
    // The machine starts again, and so does its clock. The files are there, but no process has them
    // locked.
    let me = database.owner();
    assert_eq!(
        database.ask(me.id(), after, 1, &Request::Inspect { key: "k".into() }),
        Reply::Inspected(None)
    );
    assert!(granted(&database.ask(me.id(), after, 1, &acquire("k", 1_000))) > first);
    assert_eq!(database.rows(), 1, "the dead owner's other lease is gone, too");
    assert!(granted(&database.ask(me.id(), after, 1, &acquire("other", 1_000))) > second);
}

#[test]
fn a_lease_of_an_earlier_boot_is_free_and_swept_though_its_owners_file_is_gone() {
    let database = TestDatabase::new();
    let (before, after, me) = (Uuid::new_v4(), Uuid::new_v4(), database.owner());
    for key in ["a", "b"] {
        granted(&database.ask(Uuid::new_v4(), before, 1_000_000, &acquire(key, 1_000_000)));
    }
    granted(&database.ask(me.id(), after, 1, &acquire("a", 1_000)));
    assert_eq!(database.rows(), 2);
    database.sweep(me.id(), after, 2);
    assert_eq!(database.rows(), 1);
}

#[test]
fn a_lease_that_seems_to_be_of_another_boot_counts_while_its_owner_lives() {
    let database = TestDatabase::new();
    let (theirs, mine) = (database.owner(), database.owner());
    let (here, there) = (Uuid::new_v4(), Uuid::new_v4());
    granted(&database.ask(theirs.id(), there, 50_000, &acquire("k", 1_000)));
    assert_eq!(busy(&database.ask(mine.id(), here, 1, &acquire("k", 1_000))), 1_000_000);
    database.sweep(mine.id(), here, 1);
    assert_eq!(database.rows(), 1);
    drop(theirs);
    granted(&database.ask(mine.id(), here, 1, &acquire("k", 1_000)));
}

#[test]
fn without_boot_ids_a_reboot_does_not_prolong_a_lease_beyond_its_ttl() {
    let database = TestDatabase::new();
    let (nil, me) = (Uuid::nil(), database.owner());
    granted(&database.ask(Uuid::new_v4(), nil, 1_000_000, &acquire("k", 1_000)));
    assert_eq!(busy(&database.ask(me.id(), nil, 1_000_500, &acquire("k", 1_000))), 500_000);
    // More time is left than the ttl, so the clock began again.
    granted(&database.ask(me.id(), nil, 5, &acquire("k", 1_000)));
}

#[test]
fn without_boot_ids_an_adopted_lease_that_ends_after_its_adopters_ttl_is_of_this_boot() {
    let database = TestDatabase::new();
    let (nil, me) = (Uuid::nil(), database.owner());
    let (key, token, adopter) = (Key::from("k"), Token::random(), Token::random());
    let ttl = |ms| Ttl::from_millis(ms).unwrap();
    let ask = |ms, request| database.ask(me.id(), nil, ms, &request);
    granted(&ask(0, Request::Acquire(AcquireRequest::new(key.clone(), token, ttl(1_000), "h".into()))));
    ask(1, detach(key.clone(), token, ttl(60_000)));
    let adopt = Request::Adopt {
        key: key.clone(),
        token,
        adopter,
        ttl: ttl(1_000),
        holder: "i".into(),
        outlives_process: false,
        // The lease keeps the end of its ticket, as with the adoptions of older versions.
        source: Source::Quorum(Fence(1)),
    };
    assert!(ask(2, adopt).is_adopted());
    database.sweep(me.id(), nil, 3);
    let renewed = ask(3, Request::Renew { key, token: adopter, ttl: ttl(1_000), fences: 0 });
    assert_eq!(renewed, Reply::Renewed { block: None });
    assert_eq!(busy(&ask(4, acquire("k", 1_000))), 59_997_000);
}

#[test]
fn leases_of_a_dead_owner_are_free_at_once_and_those_of_a_missing_owner_count() {
    let database = TestDatabase::new();
    let (dying, tidied, me) = (database.owner(), database.owner(), database.owner());
    let boot = Uuid::new_v4();
    for i in 0..300 {
        granted(&database.ask(dying.id(), boot, 0, &acquire(&format!("d{i}"), 60_000)));
    }
    granted(&database.ask(tidied.id(), boot, 0, &acquire("t", 60_000)));
    assert_eq!(busy(&database.ask(me.id(), boot, 1, &acquire("d7", 1_000))), 59_999_000);

    drop(dying);
    granted(&database.ask(me.id(), boot, 1, &acquire("d7", 1_000)));
    assert_eq!(database.rows(), 2, "all its leases are freed together");
    assert_eq!(std::fs::read_dir(&database.owners).unwrap().count(), 2, "and its file is gone");

    std::fs::remove_file(database.owners.join(tidied.id().to_string())).unwrap();
    drop(tidied);
    assert_eq!(busy(&database.ask(me.id(), boot, 59_999, &acquire("t", 1_000))), 1_000);
    granted(&database.ask(me.id(), boot, 60_000, &acquire("t", 1_000)));
}

#[test]
fn a_transaction_that_may_not_write_shows_what_is_true_and_changes_nothing() {
    let database = TestDatabase::new();
    let (dying, me, boot) = (database.owner(), database.owner(), Uuid::new_v4());
    granted(&database.ask(dying.id(), boot, 0, &acquire("k", 60_000)));
    drop(dying);
    let reader = ThisStore { owner: me.id(), boot, kernel: &database.kernel, owners: &database.owners };
    let mut transaction =
        Transaction::new(&database.connection, reader, Instant::from_micros(1), WALL, false).unwrap();
    assert_eq!(transaction.apply(&Request::Inspect { key: "k".into() }).unwrap(), Reply::Inspected(None));
    assert!(transaction.finish().unwrap().dead_owner_files.is_empty());
    assert_eq!(database.rows(), 1);
}

#[test]
fn the_sweep_checks_all_leases_and_ends_only_those_that_ran_out() {
    let database = TestDatabase::new();
    let (me, boot) = (database.owner(), Uuid::new_v4());
    for i in 0..1_000 {
        let ttl = if i % 10 == 0 { 60_000 } else { 10 };
        granted(&database.ask(me.id(), boot, 0, &acquire(&format!("k{i}"), ttl)));
    }
    database.sweep(me.id(), boot, 9);
    assert_eq!(database.rows(), 1_000);
    database.sweep(me.id(), boot, 10);
    assert_eq!(database.rows(), 100);
}

#[test]
fn the_next_renewal_gives_a_lease_of_a_lost_owner_file_to_the_new_owner() {
    let database = TestDatabase::new();
    let (old, new, boot) = (database.owner(), database.owner(), Uuid::new_v4());
    let (token, ttl) = (Token::random(), Ttl::from_millis(60_000).unwrap());
    let acquire_it = Request::Acquire(AcquireRequest::new("k".into(), token, ttl, "h".into()));
    granted(&database.ask(old.id(), boot, 0, &acquire_it));
    assert_eq!(
        database.ask(new.id(), boot, 1, &Request::Renew { key: "k".into(), token, ttl, fences: 0 }),
        Reply::Renewed { block: None }
    );
    drop(new);
    let other = database.owner();
    granted(&database.ask(other.id(), boot, 2, &acquire("k", 10)));
}

fn acquire_block(key: &str, token: Token) -> Request {
    let ask = AcquireRequest::new(key.into(), token, Ttl::from_millis(60_000).unwrap(), "h".into());
    Request::Acquire(AcquireRequest { fences: 64, ..ask })
}

#[test]
fn fences_of_one_key_do_not_move_those_of_another_and_unused_ones_are_given_back() {
    let (database, boot) = (TestDatabase::new(), Uuid::new_v4());
    let me = database.owner();
    let ask = |request| database.ask(me.id(), boot, 0, &request);
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

/// Tests each way in which the rows of a lease are deleted.
#[test]
fn fences_grow_past_those_of_a_lease_however_its_row_is_deleted() {
    type Go = fn(&TestDatabase, Owner, Owner, Uuid);
    let ways: [(&str, Go); 6] = [
        ("its process is gone, and a client asks", |_, dying, _, _| drop(dying)),
        ("its process is gone, and a client asks for another lock", |database, dying, me, boot| {
            drop(dying);
            database.ask(me.id(), boot, 2, &acquire("bait", 10));
        }),
        ("its store ends", |database, ending, _, boot| {
            let me =
                ThisStore { owner: ending.id(), boot, kernel: &database.kernel, owners: &database.owners };
            let mut transaction =
                Transaction::new(&database.connection, me, Instant::from_micros(2_000), WALL, true).unwrap();
            transaction.retire();
            transaction.finish().unwrap();
        }),
        ("the lease ran out, and a sweep deletes it", |database, _owner, me, boot| {
            database.sweep(me.id(), boot, 60_000)
        }),
        ("the lease ran out, and a read looked first", |database, _owner, me, boot| {
            let me = ThisStore { owner: me.id(), boot, kernel: &database.kernel, owners: &database.owners };
            let now = Instant::from_micros(60_000_000);
            let mut transaction = Transaction::new(&database.connection, me, now, WALL, false).unwrap();
            transaction.apply(&Request::Inspect { key: "k".into() }).unwrap();
            transaction.finish().unwrap();
        }),
        ("the lease is broken", |database, _owner, me, boot| {
            database.ask(me.id(), boot, 2, &Request::Break { key: "k".into(), bars_repairs: false });
        }),
    ];
    for (how, go) in ways {
        let (database, boot) = (TestDatabase::new(), Uuid::new_v4());
        let (owner, other, me) = (database.owner(), database.owner(), database.owner());
        granted(&database.ask(owner.id(), boot, 0, &acquire_block("k", Token::random())));
        granted(&database.ask(owner.id(), boot, 1, &acquire_block("bait", Token::random())));
        go(&database, owner, other, boot);
        let next = granted(&database.ask(me.id(), boot, 60_001, &acquire("k", 10)));
        assert_eq!(next, Fence(WALL + 64), "{how}");
    }
}
